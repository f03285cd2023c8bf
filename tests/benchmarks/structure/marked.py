"""Markdown, rendered by markdown-it and by pandoc."""

import shutil
import subprocess
from collections.abc import Iterator

from markdown_it import MarkdownIt

from tests.benchmarks.structure import formulas
from tests.benchmarks.structure.article import Wants, article
from tests.benchmarks.structure.as_text import Markdown
from tests.benchmarks.structure.case import Case
from tests.benchmarks.structure.sites import Site

SCRIPTS = ("Latin", "Cyrillic", "Greek", "Han")
MATHS = ("--mathjax", "--mathml", "--katex", "--webtex=https://latex.example/?", "")


def markdown_it_pages(seeds: range) -> Iterator[Case]:
    wants = Wants(
        parts=("code", "table", "list"), kinds=("ul", "1"), jumps=False, starts=False, spans=False, headerless=False
    )
    markdown = MarkdownIt("commonmark").enable("table")
    for seed in seeds:
        for script in SCRIPTS:
            one = article(seed, script, wants)
            body = markdown.render(Markdown(pandoc=False).write(one).split("\n", 1)[1])
            yield Case("markdown-it", f"{script} {seed}", Site(seed, script).page(one.title, body), one)


def pandoc() -> str | None:
    """The program on the PATH, or that of pypandoc_binary."""
    try:
        from pypandoc import get_pandoc_path
    except ImportError:
        return shutil.which("pandoc")
    return get_pandoc_path()


def pandoc_pages(seeds: range, program: str) -> Iterator[Case]:
    """Each way of writing formulas in turn; every other page within a site, the others as pandoc writes them."""
    for seed in seeds:
        for i, script in enumerate(SCRIPTS):
            math = MATHS[(seed + i) % len(MATHS)]
            # without a method of its own for formulas pandoc has only italics, sup and sub
            formula = formulas.any_formula if math else formulas.scripts
            # a grid table needs characters of one width
            wants = Wants(jumps=False, starts=False, formula=formula, spans=script != "Han")
            one = article(seed, script, wants)
            source = Markdown(pandoc=True, lineno=seed % 2 == 0).write(one).split("\n", 1)[1]
            whole = (seed + i) % 2 == 0
            command = [program, "-f", "markdown", "-t", "html", "--preserve-tabs", "--wrap=none", *filter(None, [math])]
            command += ["-s", "--metadata", f"title={one.title}"] if whole else []
            page = subprocess.run(command, input=source, capture_output=True, check=True, encoding="utf-8").stdout
            page = page if whole else Site(seed, script).page(one.title, page)
            yield Case("pandoc", f"{script} {seed} {math or 'plain'}", page, one, math not in ("", "--mathml"))
