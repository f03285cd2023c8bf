"""Gopher's rules by DCLM's definitions: what is marked, and texts at the edges, against `dclm_reference`."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.flows.reports.marking import offending
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.rules.gopher_repetition import GopherRepetition
from tests.tasks.rules import dclm_reference, reference
from tests.tasks.rules.test_rules import marked, measured

QUALITY, REPETITION = GopherQuality(definition="dclm"), GopherRepetition(definition="dclm")
RULES = ((QUALITY, dclm_reference.QUALITY), (REPETITION, dclm_reference.REPETITION))

TRICKY = (
    *("", " ", "\n", "\n\n\n", " \n\t\n\u3000\n", "\u200b", "\x00", "\x00the\x00", "x", "...", ". . .", "#"),
    "a b\r\na b\r\n\r\na b\r\n",
    "a b\r\n\r\nc d\r\n\r\na b",  # one paragraph: no two line feeds in a row
    "a b\n\n\n\nc d\n\n\na b\n \na b",
    "\ta\tb\n a b \n\xa0a b\xa0\na\xa0b\n\u2028a b\x85",
    "one\xa0two\u3000three\x1cfour the\xa0of",
    "same line\n" * 7,
    "a a a a a a a a a a a a",
    "a b a b a b a b a b a b a",
    "a b c d e x a b c d e y b c d e y",
    "1 11 a b c x 11 1 a b c",
    "aa b x aa b y ccc d z ccc d",  # as frequent: the longer one counts
    "漢字 かな カナ ไทยไป שלום مرحبا Москва 漢字 かな カナ ไทยไป שלום مرحبا Москва",
    "e\u0301te\u0301 \u0301a ² Ⅳ ½ _x 'a (a a_b e\u0301te\u0301 \u0301a ² Ⅳ ½ _x 'a (a a_b",
    "* a\n● b\n• c\n- d\n\u25cf\n– e\n+ f\n\n *g",
    "a...\nb. . .\nc…\nd. .\ne . . . \nf....\ng. . . .",
    "..... . . . . . . . # ## #a …….. .",
    "THE the The thE, the. İ be",
    "\ufeffthe the\u200b of",
)


def check(texts):
    for step, rules in RULES:
        for text, row in zip(texts, measured(step, *texts), strict=True):
            document = reference.Document(text)
            assert row == pytest.approx({name: rule(document) for name, rule in rules.items()}, rel=1e-12), text


def test_texts_at_the_edges():
    check(TRICKY)
    check(["\n\n".join(TRICKY), "".join(TRICKY), "\r\n".join(TRICKY)])


PIECES = ("a", "b", "The", "of", "12", "#", "*", "●", ".", ".", "…", "é", "漢", "\u0301", "_", "(", "\x00", "\u200b")
GAPS = (" ", " ", " ", " ", "\n", "\n", "\n", "\r\n", "\t", "\xa0", "\u2028", "\x0b", "\x85", "\x1c", "")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.lists(st.sampled_from(PIECES + GAPS), max_size=60).map("".join),
            # few words in lines: n-grams that overlap and lines that come again
            st.lists(st.sampled_from("ab\n "), max_size=120).map(" ".join),
            st.text(max_size=30),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_random_texts(texts):
    check(texts)


def test_every_copy_is_marked():
    text = "a b\n\n  a b \nc\n\na b"
    assert marked(REPETITION, "dup_lines", text, "x") == [["a b", "a b", "a b"], []]
    assert marked(REPETITION, "dup_paragraph_chars", text, "x") == [["a b", "a b"], []]
    assert marked(REPETITION, "top_2gram", "a, b ccc d a b x ccc-d", "a b") == [["ccc", "d", "ccc", "d"], []]
    text = "a b c d e x a, b c d e y"
    assert marked(REPETITION, "dup_5gram", text, "q") == [["a", "b", "c", "d", "e"] * 2, []]


def test_words_are_what_white_space_parts():
    text = "(one) two 3% – *four"
    assert marked(QUALITY, "words", text) == [["two", "3%"]]
    assert marked(QUALITY, "alpha_words", text) == [["(one)", "two", "*four"]]
    assert marked(QUALITY, "stop_words", "The mill, the. OF", "be") == [["The", "OF"], ["be"]]
    assert marked(QUALITY, "symbol_ratio", "a# b . . . c…", "#") == [["a#", ".", ".", ".", "c…"], ["#"]]
    assert marked(QUALITY, "bullet_lines", " ● a\nb\n\n*c") == [["● a", "*c"]]
    assert marked(QUALITY, "ellipsis_lines", "a . . . \n... b") == [["a . . ."]]


@pytest.mark.parametrize(
    ("step", "rule", "text", "shown"),
    [
        (REPETITION, "dup_lines", "é ü\n\tsame …  \nonly\nsame …", ["same …", "same …"]),
        (REPETITION, "dup_paragraphs", "x y\n\né\n\n\n x\ty\n\nx y", ["x y", "x y"]),
        (REPETITION, "top_2gram", "漢 a bb, a bb – c", ["a bb", "a bb"]),
        (QUALITY, "symbol_ratio", "é . . . x ## y", [". . .", "##"]),
        (QUALITY, "bullet_lines", "  ● ü\né\n* a", ["● ü", "* a"]),
    ],
)
def test_a_dropped_document_shows_what_the_definition_counts(step, rule, text, shown):
    row = {"rule": rule, "value": 1.0, "threshold": 0.1}
    marks = offending(step, row, pa.table({"text": [text]}), text).marks
    assert [text[start:stop] for start, stop in marks] == shown


def test_stop_words_by_language_in_any_case():
    step = GopherQuality(definition="dclm", stop_words_by_language={"de": ["Der", "über"]})
    rows = measured(step, *["DER ÜBER der, the THE"] * 2, language=pa.array(["de", "en"]))
    assert [row["stop_words"] for row in rows] == [2, 2]


def test_the_definition_is_part_of_what_is_measured():
    for step in (GopherQuality, GopherRepetition):
        assert step().definition == "datatrove"
        assert step(definition="dclm").measuring() != step().measuring()


def test_both_definitions_in_one_pass():
    texts = ["a b\na b\n\nthe # . . . The", "x"]
    batch = Batch(pa.table({"text": pa.array(texts, pa.large_string())}))
    for step in (GopherQuality(), QUALITY, GopherRepetition(), REPETITION):
        together = {name: column.to_pylist() for name, column in work_of(step).measure(step, batch).items()}
        alone = measured(step, *texts)
        assert together == {f"{step.step}_{rule.name}": [row[rule.name] for row in alone] for rule in step.rules}
