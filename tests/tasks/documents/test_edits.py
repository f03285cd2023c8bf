"""Cuts in texts: spans of lines, the texts they leave, and the rows that tell what was there."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.storage.schema import EDITS
from gristmill.tasks.documents.edits import Edits, applied, line_removals, line_spans, merged, removals, rows, scanned
from gristmill.tasks.documents.measure import measured
from gristmill.tasks.kernels.scan import scan
from gristmill.tasks.rules.c4 import C4

BREAKS = ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"]
# not at random: a "\r" at the end of one line and the "\n" of the next would be one break
LINES = st.lists(st.tuples(st.text("aé漢😀 \t", max_size=6), st.sampled_from(BREAKS), st.booleans()), max_size=6)


def column(texts):
    """Not at the beginning of its buffer, and in two chunks."""
    whole = pa.chunked_array([["před", *texts[:1]], texts[1:]], pa.large_string())
    return whole.slice(1)


def removing(texts, masks, rule=0, rules=("r",)):
    text = scan(column(texts))
    removed = np.array([gone for mask in masks for gone in mask], bool)
    document, start, stop = line_spans(text, removed)
    numbers = np.resize(np.array(rule), len(document))
    return text, removals(document, start, stop, numbers, rules)


def without(text, mask):
    """The lines that stay with the breaks behind them; the last one without, if lines were removed behind it."""
    lines = text.splitlines(keepends=True)
    assert len(lines) == len(mask)
    kept = [line for line, gone in zip(lines, mask, strict=True) if not gone]
    if kept and mask[-1]:
        kept[-1] = kept[-1].splitlines()[0]
    return "".join(kept)


def cut(text, spans):
    """`spans` (start, stop, replacement) in bytes, from the last to the first."""
    data = text.encode()
    for start, stop, put in sorted(spans, reverse=True):
        data = data[:start] + put.encode() + data[stop:]
    return data.decode()


def restored(after, found):
    """The text before, from the text after and the rows of its edits."""
    whole, at, taken = "", 0, 0
    for row in found:
        stays = row["start"] - taken
        whole += after[at : at + stays] + row["removed"]
        at += stays + len(row["replacement"])
        taken = row["stop"]
    return whole + after[at:]


@pytest.mark.parametrize(
    ("text", "mask", "after"),
    [
        ("a\nb\nc", [1, 0, 0], "b\nc"),
        ("a\nb\nc", [0, 1, 0], "a\nc"),
        ("a\nb\nc", [0, 0, 1], "a\nb"),
        ("a\nb\nc\n", [0, 1, 0], "a\nc\n"),
        ("a\nb\nc\n", [0, 1, 1], "a"),
        ("a\r\n\r\nb", [0, 1, 0], "a\r\nb"),
        ("a\r\nb\x85", [0, 1], "a"),
        ("\n\n", [1, 1], ""),
        ("\na", [0, 1], ""),
        ("", [], ""),
    ],
)
def test_removed_lines_take_one_break_with_them(text, mask, after):
    _, edits = removing([text], [mask])
    assert applied(pa.array([text]), edits).to_pylist() == [after]
    assert applied(pa.array([text]), merged(edits)).to_pylist() == [after]


@settings(deadline=None)
@given(st.lists(LINES, min_size=1, max_size=4), st.booleans())
def test_kept_lines_are_joined_by_the_breaks_that_they_had(documents, open_end):
    texts, masks = [], []
    for lines in documents:
        text = "".join(line + ("\n" if pause == "\r" else pause) for line, pause, _ in lines)
        mask = [gone for *_, gone in lines]
        if open_end and lines and lines[-1][0]:
            text = text[: -len("\n" if lines[-1][1] == "\r" else lines[-1][1])]
        texts.append(text)
        masks.append(mask)
    scanned, edits = removing(texts, masks)
    expected = [without(text, mask) for text, mask in zip(texts, masks, strict=True)]
    assert applied(column(texts), edits).to_pylist() == expected
    assert applied(column(texts), merged(edits)).to_pylist() == expected
    ids = pa.array([str(i) for i in range(len(texts))])
    for same in edits, merged(edits):
        found = rows(ids, "s", scanned, same, keeps_removed=True).to_pylist()
        for i, (before, after) in enumerate(zip(texts, expected, strict=True)):
            assert restored(after, [row for row in found if row["id"] == str(i)]) == before


@st.composite
def documents_with_cuts(draw):
    texts = draw(st.lists(st.text("aé漢😀\n\r ", max_size=12), min_size=1, max_size=5))
    spans = []
    for d, text in enumerate(texts):
        places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6).filter(lambda p: len(p) % 2 == 0)))
        for start, stop in zip(places[::2], places[1::2], strict=True):
            put = draw(st.sampled_from(["", "", "x", "é漢"]))
            if start < stop or put:
                spans.append((d, start, stop, draw(st.integers(0, 1)), put))
    return texts, [s for i, s in enumerate(spans) if not i or s[:3] != spans[i - 1][:3]]


@settings(deadline=None)
@given(documents_with_cuts())
def test_edits_do_what_splicing_does(drawn):
    texts, spans = drawn
    # in bytes
    document = np.array([d for d, *_ in spans], np.int64)
    start = np.array([len(texts[d][:a].encode()) for d, a, *_ in spans], np.int64)
    stop = np.array([len(texts[d][:b].encode()) for d, _, b, *_ in spans], np.int64)
    rule = np.array([r for *_, r, _ in spans], np.int32)
    put = pa.array([p for *_, p in spans], pa.string())
    edits = Edits(document, start, stop, rule, ("one", "two"), put)
    expected = [
        cut(text, [(a, b, p) for e, a, b, p in zip(document, start, stop, put.to_pylist(), strict=True) if e == d])
        for d, text in enumerate(texts)
    ]
    given = column(texts)
    assert applied(given, edits).to_pylist() == expected
    assert applied(given, merged(edits)).to_pylist() == expected
    found = rows(pa.array(list(map(str, range(len(texts))))), "s", scan(given), edits, keeps_removed=True)
    assert found.schema == EDITS
    for (d, a, b, r, p), row in zip(spans, found.to_pylist(), strict=True):
        assert (row["id"], row["start"], row["stop"]) == (str(d), a, b)
        assert (row["rule"], row["replacement"], row["removed"]) == (("one", "two")[r], p, texts[d][a:b])
        # lines: those of the text's characters, a break belonging to the line before it
        ends = np.cumsum([len(line) for line in texts[d].splitlines(keepends=True)])
        last = min(np.searchsorted(ends, max(b - 1, a), side="right"), max(len(ends) - 1, 0))
        assert row["last_line"] == last
        assert row["first_line"] <= last
    for d, (before, after) in enumerate(zip(texts, expected, strict=True)):
        assert restored(after, [row for row in found.to_pylist() if row["id"] == str(d)]) == before


def test_rows_say_lines_and_rules():
    texts = ["é one\n\ntwo\nthree\n\n\nfour", "none", "x\n\ny"]
    masks = [[0, 1, 1, 0, 1, 1, 1], [0], [0, 1, 1]]
    rules = ("short", "blank")
    scanned, edits = removing(texts, masks, [1, 0, 1, 1, 0, 1, 0], rules)
    table = rows(pa.array(["a", "b", "c"]), "s", scanned, merged(edits), keeps_removed=True)
    keys = ("id", "rule", "first_line", "last_line", "start", "stop", "removed")
    assert [tuple(row[k] for k in keys) for row in table.to_pylist()] == [
        ("a", "blank", 1, 1, 6, 7, "\n"),
        ("a", "short", 2, 2, 7, 11, "two\n"),
        ("a", "blank", 4, 5, 16, 19, "\n\n\n"),
        ("a", "short", 6, 6, 19, 23, "four"),
        ("c", "blank", 1, 1, 1, 3, "\n\n"),
        ("c", "short", 2, 2, 3, 4, "y"),
    ]
    assert applied(column(texts), edits).to_pylist() == ["é one\nthree", "none", "x"]
    silent = rows(pa.array(["a", "b", "c"]), "s", scanned, merged(edits), keeps_removed=False)
    assert silent["removed"].null_count == len(silent)


def test_cuts_of_one_rule_that_touch_become_one_and_others_do_not():
    spans = [
        (0, 0, 2, 0, ""),
        (0, 2, 3, 0, ""),
        (0, 3, 4, 1, ""),
        (0, 4, 5, 1, "x"),
        (0, 6, 7, 1, ""),
        (1, 7, 8, 1, ""),
    ]
    columns = [np.array(column) for column in zip(*[s[:4] for s in spans], strict=True)]
    edits = Edits(*columns, ("r", "s"), pa.array([s[4] for s in spans]))
    joined = merged(edits)
    assert list(zip(joined.document, joined.start, joined.stop, joined.rule, strict=True)) == [
        (0, 0, 3, 0),
        (0, 3, 4, 1),
        (0, 4, 5, 1),
        (0, 6, 7, 1),
        (1, 7, 8, 1),
    ]


def test_no_edits_leave_the_texts():
    none = np.array([], np.int64)
    edits = removals(none, none, none, none, ("r",))
    for texts in (["a", "", "é"], [""], []):
        assert applied(pa.array(texts, pa.string()), merged(edits)).to_pylist() == texts
        table = rows(pa.array(texts, pa.string()), "s", scan(pa.array(texts, pa.string())), edits, keeps_removed=True)
        assert table.schema == EDITS
        assert not len(table)


def test_a_slice_copies_only_its_own_bytes():
    """Slices of a shard share its buffer: each must cost its own size, not the shard's."""
    texts = pa.chunked_array([[f"line {i}\nremove\nend" for i in range(3000)]], pa.large_string())
    part = texts.slice(1500, 2)
    text = scan(part)
    document, start, stop = line_spans(text, np.array([0, 1, 0] * 2, bool))
    left = applied(part, removals(document, start, stop, np.zeros(2), ("r",)))
    assert left.to_pylist() == ["line 1500\nend", "line 1501\nend"]
    assert left.get_total_buffer_size() < 100


ALPHABET = ["a", "B", "é", "漢", "ก", "1", ".", ",", "'", "-", "”", "[", " ", "\t", "\u200b", "\u0301", "😀"]
COLUMNS = [*(name for name in scan(pa.array([""])).__dict__ if name != "data"), "sentence_words"]


@st.composite
def documents_without_lines(draw):
    """Texts, the line and the bytes of pieces of them, and for each line the rule that removes it, or -1."""
    breaks = draw(st.sampled_from(["\n", "\n\r", "\n\x85\u2028"]))
    line = st.tuples(st.text(st.sampled_from(ALPHABET), max_size=5), st.sampled_from([*breaks, ""]))
    text = st.lists(line, max_size=8).map(lambda lines: "".join(map("".join, lines)))
    texts = draw(st.lists(text, min_size=1, max_size=5))
    text = scan(column(texts))
    rule = np.array(draw(st.lists(st.integers(-1, 1), min_size=(n := len(text.line_start)), max_size=n)), np.int32)
    pieces = []
    for line in np.flatnonzero(rule < 0).tolist():
        if draw(st.integers(0, 3)) == 0:
            shown = text.data[text.line_start[line] : text.line_stop[line]].tobytes().decode()
            start, stop = sorted(draw(st.tuples(st.integers(0, len(shown)), st.integers(0, len(shown)))))
            at = [text.line_start[line] + len(shown[:place].encode()) for place in (start, stop)]
            pieces += [(line, *at)] if start < stop else []
    return texts, rule, np.array(pieces, np.int64).reshape(-1, 3).T


@pytest.mark.extended
@settings(deadline=None)
@given(documents_without_lines())
@example((["a\rb\n\nc"], np.array([-1, 0, -1, -1]), np.empty((3, 0), np.int64)))
def test_the_scan_of_what_is_left_is_that_of_a_new_look(drawn):
    texts, rule, pieces = drawn
    text = scan(column(texts))
    edits = line_removals(text, rule, *pieces, 2, ("one", "two", "pieces"))
    left = applied(column(texts), merged(edits))
    found, expected = scanned(text, edits, left), scan(left)
    assert found.data.tobytes() == expected.data.tobytes()
    for name in COLUMNS:
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
        assert getattr(found, name).dtype == getattr(expected, name).dtype


def test_rows_of_a_document_do_not_depend_on_its_neighbours():
    texts = ["Keep this line.\n\njavascript here", "javascript a\nKeep this.", "", "javascript", "x\n\njavascript"]
    step = C4(min_words_per_line=0, terminal_punctuation=())

    def found(texts):
        table = pa.table({"id": texts, "text": pa.array(texts, pa.large_string())})
        return measured(table, [step]).edits.to_pylist()

    assert found(texts) == [row for text in texts for row in found([text])]
    assert [(row["first_line"], row["last_line"]) for row in found(texts[:1])] == [(2, 2)]
