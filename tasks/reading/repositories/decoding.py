"""Whether the bytes of a file are a text, and in which encoding."""

import codecs
import re
from dataclasses import dataclass

from gristmill.tasks.reading import charset

_HEAD = 8000  # bytes in which git looks for a zero byte, by which it takes a file for binary
# PEP 263, and what Emacs and Vim read
_DECLARED = re.compile(rb"^[^\n]*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffd]")
# of characters; a form feed or an escape is no such one
_MAX_CONTROLS = 0.001


@dataclass(frozen=True)
class Decoded:
    """A text and the encoding that it was in; or `problem`, (rule, detail)."""

    text: str = ""
    encoding: str = ""
    problem: tuple[str, str] | None = None


def decoded(data: bytes) -> Decoded:
    """The text of a file, by its byte order mark, as UTF-8, by the encoding that it declares in its first two lines, or
    by the one that is most probable. `binary` for a file with a zero byte in its first 8,000, `not_decodable` for one
    that no encoding makes a text of."""
    if data.startswith(_WIDE):
        encoding = "utf-32" if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) else "utf-16"
        return _strictly(data, encoding)
    if b"\0" in data[:_HEAD]:
        return Decoded(problem=("binary", f"a zero byte at {data.index(0)}"))
    try:
        return Decoded(data.decode("utf-8-sig"), "utf-8")
    except UnicodeDecodeError as error:
        place = error.start
    declared = _DECLARED.search(b"\n".join(data[:1000].split(b"\n")[:2]))
    if declared is not None:
        text = _strictly(data, declared[1].decode("ascii", "replace"))
        if text.problem is None:
            return text
    text = _strictly(data, charset.guess(data))
    if text.problem is None and len(_CONTROLS.findall(text.text)) > _MAX_CONTROLS * len(text.text):
        return Decoded(problem=("not_decodable", f"no UTF-8 at byte {place}, and controls as {text.encoding}"))
    return text


def _strictly(data: bytes, encoding: str) -> Decoded:
    try:
        name = codecs.lookup(encoding).name
        text = data.decode(name)
    except (LookupError, ValueError) as error:
        return Decoded(problem=("not_decodable", f"{encoding}: {error}"[:200]))
    if not isinstance(text, str):
        return Decoded(problem=("not_decodable", f"{encoding} is no encoding of texts"))
    return Decoded(text.removeprefix("\ufeff"), name)
