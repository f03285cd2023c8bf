"""Whole pages in ten scripts, of which layout and markup are drawn."""

import random
from collections.abc import Iterator

from tests.benchmarks.structure import as_html, formulas
from tests.benchmarks.structure.article import Wants, article
from tests.benchmarks.structure.case import Case
from tests.benchmarks.structure.formula_shapes import superscripts
from tests.benchmarks.structure.sites import Site
from tests.benchmarks.structure.words import SCRIPTS


def pages(seeds: range) -> Iterator[Case]:
    for seed in seeds:
        for script in SCRIPTS:
            draw = random.Random(f"shapes {seed} {script}")
            # a page that writes formulas with sup and sub has no LaTeX
            raised = draw.random() < 0.2
            one = article(seed, script, Wants(formula=formulas.scripts if raised else formulas.any_formula, sections=6))
            body = as_html.write(one, draw, formula=superscripts if raised else None)
            yield Case("generator", f"{script} {seed}", Site(seed, script).page(one.title, body), one, not raised)
