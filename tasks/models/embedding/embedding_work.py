"""The step `embedding`: documents scored by heads over their stored vectors."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from gristmill.storage import layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.step import Bound
from gristmill.tasks.models.embedding import head_file
from gristmill.tasks.models.embedding.embedder import Embedder
from gristmill.tasks.models.embedding.embedding import HeadCuts, HeadScoring, column_of
from gristmill.tasks.models.embedding.vectors import vectors_of
from gristmill.tasks.models.percentiles import percentiles


def described(model: str, tokenizer: str, settings: Embedder) -> dict[str, Any]:
    """An embedder as heads name it: the digests of its files, and its settings but for the device, and the kind, which
    the file shows."""
    return {"model": model, "tokenizer": tokenizer, **settings.model_dump(mode="json", exclude={"device", "kind"})}


def score_shard(
    folder: str, shard: int, vectors: str, heads: Mapping[str, RecordedFile], settings: HeadScoring
) -> dict:
    """Write `id` and the column of each head. `vectors`: the part with the vectors of the shard's documents.

    Raises ModelFileError for a head that does not fit the vectors.
    """
    table = parquet.read_table(vectors)
    found = vectors_of(table)
    embedder = described(settings.model, settings.tokenizer, settings.embedder)
    columns: dict[str, Any] = {"id": table["id"]}
    for name in settings.heads:
        head = head_file.load(heads[name])
        head_file.check_fits(heads[name].path, head, embedder, found.shape[1])
        columns[column_of(name)] = head_file.scores(head, found)
    parquet.write_table(layout.part(folder, shard), pa.table(columns))
    return {"rows": len(table)}


def bounds(settings: HeadCuts, scores: Sequence[str]) -> list[Bound]:
    """For each head with a cut, in the order of their names, at least `min_score`; or at least the score that
    `keep_top` percent of all documents with a score have. `scores`: the parts with scores."""
    made = []
    for name in sorted((*settings.min_score, *settings.keep_top)):
        if name in settings.min_score:
            made.append(Bound(f"{name}_min_score", column_of(name), low=settings.min_score[name]))
            continue
        found = percentiles(scores, column_of(name), [100 - settings.keep_top[name]])
        made += [Bound(f"{name}_keep_top", column_of(name), low=low) for [low] in found.values()]
    return made
