"""The steps `toxicity` and `adult_content`: a model's probability of one label for documents and for their lines."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from gristmill.storage import layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import select
from gristmill.tasks.documents.step import Bound
from gristmill.tasks.models.classifier import classifier_file
from gristmill.tasks.models.classifier.training import line, probabilities
from gristmill.tasks.models.harm.harm import HarmScoring, HarmThresholds, lines_of
from gristmill.tasks.models.model_files import label_of
from gristmill.tasks.models.percentiles import percentiles


def score_shard(
    folder: str, shard: int, documents: str, kept: str, models: Sequence[RecordedFile], settings: HarmScoring
) -> dict:
    """Write `id`, the probability of the label for each text, and the share of its characters in lines above
    `line_score`. `models`: one."""
    table = select(documents, kept, ["text"])
    [model] = map(classifier_file.load, models)
    label = label_of(model.labels, settings.label)
    texts = [text[: settings.characters] for text in table["text"].to_pylist()]
    lines = [[part for part in text.split("\n") if part.strip()] for text in texts]
    distinct = list(dict.fromkeys(part for parts in lines for part in parts))
    asked = [line(text, settings.characters, settings.lowercase) for text in (*texts, *distinct)]
    scores = probabilities(model, asked, label)
    above = {
        part: len(part)
        for part, score in zip(distinct, scores[len(texts) :], strict=True)
        if score > settings.line_score
    }
    counted = np.array([sum(above.get(part, 0) for part in parts) for parts in lines], np.float64)
    whole = np.array([sum(map(len, parts)) for parts in lines], np.float64)
    shares = np.divide(counted, whole, out=np.zeros(len(texts)), where=whole > 0)
    columns = {"id": table["id"], settings.signal: scores[: len(texts)], lines_of(settings.signal): shares}
    parquet.write_table(layout.part(folder, shard), pa.table(columns))
    return {"rows": len(table)}


def bounds(settings: HarmThresholds, scores: Sequence[str]) -> list[Bound]:
    """At most `max_score`; or at most the score that all but `drop_top` percent of the documents with a score have, so
    that documents with equal scores stay together. And at most `max_lines`. `scores`: the parts with scores."""
    of_document = [Bound("max_score", settings.signal, high=settings.max_score)]
    if settings.drop_top is not None:
        found = percentiles(scores, settings.signal, [100 - settings.drop_top])
        of_document = [Bound("drop_top", settings.signal, high=high) for [high] in found.values()]
    return [*of_document, Bound("max_lines", lines_of(settings.signal), high=settings.max_lines)]
