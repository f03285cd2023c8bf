"""Parts of a text that a page shows: its beginning, or what is around marked parts."""

from typing import NamedTuple

from gristmill.flows.reports.marking import Marks

_CONTEXT = 160  # characters on either side of a marked part


class Piece(NamedTuple):
    """Characters of a text in a row. `left_out`: how many follow that are not shown."""

    text: str
    marked: bool
    left_out: int = 0


def beginning(text: str, characters: int) -> list[Piece]:
    """The first characters of a text."""
    return [Piece(text[:characters], False, max(0, len(text) - characters))]


def excerpt(text: str, marks: Marks, characters: int) -> list[Piece]:
    """Up to about so many characters: marked parts with some context, as many as fit; without marks the beginning."""
    pieces: list[Piece] = []
    left, at = characters, 0
    for start, stop in marks:
        if left <= 0:
            break
        if start - at > 2 * _CONTEXT:
            pieces.append(Piece(text[at : at + _CONTEXT], False, start - at - 2 * _CONTEXT))
            pieces.append(Piece(text[start - _CONTEXT : start], False))
        else:
            pieces.append(Piece(text[at:start], False))
        shown = min(stop, start + left)
        pieces.append(Piece(text[start:shown], True, stop - shown))
        left -= shown - start + min(start - at, 2 * _CONTEXT)
        at = stop
    end = at + max(left, _CONTEXT)
    return [*pieces, Piece(text[at:end], False, max(0, len(text) - end))]
