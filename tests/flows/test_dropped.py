"""What a reader is shown of a dropped document: the text that the rule met, with what offended it."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows import dropped
from storage.schema import EDITS
from tasks.measuring import measured
from tasks.rules.c4 import C4
from tasks.rules.gopher_quality import GopherQuality
from tasks.rules.gopher_repetition import GopherRepetition


def table(*texts):
    return pa.table({"id": list(map(str, range(len(texts)))), "text": pa.array(texts, pa.large_string())})


LINES = st.sampled_from(
    ["", "one", "Terms of use", "we use javascript here", "\u00e9t\u00e9 [12] finit ici. Oui.", "  x", "a b c d."]
)


@settings(deadline=None)
@given(st.lists(st.lists(LINES, max_size=8).map("\n".join), min_size=1, max_size=4))
def test_the_text_before_an_edit_follows_from_its_rows(texts):
    found = measured(table(*texts), [C4()])
    for before, row in zip(texts, found.table.to_pylist(), strict=True):
        own = found.edits.filter(pa.compute.equal(found.edits["id"], row["id"])).sort_by("start")
        assert dropped.restored(row["text"], own) == before


def test_what_was_not_kept_is_shown_as_blocks_of_its_length():
    cut = pa.Table.from_pylist(
        [
            {"id": "0", "step": "pii", "rule": "email", "first_line": 0, "last_line": 0, "start": 3, "stop": 8}
            | {"removed": None, "replacement": "[MAIL]"}
        ],
        schema=EDITS,
    )
    assert dropped.restored("to [MAIL], please", cut) == "to \u2588\u2588\u2588\u2588\u2588, please"


def marked(step, rule, text, value, threshold):
    row = {"rule": rule, "value": value, "threshold": threshold}
    return [text[a:b] for a, b in dropped.offending(step, row, table(text), text)]


def test_marks_are_what_a_rule_counts_or_what_it_misses():
    text = "\u00e9 - plain words 123 %% here"
    assert marked(GopherQuality(), "alpha_words", text, 0.5, 0.8) == ["-", "123 %%"]
    text = "first line\n- b\u00fcllet\n\u2022 dot\nlast"
    assert marked(GopherQuality(), "bullet_lines", text, 0.95, 0.9) == ["- b\u00fcllet\n\u2022 dot"]
    text = "same line\nother\nsame line\nsame line"
    assert marked(GopherRepetition(), "dup_lines", text, 0.5, 0.3) == ["same line\nsame line"]


def test_a_mean_marks_nothing():
    assert marked(GopherQuality(), "mean_word_length", "xx yy", 2.0, 3.0) == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("gopher_quality.stop_words", True),
        ("gopher.stop_words", True),
        ("gopher", True),
        ("stop_words", True),
        ("", True),
        ("gopher.words", False),
        ("goph.stop_words", False),
        ("c4", False),
    ],
)
def test_a_rule_is_named_by_the_beginning_of_its_step(wanted, found):
    assert dropped.matches("gopher_quality", "stop_words", wanted) is found


def test_long_texts_are_shown_around_their_marks():
    text = "a" * 5000 + "BAD" + "b" * 5000
    told = dropped.readable(dropped.Dropped("rules-0", {"id": "x", "value": None}, text, ((5000, 5003),)), 600).plain
    assert "\u27e6BAD\u27e7" in told and "value" not in told
    assert len(told) < 1500
