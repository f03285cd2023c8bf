"""Two texts by their words: all of both side by side, with long stretches folded, or the first passage that differs."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

_WORDS = 1200  # of each text are compared: difflib's time grows with the square
_CONTEXT = 8  # words shown at the ends of a stretch that is folded
_ALONE = 60  # words shown of a stretch that the other text does not have
_SHOWN = 240  # words shown of a text
_BEFORE = 8  # words of a passage ahead of the first difference
_AHEAD = 400  # words behind the first difference that are compared
_PASSAGE = 40  # words of a passage


@dataclass(frozen=True)
class Stretch:
    """Words in a row. `alone`: the other text does not have them here; `folded`: how many follow that are not shown."""

    text: str
    alone: bool
    folded: int = 0


class Passage(NamedTuple):
    """A few words of a text. `begins_within`, `ends_within`: whether the text has words before and behind them."""

    stretches: list[Stretch]
    begins_within: bool
    ends_within: bool


def first_difference(one: str, other: str) -> tuple[Passage, Passage] | None:
    """The first passage in which two texts differ by words, of both; None where no word differs."""
    words = one.split(), other.split()
    shorter = min(map(len, words))
    same = next((at for at, (a, b) in enumerate(zip(*words, strict=False)) if a != b), shorter)
    if same == len(words[0]) == len(words[1]):
        return None
    first = max(same - _BEFORE, 0)
    near = words[0][first : same + _AHEAD], words[1][first : same + _AHEAD]
    changes = SequenceMatcher(None, *near, autojunk=False).get_opcodes()
    sides = []
    for side, mine in enumerate(near):
        stretches = []
        for tag, *bounds in changes:
            start, stop = bounds[2 * side : 2 * side + 2]
            if start < _PASSAGE:
                stretches.append(Stretch(" ".join(mine[start : min(stop, _PASSAGE)]), tag != "equal"))
        sides.append(Passage(stretches, first > 0, len(mine) > _PASSAGE))
    return sides[0], sides[1]


def side_by_side(one: str, other: str) -> tuple[list[Stretch], list[Stretch]]:
    """The stretches of both texts, of as many words as are compared and shown. White space is not compared."""
    words = one.split(), other.split()
    compared = words[0][:_WORDS], words[1][:_WORDS]
    same = SequenceMatcher(None, *compared, autojunk=False).get_opcodes()
    if max(map(len, words)) > _WORDS and len(same) > 1 and same[-1][0] != "equal":
        same.pop()  # what comes last may be like what was not compared
    sides = []
    for side, (mine, all_mine) in enumerate(zip(compared, words, strict=True)):
        stretches: list[Stretch] = []
        for tag, *places in same:
            start, stop = places[2 * side : 2 * side + 2]
            stretches += _folded(mine[start:stop], tag != "equal", start == 0, stop == len(mine))
        sides.append(_cut(stretches, len(all_mine)))
    return sides[0], sides[1]


def _folded(words: list[str], alone: bool, first: bool, last: bool) -> Iterator[Stretch]:
    before, after = (_ALONE, 0) if alone else (0 if first else _CONTEXT, 0 if last else _CONTEXT)
    hidden = len(words) - before - after
    if hidden <= _CONTEXT:
        if words:
            yield Stretch(" ".join(words), alone)
        return
    yield Stretch(" ".join(words[:before]), alone, hidden)
    if after:
        yield Stretch(" ".join(words[-after:]), alone)


def _cut(stretches: list[Stretch], total: int) -> list[Stretch]:
    """As many stretches as may be shown, and how many words of the text come behind them."""
    shown = covered = 0
    for at, stretch in enumerate(stretches):
        visible = len(stretch.text.split())
        if shown + visible > _SHOWN:
            words = stretch.text.split()[: _SHOWN - shown]
            return [*stretches[:at], Stretch(" ".join(words), stretch.alone, total - covered - len(words))]
        shown += visible
        covered += visible + stretch.folded
    return stretches + ([Stretch("", False, total - covered)] if total > covered else [])
