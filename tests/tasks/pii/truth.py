"""Texts with personal data and texts that only look like it, written by hand: `truth.tsv`.

A line has the kind, the language (ISO 639-1) and a text, in which brackets stand around what is to be masked; a line
break is written `\\n`, a backslash twice. `not phone` is a text in which nothing is to be masked, and which tempts a
detector of phone numbers. All values are invented; phone numbers are of ranges kept for fiction where a country has
some, and check digits are right where a number is to be found.
"""

import re
from pathlib import Path
from typing import NamedTuple

_ESCAPES = {"\\n": "\n", "\\\\": "\\"}


class Case(NamedTuple):
    """A text, the kind that it is about, its language, and the bytes (start, stop) that are of this kind."""

    kind: str
    language: str
    text: str
    spans: list[tuple[int, int]]


def cases() -> list[Case]:
    """All lines of the file; `spans` is empty where nothing is to be masked."""
    found = []
    for line in (Path(__file__).parent / "truth.tsv").read_text("utf-8").splitlines():
        kind, language, written = line.split("\t")
        parts = re.split("[⟦⟧]", re.sub(r"\\n|\\\\", lambda match: _ESCAPES[match[0]], written))
        ends = [0]
        for part in parts:
            ends.append(ends[-1] + len(part.encode()))
        spans = list(zip(ends[1::2], ends[2::2], strict=False))
        assert (not spans) == kind.startswith("not "), line
        found.append(Case(kind.removeprefix("not "), language, "".join(parts), spans))
    return found
