"""The guard against filters that wipe out a group of documents, such as a source, host or language."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gristmill.storage import files, layout, parquet
from gristmill.tasks.documents.expressions import evaluate, parsed
from gristmill.tasks.documents.step import Settings

Grouping = Literal["source", "host", "language", "topic"]
STEP = "group_losses"


class Limits(Settings):
    """Which groups are judged, and from where on a group has lost too much. It decides nothing of the corpus."""

    by: tuple[Grouping, ...] = Field(
        ("source", "host", "language", "topic"),
        description="What groups documents. Documents without a URL are in no group of hosts; a value that "
        "no step measured makes no groups.",
    )
    least: int = Field(100, ge=10, description="Minimum number of documents in a group that is checked.")
    kept: float = Field(
        0.25,
        gt=0,
        lt=1,
        description="A group lost too much if it kept less than this fraction of the share that comparable "
        "groups kept.",
    )


class GroupLosses(Limits):
    """What to do if the steps removed far more from one group than from comparable groups: see
    docs/explanation/quality.md."""

    then: Literal["warn", "stop", "ignore"] = Field(
        "warn",
        description="Reaction to such a group. warn: log a line with its name after the last step. stop: "
        "end the run after the step that caused it, and write the page of the steps so far.",
    )


# How much each group of documents lost, by the ledgers: a job a shard counts, jobs add up, and one judges.
#
# A group has lost too much where two things hold. It keeps less than `kept` of the share that its like keep. And chance
# does not explain it, though groups differ: of a group whose share is drawn as those of its like are, so few documents
# would be kept with a probability below ALPHA, divided by the groups that are judged. The log odds of these shares are
# taken as normal, around their mean and with their standard deviation, both uncertain by their number (Student's t); of
# _ROBUST groups or more the median replaces the mean, and 1.4826 times the median distance from it the deviation, so
# that outlying groups do not hide others. Of a share that is drawn documents are kept at random (binomial).


AT_ONCE = 32  # parts that a job adds up
MAX_GROUPS = 20_000  # of a kind, those with most documents, are passed on
ALPHA = 0.05
_MIN_PEERS = 2  # groups, for there to be a usual share, and a spread
_ROBUST = 20
_EFFICIENCY = 0.37  # of that distance beside the standard deviation, where values are normal
_SHOWN = 20
KEPT = ""  # in the place of a step
_COUNTS = pa.schema({"by": pa.string(), "group": pa.string(), "step": pa.string(), "documents": pa.int64()})


def counts_folder(folder: str, level: int | None = None) -> str:
    """The folder of counts while the stage is made: counts of shards at level 0, then sums of them."""
    base = files.join(folder, "counts")
    return base if level is None else files.join(base, f"{level}")


def count_shard(
    folder: str,
    shard: int,
    source: str,
    by: Sequence[str],
    extracted: str,
    ledgers: Sequence[str],
    measured: Sequence[str],
    by_design: Mapping[str, Sequence[str]],
) -> dict:
    """Write how many documents of each group were kept, and dropped by each step.

    `extracted`: the folder of the stage that read the records; those that did not become documents only count for their
    source, since what a host serves besides pages is not a loss. `ledgers`: folders of the stages that dropped
    documents; `measured`: of those that have signals. `by_design`: for a grouping the steps that decide by its very
    values, whose drops are left out. Holds ids, URLs and labels of a shard.
    """
    table = parquet.read_table(layout.part(extracted, shard), ["id", "url"])
    gone = pa.concat_tables(parquet.read_table(layout.ledger_part(each, shard), ["id", "step"]) for each in ledgers)
    indices = pc.index_in(table["id"], gone["id"].combine_chunks())
    table = table.append_column("step", pc.coalesce(gone["step"].take(indices), KEPT))
    tables = []
    for name in by:
        if name == "source":
            never = parquet.read_table(layout.ledger_part(extracted, shard), ["step"])["step"]
            steps = pa.chunked_array([*table["step"].chunks, *never.chunks], pa.string())
            labels: pa.Array | pa.ChunkedArray = pa.repeat(source, len(steps))
        else:
            labels, steps = _labels(name, table, [layout.part(each, shard) for each in measured]), table["step"]
        pairs = pa.table({"group": labels.cast(pa.string()), "step": steps})
        pairs = pairs.filter(pc.invert(pc.is_in(steps, pa.array([*by_design.get(name, ())], pa.string()))))
        pairs = pairs.filter(pc.is_valid(pairs["group"]))
        tables.append(_summed(pairs.append_column("by", pa.repeat(name, len(pairs))), [([], "count_all")]))
    table = pa.concat_tables([_COUNTS.empty_table(), *tables])
    parquet.write_table(layout.part(counts_folder(folder, 0), shard), table)
    return {"groups": len(table)}


def _labels(name: str, table: pa.Table, parts: Sequence[str]) -> pa.Array | pa.ChunkedArray:
    """The group of each document; null if it has none, or was dropped before the step that measures it."""
    if name == "host":
        return evaluate(parsed(name), table)
    labels = pa.nulls(len(table), pa.string())
    for part in parts:
        if name in parquet.columns(part):
            values = parquet.read_table(part, ["id", name])
            labels = pc.coalesce(values[name].take(pc.index_in(table["id"], values["id"].combine_chunks())), labels)
    return labels


def sum_counts(folder: str, number: int, level: int, parts: int) -> dict:
    """Add up the counts of AT_ONCE parts of a level, of `parts` in all, and pass on the groups with most documents.
    Holds them."""
    numbers = range(number * AT_ONCE, min(parts, (number + 1) * AT_ONCE))
    read = parquet.read_tables(layout.part(counts_folder(folder, level), each) for each in numbers)
    table = _summed(pa.concat_tables(read), [("documents", "sum")])
    sizes = table.group_by(["by", "group"]).aggregate([("documents", "sum")])
    order = sizes.sort_by([("by", "ascending"), ("documents_sum", "descending"), ("group", "ascending")])
    tables = [order.filter(pc.equal(order["by"], name)).slice(0, MAX_GROUPS) for name in _distinct(order["by"])]
    largest = pa.concat_tables([order.slice(0, 0), *tables])
    key = pc.binary_join_element_wise(largest["by"], largest["group"], "\0").combine_chunks()
    table = table.filter(pc.is_in(pc.binary_join_element_wise(table["by"], table["group"], "\0"), key))
    parquet.write_table(layout.part(counts_folder(folder, level + 1), number), table)
    return {"groups": len(largest)}


def _summed(table: pa.Table, what: list) -> pa.Table:
    grouped = table.group_by(["by", "group", "step"]).aggregate(what)
    name = next(name for name in grouped.column_names if name not in _COUNTS.names)
    columns = [grouped[each] for each in ("by", "group", "step")] + [grouped[name]]
    return pa.table(columns, names=_COUNTS.names).cast(_COUNTS).sort_by([(each, "ascending") for each in _COUNTS.names])


def _distinct(column: pa.ChunkedArray) -> list[str]:
    return sorted(pc.unique(column).to_pylist())


@dataclass
class Group:
    """How many of a group's documents were `kept`, and `lost` by step."""

    by: str
    name: str
    kept: int = 0
    lost: dict[str, int] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        return self.kept + sum(self.lost.values())


def judge(folder: str, number: int, level: int, limits: Limits, like: Mapping[str, str], apart: Sequence[str]) -> dict:
    """`judged`: the number of judged groups; `groups`: groups that lost too much, the largest loss first. `like`: the
    kind of each source, which is compared with sources of its kind; `apart`: sources that steps always keep. The counts
    of all groups stay in groups.parquet."""
    counts = parquet.read_table(layout.part(counts_folder(folder, level), 0))
    parquet.write_table(files.join(folder, "groups.parquet"), counts)
    table = counts.to_pylist()
    kinds: dict[str, dict[str, Group]] = {}
    for row in table:
        of_source = row["by"] == "source"
        if not (of_source and row["group"] in apart):
            kind = f"source {like.get(row['group'], '')}" if of_source else row["by"]
            group = kinds.setdefault(kind, {}).setdefault(row["group"], Group(row["by"], row["group"]))
            if row["step"] == KEPT:
                group.kept = row["documents"]
            else:
                group.lost[row["step"]] = row["documents"]
    judged = {kind: [one for one in groups.values() if one.documents >= limits.least] for kind, groups in kinds.items()}
    count = sum(len(groups) for groups in judged.values() if len(groups) > _MIN_PEERS)
    lossy = [
        record
        for kind, groups in judged.items()
        if len(groups) > _MIN_PEERS
        for record in lost_too_much(groups, list(kinds[kind].values()), limits.kept, count)
    ]
    lossy.sort(key=lambda each: (-each["lost"], each["by"], each["group"]))
    return {"judged": count, "found": len(lossy), "groups": lossy[:_SHOWN]}


def lost_too_much(groups: Sequence[Group], every: Iterable[Group], least: float, tests: int) -> Iterator[dict]:
    """The judged groups of a kind that lost too much. `every`: all groups of the kind, which define the usual share;
    `least`: the setting `kept`; `tests`: the number of judged groups of all kinds."""
    every = list(every)
    whole, kept = sum(one.documents for one in every), sum(one.kept for one in every)
    odds = np.array([np.log((one.kept + 0.5) / (one.documents - one.kept + 0.5)) for one in groups])
    for index, one in enumerate(groups):
        others = whole - one.documents
        usual = (kept - one.kept) / others if others else 0.0
        if one.kept >= least * usual * one.documents:
            continue
        if chance(one.kept, one.documents, np.delete(odds, index)) >= ALPHA / tests:
            continue
        step, most = max(sorted(one.lost.items()), key=lambda item: item[1])
        yield {
            "by": one.by,
            "group": one.name,
            "documents": one.documents,
            "lost": one.documents - one.kept,
            "like": len(every) - 1,
            "like_lost": 1 - usual,
            "step": step,
            "step_lost": most,
        }


def chance(kept: int, documents: int, like: np.ndarray) -> float:
    """The probability that a group of this size keeps as few documents, or fewer, if its share is one of those whose
    log odds are `like`, float64 (two or more,)."""
    from scipy.special import expit  # here, since workers count without it
    from scipy.stats import binom, t

    count = len(like)
    middle, spread, freedom = np.mean(like), np.std(like, ddof=1), count - 1.0
    if count >= _ROBUST:
        middle = np.median(like)
        spread, freedom = 1.4826 * np.median(np.abs(like - middle)), _EFFICIENCY * (count - 1)
    # over the shares from the lowest: quantiles that are dense where a small probability comes from
    levels = np.concatenate([np.geomspace(1e-12, 0.01, 300, endpoint=False), np.linspace(0.01, 1 - 1e-9, 500)])
    shares = expit(middle + spread * np.sqrt(1 + 1 / count) * t.ppf(levels, freedom))
    return float(np.trapezoid(binom.cdf(kept, documents, shares), levels))
