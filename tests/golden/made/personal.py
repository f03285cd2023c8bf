"""Texts with personal data of every kind, data that only look like it, and documents with five and six spans of it."""

from collections.abc import Iterator

from tests.golden.made.drawn import drawn_personal
from tests.golden.made.words import paragraph, snippets
from tests.tasks.pii.examples import NEGATIVE, POSITIVE
from tests.tasks.pii.vendor_forms import forms

_MORE = snippets("more_personal")


def personal() -> list[str]:
    found = [text for text, _, _ in POSITIVE]
    found += [f"{at} and {text}" for at, text in enumerate(NEGATIVE)]
    found += [text.format(secret) if "{}" in text else text for _, text, secret in forms(11)]
    found += [
        *_MORE,
        *(f"({text})," for text in _MORE),
        *snippets("personal"),
        *_counted(),
        *_beside(),
        *drawn_personal(),
    ]
    return found


def _counted() -> Iterator[str]:
    for count in (0, 1, 4, 5, 6, 7):
        yield paragraph(f"spans {count}", 2) + " ".join(
            f" write to jane{at}@planted.org, please" for at in range(count)
        )
        yield " ".join(f"from 83.12.{at + 40}.99 and" for at in range(count)) + " no more"
    yield "jane@planted.org"
    yield "a@planted.org b@planted.org,c@planted.org;d@planted.org"


def _beside() -> Iterator[str]:
    """One behind the other, overlapping, at the ends of lines, among letters of other scripts."""
    for at in range(0, len(POSITIVE) - 1):
        one, other = POSITIVE[at][2], POSITIVE[at + 1][2]
        yield f"{one} {other}"
        yield f"{one}{other}"
        yield f"é{one}水\n{other}\n"
        yield f"x{one}x"
