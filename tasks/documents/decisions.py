"""Decisions replayed over signals: the ledger's row for each document that does not stay."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import layout, ledger, parquet
from gristmill.storage.schema import LEDGER, SELECTION, carried
from gristmill.tasks.documents import measure
from gristmill.tasks.documents.expressions import ExpressionError, parsed, stored, truth
from gristmill.tasks.documents.measure import names
from gristmill.tasks.documents.selection import gather, select
from gristmill.tasks.documents.step import LANGUAGE, Bound, Clause, Decision, DocumentStep, Member

Decisions = Sequence[tuple[str, Sequence[Decision]]]
# By the name of a step the sources that it does not apply to.
Exempt = Mapping[str, Sequence[str]]
NO_EXEMPT: Exempt = MappingProxyType({})

_MAX_DETAIL = 200  # characters of a value that the ledger has


def wanted(decisions: Decisions, there: Sequence[str] = ()) -> list[str]:
    """The columns that `decide` reads, besides `id`: each once, in the order of the rules. `there`: the columns
    of the documents; an expression may name one of these that otherwise is derived from another column."""
    rules = [rule for _, rules in decisions for rule in rules]
    names: list[str] = []
    for rule in rules:
        if isinstance(rule, Clause):
            names += [stored(name, there) for name in parsed(rule.expression).columns]
        else:
            names.append(rule.signal)
    names += [rule.by for rule in rules if isinstance(rule, Bound) and rule.languages]
    return list(dict.fromkeys(names))


def of_source(decisions: Decisions, exempt: Exempt, source: str) -> Decisions:
    """The decisions about documents of a source. A step that does not apply to it has no rules."""
    return [(step, () if source in exempt.get(step, ()) else rules) for step, rules in decisions]


def gathered(parts: tuple[str, ...], kept: str, decisions: Decisions) -> pa.Table:
    """`id` and the columns that `decide` reads, of the documents of the selection `kept`; raises as `gather` does."""
    reads_expressions = any(isinstance(rule, Clause) for _, rules in decisions for rule in rules)
    there = [name for part in parts for name in parquet.columns(part)] if reads_expressions else []
    return gather(parts, kept, wanted(decisions, there))


def decide(signals: pa.Table, decisions: Decisions) -> list[tuple[str, pa.Table]]:
    """Apply decisions, given as (step, its rules) in order, to a table of `id` and signal columns.

    Returns each step with the ledger rows of the documents that it drops: one row a document, for the first
    rule that it fails. Raises ValueError for a signal that is NaN, or null where the rule does not keep that, since a
    document that was not measured is neither kept nor dropped; LookupError for a column that is not there.
    """
    kept = np.ones(len(signals), bool)
    decided = []
    for step, rules in decisions:
        rows = [LEDGER.empty_table()]
        for rule in rules:
            fails, reason = _judged(signals, step, rule)
            drop_rows = np.flatnonzero(fails & kept)
            kept[drop_rows] = False
            rows.append(ledger.drops(step, rule.rule, signals["id"].take(drop_rows), **reason(drop_rows)))
        decided.append((step, pa.concat_tables(rows)))
    return decided


def distances(signals: pa.Table, step: str, rules: Sequence[Decision], certainty: str = "") -> np.ndarray:
    """The distance of each document from the other side of a step's cut, float64 (n,): of a kept document to the
    nearest rule, of a dropped one to the farthest rule that it fails.

    From a bound: from its nearest end, as a share of that end, unless it is 0. From a rule about a label: `certainty`,
    the signal that says how probable the label is; infinite without one, and for a document without a value. Raises as
    `decide` does.
    """
    nearest, farthest = np.full(len(signals), np.inf), np.full(len(signals), -np.inf)
    for rule in rules:
        fails, _ = _judged(signals, step, rule)
        if isinstance(rule, Bound):
            far = _from_bound(signals, step, rule)
        elif isinstance(rule, Clause):
            far = np.full(len(signals), np.inf)
        else:
            far = _from_label(signals, step, rule, certainty)
        nearest = np.minimum(nearest, far)
        farthest = np.where(fails, np.maximum(farthest, far), farthest)
    return np.where(farthest >= 0, farthest, nearest)


def _from_bound(signals: pa.Table, step: str, bound: Bound) -> np.ndarray:
    values = np.asarray(_column(signals, step, bound.rule, bound.signal, bound.keeps_null), np.float64)
    nearest = np.full(len(signals), np.inf)
    for end in _ends(signals, step, bound):
        ends = np.broadcast_to(end, values.shape)
        unit = np.where(ends == 0, 1, np.abs(ends))
        with np.errstate(invalid="ignore"):  # an end that does not bind, by its infinite unit
            far = np.abs(values - ends) / unit
        nearest = np.fmin(nearest, np.where(np.isfinite(ends), far, np.inf))
    return nearest


def _from_label(signals: pa.Table, step: str, rule: Member, certainty: str) -> np.ndarray:
    if not certainty or (rule.allowed is None and rule.excluded is None):
        return np.full(len(signals), np.inf)
    return np.asarray(_column(signals, step, rule.rule, certainty), np.float64)


def _judged(signals: pa.Table, step: str, rule: Decision) -> tuple[np.ndarray, Callable[[np.ndarray], dict[str, Any]]]:
    """Which documents fail a rule, bool; and what gives the ledger's columns of some that do: the signal, and the end
    of the bound that it crossed."""
    if isinstance(rule, Clause):
        return _judged_by_clause(signals, step, rule)
    may_be_null = isinstance(rule, Bound) and rule.keeps_null
    column = _column(signals, step, rule.rule, rule.signal, may_be_null)
    if isinstance(rule, Member):
        fails = np.asarray(pc.is_in(column, pa.array(rule.excluded or (), column.type)))
        if rule.allowed is not None:
            fails = fails | ~np.asarray(pc.is_in(column, pa.array(rule.allowed, column.type)))
        return fails, lambda rows: {"detail": column.take(rows)}
    values = np.asarray(column, np.float64)
    if np.isnan(values).sum() > column.null_count:
        raise ValueError(f"{step}.{rule.rule}: {rule.signal} is not a number for some documents")
    low, high = _ends(signals, step, rule)

    def crossed(rows: np.ndarray) -> dict[str, Any]:
        ends = [end[rows] if isinstance(end, np.ndarray) else end for end in (low, high)]
        return {"value": values[rows], "threshold": np.where(values[rows] < ends[0], *ends)}

    return (values < low) | (values > high), crossed


def _judged_by_clause(
    signals: pa.Table, step: str, rule: Clause
) -> tuple[np.ndarray, Callable[[np.ndarray], dict[str, Any]]]:
    tree = parsed(rule.expression)
    try:
        verdicts = truth(tree, signals)
    except ExpressionError as error:
        raise LookupError(f"{step}: {error}") from error
    fails = (
        verdicts.is_null() if rule.drops == "null" else pc.fill_null(pc.equal(verdicts, rule.drops == "true"), False)
    )
    if rule.is_error and (count := pc.sum(fails).as_py()):
        raise ValueError(
            f"{step}: {rule.expression} is neither true nor false for {count} documents, because a column "
            "has no value; write `nulls: keep` or `nulls: drop`, or coalesce(column, value)"
        )
    names = [stored(name, signals.column_names) for name in tree.columns]

    def values(rows: np.ndarray) -> dict[str, Any]:
        columns = {name: signals[name].take(rows).to_pylist() for name in dict.fromkeys(names) if name != "text"}
        details = [", ".join(map(_detail, columns, row)) for row in zip(*columns.values(), strict=True)]
        return {"detail": pa.array(details if columns else [None] * len(rows), pa.string())}

    return np.asarray(fails), values


def _detail(name: str, value: Any) -> str:
    text = "null" if value is None else f"{value}"
    return f"{name} = {text if len(text) <= _MAX_DETAIL else f'{text[:_MAX_DETAIL]}...'}"


def _ends(signals: pa.Table, step: str, bound: Bound) -> tuple[float | np.ndarray, float | np.ndarray]:
    """The lowest and the highest value that stay: numbers, or float64 for each document where groups differ."""
    own = _open(bound.low, bound.high)
    if not bound.languages:
        return own
    codes = _column(signals, step, bound.rule, bound.by).combine_chunks().dictionary_encode()
    ends = [_open(*bound.languages[code]) if code in bound.languages else own for code in codes.dictionary.to_pylist()]
    table = np.array(ends, np.float64).reshape(-1, 2)
    row = np.asarray(codes.indices)
    return table[row, 0], table[row, 1]


def _open(low: float | None, high: float | None) -> tuple[float, float]:
    return -np.inf if low is None else low, np.inf if high is None else high


def _column(signals: pa.Table, step: str, rule: str, name: str, may_be_null: bool = False) -> pa.ChunkedArray:
    if name not in signals.column_names:
        remedy = ""
        if name == LANGUAGE:
            remedy = f": thresholds for languages need the step `language` before `{step}` in the recipe"
        raise LookupError(f"{step}.{rule}: the documents have no column {name}{remedy}")
    column = signals[name]
    if column.null_count and not may_be_null:
        raise ValueError(f"{step}.{rule}: {column.null_count} documents have no {name}")
    return column


# Document steps as jobs over shards: signals, decisions over them, and texts as steps leave them.


def decide_shard(
    folder: str,
    shard: int,
    signals: tuple[str, ...],
    kept: str,
    decisions: Decisions,
    exempt: Exempt = NO_EXEMPT,
    source: str = "",
) -> dict:
    """Apply decisions to stored signals, which may be in several parts; writes the ids that stay, and the ledger.
    `exempt`: see `of_source`; `source`: the shard's source, where a step does not apply to all."""
    decisions = of_source(decisions, exempt, source)
    table = gathered(signals, kept, decisions)
    arriving = parquet.read_table(kept, SELECTION.names)
    return ledger.write_selection(folder, shard, arriving, decide(table, decisions))


def count_characters(folder: str, shard: int, kept: str) -> dict:
    """How many characters the documents of a selection have."""
    return {"characters": pc.sum(parquet.read_table(kept, ["characters"])["characters"]).as_py() or 0}


def keep_shard(folder: str, shard: int, kept: str, step: str) -> dict:
    """Let a shard through a step that does not judge it: the same ids, and a count of them."""
    arriving = parquet.read_table(kept, SELECTION.names)
    return ledger.write_selection(folder, shard, arriving, [(step, LEDGER.empty_table())])


def measure_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    measured: tuple[str, ...],
    source: str,
    steps: tuple[DocumentStep, ...],
) -> dict:
    """Signals of `steps` for the documents of a selection: for steps that come after a corpus step.

    `measured`: the shard's parts with the signals of the steps before; `source`: that of the shard. Holds the shard's
    texts.
    """
    table = _with_signals(select(documents, kept, ["url", "text"]), measured, kept, steps, source)
    result = measure.measured(table, steps, source).table
    parquet.write_table(layout.part(folder, shard), result.select(["id", *names(steps)]))
    return {"rows": len(table)}


def edit_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    measured: tuple[str, ...],
    source: str,
    steps: tuple[DocumentStep, ...],
) -> dict:
    """The documents of a selection again, with the texts that `steps` leave, and their signals.

    `measured`: the shard's parts with the signals of the steps before; `source`: that of the shard. Holds the shard's
    texts twice.
    """
    arriving = select(documents, kept, carried(parquet.schema(documents)))
    counts = measure.EditCounts(steps, source)
    result = measure.measured(_with_signals(arriving, measured, kept, steps, source), steps, source)
    counts.add(result)
    parquet.write_table(layout.part(folder, shard), result.table.select([*carried(arriving.schema), *names(steps)]))
    parquet.write_table(layout.edits_part(folder, shard), result.edits)
    ledger.write_ledger(folder, shard, LEDGER.empty_table())
    return {
        "rows_in": len(arriving),
        "rows_out": len(arriving),
        "steps": counts.counts(len(arriving), pc.sum(arriving["characters"]).as_py() or 0),
    }


def _with_signals(
    documents: pa.Table, measured: tuple[str, ...], kept: str, steps: tuple[DocumentStep, ...], source: str
) -> pa.Table:
    """The documents of a source with the columns that the steps read, or consider, of what was measured before; and
    with the columns of steps that do not apply to the source, where an earlier step of the kind has measured them."""
    applied = [step for step in steps if step.applies_to(source)]
    own = set(names(applied))
    there = {name for part in measured for name in parquet.columns(part)}
    considered = [name for step in applied for name in step.considers if name in there]
    again = [name for name in names(step for step in steps if step not in applied) if name in there]
    reads = [name for name in (*(name for step in applied for name in step.reads), *considered, *again)]
    reads = [name for name in reads if name not in own]
    signals = gather(measured, kept, reads)
    signals = signals.take(pc.index_in(documents["id"], signals["id"].combine_chunks()))
    for name in dict.fromkeys(reads):
        documents = documents.append_column(name, signals[name])
    return documents
