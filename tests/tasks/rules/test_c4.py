"""C4: each rule of a line and of a document worked out by hand, and all of them against the words of the codes."""

import re

import numpy as np
import punkt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.edits import applied, merged, rows
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.rules import c4
from gristmill.tasks.rules.c4 import C4
from gristmill.tasks.rules.c4_sentences import sentences

GOOD = "This is a line."


def through(texts, step=None):
    """(what is left of each text, rows of the edits, signals)"""
    step = step or C4()
    table = pa.table({"id": [str(i) for i in range(len(texts))], "text": pa.array(texts, pa.large_string())})
    batch = Batch(table)
    edits, signals = work_of(step).edit(step, batch)
    edits = merged(edits)
    left = applied(batch["text"], edits)
    found = rows(batch["id"].combine_chunks(), "c4", batch.scan, edits, step.keeps_removed)
    assert set(signals) | {"c4_characters"} == {signal.name for signal in step.signals}
    return left.to_pylist(), found.to_pylist(), {name: column.to_pylist() for name, column in signals.items()}


def dropped(texts, step=None):
    """The rule that drops each document, or None."""
    step = step or C4()
    left, _, signals = through(texts, step)
    table = pa.table({"id": list(map(str, range(len(texts)))), **signals, "c4_characters": list(map(len, left))})
    reasons = {
        row["id"]: row["rule"] for _, found in decide(table, [("c4", step.decisions())]) for row in found.to_pylist()
    }
    return [reasons.get(str(i)) for i in range(len(texts))]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (GOOD, None),
        ("Does it end so?", None),
        ("It ends so!", None),
        ('He said "so be it"', None),
        ("It is 'so be it'", None),
        ("   indented lines stay as they are.  ", None),
        ("It does not end", "no_terminal_punctuation"),
        ("It does not end...", "no_terminal_punctuation"),
        ("It does not end…", "no_terminal_punctuation"),
        ("It ends after a colon:", "no_terminal_punctuation"),
        ("Two words.", "few_words"),
        ("One , two.", None),
        ("Please enable JavaScript in your browser.", "javascript"),
        ("Read our Privacy Policy before you go.", "policy"),
        ("By that you accept the TERMS OF USE.", "policy"),
        ("The site uses cookies for this.", "policy"),
        ("The use of  cookies is not that phrase.", None),
        (f"A word of {'x' * 1001} is long.", "long_word"),
        (f"A word of {'é' * 1000} is not.", None),
        (f"No word is {'x,y ' * 600} long.", None),
        (f"One is {'x,y' * 334} long.", "long_word"),
        (f"{'x' * 1001}", "long_word"),
        ("", "blank_line"),
        (" \t ", "blank_line"),
    ],
)
def test_a_line_goes_by_its_first_rule(line, rule):
    left, found, _ = through([f"{GOOD}\n{line}\n{GOOD}"])
    assert left == [f"{GOOD}\n{GOOD}" if rule else f"{GOOD}\n{line}\n{GOOD}"]
    assert [(row["rule"], row["first_line"], row["removed"]) for row in found] == (
        [(rule, 1, line + "\n")] if rule else []
    )


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("It is so.[1]", "It is so."),
        ("It[23] is[] so[edit].", "It is so."),
        ("It is[citation needed] so.", "It is so."),
        ("It is so[١٢].", "It is so."),
        ("It is so [12, 13].", "It is so [12, 13]."),
        ("It is so [é].", "It is so [é]."),
        ("It is so [Edit].", "It is so [Edit]."),
        ("[[1]] is so.", "[] is so."),
        # the space is left, and with it the line does not end with a mark, in datatrove and tensorflow_datasets
        ("It is so. [1]", None),
        ("It is so..[1].", None),
        ("It is java[1]script.", None),
        ("It is so [1][2].", "It is so ."),
        # three words before the citation goes
        ("So [1].. be", None),
        ("So [1] be.", "So  be."),
    ],
)
def test_citations_are_cut_out_before_a_line_is_judged(line, left):
    text = f"{GOOD}\n{line}\n{GOOD}"
    expected = text.replace(line, left) if left else f"{GOOD}\n{GOOD}"
    after, found, _ = through([text])
    assert after == [expected]
    kept = left is not None
    assert {row["rule"] for row in found} <= ({"citation"} if kept else {"no_terminal_punctuation", "javascript"})
    assert through([text], C4(citations=False, terminal_punctuation=(), min_words_per_line=0, javascript=False))[0] == [
        text
    ]


def test_citations_count_as_words_for_datatrove_and_not_for_tensorflow_datasets():
    text = "So [1] be.\nSo be [1] it."
    assert through([text])[0] == ["So  be.\nSo be  it."]
    assert through([text], C4(citation_words=False))[0] == ["So be  it."]


def test_sentences_are_those_of_the_lines_that_stay_without_citations():
    text = "One is here. Two is here.[1]\nThis line goes. Yes\nThree is here.[2] Four is here.[3][4]\n\nFive is[5] here"
    assert through([text])[2]["c4_sentences"] == [4]
    assert through([text], C4(terminal_punctuation=()))[2]["c4_sentences"] == [4 + 2 + 1]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("Mr. Smith of the U.S. Army met Dr. Jones at 5 p.m. on Friday.", 1),
        ("He came to fig 3.14 of the list at example.com. She did not.", 2),
        ("J. S. Bach wrote it. It was in 1723. Then he left.", 3),
        ('He asked "Why?" She said (so it is told.) No more!!!', 3),
        ("He paused... and went on. Nothing.", 2),
        ("One ends. two ends? three ends! four", 4),
        ("这是一支笔。那是一本书。 And so on.", 3),
        ("यह एक है। यह दो है।", 2),
    ],
)
def test_sentences_know_abbreviations(line, count):
    assert through([line], C4(terminal_punctuation=()))[2]["c4_sentences"] == [count]


PARTS = st.sampled_from(
    [
        *("word", "Word", "Dr", "dr", "mr", "U.S", "p.m", "e.g", "J", "i", "é", "ß", "мг", "слово", "messrs", "x-co"),
        *("co", "12", "3.1", "-5", "٣", "\u212a", "don't", "www.a.org", "'", '"', "(", ")", "”", "“", "«", "»", "["),
        *("]", "{", "}", ".", "..", "...", ". .", "?", "!", "?!", "!!", ",", ":", ";", "-", "--", "…", "*", "@", "#"),
        *("! " * 7, "? ! ! ? ! ! ? ! ", "! " * 5 + "!", ". " * 7),
        *(" ", " ", " ", " ", "  ", "\t", "\u00a0", "\u2003", "\u200b", "\u0301", "\u1680", "\x1f", "The", "I", "ͺ"),
    ]
)


@pytest.mark.extended
@settings(max_examples=600, deadline=None)
@given(st.lists(st.lists(PARTS, max_size=14).map("".join), min_size=1, max_size=6))
def test_sentences_are_those_of_the_library(lines):
    encoded = [line.encode() for line in lines]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    bounds = np.cumsum([0, *map(len, encoded)])
    assert sentences(data, bounds[:-1], bounds[1:]).tolist() == [len(punkt.sent_tokenize(line)) for line in lines]


def test_documents_are_judged_by_the_lines_that_came_so_far():
    five = "\n".join([GOOD] * 5)
    texts = [
        five,
        "\n".join([GOOD] * 4),
        five + "\nA line of lorem IPSUM dolor.",
        five + "\nA line of lorem ipsum without an end",
        five + "\nA line with a { bracket.",
        five + "\nA line with a { bracket",
        five + "\nA line with javascript and a { bracket.",
        five + "\nA line with cookie policy and a { bracket.",
        five + "\nA line with javascript and lorem ipsum dolor.",
        "",
        "No end",
    ]
    expected = [None, "sentences", "lorem_ipsum", None, "curly_bracket", None, None, "curly_bracket", "lorem_ipsum"]
    assert dropped(texts) == [*expected, "sentences", "sentences"]
    lenient = C4(max_lorem_ipsum=None, max_curly_bracket=None, min_sentences=None)
    assert dropped(texts, lenient) == [None] * 9 + ["empty_text"] * 2
    assert dropped(texts[:2], C4(min_sentences=4)) == [None, None]


def test_long_lines_are_counted_before_any_go():
    text = "\n".join(["é" * 200, "x" * 199, "y" * 300, "z" * 200])
    assert through([text, "é" * 200])[2]["c4_long_lines"] == [3, 1]
    step = C4(min_long_lines=3, min_sentences=None, terminal_punctuation=(), min_words_per_line=0)
    assert dropped([text, "é" * 200], step) == [None, "long_lines"]


def test_settings():
    step = C4(terminal_punctuation=("。",), min_words_per_line=0, policy=("使用条款",), max_word_characters=None)
    assert through(["你好。\n你好.\n使用条款。\n" + "长" * 2000 + "。"], step)[0] == ["你好。\n" + "长" * 2000 + "。"]
    assert through(["one\ntwo\n\n"], C4(terminal_punctuation=(), min_words_per_line=0))[0] == ["one\ntwo\n\n"]
    assert through(["It is javascript."], C4(javascript=False))[0] == ["It is javascript."]
    with pytest.raises(ValidationError):
        C4(min_words=3)
    with pytest.raises(ValidationError, match="65 bytes"):
        C4(policy=("x" * 65,))
    assert {"max_lorem_ipsum", "min_sentences"}.isdisjoint(C4().signal_fields)


def test_breaks_stay_as_they_are():
    text = f"{GOOD}\r\ngone\r\n\u2028{GOOD}\x85{GOOD}\n"
    left, found, _ = through([text, text])
    assert left == [f"{GOOD}\r\n{GOOD}\x85{GOOD}\n"] * 2
    assert [(row["rule"], row["first_line"], row["last_line"]) for row in found[:2]] == [
        ("no_terminal_punctuation", 1, 1),
        ("blank_line", 2, 2),
    ]


def in_words(text, step):
    """The lines that stay, whether the document drops before its end: a transcription of datatrove's `filter`."""
    kept = []
    odd = False
    for line in text.splitlines():
        words = line.split()
        clean = re.sub(r"\[\d*]|\[edit]|\[citation needed]", "", line.strip())
        if any(len(word) > step.max_word_characters for word in words):
            continue
        if step.terminal_punctuation and (not clean.endswith(step.terminal_punctuation) or clean.endswith("...")):
            continue
        if len(words if step.citation_words else clean.split()) < step.min_words_per_line:
            continue
        if "lorem ipsum" in clean.lower():
            odd = True
        if "javascript" in clean.lower():
            continue
        if "{" in clean:
            odd = True
        if any(phrase in clean.lower() for phrase in step.policy):
            continue
        kept.append(clean.strip())
    return kept, odd


PIECES = st.sampled_from(
    [
        "a",
        "Word",
        "été",
        "[1]",
        "[]",
        "[edit]",
        "[",
        "]",
        "[12",
        ".",
        "...",
        "?",
        "'",
        '"',
        "…",
        ",",
        " ",
        "  ",
        "\t",
        "\n",
    ]
    + [
        "\r\n",
        "\u2028",
        "{",
        "lorem ipsum",
        "Lorem",
        " ipsum",
        "JavaScript",
        "java",
        "script",
        "x" * 9,
        "use ",
        "cookies",
    ]
    + ["terms of use", "[citation needed]", "٣", "[٣]", "漢字", "。", "\u00a0"]
)


@pytest.mark.extended
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(PIECES, max_size=25).map("".join), min_size=1, max_size=4),
    st.sampled_from([(".", "?", "!", '"', "'"), ()]),
    st.integers(0, 4),
    st.booleans(),
    st.sampled_from([4, 9, 1000]),
)
def test_lines_that_stay_are_those_of_the_words_of_the_code(texts, ends, words, citation_words, longest):
    step = C4(
        terminal_punctuation=ends,
        min_words_per_line=words,
        citation_words=citation_words,
        max_word_characters=longest,
    )
    left, _, signals = through(texts, step)
    for i, text in enumerate(texts):
        kept, odd = in_words(text, step)
        assert [line.strip() for line in left[i].splitlines() if line.strip()] == [line for line in kept if line]
        assert odd == bool(signals["c4_lorem_ipsum"][i] or signals["c4_curly_bracket"][i])


@pytest.mark.parametrize(
    "text", ["[" * 50_000, "[1" * 30_000, "[1]" * 30_000, "[]\n" * 30_000, "javascrip" * 9_000, "{ " * 40_000]
)
def test_odd_texts_of_one_kind(text):
    """Linear in the text; and the same as the words of the code."""
    step = C4()
    left, _, _ = through([text, GOOD])
    assert left[1] == GOOD
    assert "".join(left[0].split()) == "".join("".join(in_words(text, step)[0]).split())


def test_signals_do_not_depend_on_the_batch():
    texts = [GOOD, "A [1] b c.\n\n{ x y z.", "", "lorem ipsum dolor sit.[2]\n[3]"]
    together = through(texts)
    for i, text in enumerate(texts):
        alone = through([text])
        assert alone[0] == [together[0][i]]
        assert {name: column[i : i + 1] for name, column in together[2].items()} == alone[2]
    sliced = pa.chunked_array([["[9] before", *texts]], pa.large_string()).slice(1)
    edits, signals = c4.edit(C4(), Batch(pa.table({"id": list("abcd"), "text": sliced})))
    assert applied(sliced, edits).to_pylist() == together[0]
    assert {name: column.to_pylist() for name, column in signals.items()} == together[2]
    assert np.all(edits.start < edits.stop)
    empty = pa.chunked_array([["", "", "[1] behind"]], pa.large_string()).slice(0, 2)
    edits, signals = c4.edit(C4(), Batch(pa.table({"id": ["a", "b"], "text": empty})))
    assert (len(edits), signals["c4_sentences"].to_pylist()) == (0, [0, 0])


def test_a_bracket_at_the_end_of_one_document_and_one_at_the_beginning_of_the_next_are_no_citation():
    left, *_ = through(["some words here[", "] and some words here"], C4(terminal_punctuation=(), min_sentences=None))
    assert left == ["some words here[", "] and some words here"]
