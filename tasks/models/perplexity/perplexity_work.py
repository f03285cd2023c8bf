"""The step `perplexity`: KenLM models trained by `lmplz`, perplexities of documents, percentiles of these."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, layout, leftovers, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.sampling import Heldout
from gristmill.tasks.documents.selection import gather, select
from gristmill.tasks.models.lmplz import estimate
from gristmill.tasks.models.perplexity.cuts import CutoffsError, read_cutoffs
from gristmill.tasks.models.perplexity.cuts import bounds as bounds
from gristmill.tasks.models.perplexity.perplexity import LanguageModel, Perplexity, Scoring
from gristmill.tasks.models.perplexity.scores import Scored, load, load_pieces, score_pieces, score_words, sentences

_BATCH = 1024  # documents whose lines are scored together


def train_model(
    folder: str,
    shard: int,
    reference: Sequence[tuple[str, ...]],
    raw: Sequence[tuple[str, ...]],
    settings: LanguageModel,
    heldout: Heldout,
) -> dict:
    """Train a KenLM model of words on the reference's (documents, selection) parts; writes `model.bin`, returns its
    name, size and counts.

    The raw documents are not read.

    The text goes through a temporary file shard by shard; `lmplz` sorts on disk within 1 GB.
    Raises RuntimeError with lmplz's own last words when it fails.
    """
    with tempfile.TemporaryDirectory(prefix=leftovers.scratch_prefix()) as scratch:
        text, model = Path(scratch) / "text", Path(scratch) / "model.bin"
        documents = words = 0
        with open(text, "w", encoding="utf-8") as f:
            for documents_part, kept in reference:
                for document in heldout.without(select(documents_part, kept, ["text"]))["text"].to_pylist():
                    lines = sentences(document)
                    documents += 1
                    words += sum(line.count(" ") + 1 for line in lines)
                    f.writelines(line + "\n" for line in lines)
        if not words:
            raise ValueError(
                f"the step `perplexity` learns from words, but its `reference` has none ({documents} documents): name "
                "another source in `reference`, or loosen the steps before it"
            )
        estimate(text, model, settings.order)
        with files.create(files.join(folder, "model.bin")) as target, open(model, "rb") as source:
            shutil.copyfileobj(source, target)
        return {"files": ["model.bin"], "documents": documents, "words": words, "bytes": model.stat().st_size}


def score_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    models: Sequence[RecordedFile],
    settings: Scoring,
    signals: tuple[str, ...] = (),
) -> dict:
    """Write `id` and `perplexity` of a selection's documents, for models of languages also `language`, and if it is
    asked for `line_perplexities`.

    `models`: one trained in the run, or of each language KenLM's and SentencePiece's; a document in a language without
    a model gets null. `signals`: parts, of which one has `language`.
    """
    table = select(documents, kept, ["text"])
    scores: dict[str, pa.Array | pa.ChunkedArray] = {"id": table["id"]}
    language = pa.chunked_array([pa.repeat("", len(table))])
    if settings.languages:
        language = scores["language"] = gather(signals, kept, ["language"])["language"]
    values = np.full(len(table), np.nan)
    lines: list[list[float] | None] = [None] * len(table)
    for i, name in enumerate(settings.languages or ("",)):
        rows = np.flatnonzero(np.asarray(pc.equal(language, name)))
        for start in range(0, len(rows), _BATCH):
            some = rows[start : start + _BATCH]
            texts = table["text"].take(pa.array(some)).to_pylist()
            found = _score(models[2 * i : 2 * i + 2], texts, settings)
            values[some] = found.perplexity
            if settings.lines:
                each = np.split(found.lines, np.cumsum(found.lengths)[:-1])
                for row, of_document in zip(some.tolist(), each, strict=True):
                    lines[row] = of_document.tolist()
    scores["perplexity"] = pa.array(values, pa.float64(), mask=np.isnan(values))
    if settings.lines:
        scores["line_perplexities"] = pa.array(lines, pa.list_(pa.float32()))
    parquet.write_table(layout.part(folder, shard), pa.table(scores))
    return {"rows": len(table)}


def _score(models: Sequence[RecordedFile], texts: Sequence[str], settings: Scoring) -> Scored:
    if not settings.languages:
        return score_words(load(models[0]), texts)
    model, pieces = models
    return score_pieces(load(model), load_pieces(pieces), texts, by_line=settings.unit == "line")


def pinned(step: Perplexity) -> Perplexity:
    """The step with the content of its file of cut-offs. Raises FileNotFoundError for one that is not there,
    CutoffsError for one that cannot be used."""
    if step.cutoffs is None:
        return step
    known = read_cutoffs(step.cutoffs, step)
    if missing := sorted(set(step.models) - set(known)):
        raise CutoffsError(
            f"{step.cutoffs} has no column for {', '.join(missing)}, of which `models` has models; add it, or take the "
            "language out of `models`"
        )
    return step.model_copy(update={"cutoffs_read": {name: known[name] for name in sorted(step.models)}})
