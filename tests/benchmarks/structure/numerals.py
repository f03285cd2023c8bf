"""The label of a list item, as a browser shows it."""

from collections.abc import Iterator

from tests.benchmarks.structure.article import Item, List

_ROMAN = (("x", 10), ("ix", 9), ("v", 5), ("iv", 4), ("i", 1))


def label(kind: str, number: int) -> str:
    """Without its dot; letters up to 26, Roman numerals up to 39."""
    if kind in ("a", "A"):
        return chr(ord(kind) + number - 1)
    if kind in ("i", "I"):
        text = ""
        for sign, value in _ROMAN:
            text += sign * (number // value)
            number %= value
        return text.upper() if kind == "I" else text
    return str(number)


def labelled(items: List) -> Iterator[tuple[str, Item]]:
    """Each item with its label, which is empty in an unordered list."""
    number = items.start
    for item in items.items:
        number = number if item.value is None else item.value
        yield "" if items.kind == "ul" else label(items.kind, number), item
        number += 1
