"""Two texts side by side: the words that both have, those that one has alone, and long stretches folded."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

_WORDS = 1200  # of each text are compared: difflib's time grows with the square
_CONTEXT = 8  # words shown at the ends of a stretch that is folded
_ALONE = 60  # words shown of a stretch that the other text does not have
_SHOWN = 240  # words shown of a text


@dataclass(frozen=True)
class Stretch:
    """Words in a row. `alone`: the other text does not have them here; `folded`: how many follow that are not shown."""

    text: str
    alone: bool
    folded: int = 0


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
