"""Text in one form: Unicode, invisible characters, white space; and repair of wrongly decoded text."""

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gristmill.tasks.documents.step import Step

if TYPE_CHECKING:
    import ftfy


class Normalize(Step):
    r"""Normalize text: Unicode form NFC, no invisible characters, cleaned-up white space.

    All line ends become \n, and all kinds of spaces a plain space. A run of spaces inside a line becomes one space.
    Indentation is kept, for code and lists, and white space at the end of a line is removed. One blank line is kept
    between paragraphs, and none at the beginning and the end of the text. A normalized text does not change. In texts
    of the extraction engine `blocks`, and in plain text that is passed unchanged (`text`), spaces inside of lines and
    blank lines are kept, since they belong to code and aligned columns.

    With `mojibake`, ftfy first repairs text that was decoded with the wrong encoding, and reads C1 controls as
    characters of Windows-1252; nothing else of ftfy is used. A repaired text can look wrongly decoded again, so with
    `mojibake` a second pass may change it.
    """

    step: Literal["normalize"] = "normalize"
    mojibake: bool = Field(False, description="Repair wrongly decoded text with ftfy: 2 to 3 MB/s if it is not ASCII.")

    @property
    def libraries(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the settings
        return ("ftfy",) if self.mojibake else ()


# In the notation of RE2, as the inside of a character class.
# The line ends of the Unicode Standard, section 5.8, but the line feed. A page break ends a line, too.
_LINE_ENDS = r"\r\v\f\x{85}\x{2028}\x{2029}"
# Zs but the space itself and U+1680, which is a visible stroke of Ogham.
_SPACES = r"\x{A0}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}"
# What a reader does not see and a model should not learn: the controls C0 and C1 but tab and line feed; soft hyphen
# and word joiner, which only guide the breaking of lines; the marks, embeddings, overrides and isolates of
# bidirectional text, which only guide its display, the text being stored in the order of reading; the deprecated
# U+206A to U+206F; the byte order mark; noncharacters. Not the zero width joiner and non-joiner: they are letters'
# parts in Persian and the scripts of India, and hold emoji together. Nor variation selectors, nor U+FFFD, by which one
# sees that a page was damaged.
_INVISIBLE = (
    r"\x00-\x08\x0E-\x1F\x7F-\x{84}\x{86}-\x{9F}\x{AD}\x{61C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}"
    r"\x{2066}-\x{206F}\x{FEFF}\x{FDD0}-\x{FDEF}"
) + "".join(rf"\x{{{plane:X}FFFE}}\x{{{plane:X}FFFF}}" for plane in range(17))

# The zero width space parts words where the script writes none between them: Thai, Lao, Tibetan, Myanmar, Khmer, and
# their relatives. Elsewhere it is residue of a page's layout.
_UNSPACED = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua9e0-\ua9ff\uaa60-\uaadf"
_ZERO_WIDTH_SPACES = re.compile(f"(?<=([{_UNSPACED}]))?\u200b+(?=([{_UNSPACED}]))?")
_NOT_CLEAN = rf"[{_LINE_ENDS}{_SPACES}{_INVISIBLE}\x{{200B}}]"
_NOT_ENDED = r"[ \t]\n|[ \t]\z|\A\n|\n\z"
_NOT_TIDY = r"[^ \t\n]  |[ \t]\n|[ \t]\z|\n\n\n|\A\n|\n\z"


def rewrite(
    step: Normalize, texts: pa.Array | pa.ChunkedArray, spaced: pa.Array | pa.ChunkedArray | None = None
) -> pa.Array:
    """The normalized texts, large_string, one for each; nulls stay nulls.

    spaced: bool, the texts whose white space has been tidied where it is not that of code: of these only the ends of
    lines are.
    Holds a copy of the texts that change, and one of the whole column if there are any.
    """
    texts = texts.cast(pa.large_string())  # before the chunks are joined: 32-bit offsets end at 2 GiB
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if step.mojibake:
        texts = _where(texts, pc.invert(pc.string_is_ascii(texts)), _each(_repaired))
    texts = _where(texts, pc.match_substring_regex(texts, _NOT_CLEAN), _clean)
    texts = _where(texts, pc.invert(pc.string_is_ascii(texts)), _composed)
    if spaced is not None:
        spaced = pc.fill_null(spaced.combine_chunks() if isinstance(spaced, pa.ChunkedArray) else spaced, False)
        texts = _where(texts, pc.and_(spaced, pc.match_substring_regex(texts, _NOT_ENDED)), _trim_ends)
        return _where(texts, pc.and_not(pc.match_substring_regex(texts, _NOT_TIDY), spaced), _tidied)
    return _where(texts, pc.match_substring_regex(texts, _NOT_TIDY), _tidied)


def _trim_ends(texts: pa.Array) -> pa.Array:
    return pc.utf8_trim(pc.replace_substring_regex(texts, r"[ \t]+(\n|\z)", r"\1"), "\n")


def _clean(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring_regex(texts, rf"\r\n|[{_LINE_ENDS}]", "\n")
    texts = pc.replace_substring_regex(texts, f"[{_SPACES}]", " ")
    texts = pc.replace_substring_regex(texts, f"[{_INVISIBLE}]+", "")
    return _where(texts, pc.match_substring(texts, "\u200b"), _each(_without_zero_width_spaces))


def _composed(texts: pa.Array) -> pa.Array:
    """NFC. Python's quick check sees at once that most texts are in this form."""
    return _each(lambda text: unicodedata.normalize("NFC", text))(texts)


def _tidied(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring_regex(texts, r"[ \t]+(\n|\z)", r"\1")
    texts = pc.replace_substring_regex(texts, r"([^ \t\n]) {2,}", r"\1 ")
    texts = pc.replace_substring_regex(texts, r"\n{3,}", "\n\n")
    return pc.utf8_trim(texts, "\n")


def _repaired(text: str) -> str:
    import ftfy

    return ftfy.fix_text(text, _encoding_only())


@cache
def _encoding_only() -> "ftfy.TextFixerConfig":
    """Only what concerns the encoding: no HTML entities, quotation marks, ligatures, widths, line breaks, controls."""
    import ftfy

    return ftfy.TextFixerConfig(
        unescape_html=False,
        remove_terminal_escapes=False,
        fix_latin_ligatures=False,
        fix_character_width=False,
        uncurl_quotes=False,
        fix_line_breaks=False,
        remove_control_chars=False,
        normalization=None,
        explain=False,
    )


def _without_zero_width_spaces(text: str) -> str:
    """Keep one zero width space of a run next to a letter of a script without spaces."""
    return _ZERO_WIDTH_SPACES.sub(lambda match: "\u200b" if match[1] or match[2] else "", text)


def _each(change: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    return lambda texts: pa.array([None if t is None else change(t) for t in texts.to_pylist()], pa.large_string())


def _where(texts: pa.Array, concerned: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The texts, with `change` applied where `concerned` is true."""
    concerned = pc.fill_null(concerned, False)
    if not pc.any(concerned).as_py():
        return texts
    return pc.replace_with_mask(texts, concerned, change(texts.filter(concerned)))
