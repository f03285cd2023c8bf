"""The step `quality`: the classifier trained, documents scored."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from storage import files, layout, leftovers, parquet
from storage.recorded_file import RecordedFile
from tasks.documents.sampling import Heldout, uniform
from tasks.documents.selection import select
from tasks.documents.step import Bound
from tasks.models.model_files import check_fasttext
from tasks.models.quality import Classifier, Scoring, Threshold

if TYPE_CHECKING:
    import fasttext

_SPACES = re.compile(r"\s+")
_COMMANDS = re.compile(r"(?<!\S)(__label__\S*|</s>)")
_TESTED = 0.1


def train_model(
    folder: str,
    shard: int,
    reference: Sequence[tuple[str, str]],
    raw: Sequence[tuple[str, str]],
    settings: Classifier,
    heldout: Heldout,
) -> dict:
    """Train on (documents, selection) parts of reference and of raw documents; writes `model.bin`.

    As many of either kind, drawn by a keyed hash; a tenth is kept out and the accuracy on it is returned. Raw
    documents that were drawn are scored later by the model that has seen them, which is a bias against them where
    the draw is a large part of the corpus (DCLM drew 200,000 of billions).
    Holds one shard's texts and the model: `4 * dimensions` bytes for each bucket and each word. One thread:
    fastText is deterministic with no more.
    """
    good_rows, raw_rows = _rows(reference), _rows(raw)
    wanted = min(settings.documents, good_rows, raw_rows)
    if wanted < 2:
        raise ValueError(
            f"the step `quality` learns from two documents of its `reference` and two of other sources at least, but "
            f"{good_rows} and {raw_rows} are left: name other sources in `reference`, or loosen the steps before it"
        )
    with tempfile.TemporaryDirectory(prefix=leftovers.scratch_prefix()) as scratch:
        trained, tested, model_path = (Path(scratch) / name for name in ("trained", "tested", "model.bin"))
        with open(trained, "w", encoding="utf-8") as train, open(tested, "w", encoding="utf-8") as test:
            for label, inputs, rows in (("hq", reference, good_rows), ("raw", raw, raw_rows)):
                for text, draw in _draw(inputs, wanted / rows, settings, heldout):
                    (test if draw < _TESTED else train).write(f"__label__{label} {text}\n")
        import fasttext  # here and below: it takes a tenth of a second

        model = fasttext.train_supervised(
            str(trained),
            lr=settings.learning_rate,
            epoch=settings.epochs,
            wordNgrams=settings.word_ngrams,
            dim=settings.dimensions,
            bucket=settings.buckets,
            minCount=1,
            thread=1,
            seed=settings.seed,
            verbose=0,
        )
        model.save_model(str(model_path))
        _check_whole(model_path, model)
        with files.create(files.join(folder, "model.bin")) as target, open(model_path, "rb") as source:
            shutil.copyfileobj(source, target)
        found, precision, _ = model.test(str(tested))
        with open(trained, encoding="utf-8") as train:
            lines = sum(1 for _ in train)
    return {"trained": lines, "tested": found, "accuracy": float(precision) if found else None}


def _check_whole(path: Path, model: "fasttext.FastText._FastText") -> None:
    """Raise OSError for a model of which not all was written: fastText says nothing of a full disk. Its file ends with
    the output matrix (FastText::saveModel)."""
    end = model.get_output_matrix().tobytes()
    with open(path, "rb") as f:
        f.seek(-min(len(end), path.stat().st_size), os.SEEK_END)
        if f.read() != end:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def score_shard(folder: str, shard: int, documents: str, kept: str, model: RecordedFile, settings: Scoring) -> dict:
    """Write `id` and `quality` (probability of being a reference document) of a selection's documents."""
    table = select(documents, kept, ["text"])
    texts = [_line(text, settings.characters) for text in table["text"].to_pylist()]
    scores = pa.table({"id": table["id"], "quality": pa.array(_probability(load(model), texts), pa.float64())})
    parquet.write_table(layout.part(folder, shard), scores)
    return {"rows": len(table)}


@cache
def load(model: RecordedFile) -> "fasttext.FastText._FastText":
    import fasttext

    local = model.local()
    check_fasttext(local)
    return fasttext.load_model(local)


def bounds(settings: Threshold, scores: Sequence[str]) -> list[Bound]:
    """At least `min_score`, whatever the scores are."""
    return [Bound("min_score", "quality", low=settings.min_score)]


def _rows(inputs: Sequence[tuple[str, str]]) -> int:
    return sum(parquet.rows(kept) for _, kept in inputs)


def _draw(
    inputs: Sequence[tuple[str, str]], fraction: float, settings: Classifier, heldout: Heldout
) -> Iterator[tuple[str, float]]:
    for documents, kept in inputs:
        table = heldout.without(select(documents, kept, ["text"]))
        chosen = table.filter(pa.array(uniform(table["id"], settings.seed, "quality") < fraction))
        draws = uniform(chosen["id"], settings.seed, "quality-test")
        for text, draw in zip(chosen["text"].to_pylist(), draws, strict=True):
            yield _line(text, settings.characters), draw


def _line(text: str, characters: int) -> str:
    """One line, in lower case; a word that fastText would read as a label or a line's end is only a word."""
    return _COMMANDS.sub(" ", _SPACES.sub(" ", text[:characters].lower()))


def _probability(model: "fasttext.FastText._FastText", texts: list[str]) -> np.ndarray:
    if not texts:
        return np.empty(0)
    labels, scores = model.predict(texts, k=2)
    found = [
        dict(zip(row, score, strict=True)).get("__label__hq", 0.0) for row, score in zip(labels, scores, strict=True)
    ]
    return np.clip(np.asarray(found, np.float64), 0, 1)
