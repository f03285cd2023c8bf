"""Scripts of a page and the values in them: JSON, and what assigns literals; with bounds for hostile values."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from gristmill.tasks.extraction.literals import literal

_SCRIPT = re.compile(r"<script\b((?:[^>\"']|\"[^\"]{0,4000}\"|'[^']{0,4000}'){0,400})>", re.IGNORECASE)
_SCRIPT_END = re.compile(r"</script", re.IGNORECASE)
_TYPE = re.compile(r"\btype\s*=\s*[\"']?\s*([\w/+.-]+)", re.IGNORECASE)
# Types of scripts that hold data.
LD, JSON = "application/ld+json", "application/json"
# Pages have every repetition limited, as in `page`: broken markup must cost no more than its length.
_OPENING_FENCE = re.compile(r"\s*(?://\s*)?(?:<!\[CDATA\[|<!--)")
_CLOSING_FENCES = ("]]>", "-->")


class Script(NamedTuple):
    """A script of a page, which is long: its text is from `begin` to `end`."""

    attributes: str
    type: str
    page: str
    begin: int
    end: int

    @property
    def text(self) -> str:
        """Its text without the fences that hide it from browsers that know no scripts."""
        text = self.page[self.begin : self.end]
        if fence := _OPENING_FENCE.match(text):
            text = text[fence.end() :]
        if not (end := text.rstrip()).endswith(_CLOSING_FENCES):
            return text
        before = end[:-3].rstrip()
        return before[:-2] if before.endswith("//") else end[:-3]


def scripts(page: str) -> Iterator[Script]:
    """The scripts of a page, in order; the last may lack its end tag."""
    position = 0
    while begin := _SCRIPT.search(page, position):
        end = _SCRIPT_END.search(page, begin.end())
        position = end.start() if end else len(page)
        type_of = _TYPE.search(begin[1])
        yield Script(begin[1], type_of[1].lower() if type_of else "", page, begin.end(), position)


def read_value(text: str, position: int = 0) -> Any:
    """The value at a position of a script, None where it is none: broken data are as common as broken HTML."""
    try:
        return literal(text, position)
    except (ValueError, RecursionError):
        return None


# Of values in values, as a page made to be slow has them.
MAX_DEPTH = 60
_MAX_VISITS, _MAX_TEXTS = 200_000, 20_000


_Text = TypeVar("_Text")


class Texts(list[_Text]):
    """Texts of a value, as they are met. `visits`: of values, which may hold one another many times over."""

    visits = 0

    def is_full(self, depth: int) -> bool:
        """Whether no more is read; counts a visit."""
        self.visits += 1
        return depth > MAX_DEPTH or self.visits > _MAX_VISITS or len(self) > _MAX_TEXTS
