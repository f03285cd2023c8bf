"""Running heads and feet, and page numbers: what stands at the edge of many pages alike."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import product

from gristmill.tasks.pdf.glyphs import Segment

_NUMBER = re.compile(r"\d+")
# A page's number alone: 7, - 7 -, Page 7 of 9, 7/9, vii. Digits of any script. A word and a number may be a heading.
_PAGE_NUMBER = re.compile(
    r"\W*(?:(?:\w{1,8}\.? )?\d{1,4} ?(?:/|\w{1,4}) ?\d{1,4}|\d{1,4}|[ivxlc]{1,7})\W*", re.IGNORECASE
)
_EDGE = 6  # segments at the top and at the bottom of a page that may be running
_HEAD, _FOOT = 0.12, 0.15  # of the page's height, in which they stand: LaTeX's numbers are at .12
_COUNTED = 3  # numbers of a segment that may be the page's
_SHARE = 0.25  # of the pages on which the same stands


def without_running(pages: Sequence[list[Segment]], heights: Sequence[float]) -> list[list[Segment]]:
    """The segments of all pages without what is running. One at the edge of a page goes where the same text stands at
    the same height of at least two pages and of a quarter of them, or of one of the two pages before or behind; numbers
    are the same if they are equal or grow with the pages. And it goes where it is a page's number alone, set apart at
    the very edge."""
    edges = [_edge(segments, height, at) for at, (segments, height) in enumerate(zip(pages, heights, strict=True))]
    near = [{key for keys in edge.values() for key in keys} for edge in edges]
    counts = Counter(key for keys in near for key in keys)
    need = max(2, min(_SHARE * len(pages), 8))
    found = []
    for at, segments in enumerate(pages):
        beside = set().union(*(near[k] for k in (at - 2, at - 1, at + 1, at + 2) if 0 <= k < len(pages)))
        running = {
            k
            for k, keys in edges[at].items()
            if any(counts[key] >= need or key in beside for key in keys) or _is_number(segments, k, heights[at])
        }
        # a row goes as a whole: words of the text may stand alike by chance
        beyond = [segment for k, segment in enumerate(segments) if k not in running]
        gone = {k for k in running if not any(other.bottom < segments[k].middle < other.top for other in beyond)}
        found.append([segment for k, segment in enumerate(segments) if k not in gone])
    return found


def _edge(segments: Sequence[Segment], height: float, page: int) -> dict[int, set[tuple[str, int]]]:
    """Of the outermost segments of a page, by their place, the texts that they stand for, and the height in steps of 4
    points."""
    by_height = sorted(range(len(segments)), key=lambda k: -segments[k].top)
    outer = [k for k in by_height[:_EDGE] if segments[k].bottom > (1 - _HEAD) * height]
    outer += [k for k in by_height[-_EDGE:] if segments[k].top < _FOOT * height and k not in outer]
    return {k: {(text, round(segments[k].middle / 4)) for text in _texts(segments[k].text, page)} for k in outer}


def _texts(text: str, page: int) -> list[str]:
    """A text with each of its first three numbers as it is, or counted from the page on which it stands."""
    parts = _NUMBER.split(text.lower())
    numbers = [int(each[:9]) for each in _NUMBER.findall(text)]
    found = []
    for counted in product((False, True), repeat=min(len(numbers), _COUNTED)):
        ways = [*counted, *[False] * (len(numbers) - len(counted))]
        written = [f"<{n - page}>" if way else str(n) for n, way in zip(numbers, ways, strict=True)]
        found.append("".join(a + b for a, b in zip(parts, [*written, ""], strict=True)))
    return found


def _is_number(segments: Sequence[Segment], k: int, height: float) -> bool:
    one = segments[k]
    if not _PAGE_NUMBER.fullmatch(one.text.strip()) or not re.search(r"\d|^\W*[ivxlc]+\W*$", one.text):
        return False
    others = [other for at, other in enumerate(segments) if at != k]
    room = one.top - one.bottom
    below = one.top < _FOOT * height and all(other.bottom >= one.top + room for other in others)
    above = one.bottom > (1 - _HEAD) * height and all(other.top <= one.bottom - room for other in others)
    return below or above
