"""What `gristmill recipe rules` shows follows from the steps: their order, thresholds and keys are those that
decide."""

import pyarrow as pa
import pytest

from gristmill.flows.recipe.steps import document_steps
from gristmill.flows.reports.rules import Threshold, books, lines
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.step import Bound, EditStep, Signal

BOOKS = {book.step: book for book in books("")}
# What a step needs that has no default, and what stands for one that depends on the language.
GIVEN = {
    "bad_words": {"lists": {"en": "words.txt"}},
    "language": {"min_score": 0.5},
    "topic": {"model": "topics.bin"},
}


def test_every_document_step_is_there_with_every_signal_once():
    assert list(BOOKS) == list(document_steps())
    for name, step in document_steps().items():
        shown, own = [row.signal for row in BOOKS[name].rows], {signal.name for signal in step.signals}
        judged = {row.signal for row in BOOKS[name].rows if row.rule}
        assert set(shown) == own | judged and (not own or len(shown) == len(own))


@pytest.mark.parametrize("name", BOOKS)
def test_rules_are_shown_and_declared_in_the_order_in_which_they_are_asked(name):
    kind = document_steps()[name]
    decisions = kind(**GIVEN.get(name, {})).decisions()
    shown = [row for row in BOOKS[name].rows if row.rule]
    assert [(row.rule, row.signal) for row in shown] == [(rule.rule, rule.signal) for rule in decisions]
    asked = [rule.signal for rule in decisions]
    if kind.signals:  # a set of rules may decide by the signals of another step
        assert [signal.name for signal in kind.signals if signal.name in asked] == asked
    fields = [end.setting for row in shown for end in row.thresholds if end.setting]
    assert fields == [field for field in kind.model_fields if field in fields]


# Expressions have no thresholds, and `rights` has its rules of licenses only if a recipe names some.
@pytest.mark.parametrize("name", [name for name in BOOKS if name not in ("where", "code_language", "rights")])
def test_every_threshold_of_a_recipe_is_shown_with_its_default_and_decides(name):
    kind = document_steps()[name]
    step = kind(**GIVEN.get(name, {}))
    shown = {end.setting: end.value for row in BOOKS[name].rows for end in row.thresholds if end.setting}
    shown |= {setting: value for row in BOOKS[name].rows for setting, value in row.groups}
    settings = set(kind.model_fields) - {"step", "only", "except", "languages", *kind.signal_fields}
    assert shown == {setting: getattr(step, setting) for setting in settings}
    for row, rule in zip([row for row in BOOKS[name].rows if row.rule], step.decisions(), strict=True):
        names = ("low", "high") if isinstance(rule, Bound) else ("allowed", "excluded")
        ends = {name: getattr(rule, name) for name in names}
        switched = {end.end for end in row.thresholds if isinstance(end.value, bool)}
        assert {end.end: end.value for end in row.thresholds if end.value is not None and end.end not in switched} == {
            end: value for end, value in ends.items() if value is not None and end not in switched
        }


def test_thresholds_that_the_step_fixes_have_no_key():
    url = {row.rule: row.thresholds for row in BOOKS["url"].rows}
    assert url["takedown"] == (Threshold("allowed", ("",), None),)
    assert url["soft_words"] == (Threshold("high", 1, "max_soft_words"),)
    assert {row.rule: row.thresholds for row in BOOKS["pii"].rows}["empty_text"] == (Threshold("low", 1, None),)
    keep, score = BOOKS["language"].rows
    assert keep.thresholds == (Threshold("allowed", ("en",), "keep"),)
    assert score.thresholds == (Threshold("low", 0.5, "min_score"),)


def test_the_first_rule_that_fails_is_the_reason():
    """A document that fails all rules of a step, for every step whose rules can all fail."""
    for name in ("gopher_quality", "fineweb_quality", "textbook", "c4"):
        step = document_steps()[name]()
        decisions = [rule for rule in step.decisions() if (rule.low, rule.high) != (None, None)]
        failing = {rule.signal: [rule.low - 1 if rule.low is not None else rule.high + 1] for rule in decisions}
        for left in range(len(decisions)):
            [(_, dropped)] = decide(pa.table({"id": ["a"]} | failing), [(name, decisions[left:])])
            assert dropped["rule"].to_pylist() == [decisions[left].rule]


def test_what_a_step_cuts_is_there_with_the_settings_that_decide():
    assert all(BOOKS[name].cuts for name, step in document_steps().items() if issubclass(step, EditStep))
    assert [cut.rule for cut in BOOKS["c4"].cuts[:3]] == ["long_word", "no_terminal_punctuation", "few_words"]
    assert BOOKS["c4"].cuts[2].settings == {"min_words_per_line": 3, "citation_words": True}


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_list_has_every_name_whole_at_any_width(width):
    text = "\n".join(lines(BOOKS.values(), width))
    assert max(map(len, text.split("\n"))) <= width
    one_line = " ".join(text.split())
    words = set(text.replace(",", " ").replace(";", " ").split())
    for book in BOOKS.values():
        for row in book.rows:
            assert row.signal in words
            assert all(end.setting in words for end in row.thresholds if end.setting)
            assert row.description in one_line


def test_a_signal_without_one_line_of_description_is_refused():
    for description in ("", " ", "Two\nlines."):
        with pytest.raises(ValueError, match="the signal size has the description .*; write one line"):
            Signal("size", "int64", "words", "a paper", description=description)
