"""The measures of structure: a text that has all of an article scores fully, and each planted defect costs its own."""

from collections import Counter

import pytest

from tests.benchmarks.structure.article import (
    Article,
    Cell,
    Code,
    Definitions,
    Formula,
    Heading,
    Item,
    List,
    Paragraph,
    Table,
)
from tests.benchmarks.structure.case import Case
from tests.benchmarks.structure.scorer import judge

ROWS = (
    (Cell(""), Cell("Wheat"), Cell("Barley")),
    (Cell("Old mill", rows=2), Cell("12.5"), Cell("")),
    (Cell("7.0"), Cell("8.25")),
    (Cell("Whole valley", columns=3),),
)
ARTICLE = Article(
    "Latin",
    "Mills of the valley",
    (
        Paragraph(("The river turns the wheels.",)),
        Heading(2, "What they grind"),
        Table(ROWS, 1),
        Paragraph(("The power of a wheel is", Formula(r"P = \frac{m}{s^{2}}", False), "as everybody knows.")),
        Heading(2, "How to count sacks"),
        Code(("for sack in sacks:", "    count += 1", "", "print(count)"), "python"),
        List("a", (Item("Weigh the grain"), Item("Mark the sack", 5, List("ul", (Item("with chalk"),))))),
        Definitions((("Hopper", "Where the grain goes in."),)),
    ),
)
PLAIN = r"""Mills of the valley

The river turns the wheels.

What they grind

|  | Wheat | Barley |
| Old mill | 12.5 |  |
|  | 7.0 | 8.25 |
| Whole valley |  |  |

The power of a wheel is $P = \frac{m}{s^{2}}$ as everybody knows.

How to count sacks

for sack in sacks:
    count += 1

print(count)

a. Weigh the grain
e. Mark the sack
   - with chalk

Hopper
: Where the grain goes in.
"""
MARKDOWN = (
    PLAIN.replace("Mills of", "# Mills of")
    .replace("What they grind", "## What they grind")
    .replace("| Barley |\n", "| Barley |\n|---|---|---|\n")
    .replace("How to", "## How to")
    .replace("for sack", "```\nfor sack")
    .replace("print(count)", "print(count)\n```")
)
DEFECTS = {
    "a cell is missing": ("12.5 |  |", "12.5 |", {"cells": 1}),
    "a covered cell is missing": ("|  | 7.0", "| 7.0", {"cells": 3}),
    "a row is missing": ("|  | 7.0 | 8.25 |\n", "", {"cells": 3}),
    "a headline is missing": ("Mills of the valley\n", "\n", {"headings": 1}),
    "a heading is elsewhere": ("How to count sacks\n", "How to count sacks\n\nMore\n", {"headings": 1}),
    "a line is indented otherwise": ("    count", "  count", {"code lines": 1}),
    "a blank line is missing": ("1\n\nprint", "1\nprint", {"code lines": 1}),
    "there are line numbers": ("print(count)", "4 print(count)", {"code lines": 1}),
    "a formula is there twice": (r"$P = \frac", r"P=m/s2 $P = \frac", {"formulas": 1}),
    "a formula lost a power": ("s^{2}", "s2", {"formulas": 1}),
    "a label is missing": ("e. Mark", "- Mark", {"items": 1}),
    "a list is flat": ("   - with", "- with", {"items": 1}),
    "a term is missing": ("Hopper\n", "", {"definitions": 1}),
    "a paragraph is in a row": ("The river turns the wheels.", "| The river turns the wheels. |", {"paragraphs": 1}),
}


def wrong(text, markdown=False, latex=True):
    found = list(judge(text, Case("test", "test", "", ARTICLE, latex), markdown))
    assert len(found) == 3 + 12 + 4 + 1 + 3 + 1 + 1
    return Counter(finding.measure for finding in found if not finding.right)


def test_a_faithful_text_scores_fully():
    assert wrong(PLAIN) == {}
    assert wrong(MARKDOWN, markdown=True) == {}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_costs_its_own(defect):
    old, new, costs = DEFECTS[defect]
    assert PLAIN.count(old) == 1
    assert wrong(PLAIN.replace(old, new)) == costs


def test_markdown_has_levels_headers_and_fences():
    assert wrong(MARKDOWN.replace("## What", "### What"), markdown=True) == {"headings": 1}
    assert wrong(MARKDOWN.replace("|---|---|---|\n", ""), markdown=True) == {"cells": 12}
    assert wrong(MARKDOWN.replace("```\nfor", "for"), markdown=True)["code lines"] == 4


def test_a_formula_without_its_source_may_be_written_in_signs():
    assert wrong(PLAIN.replace(r"$P = \frac{m}{s^{2}}$", "P = m/s²"), latex=False) == {}
    assert wrong(PLAIN.replace(r"$P = \frac{m}{s^{2}}$", "P = (m)/(s^2)"), latex=False) == {}
    assert wrong(PLAIN.replace(r"$P = \frac{m}{s^{2}}$", "P = m/s2"), latex=False) == {"formulas": 1}
