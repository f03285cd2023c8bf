"""Text that runs from right to left: the characters of a line by position, as text in logical order.

Files store such text to the left or to the right, by words or by lines, so only positions count. From them the levels
of the Unicode bidirectional algorithm (UAX #9) are undone: a line runs to the left, and inside of it each number, and
what has Latin letters, to the right; or the other way round.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from gristmill.tasks.pdf.characters import DRAWN_GAP, RTL, Character
from gristmill.tasks.pdf.objects import Ruling, parted

# Of the height of the letters: a wider gap is a space between words. Arabic letters that are not joined are closer.
_WORD_GAP = 0.1
_SHARED = 0.6  # of the lower of two heights, which pieces of one line share
_SEPARATORS = re.compile(r"[.,:/\u060c\u066b\u066c]")  # inside of a number (class CS)
_SIGNS = re.compile(r"[-+\u2212%$€£°]")  # of a number (classes ES and ET), where no Arabic letters are
_ARABIC = re.compile("[\u0600-\u07bf\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc]")
_SLOPE = 0.05  # of a letter's height, by which it may be above or below its line
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("«", "»"))


@dataclass
class _Group:
    """Pieces of one line, and the box around them."""

    pieces: list[int]
    left: float
    bottom: float
    right: float
    top: float
    gap: float


def side_by_side(
    pieces: Sequence[list[Character]], gaps: Sequence[float], down: Sequence[Ruling]
) -> list[list[Character]]:
    """The pieces, those on one line as one where they are closer to each other than the smaller of their gaps, in
    points, and no line that is drawn down parts them."""
    groups: list[_Group] = []
    open_: list[_Group] = []
    boxes = list(map(_box, pieces, gaps))
    widest = max(gaps, default=0.0)
    for k in sorted(range(len(pieces)), key=lambda k: boxes[k].left):
        one = boxes[k]
        open_ = [g for g in open_ if one.left - g.right <= max(g.gap, widest)]
        best, most = None, 0.0
        for g in open_:
            shared = min(one.top, g.top) - max(one.bottom, g.bottom)
            lower = min(one.top - one.bottom, g.top - g.bottom)
            if shared < max(_SHARED * lower, most) or one.left - g.right > min(one.gap, g.gap):
                continue
            if not parted(down, g.right, one.left, (one.bottom + one.top) / 2):
                best, most = g, shared
        if best is None:
            best = replace(one, pieces=[])
            groups.append(best)
            open_.append(best)
        best.pieces.append(k)
        best.right, best.gap = max(best.right, one.right), max(best.gap, one.gap)
        if one.top - one.bottom > best.top - best.bottom:
            best.bottom, best.top = one.bottom, one.top
    # in the order of the content, as pieces are
    groups.sort(key=lambda g: min(g.pieces))
    return [[each for k in sorted(g.pieces) for each in pieces[k]] for g in groups]


def _box(piece: Sequence[Character], gap: float) -> _Group:
    inked = [each for each in piece if each.text != " "]
    tallest = max(inked, key=lambda each: each.top - each.bottom)
    return _Group([], min(e.left for e in inked), tallest.bottom, max(e.right for e in inked), tallest.top, gap)


def logical(pieces: Sequence[Sequence[Character]]) -> list[str]:
    """The texts of pieces of lines, in logical order.

    The page runs to the left if most letters of its lines with letters that do so are such.
    """
    visual = [_units(piece) for piece in pieces]
    mixed = [units for units in visual if any(kind == "R" for _, kind in units)]
    kinds = [kind for units in mixed for _, kind in units]
    leftwards = kinds.count("R") >= kinds.count("L")
    return [in_order(units, leftwards) for units in visual]


def sloping(pieces: Sequence[Sequence[Character]], line_of: Callable[[int], float]) -> int:
    """How many letters are above or below the line of most others, as in words of Nastaliq, which descend from right to
    left, one over the other: their positions do not give the reading order."""
    count = 0
    for piece in pieces:
        letters = [each for each in piece if RTL.match(each.text) and not unicodedata.combining(each.text[0])]
        places = [line_of(each.index) for each in letters]
        lines = Counter(round(2 * place) for place in places)
        if lines:
            line = max(lines, key=lambda y: (lines[y], y)) / 2
            room = 0.5 + _SLOPE * max(each.top - each.bottom for each in letters)
            count += sum(abs(place - line) > room for place in places)
    return count


def in_order(units: Sequence[tuple[str, str]], leftwards: bool) -> str:
    """Letters from the left to the right, each with its kind, as one text in logical order. Kinds are R, L, E for
    a digit, and N for all else."""
    if all(kind != "R" for _, kind in units):
        return "".join(text for text, _ in units)
    units = _with_numbers(units)
    if not leftwards:
        texts = _turned(units, _runs(units, "R", "RE"), _to_the_left)
    else:
        # a Latin run takes in the numbers in and beside it; other numbers are by themselves
        texts = _turned(units, _runs(units, "L", "LE"), lambda run: [text for text, _ in run])[::-1]
    return _with_brackets("".join(texts))


def _to_the_left(run: Sequence[tuple[str, str]]) -> list[str]:
    return [text for text, _ in reversed(run)]


def _turned(
    units: Sequence[tuple[str, str]],
    runs: Iterable[tuple[int, int]],
    turn: Callable[[Sequence[tuple[str, str]]], list[str]],
) -> list[str]:
    """The texts of units; each run as one text, its units turned."""
    texts: list[str] = []
    position = 0
    for begin, end in runs:
        texts += [text for text, _ in units[position:begin]]
        texts.append("".join(turn(units[begin:end])))
        position = end
    return texts + [text for text, _ in units[position:]]


def _runs(units: Sequence[tuple[str, str]], strong: str, joined: str) -> list[tuple[int, int]]:
    """The longest runs that begin and end with a kind of `joined`, have a strong one, and none of the other direction.

    Runs of letters to the left begin and end with such a letter: a number beside them is the line's.
    """
    ends = joined if strong == "L" else strong
    runs: list[tuple[int, int]] = []
    begin, end, has = -1, -1, False
    for k, (_, kind) in enumerate([*units, ("", "R" if strong == "L" else "L")]):
        if kind not in joined and kind != "N":
            if has:
                runs.append((begin, end))
            begin, has = -1, False
        elif kind in ends:
            begin, end = (k if begin < 0 else begin), k + 1
            has = has or kind == strong
    return runs


def _with_numbers(units: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Digits that follow each other, and the separators inside of a number, as one."""
    arabic = any(_ARABIC.search(text) for text, kind in units if kind == "R")
    merged_units: list[tuple[str, str]] = []
    k = 0
    while k < len(units):
        text, kind = units[k]
        k += 1
        if kind == "E":
            while k < len(units):
                inside = k + 1 < len(units) and units[k + 1][1] == "E"
                part = units[k][0]
                if units[k][1] == "E":
                    text, k = text + part, k + 1
                elif inside and (_SEPARATORS.fullmatch(part) or (not arabic and _SIGNS.fullmatch(part))):
                    text, k = text + part + units[k + 1][0], k + 2
                else:
                    break
            if not arabic and k < len(units) and _SIGNS.fullmatch(units[k][0]):
                text, k = text + units[k][0], k + 1
            if not arabic and merged_units and _SIGNS.fullmatch(merged_units[-1][0]):
                text = merged_units.pop()[0] + text
        merged_units.append((text, kind))
    return merged_units


def _with_brackets(text: str) -> str:
    """Brackets as pairs: whether one is mirrored depends on what pdfium took for its direction."""
    for opens, closes in _BRACKETS:
        places = [k for k, c in enumerate(text) if c in (opens, closes)]
        brackets = "".join(text[k] for k in places)
        if not brackets or len(brackets) % 2 or not brackets.replace(opens + closes, ""):
            continue
        letters = list(text)
        for n, k in enumerate(places):
            letters[k] = closes if n % 2 else opens
        text = "".join(letters)
    return text


def _units(piece: Sequence[Character]) -> list[tuple[str, str]]:
    """The letters of a piece from the left to the right, with their marks and their kinds, and spaces between words."""
    groups = _glyphs(piece)
    bases = [g for g in groups if not _is_mark(g)] or groups
    marks: dict[int, str] = {}
    if len(bases) < len(groups):
        for g in groups:
            if _is_mark(g):
                middle = (g[0].left + g[0].right) / 2
                k = min(range(len(bases)), key=lambda k: _distance(bases[k], middle))
                marks[k] = marks.get(k, "") + "".join(each.text for each in g)
    order = sorted(range(len(bases)), key=lambda k: bases[k][0].left + bases[k][0].right)
    height = max(each.top - each.bottom for each in piece if each.text != " ")
    units: list[tuple[str, str]] = []
    for before, k in pairwise([-1, *order]):
        one = bases[k][0]
        # pdfium's own spaces are not looked at: it finds them between what follows each other in the file
        if before >= 0 and one.text != " " and bases[before][0].text != " ":
            other = bases[before][0]
            drawn = max(one.drawn, other.drawn)
            if one.left - other.right > (DRAWN_GAP * drawn if drawn else _WORD_GAP * height):
                units.append((" ", "N"))
        text = _joined(bases[k]) + marks.get(k, "")
        if text != " " and _ARABIC.search(text):
            # the forms that letters have in a word; forms of single marks have a space that bears them
            text = unicodedata.normalize("NFKC", text).strip()
        units.append((text, _kind(text)))
    return units


def _glyphs(piece: Sequence[Character]) -> list[list[Character]]:
    """Characters at the same position are one glyph."""
    glyphs: list[list[Character]] = []
    for each in piece:
        last = glyphs[-1][-1] if glyphs else None
        same = last and each.left == last.left and each.right == last.right and each.text != " "
        if same and not each.drawn:
            glyphs[-1].append(each)
        else:
            glyphs.append([each])
    return glyphs


def _joined(glyph: Sequence[Character]) -> str:
    """The text of a glyph. pdfium turns what runs to the left around, and so the letters of one glyph, but not those
    that it makes of a ligature."""
    text = "".join(each.text for each in glyph)
    if len(glyph) == 1 or not RTL.search(text) or text in _ligatures():
        return text
    letters = text[::-1]
    return "".join(sorted(letters, key=lambda c: unicodedata.combining(c) > 0))


@cache
def _ligatures() -> frozenset[str]:
    forms = (unicodedata.normalize("NFKC", chr(code)) for code in (*range(0xFB1D, 0xFE00), *range(0xFE70, 0xFEFD)))
    return frozenset(form for form in forms if len(form) > 1)


def _is_mark(glyph: Sequence[Character]) -> bool:
    return any(each.text for each in glyph) and all(unicodedata.combining(c) for each in glyph for c in each.text)


def _distance(glyph: Sequence[Character], middle: float) -> float:
    one = glyph[0]
    if one.text == " ":
        return float("inf")
    return max(one.left - middle, middle - one.right, 0.0) + abs((one.left + one.right) / 2 - middle) / 1000


def _kind(text: str) -> str:
    if RTL.search(text):
        return "E" if text.isdecimal() else "R"
    if any(map(str.isalpha, text)):
        return "L"
    return "E" if text.isdecimal() else "N"
