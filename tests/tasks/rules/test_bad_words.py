"""Lists of bad words: what is a hit, in which documents, and that a step is bound to its lists' content."""

import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.rules.bad_words import BadWords, entries_of
from gristmill.tasks.rules.rule import counted
from gristmill.tasks.url.lists import ListError


@pytest.fixture
def write(tmp_path):
    def write(name, *entries):
        path = tmp_path / name
        path.write_text("\n".join(entries) + "\n", encoding="utf-8")
        return str(path)

    return write


def batch(texts, languages=None):
    columns = {"id": list(map(str, range(len(texts)))), "text": pa.array(texts, pa.large_string())}
    return Batch(pa.table(columns | ({"language": languages} if languages else {})))


def hits(step, texts, languages=None):
    return work_of(step).measure(step, batch(texts, languages))["bad_words_hits"].to_pylist()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a poop here", 1),
        ("Poop", 1),
        ("POOP\npoop\tpoop poop", 4),
        ("poop,poop;(poop)", 3),
        ("poops are no poop_s nor 2poop", 0),
        ("épooph", 0),
        ("a red Apple pie", 1),
        ("a red  apple pie", 0),
        ("a red\napple pie", 0),
        ("red apple pie poop", 2),
        ("a $#!+ here", 1),
        ("a$#!+b", 0),
        ("", 0),
    ],
)
def test_a_hit_is_flanked_by_no_word_character(write, text, count):
    step = BadWords(lists={"any": write("en", "poop", "red apple", "red apple pie", "", "  $#!+  ")})
    assert hits(step, ["before poop", text, "after"]) == [1, count, 0]
    assert step.reads == ()


def test_each_language_has_its_list(write):
    step = BadWords(lists={"en": write("en", "gift"), "ja": write("ja", "毒", "sm"), "any": write("all", "xx")})
    texts = ["a gift", "ein gift", "これは毒です", "これは毒です", "xx", "sm smoke", ""]
    assert hits(step, texts, ["en", "de", "ja", "en", "fr", "ja", "en"]) == [1, 0, 1, 0, 1, 0, 0]
    assert step.reads == ("language",)
    spaced = step.model_copy(update={"unspaced": ()})
    assert hits(spaced, texts, ["en", "de", "ja", "en", "fr", "ja", "en"]) == [1, 0, 0, 0, 1, 0, 0]
    assert hits(step.model_copy(update={"allowed": ()}), texts, ["ja"] * 7) == [0, 0, 1, 1, 1, 2, 0]


def test_the_first_hit_drops(write):
    step = BadWords(lists={"any": write("en", "poop")})
    signals = work_of(step).measure(step, batch(["poop", "none", "poop poop"]))
    table = pa.table({"id": ["a", "b", "c"], **signals})
    for most, gone in ((0, ["a", "c"]), (1, ["c"]), (None, [])):
        bound = BadWords(lists=step.lists, max_hits=most).decisions()
        assert [row["id"] for _, rows in decide(table, [("s", bound)]) for row in rows.to_pylist()] == gone


def test_marked_are_the_words_of_hits(write):
    step = BadWords(lists={"any": write("en", "red apple", "$$")})
    documents = batch(["é red apple, $$ pie", "none red apple"])
    parts = counted(step, step.rules[0], documents)
    text = documents.scan
    spans = zip(text.word_start[parts.where], text.word_stop[parts.where], strict=True)
    assert [text.data[a:b].tobytes().decode() for a, b in spans] == ["red", "apple", "$$", "red", "apple"]


def test_the_share_is_that_of_the_words_in_hits(write):
    step = BadWords(lists={"any": write("en", "red apple", "poop")}, max_hits=None, max_word_share=0.5)
    texts = ["a red apple pie", "poop poop", "nothing here", "", "poop and poops and three more words"]
    signals = work_of(step).measure(step, batch(texts))
    assert signals["bad_words_word_share"].to_pylist() == pytest.approx([2 / 4, 1, 0, 0, 1 / 7])
    assert signals["bad_words_hits"].to_pylist() == [1, 2, 0, 0, 1]
    table = pa.table({"id": list("abcde"), **signals})
    [(_, dropped)] = decide(table, [("bad_words", step.decisions())])
    assert dropped["id"].to_pylist() == ["b"] and dropped["rule"].to_pylist() == ["word_share"]


def test_a_pinned_step_is_bound_to_the_content_of_its_lists(write):
    path = write("en", "poop")
    step = BadWords(lists={"any": path})
    pinned = step.pinned()
    assert pinned.measuring() != step.measuring()
    assert hits(pinned, ["poop"]) == [1]
    write("en", "other")
    assert pinned.measuring() != step.pinned().measuring()
    assert hits(step.pinned(), ["poop other"]) == [1]
    entries_of.cache_clear()
    with pytest.raises(ListError, match="checksum"):
        hits(pinned, ["poop"])


def test_lists_that_cannot_be(write, tmp_path):
    with pytest.raises(ListError, match="does not exist"):
        BadWords(lists={"any": str(tmp_path / "none")}).pinned()
    with pytest.raises(ListError, match="has no entries"):
        hits(BadWords(lists={"any": write("empty", "sm")}), ["a"])
    with pytest.raises(ValidationError):
        BadWords(lists={})


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([*"ab _-.é$\n2", "ab", "漢", "B"]), max_size=20).map("".join), min_size=1, max_size=4
    )
)
def test_documents_with_hits_are_those_of_datatroves_expression(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / "entries"
    entries = ["ab", "a b", "b$", "é", "b-a", "漢a"]
    path.write_text("\n".join(entries), encoding="utf-8")
    expression = re.compile(r"(?:\W|^)({})(?:\W|$)".format("|".join(map(re.escape, entries))))
    found = hits(BadWords(lists={"any": str(path)}), texts)
    assert [count > 0 for count in found] == [expression.search(text.lower()) is not None for text in texts]
