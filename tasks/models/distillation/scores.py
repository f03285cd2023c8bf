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
from gristmill.tasks.models.distillation.step import HELD_OUT, HOST, SCORE, Learning, Thresholds
from gristmill.tasks.models.embedders import vectors_of
from gristmill.tasks.models.host_intervals import group_numbers
from gristmill.tasks.models.percentiles import percentiles


@lru_cache(1)
def _held_out(file: RecordedFile) -> pa.Table:
    return parquet.read_table(file.local(), ["id", "host", "good"])


def score_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    models: Sequence[RecordedFile],
    settings: Learning,
    vectors: str = "",
) -> dict:
    """Write `id`, the score of a selection's documents, and of those that were held out whether they are good and their
    host. `models`: the model and the held-out annotations; `vectors`: the part with the vectors, for a head."""
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
    table = parquet.read_table(held.local(), ["host", "score", "good"])
    if table["good"].null_count:
        raise CutError("`cut` needs good documents, but the annotations are numbers; set `positive`, their threshold")
    numbers = group_numbers(table["host"].to_numpy())
    choose(settings.cut, table["good"].to_numpy() == 1, table["score"].to_numpy(), numbers)


def reasons(found: Sequence[Bound], scores: Sequence[str]) -> dict[str, Any]:
    """What the held-out annotations say of the bounds that `bounds` has found; empty without a bound, or annotations of
    good and other documents."""
    good, of_good, groups = _annotations(scores)
    if not found or not len(good):
        return {}
    assert found[0].low is not None
    return grounds(good, of_good, groups, found[0].low)


def _annotations(scores: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the held-out annotations, by id: whether they are good, their scores, and numbers of their hosts."""
    names = ["id", SCORE, HELD_OUT, HOST]
    tables = [group.filter(pc.is_valid(group[HELD_OUT])) for part in scores for group in parquet.groups(part, names)]
    if not tables or not sum(map(len, tables)):
        none = np.empty(0)
        return none.astype(bool), none, none.astype(np.int64)
    table = pa.concat_tables(tables).sort_by("id")
    return table[HELD_OUT].to_numpy() == 1, table[SCORE].to_numpy(), group_numbers(table[HOST].to_numpy())
