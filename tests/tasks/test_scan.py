import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.kernels import codepoints, scan
from tasks.kernels.buffers import utf8

PIECES = [
    " ",
    "  ",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\v",
    "\x1c",
    "\x85",
    "\u2028",
    "\u2029",
    "\u3000",
    "\u200b",
    "\x00",
]
PIECES += [
    "a",
    "the",
    "b" * 70,
    "é",
    "e\u0301",
    "\u2026",
    "...",
    "\u2022",
    "漢字",
    "😀",
    "\U0010ffff",
    "\u07ff",
    "\uffff",
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)


def scanned(text):
    """Words of a text that stands in the middle of a buffer, as (spans, counts)."""
    data, offsets = utf8(pa.array(["x\n ", text, "\n y"], pa.large_string()))
    out = scan.scratch(offsets)
    counts = scan.words(data, offsets[1], offsets[2], scan.white_space(), out)
    return data, out, counts


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_words_are_those_of_split(text):
    data, out, (n, lines, chars) = scanned(text)
    words = [bytes(data[out.start[i] : out.stop[i]]).decode() for i in range(n)]
    assert words == text.split()
    assert [len(w) for w in words] == list(out.chars[:n])
    assert (lines, chars) == (len(text.splitlines()), len(text))
    firsts = sum(bool(line.split()) for line in text.splitlines())
    assert firsts == sum(bool(bits & scan.BREAK) for bits in out.bits[:n])


@settings(deadline=None)
@given(TEXTS)
def test_hashes_are_equal_exactly_where_words_are(text):
    data, out, (n, _, _) = scanned(text + " " + text)
    of = {}
    for word, h in zip((text + " " + text).split(), out.hash[:n], strict=True):
        alone = np.frombuffer(word.encode(), np.uint8)
        assert of.setdefault(word, h) == h == scan.polynomial(alone, 0, len(alone))
    assert len(set(of.values())) == len(of)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from([1, 2]))
def test_parts_are_those_of_re_split(text, newlines):
    data, offsets = utf8(pa.array(["\n", text, "\n\n"], pa.large_string()))
    small = scan.Parts(np.empty(1, np.int64), np.empty(1, np.uint64))
    n, out = scan.parts(data, offsets[1], offsets[2], newlines, small)
    parts = re.split("\n" * (newlines - 1) + "\n+", text)
    assert [len(p) for p in parts] == list(out.chars[:n])
    for i in range(n):
        for j in range(i):
            assert (parts[i] == parts[j]) == (out.hash[i] == out.hash[j])


@pytest.mark.parametrize("length", range(20))
def test_a_line_has_one_hash_wherever_it_stands(length):
    line = "abcdefghijklmnopqrst"[:length]
    for before in ("", "x\n", "é"):
        for after in ("", "\n", "\nxyz\nmore text"):
            data, _ = utf8(pa.array([before + line + after], pa.large_string()))
            data = data[: len((before + line + after).encode())]
            begin = len(before.encode())
            stop, chars, h = scan.line(data, begin, len(data))
            assert (stop, chars) == (begin + length, length)
            assert h == scan.line(np.frombuffer(line.encode() + b"\n", np.uint8), 0, length + 1)[2]


@settings(deadline=None)
@given(TEXTS)
def test_strip_is_that_of_str(text):
    data, offsets = utf8(pa.array(["\n", text, "  "], pa.large_string()))
    begin, end = scan.strip(data, offsets[1], offsets[2], scan.white_space())
    assert bytes(data[begin:end]).decode() == text.strip()


def test_tables_hold_what_python_says_of_every_code_point():
    classes, white = codepoints.classes(), scan.white_space()
    for c in [
        *range(0x3100),
        *range(0xD7F0, 0xE010),
        *range(0xFE00, 0x10500),
        *range(0x1D100, 0x1FB00),
        0x10FFFF,
    ]:
        assert classes[c] == codepoints.classify(chr(c)), hex(c)
        assert bool(white[c] & scan.SPACE) == chr(c).isspace(), hex(c)
        assert bool(white[c] & scan.BREAK) == (len(f"a{chr(c)}b".splitlines()) == 2), hex(c)


def test_lower_case_is_that_of_python():
    table = codepoints.lowercase()
    for c in [*range(0x3100), *range(0xA640, 0xAC00), *range(0x10400, 0x11900), 0x130, 0x1E900]:
        lower = chr(c).lower()
        assert table[c] == (ord(lower) if len(lower) == 1 else c), hex(c)


def test_every_layout_of_a_string_column_has_the_same_documents():
    texts = ["", "one", "zwei drei", "四", "", "fünf"]
    large, small = pa.array(texts, pa.large_string()), pa.array(texts)
    layouts = [large, small, pa.chunked_array([large]), pa.chunked_array([small[:2], small[2:5], small[5:]])]
    layouts += [pa.chunked_array([large[1:4], large[4:]]), small[1:], large[2:5], large[6:]]
    layouts += [
        pa.chunked_array([], pa.large_string()),
        pa.array([], pa.string()),
        pa.array(texts, pa.string_view()),
    ]
    for column in layouts:
        data, offsets = utf8(column)
        got = [bytes(data[a:b]).decode() for a, b in zip(offsets, offsets[1:], strict=False)]
        assert got == column.to_pylist()
    with pytest.raises(ValueError, match="holds 1 nulls"):
        utf8(pa.array(["a", None]))
