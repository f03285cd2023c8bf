"""The step `code`: what is measured of a file of code, by which rule sets decide."""

import re
from collections import Counter
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field
from resiliparse.extract.html2text import extract_plain_text

from gristmill.tasks.documents.measure import Batch, schema
from gristmill.tasks.documents.step import Bound, DocumentStep, Kind, Signal
from gristmill.tasks.source_code import recognition
from gristmill.tasks.source_code.comments import comments
from gristmill.tasks.source_code.language import CODE_LANGUAGE, PATH, paths
from gristmill.tasks.source_code.recognition import by_name

LINGUIST = "after Linguist's generated.rb and vendor.yml"
STACK = "Lozhkov et al. 2024 (arXiv 2402.19173), section 2.1"
OPENCODER = "Huang et al. 2024 (arXiv 2411.04905); OpenCoder-llm/opc_data_filtering, quality_signals/code.py"


def signal(name: str, kind: Kind, unit: str, source: str, description: str) -> Signal:
    return Signal(f"code_{name}", kind, unit, source, description=description)


class CodeSignals(DocumentStep):
    """Measure properties of a code file, and apply the usual limits to them. Limits are off unless you set them.

    They are null for a document without a path, which is not code and stays. `code_comments` is null, too, for
    a language whose marks of comments are not known.
    """

    step: Literal["code"] = "code"
    generated: bool = Field(True, description="Keep generated files.")
    vendored: bool = Field(True, description="Keep third-party files, recognized by their folders and names.")
    minified: bool = Field(True, description="Keep minified scripts and styles.")
    data: bool = Field(True, description="Keep data files: data formats, and long files or files with mostly numbers.")
    max_mean_line: float | None = Field(
        None, ge=0, description="Maximum mean line length (characters); null: no limit."
    )
    max_line: int | None = Field(None, ge=0, description="Maximum length of a line (characters); null: no limit.")
    min_alphanumeric: float | None = Field(
        None, ge=0, le=1, description="Minimum fraction of characters that are letters or numbers; null: no limit."
    )
    min_comments: float | None = Field(
        None, ge=0, le=1, description="Minimum fraction of characters in comments; null: no limit."
    )
    max_comments: float | None = Field(
        None, ge=0, le=1, description="Maximum fraction of characters in comments; null: no limit."
    )

    signals: ClassVar = (
        signal("generated", "bool", "label", LINGUIST, "Whether a tool has written the file."),
        signal("vendored", "bool", "label", LINGUIST, "Whether the path is one where projects keep others' code."),
        signal("minified", "bool", "label", LINGUIST, "Whether a tool has joined the lines of a script or style."),
        signal("data", "bool", "label", STACK, "Whether it is data: a format for it, long or mostly numbers."),
        signal("characters", "int64", "characters", OPENCODER, "Characters of the file."),
        signal("lines", "int64", "lines", STACK, "Lines of the file."),
        signal("mean_line", "float64", "characters", STACK, "Characters of a line on average."),
        signal("max_line", "int64", "characters", STACK, "Characters of the longest line."),
        signal("alphanumeric", "float64", "fraction of characters", STACK, "Characters that are letters or numbers."),
        signal("alphabetic", "float64", "fraction of characters", STACK, "Characters that are letters."),
        signal("comments", "float64", "fraction of characters", OPENCODER, "Characters in comments, marks included."),
        signal("longest_encoded", "int64", "characters", STACK, "The longest run of encoded data (base64, hex, \\u)."),
        signal("encoded", "float64", "fraction of characters", STACK, "Characters in runs of encoded data."),
        signal("digits", "float64", "fraction of characters", OPENCODER, "Of what is no white space: digits."),
        signal("white_space", "float64", "fraction of characters", OPENCODER, "Characters that are white space."),
        signal("words", "int64", "words", OPENCODER, "Runs of letters, numbers and `_`."),
        signal("mean_word", "float64", "characters", OPENCODER, "Characters of such a word on average."),
        signal("repeated_lines", "float64", "fraction of lines", OPENCODER, "Lines that occur more than once."),
        signal("html_text", "int64", "characters", STACK, "Visible text of a file of HTML; null of others."),
        signal("html_share", "float64", "fraction of characters", STACK, "Visible text of HTML, of the whole file."),
        signal("visible_alphabetic", "float64", "fraction of characters", OPENCODER, "Letters, of no white space."),
        signal("hex", "float64", "fraction of characters", OPENCODER, "Characters of numbers like 0x1F."),
        signal("xml_start", "bool", "label", OPENCODER, "Whether the first 100 characters declare XML."),
        signal("named_text", "bool", "label", STACK, "Whether the name is of a readme, notes, todo or requirements."),
    )

    @property
    def considers(self) -> tuple[str, ...]:
        return (PATH, CODE_LANGUAGE)

    def decisions(self) -> list[Bound]:
        kinds = ("generated", "vendored", "minified", "data")
        stay = {kind: None if getattr(self, kind) else 0 for kind in kinds}
        bounds = [Bound(kind, f"code_{kind}", high=high, keeps_null=True) for kind, high in stay.items()]
        return [
            *bounds,
            Bound("mean_line", "code_mean_line", high=self.max_mean_line, keeps_null=True),
            Bound("max_line", "code_max_line", high=self.max_line, keeps_null=True),
            Bound("alphanumeric", "code_alphanumeric", low=self.min_alphanumeric, keeps_null=True),
            Bound("comments", "code_comments", self.min_comments, self.max_comments, keeps_null=True),
        ]


_WORD = re.compile(r"\w+")
_HEX = re.compile(r"\b0[xX][0-9a-fA-F]+\b")
# The Stack v2: plain texts that are kept
_NAMED_TEXT = re.compile(
    r"(?:^|/)(?:[^/]*requirement[^/]*|(?:readme|notes|todo|description|cmakelists)(?:\.[^/.]*)?)$", re.IGNORECASE
)
_NO_WHITE_SPACE = re.compile(r"\s+")
# of OpenCoder: lines with only brackets and the like do not count as repeated
_SHORT = ("},",)


def measure(step: CodeSignals, documents: Batch) -> dict[str, pa.Array]:
    """The signals of a batch; null for documents without a path."""
    names = paths(documents)
    has_languages = CODE_LANGUAGE in documents.table.column_names
    languages = documents[CODE_LANGUAGE].to_pylist() if has_languages else [_named(path) for path in names]
    rows = [
        {} if path is None else measures(path, text, language)
        for path, language, text in zip(names, languages, documents["text"].to_pylist(), strict=True)
    ]
    return {
        field.name: pa.array([row.get(field.name.removeprefix("code_")) for row in rows], field.type)
        for field in schema(step)
    }


def _named(path: str | None) -> str | None:
    language = by_name(path) if path else None
    return language[0] if language else None


def measures(path: str, text: str, language: str | None) -> dict[str, Any]:
    """The values of a text by the names of the signals. Holds its characters once more."""
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
    """How many characters are letters, numbers that are not letters, white space, and ASCII's digits. ASCII is
    counted by bytes, the rest one by one."""
    if text.isascii():
        counts = np.bincount(np.frombuffer(text.encode(), np.uint8), minlength=128)
        letters = int(counts[65:91].sum() + counts[97:123].sum())
        digits = int(counts[48:58].sum())
        return letters, digits, int(counts[[9, 10, 11, 12, 13, 28, 29, 30, 31, 32]].sum()), digits
    letters = sum(map(str.isalpha, text))
    return (
        letters,
        sum(map(str.isalnum, text)) - letters,
        sum(map(str.isspace, text)),
        sum(character in "0123456789" for character in text),
    )


def _repeated(lines: list[str]) -> float:
    """The share of lines that occur more than once, whatever their white space; `},` and lines of one character do not
    count as repeated."""
    counts = Counter(_NO_WHITE_SPACE.sub("", line) for line in lines)
    counts.pop("", None)
    total = counts.total()
    repeated = sum(n for line, n in counts.items() if n > 1 and len(line) > 1 and line not in _SHORT)
    return repeated / total if total else 0.0
