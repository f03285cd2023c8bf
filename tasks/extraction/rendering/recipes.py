"""What a page declares to be its recipe: description, ingredients and steps are kept where the page shows them.

No training page of the classifier declares a recipe, and half of the time it drops ingredients, which look like a menu.
But most pages with a recipe name its parts in JSON-LD, for search engines (schema.org, Recipe).
"""

import html
import re
import unicodedata
from typing import Any, NamedTuple

import numpy as np

from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.rendering.whole import Units
from gristmill.tasks.extraction.scripts import LD, MAX_DEPTH, Texts, read_value, scripts
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
_NO_LETTERS = re.compile(r"[\W_]+")
_NO_LETTERS_OF_ASCII = bytes(code for code in range(128) if not chr(code).isalnum())
# Blocks of the page times letters of a part: a page with more is an index, or made to be slow.
_MAX_WORK = 50_000_000


class Recipe(NamedTuple):
    """The texts of a recipe: each part is a list of lines or paragraphs, empty if it is not declared."""

    description: list[str]
    ingredients: list[str]
    steps: list[str]


_MAX_RECIPES = 5  # of a page; of more, such as those of an index, none is its text
_LINE_ENDS = re.compile(r"\n|</?(?:p|li|ol|ul|br)\b[^<>]{0,400}>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,400}>")


def declared_recipes(page: str) -> list[Recipe]:
    """The recipes with ingredients in the JSON-LD of a page (schema.org, Recipe), in order; none of more than five."""
    recipes = Texts[Recipe]()
    for script in scripts(page):
        if script.type == LD and "recipeIngredient" in script.text:
            _add_recipes(read_value(script.text), recipes, 0)
    return recipes if len(recipes) <= _MAX_RECIPES else []


def _add_recipes(value: Any, recipes: Texts[Recipe], depth: int) -> None:
    if recipes.is_full(depth):
        return
    if isinstance(value, dict) and value.get("recipeIngredient"):
        names = ("description", "recipeIngredient", "recipeInstructions")
        recipes.append(Recipe(*(_lines_of(value.get(name), 0) for name in names)))
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _add_recipes(each, recipes, depth + 1)


def _lines_of(value: Any, depth: int) -> list[str]:
    """The texts of strings, of steps (HowToStep) and of sections with steps (HowToSection)."""
    match value:
        case str():
            return [text for line in _LINE_ENDS.split(value) if (text := html.unescape(_TAG.sub(" ", line)).strip())]
        case list() if depth < MAX_DEPTH:
            return [line for each in value for line in _lines_of(each, depth + 1)]
        case {"itemListElement": items} if depth < MAX_DEPTH:
            return _lines_of(items, depth + 1)
        case {"text": text} | {"name": text}:
            return _lines_of(text, depth + 1) if isinstance(text, str) else []
    return []


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
    if not source.has(_MARK):
        return found
    recipes = declared_recipes(source.data.decode("utf-8", "replace"))
    blocks, text = source.page.blocks, source.page.text
    shown = [text[begin:end].tobytes() for begin, end in zip(blocks.begin[kept], blocks.end[kept], strict=True)]
    chosen = _letters(source.text_of(b" ".join(shown))) if recipes else ""
    lines: list[_Line] = []
    for recipe in recipes:
        for part in recipe:
            texts = [letters for letters in map(_letters, part) if len(letters) >= _MIN_LENGTH]
            size = sum(map(len, texts))
            if size < _MIN_PART or len(kept) * size > _MAX_WORK:
                continue
            if sum(len(each) for each in texts if each not in chosen) <= _FEW * size:
                continue
            lines = lines or _lines(source, together)
            if place := _place(lines, texts, kept):
                _mark(source, lines, place, found)
    return found


def _lines(source: Source, together: Units) -> list[_Line]:
    blocks, text = source.page.blocks, source.page.text.tobytes()
    spans = zip(blocks.begin.tolist(), blocks.end.tolist(), strict=True)
    groups = zip(blocks.row.tolist(), together.around.item[blocks.node].tolist(), strict=True)
    lines: list[_Line] = []
    last = (0, 0)
    for k, ((begin, end), group) in enumerate(zip(spans, groups, strict=True)):
        letters = _letters(source.text_of(text[begin:end]))
        if lines and group == last and max(group) > 0:
            lines[-1] = _Line([*lines[-1].blocks, k], lines[-1].text + letters)
        else:
            lines.append(_Line([k], letters))
        last = group
    return lines


def _letters(text: str) -> str:
    """Letters and digits, in lower case; fractions as their digits."""
    if text.isascii():
        return text.lower().encode().translate(None, _NO_LETTERS_OF_ASCII).decode()
    return _NO_LETTERS.sub("", unicodedata.normalize("NFKC", text).casefold())


def _counts(texts: list[str]) -> np.ndarray:
    """How many characters of each text fall into each of 64 bins: int64, shape (texts, 64)."""
    bins = np.frombuffer("".join(texts).encode("utf-32-le", "replace"), np.uint32) % _BINS
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    return np.bincount(rows * _BINS + bins, minlength=len(texts) * _BINS).reshape(len(texts), _BINS)


def _matches(lines: list[_Line], texts: list[str]) -> list[int]:
    """The lines that are a piece of one of the texts, hold several, or have the characters of one."""
    whole, least, longest = "".join(texts), min(map(len, texts)), 2 * max(map(len, texts))
    most = len(whole) / _ALIKE
    near = [i for i, line in enumerate(lines) if _MIN_LENGTH <= len(line.text) <= longest]
    counts = _counts([lines[i].text for i in near])
    sizes = counts.sum(axis=1)
    alike = np.zeros(len(near), bool)
    for declared in _counts(texts):
        alike |= 2 * np.minimum(counts, declared).sum(axis=1) >= _ALIKE * (sizes + declared.sum())
    matches = {i for i, same in zip(near, alike.tolist(), strict=True) if same or lines[i].text in whole}
    for i, line in enumerate(lines):
        if i not in matches and least < len(line.text) <= most:
            inside = sum(len(text) for text in texts if text in line.text)
            if inside >= _ALIKE * len(line.text):
                matches.add(i)
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
        already = sum(len(lines[i].text) for i in place if any(kept[k] for k in lines[i].blocks))
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
