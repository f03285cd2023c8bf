"""The levels of headings: by the tags of the text, else by the document's outline, else by their letters."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gristmill.tasks.pdf.structure import DEEPEST, Entry

_SAME = 0.04  # how far the sizes of headings of one level may be apart
_PAGES = 1  # between a heading and the place where an entry leads


@dataclass
class Heading:
    """`size`: of the font, in points; `level` as tags give it, 0 where they do not."""

    text: str
    page: int
    size: float
    bold: bool
    level: int = 0


def with_levels(headings: Sequence[Heading], outline: Iterable[Entry]) -> list[int]:
    """The levels of all headings of a document, in their order, 1 for the outermost."""
    if any(heading.level for heading in headings):
        deepest = max(heading.level for heading in headings)
        return [heading.level or min(deepest + 1, DEEPEST) for heading in headings]
    styles = _styles(headings)
    entries: dict[str, list[Entry]] = {}
    for entry in outline:
        entries.setdefault(_letters(entry.title), []).append(entry)
    given = [_entry(heading, entries) for heading in headings]
    if any(given):
        return _by_outline(headings, given, styles)
    ranks = _ranks(styles)
    return [ranks[style] for style in styles]


Style = tuple[float, bool]


def _styles(headings: Sequence[Heading]) -> list[Style]:
    """The size of each heading's letters, sizes that are nearly the same as one, and whether they are bold."""
    names: dict[float, float] = {}
    last = float("inf")
    for size in sorted({heading.size for heading in headings}, reverse=True):
        last = last if last * (1 - _SAME) <= size else size
        names[size] = last
    return [(names[heading.size], heading.bold) for heading in headings]


def _ranks(styles: Sequence[Style]) -> dict[Style, int]:
    """A level for each style: that of the largest is 1. One that occurs once between others is a line set apart, and
    makes no level of its own, unless it is the first: the title."""
    counts = Counter(styles)
    ranks: dict[Style, int] = {}
    level = 0
    for style in sorted(counts, reverse=True):
        if counts[style] > 1 or not ranks or len(counts) <= 3:
            level += 1
        ranks[style] = min(level, DEEPEST)
    return ranks


def _by_outline(headings: Sequence[Heading], given: Sequence[int], styles: Sequence[Style]) -> list[int]:
    """Levels as the outline has them. A heading that it does not have gets the level of those that look as it does;
    else it is below them all, and a larger one is above: the title of the document."""
    seen: dict[Style, Counter[int]] = {}
    for level, style in zip(given, styles, strict=True):
        if level:
            seen.setdefault(style, Counter())[level] += 1
    usual = {style: max(counts, key=lambda level: (counts[level], -level)) for style, counts in seen.items()}
    largest = max(style for style, level in usual.items() if level == min(usual.values()))
    above = [k for k, style in enumerate(styles) if not given[k] and style[0] > largest[0] and style not in usual]
    shift = 1 if above else 0
    found = []
    for k, style in enumerate(styles):
        if given[k]:
            level = given[k] + shift
        elif style in usual:
            level = usual[style] + shift
        elif k in above:
            level = 1
        else:
            level = shift + 1 + max((level for other, level in usual.items() if other > style), default=0)
        found.append(min(level, DEEPEST))
    return found


def _entry(heading: Heading, entries: dict[str, list[Entry]]) -> int:
    """The level of the entry that leads to a heading, 0 for none."""
    for entry in entries.get(_letters(heading.text), ()):
        if abs(entry.page - heading.page) <= _PAGES:
            return entry.level
    return 0


def _letters(title: str) -> str:
    """A title without what outlines write in other ways: its number, spaces, punctuation, case."""
    bare = re.sub(r"^\s*(?:(?:chapter|section|appendix)\s+)?(?:[A-Z]|\d+)?(?:\.\d+)*[.:)]?\s+", "", title, flags=re.I)
    return re.sub(r"\W+", "", bare).lower() or re.sub(r"\W+", "", title).lower()
