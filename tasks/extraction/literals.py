"""Values that a script assigns: JSON, and the part of JavaScript's literals that servers write. Nothing is run.

Read are objects with or without quotes around keys, strings of all three kinds with raw line ends, trailing commas,
comments, `!0`, `void 0`, `new Date(0)`, `JSON.parse("...")`, and a function that is called at once and returns a
literal of its parameters, as Nuxt 2 writes `window.__NUXT__` (devalue's `uneval` does the same).
"""

import json
import re
from typing import Any, NamedTuple
from urllib.parse import unquote

_JSON = json.JSONDecoder(strict=False)  # with raw line ends in strings
# A literal that is no JSON costs some microseconds a token. In characters.
MAX_CHARACTERS = 1_000_000
_MAX_DEPTH = 100
_MAX_VALUES = 200_000

_SPACE = re.compile(r"(?:\s+|//[^\n]*+|/\*(?s:.)*?\*/)*+")
_TOKEN = re.compile(
    r"""(?P<string>"[^"\\]*+(?:\\(?s:.)[^"\\]*+)*+"|'[^'\\]*+(?:\\(?s:.)[^'\\]*+)*+'|`[^`\\]*+(?:\\(?s:.)[^`\\]*+)*+`)"""
    r"|(?P<number>-?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)n?)"
    r"|(?P<name>[^\W\d][\w$]*|\$[\w$]*)"
    r"|(?P<sign>=>|[-{}\[\](),:.!+;=])"
)
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|((?s:.)))")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "", "\n": ""}
_WORDS = {"true": True, "false": False}
_NOTHING = frozenset({"null", "undefined", "NaN", "Infinity"})
_FUNCTION = re.compile(r"\(*\s*function\s*[\w$]*\s*\(([\w$,\s]*)\)\s*\{|\(*\s*\(([\w$,\s]*)\)\s*=>\s*[({]?")
_RETURN = re.compile(r"\breturn\s*(?=[{\[(])")


def literal(text: str, position: int = 0) -> Any:
    """The value that begins at a position of a script, as JSON has it; what follows it is not looked at.

    Raises ValueError for what is neither JSON nor such a literal, is longer than MAX_CHARACTERS and no JSON, or nested
    deeper than 100.
    """
    if space := _SPACE.match(text, position):
        position = space.end()
    try:
        return _JSON.raw_decode(text, position)[0]
    except (ValueError, RecursionError):
        pass
    if len(text) - position > MAX_CHARACTERS:
        raise ValueError(f"{len(text) - position} characters, more than {MAX_CHARACTERS}, and no JSON")
    if not (function := _FUNCTION.match(text, position)):
        return _with_values(_Reader(text, position).value(), {})
    returned = _RETURN.search(text, function.end())
    reader = _Reader(text, returned.end() if returned else function.end())
    value = reader.value()
    while reader.next_is(";") or reader.next_is("}") or reader.next_is(")"):
        pass
    arguments = reader.items(")") if reader.next_is("(") else []
    names = [name.strip() for name in (function[1] or function[2] or "").split(",")]
    return _with_values(value, dict(zip(names, arguments, strict=False)))


class _Name(NamedTuple):
    """A name whose value is not known, such as a parameter."""

    name: str


class _Reader:
    """Reads a literal, one token after the other."""

    def __init__(self, text: str, position: int) -> None:
        self._text, self._position = text, position
        self._depth = 0

    def value(self) -> Any:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"nested deeper than {_MAX_DEPTH}")
        value = self._single()
        while self.next_is("+"):
            more = self._single()
            value = value + more if isinstance(value, str) and isinstance(more, str) else value
        self._depth -= 1
        return value

    def next_is(self, sign: str) -> bool:
        """Whether the next token is a sign, which is then read."""
        self._skip()
        if not self._text.startswith(sign, self._position):
            return False
        self._position += len(sign)
        return True

    def items(self, end: str) -> list[Any]:
        """The values up to the sign `end`; one that is left out is None."""
        values: list[Any] = []
        while not self.next_is(end):
            if self.next_is(","):
                values.append(None)
                continue
            values.append(self.value())
            if not self.next_is(","):
                self._expect(end)
                break
        return values

    def _single(self) -> Any:
        kind, token = self._token()
        if kind == "string":
            return _unescaped(token[1:-1])
        if kind == "number":
            return _number(token)
        if kind == "name":
            return self._named(token)
        if token == "[":
            return self.items("]")
        if token == "{":
            return self._object()
        if token == "!":
            return not self._single()
        if token == "-":
            return self._single()
        if token == "(":
            value = self.value()
            self._expect(")")
            return value
        raise ValueError(f"{token!r} at character {self._position} begins no value")

    def _object(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not self.next_is("}"):
            kind, token = self._token()
            if kind == "sign":
                raise ValueError(f"{token!r} at character {self._position} is not a key")
            key = _unescaped(token[1:-1]) if kind == "string" else token
            values[key] = self.value() if self.next_is(":") else _Name(key)
            if not self.next_is(","):
                self._expect("}")
                break
        return values

    def _named(self, name: str) -> Any:
        if name in ("new", "void"):
            return self.value() if name == "new" else self._nothing()
        if name in _WORDS:
            return _WORDS[name]
        if name in _NOTHING:
            return None
        while self.next_is("."):
            name = f"{name}.{self._token()[1]}"
        if not self.next_is("("):
            return _Name(name)
        arguments = self.items(")")
        first = arguments[0] if arguments else None
        if name == "JSON.parse" and isinstance(first, str):
            return literal(first)
        if name in ("decodeURIComponent", "decodeURI", "unescape") and isinstance(first, str):
            return unquote(first)
        return first

    def _nothing(self) -> None:
        self._single()

    def _expect(self, sign: str) -> None:
        if not self.next_is(sign):
            raise ValueError(f"no {sign!r} at character {self._position}")

    def _skip(self) -> None:
        if space := _SPACE.match(self._text, self._position):
            self._position = space.end()

    def _token(self) -> tuple[str, str]:
        self._skip()
        token = _TOKEN.match(self._text, self._position)
        if not token:
            raise ValueError(f"no token at character {self._position}")
        self._position = token.end()
        return str(token.lastgroup), token[0]


def _number(token: str) -> float | int:
    token = token.removesuffix("n")
    if "x" in token or "X" in token:
        return int(token, 16)
    number = float(token)  # of any length, where int() would refuse 4,300 digits
    return int(number) if number.is_integer() else number


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    text = _ESCAPE.sub(_character, text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _character(escape: re.Match) -> str:
    code = escape[1] or escape[2] or escape[3]
    if not code:
        return _LETTERS.get(escape[4], escape[4])
    number = int(code, 16)
    return chr(number) if number <= 0x10FFFF else "\ufffd"


def _with_values(value: Any, values: dict[str, Any]) -> Any:
    """A value with those of names; a name without one becomes None."""
    count = 0

    def replaced(each: Any) -> Any:
        nonlocal count
        count += 1
        if count > _MAX_VALUES:
            raise ValueError(f"more than {_MAX_VALUES} values")
        if isinstance(each, _Name):
            return values.get(each.name)
        if isinstance(each, dict):
            return {key: replaced(item) for key, item in each.items()}
        return [replaced(item) for item in each] if isinstance(each, list) else each

    return replaced(value)
