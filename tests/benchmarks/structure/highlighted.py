"""Code by Pygments, in all shapes of its HtmlFormatter."""

import random
from collections.abc import Iterator

from tests.benchmarks.structure import as_html
from tests.benchmarks.structure.article import Code, Wants, article
from tests.benchmarks.structure.case import Case
from tests.benchmarks.structure.sites import Site

SCRIPTS = ("Latin", "Han")
SHAPES: tuple[dict, ...] = (
    {},
    {"linenos": "inline"},
    {"linenos": "table"},
    {"linespans": "line"},
    {"linenos": "table", "lineanchors": "a", "anchorlinenos": True},
    {"linenos": "inline", "lineanchors": "a", "anchorlinenos": True},
    {"linenos": "inline", "linenospecial": 5, "hl_lines": [2, 3]},
    {"noclasses": True, "linenos": "inline"},
    {"wrapcode": True, "filename": None},
    {"nobackground": True, "linenos": "table", "linenostart": 98},
)


def pages(seeds: range) -> Iterator[Case]:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    wants = Wants(parts=("code", "code", "code"))
    for seed in seeds:
        for i, script in enumerate(SCRIPTS):
            shape = SHAPES[(2 * seed + i) % len(SHAPES)]
            formatter = HtmlFormatter(**shape)

            def code(part: Code, formatter: HtmlFormatter = formatter) -> str:
                lexer = get_lexer_by_name(part.language)
                return highlight("\n".join(part.lines), lexer, formatter)

            one = article(seed, script, wants)
            body = as_html.write(one, random.Random(f"shapes {seed} {script}"), code=code)
            name = f"{script} {seed} {shape}"
            yield Case("Pygments", name, Site(seed, script).page(one.title, body), one)
