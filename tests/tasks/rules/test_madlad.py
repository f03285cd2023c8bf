"""MADLAD's questionable sentences: each check at its limits, by hand."""

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.rules import madlad
from gristmill.tasks.rules.madlad import Madlad, sentence_bounds
from gristmill.tasks.rules.rule import counted

# A sentence of 20 characters that no check finds.
PLAIN = "It is a plain thing."


def batch(texts):
    return Batch(pa.table({"id": list(map(str, range(len(texts)))), "text": pa.array(texts, pa.large_string())}))


def measured(texts, step=None):
    signals = madlad.measure(step or Madlad(), batch(texts))
    return signals["madlad_sentences"].to_pylist(), signals["madlad_questionable"].to_pylist()


def is_questionable(sentence, *checks, across_lines=False):
    step = Madlad(checks=checks, across_lines=across_lines)
    count, share = measured([f"{PLAIN}\n{sentence}"], step)
    assert count == [2]
    return {0.0: False, 0.5: True}[share[0]]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("One Two Three Four Five Six Seven eight nine ten eleven twelve.", True),
        ("One Two Three Four Five Six seven eight nine ten eleven twelve.", False),
        ("One Two Three Four Five Six Seven Eight Nine Ten Eleven.", False),
        ("Én Tvö Þrjú Čtyri Été Ñu Úl eight nine ten eleven twelve.", True),
        # punctuation is no token
        ("A - B - C - D - E - f - g - h - i - j - k - L.", False),
        ("A - B - C - D - E - F - g - h - i - j - k - L.", True),
        ("1 2 3 4 5 6 7 8 9 10 11 A.", False),
    ],
)
def test_list_case(sentence, expected):
    assert is_questionable(sentence, "list_case") is expected


@pytest.mark.parametrize(("size", "expected"), [(19, True), (20, False), (500, False), (501, True)])
@pytest.mark.parametrize("letter", ["x", "é", "漢"])
def test_length_is_in_characters(size, expected, letter):
    words = " ".join([letter] * 250)
    assert is_questionable("a" + (words + letter * size)[-(size - 2) :] + ".", "length") is expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("12(4) is a long text.", True),  # 5 of 21
        ("12(4 is a long text .", False),  # 4 of 21
        ("1234 is a long text.", False),  # 4 of 20
        ("{}+/> is long, é é é.", True),
        ("<[|=-*]> is no such.", False),
        ("٤٤٤٤٤٤ is no such one.", False),
    ],
)
def test_technical_characters(sentence, expected):
    assert is_questionable(sentence, "technical") is expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Download it", True),
        ("Watch the Episode", True),
        ("watch the episode", False),
        ("Home | About |", True),
        ("Home | About", False),
        ("They have no nr.", True),
        ("They have nr. five", False),
        ("the sex of it", True),
        ("the sexes of it", False),
        ("an A N T S P E A K S here", True),
        ("an ant speaks here", False),
        ("масса 5 кг.", True),
        ("bad \ufffd\ufffd\ufffd bytes", True),
        ("bad \ufffd\ufffd bytes", False),
    ],
)
def test_cursed(sentence, expected):
    assert is_questionable(sentence, "cursed") is expected


def test_shares_and_thresholds():
    cursed = "It is about mp3 again."
    texts = [" ".join([PLAIN] * 4 + [cursed]), " ".join([PLAIN] * 5 + [cursed]), " ".join([PLAIN] * 4), ""]
    assert measured(texts) == ([5, 6, 4, 0], [1 / 5, 1 / 6, 0, 0])
    low, high = Madlad().decisions()
    assert [low.low, low.signal, high.signal] == [5, "madlad_sentences", "madlad_questionable"]
    assert 1 / 5 > high.high > 19_999 / 100_000
    assert measured(texts, Madlad(checks=())) == ([5, 6, 4, 0], [0, 0, 0, 0])
    assert measured(texts, Madlad(cursed=("plain",)))[1] == [4 / 5, 5 / 6, 1, 0]


def test_a_sentence_ends_with_its_line_or_goes_on():
    text = "Menu\nHome of it\nIt is. So 3.5 is! Yes?No\nend.\n\nLast"
    assert measured([text, text]) == ([7, 7], [1, 1])
    assert measured([text, "", text], Madlad(across_lines=True, checks=())) == ([4, 0, 4], [0, 0, 0])
    assert is_questionable(
        "One Two Three Four Five Six\nSeven eight nine ten eleven twelve.", "list_case", across_lines=True
    )


@pytest.mark.extended
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([*"aB.!?,\n ", "é", "...", "漢字"]), max_size=30).map("".join), min_size=1, max_size=4
    )
)
def test_across_lines_splits_as_dolma_does(texts):
    """`[.!?]+\\s+`; sentences are those with something else than white space."""
    expected = [len([s for s in re.split(r"[.!?]+\s+", text) if re.sub(r"[.!?\s]", "", s)]) for text in texts]
    found, _ = measured(texts, Madlad(across_lines=True))
    # sentences of nothing but marks are sentences here
    more = [
        len([s for s in re.split(r"(?<=[.!?])\s+", text) if s.strip() and not re.sub(r"[.!?\s]", "", s)])
        for text in texts
    ]
    assert found == (np.array(expected) + more).tolist()


PIECES = st.sampled_from(
    [
        "a word ",
        "An Title ",
        "12 ",
        "{3+4} ",
        "é",
        ".",
        "! ",
        ". ",
        "?\n",
        "\n",
        " |",
        "Develop",
        " sex ",
        "漢字",
        " nr",
        "x" * 60,
    ]
    + [" a", " A", "A B C D E F ", "a b c d e f g ", " ...", " ...."]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=40).map("".join), min_size=1, max_size=3), st.booleans())
def test_checks_are_those_of_the_words_of_the_card(texts, across_lines):
    """Sentence by sentence, in plain Python."""
    checks = {
        "length": lambda s: not 20 <= len(s) <= 500,
        "technical": lambda s: len(re.findall(r"[0-9{}+/()>]", s)) > 0.2 * len(s),
        "cursed": lambda s: any(re.search(curse, s) for curse in Madlad().cursed),
    }
    for check, says in checks.items():
        step = Madlad(checks=(check,), across_lines=across_lines)
        counts, shares = measured(texts, step)
        for text, count, share in zip(texts, counts, shares, strict=True):
            documents = batch([text])
            scanned = documents.scan
            first = sentence_bounds(scanned, step)
            start, stop = scanned.word_start[first[:-1]], scanned.word_stop[first[1:] - 1]
            questionable = [says(text.encode()[a:b].decode()) for a, b in zip(start, stop, strict=True)]
            assert (count, share) == (len(questionable), sum(questionable) / max(count, 1))
            marked = counted(step, step.rules[1], documents).where
            assert marked.tolist() == np.repeat(questionable, np.diff(first)).tolist()


def test_marked_are_the_words_of_questionable_sentences():
    documents = batch([f"{PLAIN} Download it. {PLAIN}"])
    step = Madlad(checks=("cursed",))
    parts = counted(step, step.rules[1], documents)
    text = documents.scan
    spans = zip(text.word_start[parts.where], text.word_stop[parts.where], strict=True)
    marked = [text.data[a:b].tobytes().decode() for a, b in spans]
    assert (parts.unit, marked) == ("words", ["Download", "it", "."])


def test_an_expression_must_be_one():
    with pytest.raises(ValidationError, match="RE2"):
        Madlad(cursed=("(",))
    with pytest.raises(ValidationError):
        Madlad(checks=("language",))
