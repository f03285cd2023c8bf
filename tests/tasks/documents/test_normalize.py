"""Normalised text against a plain-Python reference that goes through it character by character."""

import unicodedata

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.tasks.documents import normalize
from gristmill.tasks.documents.normalize import Normalize

UNSPACED = [(0xE00, 0xFFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF), (0x1A20, 0x1AAF), (0xA9E0, 0xA9FF)]
UNSPACED += [(0xAA60, 0xAADF)]
BIDI = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


def rewrite(texts: list[str | None], **options) -> list[str | None]:
    return normalize.rewrite(Normalize(**options), pa.array(texts, pa.large_string())).to_pylist()


def invisible(c: str) -> bool:
    code = ord(c)
    return (
        unicodedata.category(c) == "Cc"
        or code & 0xFFFE == 0xFFFE
        or 0xFDD0 <= code <= 0xFDEF
        or unicodedata.bidirectional(c) in BIDI
        or 0x206A <= code <= 0x206F
        or c in "\u00ad\u061c\u200e\u200f\u2060\ufeff"
    )


def unspaced(c: str) -> bool:
    return any(low <= ord(c) <= high for low, high in UNSPACED)


def reference(text: str) -> str:
    text = text.replace("\r\n", "\n")
    characters = []
    for c in text:
        if c in "\r\v\f\x85\u2028\u2029":
            c = "\n"
        elif unicodedata.category(c) == "Zs" and c != "\u1680":
            c = " "
        if c in "\t\n" or not invisible(c):
            characters.append(c)
    kept = []
    for i, c in enumerate(characters):
        if c == "\u200b":
            if kept and kept[-1] == "\u200b":
                continue
            after = next((x for x in characters[i:] if x != "\u200b"), "")
            if not (kept and unspaced(kept[-1])) and not (after and unspaced(after)):
                continue
        kept.append(c)
    lines = []
    for line in unicodedata.normalize("NFC", "".join(kept)).split("\n"):
        line = line.rstrip(" \t")
        out = ""
        for c in line:
            inside = out.strip(" \t") and out[-1] == " " and out[-2:-1] != "\t"
            if not (c == " " and inside):
                out += c
        lines.append(out)
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    return "\n".join(line for i, line in enumerate(lines) if line or lines[i - 1])


AWKWARD = (
    " \t\n\r\v\f\x00\x1b\x7f\x80\x85\x9f\xa0\xad\u061c\u1680\u2000\u2003\u200a\u200b\u200c\u200d\u200e\u2028\u2029"
    "\u202e\u202f\u205f\u2060\u2064\u2066\u206f\u3000\ufdd0\ufe0f\ufeff\uffff\U0001ffff"
    "ae\u0301\u0327\u00e9\u212b\u1100\u1161\u11a8\uac00\u0e01\u0e33\u1780\u17b6\u0915\u093c\u0958\U0001f468\u06cc"
)
texts = st.text(
    st.one_of(st.sampled_from(AWKWARD), st.sampled_from("ab  \n"), st.characters(codec="utf-8")), max_size=40
)


@settings(max_examples=300, deadline=None)
@given(st.lists(texts, max_size=4))
@example(["\u1780\u200b\u200b\u1780 a\u200b\u1780 a\u200bb"])
@example(["a\t  b", "\t  b", "a \xa0", "\xad\n", "e\xad\u0301", "\r\xad\n"])
def test_text_is_as_the_reference_has_it_and_stays_so(given_texts):
    found = rewrite(given_texts)
    assert found == [reference(text) for text in given_texts]
    assert rewrite(found) == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\r\ntwo\rthree\x0cfour\u2028five", "one\ntwo\nthree\nfour\nfive"),
        ("\n\n  def f():\n\tx  =  1   \n \n\n\n\nend\n", "  def f():\n\tx = 1\n\nend"),
        ("10\xa0000\u202f€\u3000net", "10 000 € net"),
        ("hy\xadphen\ufeff a\u200bb \x1b[0m", "hyphen ab [0m"),
        ("cafe\u0301 \u212b", "café Å"),
        ("\u05d0\u200f(\u202aabc\u202c)", "\u05d0(abc)"),
        # what must stay: joiners in Persian, Hindi and emoji, word breaks in Khmer and Thai, signs of damage
        ("می\u200cخواهم", "می\u200cخواهم"),
        (
            "क्\u200dष \U0001f468\u200d\U0001f469\u200d\U0001f467 ❤\ufe0f",
            "क्\u200dष \U0001f468\u200d\U0001f469\u200d\U0001f467 ❤\ufe0f",
        ),
        ("ខ្ញុំ\u200bស្រលាញ់\u200b\u200bខ្មែរ", "ខ្ញុំ\u200bស្រលាញ់\u200bខ្មែរ"),
        ("\ufffd ﬁ “x” &amp; Ａ", "\ufffd ﬁ “x” &amp; Ａ"),
        ("", ""),
    ],
)
def test_cases(text, expected):
    assert rewrite([text]) == [expected]


def test_only_wrongly_decoded_text_is_repaired():
    right = ["ﬁne “quotes” &amp; Ａ…", "Schöne Grüße", "plain"]
    assert rewrite(right, mojibake=True) == right
    assert rewrite(["SchÃ¶ne GrÃ¼ÃŸe"], mojibake=True) == ["Schöne Grüße"]
    assert rewrite(["SchÃ¶ne GrÃ¼ÃŸe"]) == ["SchÃ¶ne GrÃ¼ÃŸe"]
    assert rewrite(["it\x92s"], mojibake=True) == ["it’s"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_columns_of_any_layout(kind):
    chunks = pa.chunked_array([["a  b"], [], [None, "c"], ["\xa0d\xa0 "]], kind)
    expected = pa.array(["a b", None, "c", " d"], pa.large_string())
    assert normalize.rewrite(Normalize(), chunks).equals(expected)
    assert normalize.rewrite(Normalize(), chunks.slice(1)).equals(expected[1:])
    assert normalize.rewrite(Normalize(), chunks.combine_chunks()).equals(expected)
    assert normalize.rewrite(Normalize(), pa.chunked_array([], kind)).equals(pa.array([], pa.large_string()))


@pytest.mark.timeout(60)
def test_runs_of_a_million_characters_take_linear_time():
    n = 1_000_000
    given_texts = [" " * n + "x", "a" + " " * n + "x", "\u200b" * n, "\n " * n, "e" + "\u0301" * 10_000]
    expected = [" " * n + "x", "a x", "", "", "é" + "\u0301" * 9_999]
    assert rewrite(given_texts) == expected


def test_code_of_an_engine_that_spaces_texts_itself_is_left_alone():
    code = "  x    = 1\n\n\n\ty  = 'a  b'"
    given_texts = pa.array([code + "  \n", f"{code}\u200b", "a  b\n\n\n\nc", "\na \nb", None], pa.large_string())
    spaced = pa.array([True, True, False, True, True])
    found = normalize.rewrite(Normalize(), given_texts, spaced).to_pylist()
    assert found == [code, code, "a b\n\nc", "a\nb", None]
    assert normalize.rewrite(Normalize(), pa.array(found, pa.large_string()), spaced).to_pylist() == found
