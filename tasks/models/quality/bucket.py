"""Several scorers as one: the best of the places that a document has among all by each of them.

After Nemotron-CC (Su et al. 2024, arXiv 2412.02595): the scores of each scorer are cut into 20 buckets of equally many
documents, and a document is in the highest of its buckets, since scorers prefer different kinds of good documents.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from gristmill.storage import files, layout, parquet
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.documents.step import CorpusStep, Settings, Signal
from gristmill.tasks.models.percentiles import percentiles
from gristmill.tasks.models.quality.quality import SCORED_BY


class Scorers(Settings):
    """What decides the buckets, besides the scores."""

    scores: tuple[str, ...] = Field((), description="signals of steps before it of which more is better")
    inverse: tuple[str, ...] = Field((), description="signals of which less is better, as perplexity")
    buckets: int = Field(20, ge=2, le=100, description="of equally many documents; Nemotron-CC: 20")


class QualityBucket(Scorers, CorpusStep):
    """Number documents from 0, the worst, by the best place that they have by one of several scores.

    Drops nothing: `mixture.by` names its column. A document without any of the scores has no number.
    """

    signals: ClassVar = (
        Signal(
            "quality_bucket",
            "int32",
            "number of the bucket",
            "Su et al. 2024, section 2.2",
            description="The highest of the document's buckets by the scores; 0 is the lowest.",
        ),
    )

    step: Literal["quality_bucket"] = "quality_bucket"

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.reads or len(set(self.reads)) < len(self.reads):
            raise ValueError(
                f"has the scores {list(self.reads)}; name at least one in `scores` or `inverse`, each once"
            )
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.scores, *self.inverse)


_GATHERED = "gathered"


def gathered_folder(folder: str) -> str:
    """Where the scores of the documents that arrive lie while the stage is made."""
    return files.join(folder, _GATHERED)


def gather_shard(folder: str, shard: int, signals: tuple[str, ...], kept: str, settings: Scorers) -> dict:
    """Write `id` and the scores, float64, of the documents that arrive; of the score `quality` also
    by which model it is, a string, else null."""
    names = [*settings.scores, *settings.inverse]
    model_columns = (
        [SCORED_BY] if "quality" in names and any(SCORED_BY in parquet.columns(part) for part in signals) else []
    )
    table = gather(signals, kept, [*names, *model_columns])
    if not model_columns:
        table = table.append_column(SCORED_BY, pa.nulls(len(table), pa.string()))
    for name in names:
        kind = table[name].type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise ValueError(f"the step `quality_bucket` has the score {name}, whose values are {kind}; name numbers")
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.float64()))
    parquet.write_table(layout.part(gathered_folder(folder), shard), table)
    return {"rows": len(table)}


def find_edges(folder: str, number: int, parts: Sequence[str], settings: Scorers) -> dict:
    """`edges`: of each score, for `quality` by model, the percentiles between its buckets, `buckets - 1`; of a
    score that no document has, none. `parts`: what `gather_shard` has written."""
    levels = [100 * each / settings.buckets for each in range(1, settings.buckets)]
    names = (*settings.scores, *settings.inverse)
    return {"edges": {name: percentiles(parts, name, levels, _group(name)) for name in names}}


def bucket_shard(folder: str, shard: int, edges: Mapping[str, Mapping[str, list[float]]], settings: Scorers) -> dict:
    """Write `id` and `quality_bucket`."""
    table = parquet.read_table(layout.part(gathered_folder(folder), shard))
    best = np.full(len(table), -1)
    for name, sign in [*((name, 1) for name in settings.scores), *((name, -1) for name in settings.inverse)]:
        values = sign * table[name].to_numpy()
        models = np.asarray(pc.fill_null(table[SCORED_BY], "") if name == "quality" else pa.repeat("", len(table)))
        for model, ends in edges[name].items():
            # of equal scores all are in the bucket of the worst of them
            buckets = np.searchsorted(np.sort(sign * np.asarray(ends, np.float64)), values, side="left")
            here = (models == model) & ~np.isnan(values)
            best = np.maximum(best, np.where(here, buckets, -1))
    numbers = pa.array(best, pa.int32(), mask=best < 0)
    parquet.write_table(layout.part(folder, shard), pa.table({"id": table["id"], "quality_bucket": numbers}))
    return {"rows": len(table)}


def _group(score: str) -> str | None:
    """The column of the groups in which a score's places are counted: two models that score are not as sure as each
    other."""
    return SCORED_BY if score == "quality" else None
