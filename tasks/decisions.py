"""Decisions replayed over signals: the ledger's row for each document that does not stay."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import ledger
from storage.schema import LEDGER
from tasks.step import Bound, Member

Decisions = list[tuple[str, list[Bound | Member]]]


def decide(signals: pa.Table, decisions: Decisions) -> list[tuple[str, pa.Table]]:
    """Apply decisions, given as (step, its rules) in order, to a table of `id` and signal columns.

    Returns each step with the ledger rows of the documents that it drops: one row a document, for the first
    rule that it fails. Raises ValueError for a signal that is null or NaN: a document that was not measured is
    neither kept nor dropped.
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
    column = signals[decision.signal]
    if column.null_count:
        raise ValueError(f"{step}.{decision.rule}: {column.null_count} documents have no {decision.signal}")
    values = None
    if isinstance(decision, Member):
        fails = ~np.asarray(pc.is_in(column, pa.array(decision.allowed, column.type)))
        details = column
    else:
        values = np.asarray(column, np.float64)
        if np.isnan(values).any():
            raise ValueError(f"{step}.{decision.rule}: {decision.signal} is not a number for some documents")
        low = -np.inf if decision.low is None else decision.low
        high = np.inf if decision.high is None else decision.high
        fails = (values < low) | (values > high)
        threshold = np.where(values < low, low, high)
    fails &= alive
    alive &= ~fails
    at = np.flatnonzero(fails)
    found = {"detail": details.take(at)} if values is None else {"value": values[at], "threshold": threshold[at]}
    return ledger.from_columns(
        {
            "id": signals["id"].take(at),
            "step": pa.repeat(step, len(at)),
            "rule": pa.repeat(decision.rule, len(at)),
            **found,
        }
    )
