"""A map of documents by their vectors: the vectors of the step `embedding` along two directions."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gristmill.flows.explore.browse.opened import Opened
from gristmill.flows.reports.lineage import rows_of
from gristmill.storage import files, parquet
from gristmill.storage.home import FinishedStage, open_stage
from gristmill.storage.printable import redact_user
from gristmill.tasks.documents.selection import read_rows
from gristmill.tasks.models.embedders import vectors_of

_POINTS = 600
_READ = 50_000  # documents after which no more shards are read
_ENDS = 4  # documents that are named at each end of a direction


@dataclass(frozen=True)
class Point:
    """A document. `x`, `y`: its place, from 0 to 1; `name`: its title, its URL or its id."""

    x: float
    y: float
    shard: int
    id: str
    name: str


@dataclass(frozen=True)
class TopicMap:
    """`shown`: the share of the variance of the vectors that both directions have; `ends`: of each direction the
    documents at its beginning and at its end; `of`: how many vectors the points were drawn from."""

    points: list[Point]
    shown: tuple[float, float]
    ends: list[tuple[list[Point], list[Point]]]
    of: int


def vectors(opened: Opened) -> FinishedStage | None:
    """The stage with the vectors of the last step `embedding`; None without one."""
    made = [stage for stage in opened.corpus.stages if stage.name == "embedding_vectors"]
    return open_stage(made[-1].folder) if made else None


def topic_map(opened: Opened, stage: FinishedStage, seed: int) -> TopicMap | None:
    """Up to 600 documents with a vector, drawn by the seed from shards that it chooses, at their principal components
    (Pearson 1901): the two directions in which their vectors differ most. None where there are fewer than three.

    Reads vectors until 50,000 were read, and of the drawn documents where they come from. Holds the vectors of a shard.
    """
    draw = np.random.default_rng(seed)
    chosen: list[tuple[int, pa.Table]] = []
    read = 0
    sizes = {}
    for shard in draw.permutation(len(opened.corpus.sources)).tolist():
        if read >= _READ:
            break
        if not files.exists(stage.part(shard)):
            continue  # of a source that is not embedded
        sizes[shard] = parquet.rows(stage.part(shard))
        read += sizes[shard]
    if read < 3:
        return None
    drawn = np.sort(draw.choice(read, min(_POINTS, read), replace=False))
    begin = 0
    for shard, size in sizes.items():
        rows = drawn[(drawn >= begin) & (drawn < begin + size)] - begin
        begin += size
        if len(rows):
            chosen.append((shard, read_rows(stage.part(shard), rows, ["id", "vector"])))
    places, shown = components(np.concatenate([vectors_of(table) for _, table in chosen]))
    points = _points(opened, chosen, places)
    ends = []
    for axis in ("x", "y"):
        order = sorted(points, key=lambda one: (getattr(one, axis), one.id))
        ends.append((order[:_ENDS], order[: -_ENDS - 1 : -1]))
    return TopicMap(points, shown, ends, read)


def components(given: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """The first two principal components of vectors (n, dimension), scaled to 0 to 1: (n, 2); and their shares of the
    variance. Of each direction the entry that is largest is positive, so that the same vectors give the same map."""
    centred = given.astype(np.float64) - given.mean(0, dtype=np.float64)
    values, directions = np.linalg.eigh(centred.T @ centred)
    two = directions[:, [-1, -2]]
    two = two * np.sign(two[np.abs(two).argmax(0), [0, 1]])
    places = centred @ two
    spread = np.maximum(np.ptp(places, axis=0), np.finfo(float).tiny)
    total = max(float(values.sum()), np.finfo(float).tiny)
    return (places - places.min(0)) / spread, (float(values[-1]) / total, float(values[-2]) / total)


def _points(opened: Opened, chosen: list[tuple[int, pa.Table]], places: np.ndarray) -> list[Point]:
    points, at = [], 0
    for shard, table in chosen:
        ids = table["id"].to_pylist()
        part = opened.corpus.extracted.part(shard)
        rows = {row["id"]: row for row in rows_of(part, ids, ["id", "url", "title"])}
        taken = opened.taken_down((id_, rows[id_]["url"]) for id_ in ids)
        for id_ in ids:
            row, (x, y) = rows[id_], places[at].tolist()
            at += 1
            if id_ not in taken:
                points.append(Point(x, y, shard, id_, row["title"] or redact_user(row["url"] or id_)))
    return points
