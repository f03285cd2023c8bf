"""reStructuredText, rendered by docutils and by Sphinx."""

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.structure import formulas
from tests.benchmarks.structure.article import Article, Wants, article
from tests.benchmarks.structure.as_text import Rst
from tests.benchmarks.structure.case import Case
from tests.benchmarks.structure.sites import Site

SCRIPTS = ("Latin", "Cyrillic", "Greek")
# reStructuredText has no `value`; docutils reads tabs as spaces
LANGUAGES = ("python", "javascript", "c", "bash", "html", "json", "yaml", "text", "pycon")
MATHS = ("MathJax", "MathML", "LaTeX", "HTML")
THEMES = ("alabaster", "classic", "sphinxdoc", "nature", "bizstyle", "haiku", "scrolls", "pyramid", "agogo")


def docutils_pages(seeds: range) -> Iterator[Case]:
    """Each way of writing formulas in turn; every other page within a site, the others as docutils writes them."""
    from docutils.core import publish_parts

    for seed in seeds:
        for i, script in enumerate(SCRIPTS):
            math = MATHS[(seed + i) % len(MATHS)]
            latex = math in ("MathJax", "LaTeX")
            formula = formulas.linear if latex else formulas.scripts if math == "HTML" else formulas.linear
            one = article(seed, script, Wants(jumps=False, starts=False, languages=LANGUAGES, formula=formula))
            settings = {
                "math_output": f"{math} https://cdn.example/mathjax.js" if math == "MathJax" else math,
                "embed_stylesheet": False,
                "stylesheet_path": "",
                "report_level": 4,
                "input_encoding": "unicode",
                "output_encoding": "unicode",
                "warning_stream": False,
            }
            source = Rst(sphinx=False, lineno=seed % 2 == 0).write(one)
            parts = publish_parts(source, writer="html5", settings_overrides=settings)
            page = parts["whole"]
            if (seed + i) % 2:
                page = Site(seed, script).page(one.title, parts["fragment"])
            yield Case("docutils", f"{script} {seed} {math}", page, one, latex, typed=False)


def sphinx_pages(seeds: range, folder: Path) -> Iterator[Case]:
    """One project for each of nine themes, some with line numbers everywhere."""
    from sphinx.application import Sphinx

    projects: dict[str, dict[str, Article]] = {}
    wants = Wants(
        parts=("code", "table", "list", "definitions", "formula", "signature"),
        jumps=False,
        starts=False,
        languages=LANGUAGES,
        formula=formulas.linear,
        sections=6,
    )
    for seed in seeds:
        for i, script in enumerate(SCRIPTS):
            theme = THEMES[(3 * seed + i) % len(THEMES)]
            projects.setdefault(theme, {})[f"{script.lower()}{seed}"] = article(seed, script, wants)
    for number, (theme, articles) in enumerate(sorted(projects.items())):
        source, built = folder / theme / "source", folder / theme / "html"
        source.mkdir(parents=True)
        for name, one in articles.items():
            (source / f"{name}.rst").write_text(Rst(sphinx=True, lineno=number % 2 == 0).write(one), encoding="utf-8")
        names = "\n".join(f"   {name}" for name in articles)
        (source / "index.rst").write_text(f"Index\n=====\n\n.. toctree::\n\n{names}\n", encoding="utf-8")
        settings = {
            "html_theme": theme,
            "extensions": ["sphinx.ext.mathjax"],
            "html_codeblock_linenos_style": "table" if number % 4 == 0 else "inline",
            "project": "Mill",
            "smartquotes": False,
        }
        Sphinx(source, None, built, built / "doctrees", "html", settings, status=None, warning=None, parallel=0).build()
        for name, one in articles.items():
            yield Case(
                "Sphinx", f"{name} {theme}", (built / f"{name}.html").read_text(encoding="utf-8"), one, typed=False
            )
