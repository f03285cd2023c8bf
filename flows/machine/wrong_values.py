"""Sentences about invalid values of recipe keys and machine settings."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

_SHOWN = 60  # characters of a value
_LISTED = 20  # names
_COMPARED, _OPTIONS = 200, 2000  # characters of a value, and options that it is compared with


def did_you_mean(value: Any, options: Iterable[str]) -> str:
    """`did you mean x?` with the most similar option, or ""."""
    close = difflib.get_close_matches(str(value)[:_COMPARED], list(islice(options, _OPTIONS)), 1, 0.6)
    return f"did you mean `{close[0]}`?" if close else ""


def listed(names: Iterable[str]) -> str:
    """Names in a sentence: the first twenty, and how many more there are; `none` without any."""
    every = [*names]
    more = len(every) - _LISTED
    return ", ".join([*every[:_LISTED], *([f"and {more:,} more"] if more > 0 else [])]) or "none"


def shown(value: Any) -> str:
    """A value for a sentence: on one line, and not too long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def choices(value: Any, expected: str) -> str:
    """The valid values, from pydantic's list of quoted choices."""
    options = re.findall(r"'([^']*)'", expected)
    return " ".join(part for part in (did_you_mean(value, options), f"give one of {', '.join(options)}") if part)


def wanted(kind: str, context: Mapping[str, Any], message: str) -> str:
    """The expected value, from the kind, context and message of a pydantic error."""
    for beginning, what in _KINDS.items():
        if kind.startswith(beginning):
            return what(context)
    return re.sub(r"^(Input|Value|String) should ", "what should ", message)


def _pattern(context: Mapping[str, Any]) -> str:
    patterns = {
        "^[a-z][a-z0-9_-]*$": "a name of lowercase letters, digits, _ and - that begins with a letter",
        "^[a-z0-9][a-z0-9_-]*$": "a name of lowercase letters, digits, _ and - that begins with a letter or digit",
        r"^CC-MAIN-\d{4}-\d{2}$": "the name of a Common Crawl snapshot, such as CC-MAIN-2024-22",
    }
    return patterns.get(context["pattern"], f"text that matches {context['pattern']}")


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "greater_than_equal": lambda c: f"a number of at least {c['ge']:,}",
    "greater_than": lambda c: f"a number above {c['gt']:,}",
    "less_than_equal": lambda c: f"a number of at most {c['le']:,}",
    "less_than": lambda c: f"a number below {c['lt']:,}",
    "string_pattern": _pattern,
    "too_short": lambda c: f"at least {c['min_length']}",
    "too_long": lambda c: f"at most {c['max_length']}",
    "string_too_long": lambda c: f"text of at most {c['max_length']} characters",
    "int": lambda c: "a whole number",
    "float": lambda c: "a number",
    "finite": lambda c: "a finite number",
    "bool": lambda c: "true or false",
    "string": lambda c: "text, in quotes if YAML would read it as another type",
    "tuple": lambda c: "a list, such as [a, b]",
    "list": lambda c: "a list, such as [a, b]",
    "dict": lambda c: "a mapping of keys to values",
    "mapping": lambda c: "a mapping of keys to values",
    "model": lambda c: "a mapping of keys to values",
    "dataclass": lambda c: "a mapping of keys to values",
}
