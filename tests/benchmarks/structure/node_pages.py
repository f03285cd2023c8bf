"""Formulas by KaTeX and MathJax 2 and 3, code by highlight.js and Prism: what these leave in a page that ran them."""

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks.structure import as_html, formulas
from tests.benchmarks.structure.article import Article, Code, Formula, Wants, article
from tests.benchmarks.structure.case import Case
from tests.benchmarks.structure.sites import Site

SCRIPTS = ("Latin", "Han")
# the renderers of render.js, by family; those without the source of their formulas
FAMILIES = {
    "KaTeX": ("katex", "katex", "katex mathml"),
    "KaTeX html": ("katex html",),
    "MathJax 2": ("mathjax2 html", "mathjax2 svg", "mathjax2 mml"),
    "MathJax 3": ("mathjax3 chtml", "mathjax3 svg"),
    "highlight.js": ("highlight.js",),
    "Prism": ("prism", "prism lines"),
}
WITHOUT_SOURCE = ("katex html", "mathjax2 mml", "mathjax3 chtml", "mathjax3 svg")
Job = tuple[str, str, bool | str]


def pages(family: str, seeds: range, modules: Path) -> Iterator[Case]:
    """All formulas or programs of a family are rendered by one process; modules: a folder node_modules."""
    drawn: list[tuple[str, int, str, Article]] = []
    for seed in seeds:
        for i, script in enumerate(SCRIPTS):
            renderer = FAMILIES[family][(seed + i) % len(FAMILIES[family])]
            coded = family in ("highlight.js", "Prism")
            formula = formulas.linear if renderer in WITHOUT_SOURCE else formulas.any_formula
            wants = Wants(parts=("code",) * 2 if coded else ("formula",) * 3, formula=formula)
            drawn.append((renderer, seed, script, article(seed, script, wants)))
    jobs: list[Job] = []
    for renderer, seed, script, one in drawn:
        _body(renderer, seed, script, one, lambda job: jobs.append(job) or "")
    rendered = iter(_render(jobs, modules))
    for renderer, seed, script, one in drawn:
        body = _body(renderer, seed, script, one, lambda job: next(rendered))
        page = Site(seed, script).page(one.title, body)
        yield Case(family, f"{script} {seed} {renderer}", page, one, renderer not in WITHOUT_SOURCE)


def _body(renderer: str, seed: int, script: str, one: Article, render: Callable[[Job], str]) -> str:
    def code(part: Code) -> str:
        return render((renderer, "\n".join(part.lines), part.language))

    def formula(part: Formula) -> str:
        text = render((renderer, part.latex, part.display))
        return f"<p>{text}</p>" if part.display else text

    return as_html.write(one, random.Random(f"shapes {seed} {script}"), code=code, formula=formula)


def _render(jobs: list[Job], modules: Path) -> list[str]:
    command = ["node", str(Path(__file__).with_name("render.js")), str(modules)]
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, encoding="utf-8")
    if done.returncode:
        raise ValueError(
            f"{modules} lacks a package or its renderer failed, install what render.js loads: {done.stderr}"
        )
    return json.loads(done.stdout)
