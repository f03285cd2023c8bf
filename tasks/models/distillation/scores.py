"""The scores of the step `distill`, and the cut by them.

The held-out annotations are in the parts with scores, so that another cut can be replayed over a finished run.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import select
from gristmill.tasks.documents.step import Bound
from gristmill.tasks.models import classifiers, heads
from gristmill.tasks.models.classifiers import GOOD, line, probabilities
from gristmill.tasks.models.distillation.held_out import CutError, choose, grounds
from gristmill.tasks.models.distillation.step import HELD_OUT, HOST, SCORE, WEIGHT, Learning, Thresholds
from gristmill.tasks.models.embedders import vectors_of
from gristmill.tasks.models.host_intervals import group_numbers
from gristmill.tasks.models.percentiles import percentiles


@lru_cache(1)
def _held_out(file: RecordedFile) -> pa.Table:
    names = parquet.columns(file.local())
    return parquet.read_table(file.local(), ["id", "host", "good", *(["weight"] if "weight" in names else [])])


def score_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    models: Sequence[RecordedFile],
    settings: Learning,
    vectors: str = "",
) -> dict:
    """Write `id`, the score of a selection's documents, and of those that were held out whether they are good, their
    host, and with the setting their weight. `models`: the model and the held-out annotations; `vectors`: the part with
    the vectors, for a head."""
    model, annotated = models
    if settings.kind == "fasttext":
        table, how = select(documents, kept, ["text"]), settings.fasttext
        lines = [line(text, how.characters, how.lowercase) for text in table["text"].to_pylist()]
        scores = probabilities(classifiers.load(model), lines, GOOD)
    else:
        table = parquet.read_table(vectors)
        scores = heads.scores(heads.load(model), vectors_of(table))
    held = _held_out(annotated)
    places = pc.index_in(table["id"], held["id"].combine_chunks())
    columns = {SCORE: scores, HELD_OUT: held["good"].take(places), HOST: held["host"].take(places)}
    if settings.weight is not None:
        columns[WEIGHT] = held["weight"].take(places)
    parquet.write_table(layout.part(folder, shard), pa.table({"id": table["id"], **columns}))
    return {"rows": len(table)}


def bounds(settings: Thresholds, scores: Sequence[str]) -> list[Bound]:
    """At least `min_score`; or at least the score that `keep_top` percent of all documents with a score have; or at
    least what the rule of `cut` chooses on the held-out annotations. `scores`: the parts with scores. Raises CutError.
    """
    if settings.cut is not None:
        return [Bound(settings.cut.name, SCORE, low=choose(settings.cut, *_annotations(scores)))]
    if settings.keep_top is not None:
        cuts = percentiles(scores, SCORE, [100 - settings.keep_top])
        return [Bound("keep_top", SCORE, low=low) for [low] in cuts.values()]
    return [] if settings.min_score is None else [Bound("min_score", SCORE, low=settings.min_score)]


def check_cut(settings: Thresholds, held: RecordedFile) -> None:
    """Raise CutError where the rule of `cut` chooses nothing on the held-out annotations of the model."""
    if settings.cut is None:
        return
    table = _held_out_scores(held)
    if table["good"].null_count:
        raise CutError("`cut` needs good documents, but the annotations are numbers; set `positive`, their threshold")
    numbers = group_numbers(table["host"].to_numpy())
    weights = table["weight"].to_numpy() if "weight" in table.column_names else None
    choose(settings.cut, table["good"].to_numpy() == 1, table["score"].to_numpy(), numbers, weights)


def _held_out_scores(held: RecordedFile) -> pa.Table:
    path = held.local()
    has_weight = "weight" in parquet.columns(path)
    return parquet.read_table(path, ["host", "score", "good", *(["weight"] if has_weight else [])])


def reasons(found: Sequence[Bound], scores: Sequence[str]) -> dict[str, Any]:
    """What the held-out annotations say of the bounds that `bounds` has found; empty without a bound, or annotations of
    good and other documents."""
    good, of_good, groups, weights = _annotations(scores)
    if not found or not len(good):
        return {}
    assert found[0].low is not None
    return grounds(good, of_good, groups, found[0].low, weights)


def _annotations(scores: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Of the held-out annotations, by id: whether they are good, their scores, numbers of their hosts, and their
    weights, None if they have none."""
    names = ["id", SCORE, HELD_OUT, HOST]
    if scores and WEIGHT in parquet.columns(scores[0]):
        names.append(WEIGHT)
    tables = [group.filter(pc.is_valid(group[HELD_OUT])) for part in scores for group in parquet.groups(part, names)]
    if not tables or not sum(map(len, tables)):
        none = np.empty(0)
        return none.astype(bool), none, none.astype(np.int64), None
    table = pa.concat_tables(tables).sort_by("id")
    weights = table[WEIGHT].to_numpy() if WEIGHT in names else None
    return table[HELD_OUT].to_numpy() == 1, table[SCORE].to_numpy(), group_numbers(table[HOST].to_numpy()), weights
