"""What a page declares to be its recipe: description, ingredients and steps are kept where the page shows them.

The classifier has seen no recipe in training, and half of the time it drops the ingredients, which look like a menu.
But most pages with a recipe name its parts in JSON-LD, for search engines (schema.org, Recipe).
"""

import unicodedata
from typing import NamedTuple

import numpy as np

from gristmill.tasks.extraction.page_data import declared_recipes
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.rendering.whole import Units
from gristmill.tasks.extraction.vocabulary import HEADING

_MARK = b"recipeIngredient"
# A shorter line, such as the number of a step, is found in any text.
_MIN_LENGTH = 3
# Lines that are further apart are in different places of the page: a recipe and a menu of ingredients.
_MAX_GAP = 8
# A place that shows less of a part than this is another page's teaser.
_MIN_SHOWN = 0.5
# A shorter part, such as a description "Easy", says nothing of its place.
_MIN_PART = 20
# A part of which no more than this is missing is kept already.
_FEW = 0.1
# From this share of equal characters on, in any order, two lines say the same: "700 g beef", "Beef (700 g)".
_ALIKE = 0.9
_BINS = 64
# Lines of the page times lines of a part: a page with more is an index, or made to be slow.
_MAX_PAIRS = 1_000_000


class _Line(NamedTuple):
    """Blocks that are one line for a reader: of a list item, of a row of a table, or one block. `text`: their letters
    and digits."""

    blocks: list[int]
    text: str


def recipe_blocks(source: Source, together: Units, kept: np.ndarray) -> np.ndarray:
    """The blocks (bool) of the recipes that a page declares in JSON-LD, where it shows half of a part in one place.

    Of several such places it is the one that shows most, and of equal ones that of which most is `kept` (bool).
    Headings between its lines, and lines there that end with a colon, belong to it.
    """
    found = np.zeros(len(kept), bool)
    if _MARK not in source.data:
        return found
    recipes = declared_recipes(source.data.decode("utf-8", "replace"))
    lines = _lines(source, together) if recipes else []
    chosen = "".join(line.text for line in lines if kept[line.blocks].any())
    for recipe in recipes:
        for part in recipe:
            texts = [text for text in map(_letters, part) if len(text) >= _MIN_LENGTH]
            missing, size = sum(len(text) for text in texts if text not in chosen), sum(map(len, texts))
            if size < _MIN_PART or missing <= _FEW * size or len(lines) * len(texts) > _MAX_PAIRS:
                continue
            if place := _place(lines, texts, kept):
                _mark(source, lines, place, found)
    return found


def _lines(source: Source, together: Units) -> list[_Line]:
    blocks = source.page.blocks
    text = source.page.text.tobytes()
    item = together.around.item[blocks.node]
    lines: list[_Line] = []
    last: tuple[int, int] | None = None
    for k in range(len(blocks.begin)):
        letters = _letters(source.text_of(text[blocks.begin[k] : blocks.end[k]]))
        group = int(blocks.row[k]), int(item[k])
        if lines and group == last and (group[0] > 0 or group[1] > 0):
            lines[-1] = _Line([*lines[-1].blocks, k], lines[-1].text + letters)
        else:
            lines.append(_Line([k], letters))
        last = group
    return lines


def _letters(text: str) -> str:
    """Letters and digits, in lower case; fractions as their digits."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def _counts(texts: list[str]) -> np.ndarray:
    """How many characters of each text fall into each of 64 bins: int32, shape (texts, 64)."""
    counts = np.zeros((len(texts), _BINS), np.int32)
    for row, text in zip(counts, texts, strict=True):
        np.add.at(row, np.fromiter(map(ord, text), np.int64, len(text)) % _BINS, 1)
    return counts


def _matches(lines: list[_Line], texts: list[str]) -> list[int]:
    """The lines that are a piece of one of the texts, hold several, or have the characters of one."""
    whole, longest = "".join(texts), 2 * max(map(len, texts))
    near = [i for i, line in enumerate(lines) if _MIN_LENGTH <= len(line.text) <= longest]
    counts, declared = _counts([lines[i].text for i in near]), _counts(texts)
    sizes = declared.sum(axis=1)
    matches = []
    for i, row in zip(near, counts, strict=True):
        shared = np.minimum(row, declared).sum(axis=1)
        if lines[i].text in whole or (2 * shared >= _ALIKE * (row.sum() + sizes)).any():
            matches.append(i)
    held, least, most = set(matches), min(map(len, texts)), len(whole) / _ALIKE
    for i, line in enumerate(lines):
        if i not in held and least < len(line.text) <= most:
            inside = sum(len(text) for text in texts if text in line.text)
            if inside >= _ALIKE * len(line.text):
                matches.append(i)
    return sorted(matches)


def _place(lines: list[_Line], texts: list[str], kept: np.ndarray) -> list[int]:
    """The lines of the place that shows most of the texts; empty if none shows half of them."""
    best: tuple[int, int, list[int]] = (0, 0, [])
    places: list[list[int]] = []
    for i in _matches(lines, texts):
        if places and i - places[-1][-1] <= _MAX_GAP:
            places[-1].append(i)
        else:
            places.append([i])
    for place in places:
        shown = sum(map(len, {lines[i].text for i in place}))
        already = sum(len(lines[i].text) for i in place if kept[lines[i].blocks].any())
        if (shown, already) > best[:2]:
            best = shown, already, place
    return best[2] if best[0] >= _MIN_SHOWN * sum(map(len, texts)) else []


def _mark(source: Source, lines: list[_Line], place: list[int], found: np.ndarray) -> None:
    """Mark the blocks of a place: its lines, those between them in elements of the same path, and titles of groups."""
    blocks, text = source.page.blocks, source.page.text
    path = source.page.nodes.path[blocks.node]
    paths = {path[k] for i in place for k in lines[i].blocks}
    for i in range(place[0], place[-1] + 1):
        if not lines[i].text:
            continue
        for k in lines[i].blocks:
            is_title = blocks.kind[k] == HEADING or text[blocks.end[k] - 1] == ord(":")
            if is_title or path[k] in paths:
                found[k] = _letters(source.text_of(text[blocks.begin[k] : blocks.end[k]].tobytes())) != ""
