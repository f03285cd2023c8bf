"""The step `code` at work."""

import re
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from resiliparse.extract.html2text import extract_plain_text

from gristmill.tasks.documents.batch import Batch, schema
from gristmill.tasks.source_code import recognition
from gristmill.tasks.source_code.comments import comments
from gristmill.tasks.source_code.language import CODE_LANGUAGE
from gristmill.tasks.source_code.language_work import paths
from gristmill.tasks.source_code.names import by_name
from gristmill.tasks.source_code.signals import CodeSignals

_WORD = re.compile(r"\w+")
_HEX = re.compile(r"\b0[xX][0-9a-fA-F]+\b")
# The Stack v2: plain texts that are kept
_NAMED_TEXT = re.compile(
    r"(?:^|/)(?:[^/]*requirement[^/]*|(?:readme|notes|todo|description|cmakelists)(?:\.[^/.]*)?)$", re.IGNORECASE
)
_NO_WHITE_SPACE = re.compile(r"\s+")
# of OpenCoder's: brackets alone, and the like, are no lines that repeat
_SHORT = ("},",)


def measure(step: CodeSignals, documents: Batch) -> dict[str, pa.Array]:
    """The signals of a batch; null for documents without a path."""
    names = paths(documents)
    known = CODE_LANGUAGE in documents.table.column_names
    languages = documents[CODE_LANGUAGE].to_pylist() if known else [_named(path) for path in names]
    rows = [
        {} if path is None else measures(path, text, language)
        for path, language, text in zip(names, languages, documents["text"].to_pylist(), strict=True)
    ]
    return {
        field.name: pa.array([row.get(field.name.removeprefix("code_")) for row in rows], field.type)
        for field in schema(step)
    }


def _named(path: str | None) -> str | None:
    found = by_name(path) if path else None
    return found[0] if found else None


def measures(path: str, text: str, language: str | None) -> dict[str, Any]:
    """By the names of the signals what a text has. Holds its characters once more."""
    size = max(1, len(text))
    lines = text.split("\n")
    lengths = [*map(len, lines)]
    letters, numbers, spaces, digits = _counts(text)
    spans = comments(text, language) if language else None
    longest, encoded = recognition.encoded_lengths(text)
    shown = len(extract_plain_text(text)) if language == "HTML" else None
    words = [len(match[0]) for match in _WORD.finditer(text)]
    return {
        "generated": recognition.is_generated(path, text),
        "vendored": recognition.is_vendored(path),
        "minified": recognition.is_minified(path, text),
        "data": recognition.is_data(path, text),
        "characters": len(text),
        "lines": len(lines),
        "mean_line": sum(lengths) / len(lengths),
        "max_line": max(lengths),
        "alphanumeric": (letters + numbers) / size,
        "alphabetic": letters / size,
        "comments": None if spans is None else sum(span.stop - span.start for span in spans) / size,
        "longest_encoded": longest,
        "encoded": encoded / size,
        "digits": digits / max(1, len(text) - spaces),
        "white_space": spaces / size,
        "words": len(words),
        "mean_word": sum(words) / max(1, len(words)),
        "repeated_lines": _repeated(lines),
        "html_text": shown,
        "html_share": None if shown is None else shown / size,
        "visible_alphabetic": letters / max(1, len(text) - spaces),
        "hex": sum(len(match[0]) for match in _HEX.finditer(text)) / size,
        "xml_start": "<?xml version=" in text[:100],
        "named_text": _NAMED_TEXT.search(path) is not None,
    }


def _counts(text: str) -> tuple[int, int, int, int]:
    """How many characters are letters, numbers that are no letters, white space, and ASCII's digits. ASCII is
    counted by bytes, the rest one by one."""
    if text.isascii():
        of = np.bincount(np.frombuffer(text.encode(), np.uint8), minlength=128)
        letters = int(of[65:91].sum() + of[97:123].sum())
        digits = int(of[48:58].sum())
        return letters, digits, int(of[[9, 10, 11, 12, 13, 28, 29, 30, 31, 32]].sum()), digits
    letters = sum(map(str.isalpha, text))
    return (
        letters,
        sum(map(str.isalnum, text)) - letters,
        sum(map(str.isspace, text)),
        sum(character in "0123456789" for character in text),
    )


def _repeated(lines: list[str]) -> float:
    """Lines without their white space that occur more than once, those of one character and `},` aside, of all."""
    counts = Counter(_NO_WHITE_SPACE.sub("", line) for line in lines)
    counts.pop("", None)
    total = counts.total()
    repeated = sum(n for line, n in counts.items() if n > 1 and len(line) > 1 and line not in _SHORT)
    return repeated / total if total else 0.0
