"""Decisions replayed over signals: the ledger's row for each document that does not stay."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import ledger
from storage.schema import LEDGER
from tasks.documents.step import Bound, Member

Decisions = Sequence[tuple[str, Sequence[Bound | Member]]]

LANGUAGE = "language"


def wanted(decisions: Decisions) -> list[str]:
    """The columns that `decide` reads, besides `id`: each once, in the order of the rules."""
    rules = [rule for _, rules in decisions for rule in rules]
    names = [rule.signal for rule in rules]
    if any(isinstance(rule, Bound) and rule.languages for rule in rules):
        names.append(LANGUAGE)
    return list(dict.fromkeys(names))


def decide(signals: pa.Table, decisions: Decisions) -> list[tuple[str, pa.Table]]:
    """Apply decisions, given as (step, its rules) in order, to a table of `id` and signal columns.

    Returns each step with the ledger rows of the documents that it drops: one row a document, for the first
    rule that it fails. Raises ValueError for a signal that is null or NaN: a document that was not measured is
    neither kept nor dropped; LookupError for a column that is not there.
    """
    alive = np.ones(len(signals), bool)
    return [
        (
            step,
            pa.concat_tables([LEDGER.empty_table(), *(_rule(signals, alive, step, rule) for rule in rules)]),
        )
        for step, rules in decisions
    ]


def _rule(signals: pa.Table, alive: np.ndarray, step: str, decision: Bound | Member) -> pa.Table:
    """The ledger rows of one rule; takes its documents out of `alive`."""
    column = _column(signals, step, decision.rule, decision.signal)
    values = None
    if isinstance(decision, Member):
        fails = ~np.asarray(pc.is_in(column, pa.array(decision.allowed, column.type)))
        details = column
    else:
        values = np.asarray(column, np.float64)
        if np.isnan(values).any():
            raise ValueError(f"{step}.{decision.rule}: {decision.signal} is not a number for some documents")
        low, high = _ends(signals, step, decision)
        fails = (values < low) | (values > high)
    fails &= alive
    alive &= ~fails
    at = np.flatnonzero(fails)
    if values is None:
        found = {"detail": details.take(at)}
    else:
        value = values[at]
        low, high = (end[at] if isinstance(end, np.ndarray) else end for end in (low, high))
        found = {"value": value, "threshold": np.where(value < low, low, high)}
    return ledger.from_columns(
        {
            "id": signals["id"].take(at),
            "step": pa.repeat(step, len(at)),
            "rule": pa.repeat(decision.rule, len(at)),
            **found,
        }
    )


def _ends(signals: pa.Table, step: str, bound: Bound) -> tuple[float | np.ndarray, float | np.ndarray]:
    """The lowest and the highest value that stay: numbers, or float64 for each document where languages differ."""
    own = _open(bound.low, bound.high)
    if not bound.languages:
        return own
    codes = _column(signals, step, bound.rule, LANGUAGE).combine_chunks().dictionary_encode()
    ends = [_open(*bound.languages[code]) if code in bound.languages else own for code in codes.dictionary.to_pylist()]
    table = np.array(ends, np.float64).reshape(-1, 2)
    row = np.asarray(codes.indices)
    return table[row, 0], table[row, 1]


def _open(low: float | None, high: float | None) -> tuple[float, float]:
    return -np.inf if low is None else low, np.inf if high is None else high


def _column(signals: pa.Table, step: str, rule: str, name: str) -> pa.ChunkedArray:
    if name not in signals.column_names:
        remedy = ""
        if name == LANGUAGE:
            remedy = f": thresholds for languages need the step `language` before `{step}` in the recipe"
        raise LookupError(f"{step}.{rule}: the documents have no column {name}{remedy}")
    column = signals[name]
    if column.null_count:
        raise ValueError(f"{step}.{rule}: {column.null_count} documents have no {name}")
    return column
