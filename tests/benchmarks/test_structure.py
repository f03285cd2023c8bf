"""What the engines keep of a page's structure, beside its source: one table of all engines by renderer.

Renderers that need Node are found in the folder node_modules that GRISTMILL_TEST_NODE_MODULES names, where
`npm install katex mathjax-full@3 mathjax-node highlight.js prismjs` was run. GRISTMILL_TEST_STRUCTURE_SEED is the first
seed, 0 by default: on pages of other seeds nothing was looked at.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trafilatura

from gristmill.tasks.extraction.classifier import main_text
from gristmill.tasks.extraction.engines import ENGINES
from tests.benchmarks.structure import generated, highlighted, marked, node_pages, restructured
from tests.benchmarks.structure.case import Case
from tests.benchmarks.structure.scorer import MEASURES, judge

FAMILIES = ("generator", "docutils", "Sphinx", "markdown-it", "pandoc", "Pygments", *node_pages.FAMILIES)
# without MathML and without the source a page of KaTeX has signs in an order of their own: in a column, in no total
APART = ("KaTeX html",)
# the share that our engine keeps at least, on pages of any renderer, and never less than trafilatura
LEAST = {"cells": 0.99, "headings": 0.95, "code lines": 0.98, "formulas": 0.95}
SEEDS = 6


def default_trafilatura(page):
    return trafilatura.extract(page) or ""


def markdown_of_trafilatura(page):
    return trafilatura.extract(page, output_format="markdown") or ""


# name: the engine, and whether it writes Markdown
COMPARED = {
    "blocks": (main_text, False),
    "blocks, markdown": (partial(main_text, markdown=True), True),
    "trafilatura()": (default_trafilatura, False),
    "  markdown": (markdown_of_trafilatura, True),
    **{name: (engine.read, False) for name, engine in ENGINES.items() if name != "blocks"},
}


def pages(family: str, seeds: range, folder: Path) -> Iterator[Case]:
    match family:
        case "generator":
            return generated.pages(seeds)
        case "docutils":
            pytest.importorskip("docutils")
            return restructured.docutils_pages(seeds)
        case "Sphinx":
            pytest.importorskip("sphinx")
            return restructured.sphinx_pages(seeds, folder)
        case "markdown-it":
            return marked.markdown_it_pages(seeds)
        case "pandoc":
            program = marked.pandoc()
            if not program:
                pytest.skip("no pandoc on the PATH, and pypandoc_binary is not installed")
            return marked.pandoc_pages(seeds, program)
        case "Pygments":
            pytest.importorskip("pygments")
            return highlighted.pages(seeds)
    if "GRISTMILL_TEST_NODE_MODULES" not in os.environ or not shutil.which("node"):
        pytest.skip("GRISTMILL_TEST_NODE_MODULES names no folder node_modules, or there is no node on the PATH")
    return node_pages.pages(family, seeds, Path(os.environ["GRISTMILL_TEST_NODE_MODULES"]))


@pytest.fixture(scope="module")
def table(request):
    """Scores by measure, engine and family: (right, all). Printed when the last family is done."""
    found = defaultdict(lambda: [0, 0])
    yield found
    capture = request.config.pluginmanager.getplugin("capturemanager")
    families = [family for family in FAMILIES if any(key[2] == family for key in found)]
    with capture.global_and_fixture_disabled():
        for measure in MEASURES:
            having = [family for family in families if (measure, "blocks", family) in found]
            if not having:
                continue
            print(f"\n\n{measure:18}" + "".join(f"{family:>13}" for family in having) + f"{'all':>9}", end="")
            for engine in COMPARED:
                cells = [found[measure, engine, family] for family in having]
                added = [found[measure, engine, family] for family in having if family not in APART]
                right, count = (sum(cell[i] for cell in added) for i in (0, 1))
                row = "".join(f"{r / n:13.3f}" for r, n in cells)
                print(f"\n{engine:18}{row}{right / max(count, 1):9.3f}", end="")
            counts = "".join(f"{found[measure, 'blocks', family][1]:13}" for family in having)
            print(f"\n{'  how many':18}{counts}", end="")
        print()


@pytest.mark.bench
@pytest.mark.parametrize("family", FAMILIES)
def test_structure(family, table, tmp_path):
    first = int(os.environ.get("GRISTMILL_TEST_STRUCTURE_SEED", 0))
    cases = list(pages(family, range(first, first + SEEDS), tmp_path))
    assert cases
    for name, (engine, markdown) in COMPARED.items():
        for case in cases:
            for finding in judge(engine(case.html), case, markdown):
                score = table[finding.measure, name, family]
                score[0] += finding.right
                score[1] += 1
    for ours, theirs in (("blocks", "trafilatura()"), ("blocks, markdown", "  markdown")):
        for measure, least in LEAST.items():
            if (measure, ours, family) in table:
                (right, count), (other, _) = table[measure, ours, family], table[measure, theirs, family]
                assert right >= other, f"{ours}: {right} of {count} {measure}, {theirs.strip()}: {other}"
                assert family in APART or right >= least * count, f"{ours}: {right} of {count} {measure}"
