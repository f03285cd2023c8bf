"""Documents that a step has judged, drawn for a person who judges them too: those nearest its cut, and a sample of all.

Nearest the cut a step is least sure: a person who agrees with half of what it does there says that the cut could lie
elsewhere. How good the step is over all documents is to be seen in the sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.curation import Passed
from gristmill.flows.reports.whatif import decided_by
from gristmill.tasks.documents.decisions import decide, distances, wanted
from gristmill.tasks.documents.sampling import uniform
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.documents.step import Step

NEAREST, SAMPLED = 40, 20  # documents, half of them of either side
KEPT, DROPPED = "kept", "dropped"
_SEED = 1


@dataclass(frozen=True)
class Drawn:
    """A document on the page. `side`: KEPT or DROPPED, or its label; `nearest`, `sampled`: which draws it is in."""

    id: str
    shard: int
    side: str
    nearest: bool
    sampled: bool


@dataclass(frozen=True)
class Draw:
    """`sizes`: of each side all documents that the step judged; `documents`: in the order of the page."""

    sizes: dict[str, int]
    documents: list[Drawn]


def draw(passed: Passed, step: Step, by_label: bool = False, nearest: int = NEAREST, sampled: int = SAMPLED) -> Draw:
    """The documents nearest the cut of a step, `nearest` of them, and `sampled` of all that it judged, by keyed hashes
    of their ids: as many of either side, or of each label, or all that there are.

    Holds the signals of a shard.
    """
    sizes: dict[str, int] = {}
    most = {"distance": nearest, "draw": sampled}
    found: dict[tuple[str, str], pa.Table] = {}
    for table in judged(passed, step, by_label):
        for side in pc.unique(table["side"]).to_pylist():
            some = table.filter(pc.equal(table["side"], side))
            sizes[side] = sizes.get(side, 0) + len(some)
            for column in most:
                ahead = found.get((side, column), some.slice(0, 0))
                found[side, column] = _first(pa.concat_tables([ahead, some]), column, most[column])
    ids: dict[str, set[str]] = {column: set() for column in most}
    rows: dict[str, dict] = {}
    for (_, column), table in found.items():
        chosen = _first(table, column, max(1, most[column] // len(sizes))).to_pylist()
        ids[column] |= {row["id"] for row in chosen}
        rows |= {row["id"]: row for row in chosen}
    order = sorted(rows.values(), key=lambda row: (row["order"], row["id"]))
    documents = [
        Drawn(row["id"], row["shard"], row["side"], row["id"] in ids["distance"], row["id"] in ids["draw"])
        for row in order
    ]
    return Draw(dict(sorted(sizes.items())), documents)


def judged(passed: Passed, step: Step, by_label: bool) -> Iterator[pa.Table]:
    """Of each shard the documents that reached a step: `id`, `shard`, `side`, `distance` from the cut as
    `gristmill.tasks.documents.decisions.distances` has it, or how sure the step is of the label; and two numbers in [0,
    1) by which they are drawn and put in order."""
    signals, decisions = decided_by(passed, passed.steps)
    names = [name for name, _ in decisions]
    decisions = decisions[: names.index(step.step) + 1]
    label = step.signals[0].name
    columns = [*wanted(decisions), *([step.certainty] if step.certainty else []), *([label] if by_label else [])]
    for shard, parts in signals.items():
        table = gather(parts, passed.arriving.kept.part(shard), list(dict.fromkeys(columns)))
        *ahead, (_, gone) = [(name, dropped["id"]) for name, dropped in decide(table, decisions)]
        for _, ids in ahead:
            table = table.filter(pc.invert(pc.is_in(table["id"], ids.combine_chunks())))
        dropped = np.asarray(pc.is_in(table["id"], gone.combine_chunks()))
        if by_label:
            side, distance = table[label], np.asarray(table[step.certainty], np.float64)
        else:
            side = pa.chunked_array([np.where(dropped, DROPPED, KEPT)], pa.string())
            distance = distances(table, step.step, decisions[-1][1], step.certainty)
        yield pa.table(
            {
                "id": table["id"],
                "shard": np.full(len(table), shard),
                "side": side,
                "distance": distance,
                "draw": uniform(table["id"], _SEED, f"audit-sample {step.step}"),
                "order": uniform(table["id"], _SEED, f"audit {step.step}"),
            }
        )


def _first(table: pa.Table, column: str, most: int) -> pa.Table:
    """The rows with the lowest values of a column, which are finite; of equal ones those with the first ids."""
    there = table.filter(pc.is_finite(table[column]))
    return there.sort_by([(column, "ascending"), ("id", "ascending")]).slice(0, most)
