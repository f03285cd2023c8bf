"""Decisions over signals, against the same rules written down for one document at a time."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.storage.schema import LEDGER
from gristmill.tasks.documents.decisions import decide, wanted
from gristmill.tasks.documents.step import Bound, Member

NUMBERS = ("length", "score", "count")
LANGUAGES = ("en", "fr", "de")


def reference(documents: list[dict], decisions) -> dict[str, list[dict]]:
    """The ledger rows of each step, by looking at one document after the other."""
    rows = {step: [] for step, _ in decisions}
    for document in documents:
        for step, rule in [(step, rule) for step, rules in decisions for rule in rules]:
            found = document[rule.signal]
            row = dict.fromkeys(LEDGER.names) | {"id": document["id"], "step": step, "rule": rule.rule}
            if isinstance(rule, Member):
                if (rule.allowed is not None and found not in rule.allowed) or found in (rule.excluded or ()):
                    rows[step].append(row | {"detail": found})
                    break
            else:
                low, high = rule.languages.get(document["language"], (rule.low, rule.high))
                below, above = low is not None and found < low, high is not None and found > high
                if below or above:
                    rows[step].append(row | {"value": float(found), "threshold": low if below else high})
                    break
    return rows


values = st.one_of(st.integers(-3, 3).map(float), st.floats(allow_nan=False, width=32))
documents = st.lists(
    st.fixed_dictionaries(
        {
            "length": values,
            "score": values,
            "count": st.integers(-5, 5),
            "language": st.sampled_from(LANGUAGES),
        }
    ),
    max_size=20,
).map(lambda rows: [{"id": f"d{i}", **row} for i, row in enumerate(rows)])
ends = st.one_of(st.none(), st.integers(-3, 3).map(float), st.floats(allow_nan=False, allow_infinity=False))
languages = st.dictionaries(st.sampled_from((*LANGUAGES, "is")), st.tuples(ends, ends), max_size=3)
bounds = st.builds(Bound, st.sampled_from("abcde"), st.sampled_from(NUMBERS), ends, ends, languages)
members = st.builds(
    Member,
    st.sampled_from("abcde"),
    st.just("language"),
    st.none() | st.lists(st.sampled_from(LANGUAGES), unique=True).map(tuple),
    st.none() | st.lists(st.sampled_from(LANGUAGES), unique=True).map(tuple),
)
steps = st.lists(st.lists(st.one_of(bounds, members), max_size=4), max_size=3).map(
    lambda rules: [(f"step{i}", given) for i, given in enumerate(rules)]
)


def table(rows: list[dict], chunk: int = 7) -> pa.Table:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("length", pa.float64()),
            ("score", pa.float32()),
            ("count", pa.int32()),
            ("language", pa.string()),
        ]
    )
    whole = pa.Table.from_pylist(rows, schema=schema)
    return pa.concat_tables([whole.slice(i, chunk) for i in range(0, max(len(whole), 1), chunk)])


def by_id(rows: list[dict]) -> list[dict]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.extended
@given(documents, steps)
def test_the_ledger_is_what_one_document_at_a_time_gives(rows, decisions):
    found = decide(table(rows), decisions)
    expected = reference(rows, decisions)
    assert [step for step, _ in found] == list(expected)
    for step, dropped in found:
        assert dropped.schema.equals(LEDGER)
        assert by_id(dropped.to_pylist()) == by_id(expected[step])


def test_the_first_rule_that_fails_is_the_reason():
    signals = pa.table({"id": ["a", "b", "c"], "x": [0.0, 5.0, 9.0], "lang": ["fr", "fr", "en"]})
    decisions = [("one", [Bound("low", "x", low=1), Member("lang", "lang", ("en",))]), ("two", [Bound("r", "x", 9, 9)])]
    (_, one), (_, two) = decide(signals, decisions)
    assert one.select(["id", "rule", "value", "threshold", "detail"]).to_pylist() == [
        {"id": "a", "rule": "low", "value": 0.0, "threshold": 1.0, "detail": None},
        {"id": "b", "rule": "lang", "value": None, "threshold": None, "detail": "fr"},
    ]
    assert len(two) == 0 and two.schema.equals(LEDGER)


def test_a_flag_is_a_signal():
    signals = pa.table({"id": ["a", "b"], "flag": [True, False]})
    ((_, dropped),) = decide(signals, [("s", [Bound("flagged", "flag", high=0)])])
    assert dropped["id"].to_pylist() == ["a"]


@pytest.mark.parametrize(
    "column,rule",
    [
        (pa.array([1.0, None]), Bound("r", "x", low=0)),
        (pa.array([1, None]), Bound("r", "x", low=0)),
        (pa.array(["en", None]), Member("r", "x", ("en",))),
        (pa.array([1.0, math.nan]), Bound("r", "x", low=0)),
        (pa.array([1.0, math.nan]), Bound("r", "x")),
    ],
)
def test_a_document_that_was_not_measured_is_an_error(column, rule):
    with pytest.raises(ValueError, match=r"step\.r: .*\bx\b"):
        decide(pa.table({"id": ["a", "b"], "x": column}), [("step", [rule])])


def test_a_language_has_its_own_thresholds():
    """One that is not named has the step's; an end that is None does not bind; the ledger has the one applied."""
    signals = pa.table(
        {"id": list("abcdef"), "x": [3, 3, 3, 9, 9, 9], "language": ["en", "fr", "is", "en", "fr", "is"]}
    )
    bound = Bound("r", "x", low=5, high=8, languages={"fr": (2, None), "is": (4, 9)})
    ((_, dropped),) = decide(signals, [("s", [bound])])
    assert dropped.select(["id", "value", "threshold"]).to_pylist() == [
        {"id": "a", "value": 3.0, "threshold": 5.0},
        {"id": "c", "value": 3.0, "threshold": 4.0},
        {"id": "d", "value": 9.0, "threshold": 8.0},
    ]
    assert wanted([("s", [bound, Bound("q", "x", low=1)]), ("t", [Member("m", "y", ())])]) == ["x", "y", "language"]
    assert wanted([("s", [Bound("q", "x", low=1)])]) == ["x"]


def test_thresholds_for_languages_need_the_language():
    bound = Bound("r", "x", languages={"fr": (2, None)})
    with pytest.raises(LookupError, match=r"s\.r: .* need the step `language` before `s`"):
        decide(pa.table({"id": ["a"], "x": [1]}), [("s", [bound])])
    with pytest.raises(ValueError, match=r"s\.r: 1 documents have no language"):
        decide(pa.table({"id": ["a"], "x": [1], "language": pa.array([None], pa.string())}), [("s", [bound])])


def test_no_documents_and_no_decisions():
    signals = pa.table({"id": pa.array([], pa.string()), "x": pa.array([], pa.float64())})
    ((_, dropped),) = decide(signals, [("s", [Bound("r", "x", low=0)])])
    assert len(dropped) == 0
    empty = pa.table(
        {"id": pa.array([], pa.string()), "x": pa.array([], pa.int64()), "language": pa.array([], pa.string())}
    )
    assert len(decide(empty, [("s", [Bound("r", "x", languages={"en": (1, 2)})])])[0][1]) == 0
    assert decide(signals, []) == []
    assert decide(signals, [("s", [])])[0][1].schema.equals(LEDGER)
