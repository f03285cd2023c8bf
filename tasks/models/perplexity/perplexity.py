"""Perplexity under KenLM models of prose known to be good: how far a document is from it.

After CCNet (Wenzek et al. 2020, `cc_net/perplexity.py`): pp = 10 ** (-log10 score / length), where length counts the
words or pieces of every line and one end of sentence a line. The model is one of words that is trained on `reference`
in the run (sequences of word characters and single marks of punctuation, in lower case, digits folded to 0), or one for
each language that is named in `models`, of SentencePiece's pieces as CCNet has them.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator, model_validator
from wrapt import lazy_import

from gristmill.storage import files, layout, leftovers, parquet
from gristmill.storage.address import Address
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.file_problems import file_problems, own_sentence
from gristmill.tasks.documents.sampling import Heldout
from gristmill.tasks.documents.selection import gather, select
from gristmill.tasks.documents.step import Problem, Settings, Signal
from gristmill.tasks.models.filter import LearnedFilter
from gristmill.tasks.models.lmplz import estimate
from gristmill.tasks.models.perplexity.cuts import CutoffsError, Cuts, Percentiles, read_cutoffs
from gristmill.tasks.models.perplexity.cuts import bounds as bounds
from gristmill.tasks.models.perplexity.models_by_language import MODEL_SUFFIX, pieces_of
from gristmill.tasks.models.perplexity.scores import Scored, load, load_pieces, score_pieces, score_words, sentences

if TYPE_CHECKING:
    from gristmill.tasks.models.perplexity import models_by_language
else:
    models_by_language = lazy_import("gristmill.tasks.models.perplexity.models_by_language")


class LanguageModel(Settings):
    """What decides the model that is trained, besides the reference."""

    order: int = Field(5, ge=2, le=6, description="longest n-gram of the model that is trained, in words")


class Scoring(Settings):
    """What decides the scores, besides the models and the texts.

    `languages`: of each pair of models, KenLM's and SentencePiece's; none: there is one model, trained in the run.
    """

    languages: tuple[str, ...] = ()
    unit: Literal["line", "document"] = "line"
    lines: bool = False


class Perplexity(Percentiles, LanguageModel, LearnedFilter):
    """Keep documents whose perplexity lies between two percentiles, or in some buckets, of all in their language.

    Documents of the reference itself, which the model has seen, and those in languages without a model are not scored:
    they are kept, in the bucket `all`.
    """

    libraries: ClassVar = ("kenlm", "sentencepiece")
    pins_files: ClassVar = True
    signals: ClassVar = (
        Signal(
            "perplexity",
            "float64",
            "perplexity per word, or piece",
            "Wenzek et al. 2020, perplexity.py",
            description="Perplexity under the model of the reference, or of the language: lower is more like it.",
        ),
        Signal(
            "perplexity_bucket",
            "string",
            "head, middle, tail or all",
            "Wenzek et al. 2020, perplexity.py",
            description="The part of the scores of all, or of all in the language, in which the perplexity lies.",
        ),
    )
    decision_fields: ClassVar = (*Percentiles.model_fields, "cutoffs")

    step: Literal["perplexity"] = "perplexity"
    reference: tuple[str, ...] = Field((), description="names of the sources the model is trained on, in the run")
    models: dict[str, Address] = Field(
        {},
        description="for each language, by the column `language`, its KenLM model, LANGUAGE.arpa.bin, with "
        "LANGUAGE.sp.model beside it: `gristmill train lm` makes them, CCNet's have the same form",
    )
    unit: Literal["line", "document"] = Field(
        "line",
        description="what is one sentence to the models in `models`; `document`: the whole text with its lines joined, "
        "as CCNet's own run scores it and its cutoff.csv has it",
    )
    lines: bool = Field(False, description="the perplexity of every line is stored, too, as `line_perplexities`")
    cutoffs: Address | None = Field(
        None,
        description="CSV file with perplexities by percentile (first column) and language, as CCNet's cutoff.csv: the "
        "buckets end at these, not at those of this corpus",
    )
    cutoffs_read: dict[str, tuple[float, float]] | None = Field(None, description="what the file has; see `pinned`")

    @field_validator("models")
    @classmethod
    def _named(cls, models: dict[str, str]) -> dict[str, str]:
        for language, path in models.items():
            if not path.endswith(MODEL_SUFFIX):
                raise ValueError(f"names {path} for {language}, whose name does not end in {MODEL_SUFFIX}; rename it")
        return models

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.reference) == bool(self.models):
            both = "both `reference` and" if self.models else "neither `reference` nor"
            raise ValueError(
                f"has {both} `models`; give one: sources to train a model on, or the models of some languages"
            )
        if self.cutoffs is not None and not self.models:
            raise ValueError(f"has `cutoffs` {self.cutoffs}, which hold for models of languages; give `models`")
        if self.models and self.order != LanguageModel().order:
            raise ValueError(f"has order {self.order}, which a model in `models` has of its own; drop it")
        if self.unit == "document" and not self.models:
            raise ValueError("has `unit: document`, which is for models of languages; give `models`, or drop it")
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        return ("language",) if self.models else ()

    @property
    def named_models(self) -> tuple[str, ...]:
        return tuple(path for each in sorted(self.models) for path in (self.models[each], pieces_of(self.models[each])))

    def training_settings(self) -> LanguageModel:
        return self.part(LanguageModel)

    def scoring_settings(self) -> Scoring:
        return Scoring(languages=tuple(sorted(self.models)), unit=self.unit, lines=self.lines)

    def decision_settings(self) -> Cuts:
        if self.cutoffs is not None and self.cutoffs_read is None:
            raise ValueError(f"the cut-offs {self.cutoffs} have not been read: the step is not `pinned`")
        values = self.part(Percentiles).model_dump()
        return Cuts(**values, by_language=bool(self.models), cutoffs=self.cutoffs_read)

    def problems(self, deep: bool) -> Iterator[Problem]:
        for language, model in self.models.items():
            check = partial(models_by_language.check, model)
            yield from file_problems(model, ("models", language), deep, check, own_sentence)
        if self.cutoffs is not None:
            yield from file_problems(self.cutoffs, ("cutoffs",), deep, self.pinned)


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
                for document in heldout.without(select(documents_part, kept, ["source", "text"]))["text"].to_pylist():
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
            result = _score(models[2 * i : 2 * i + 2], texts, settings)
            values[some] = result.perplexity
            if settings.lines:
                each = np.split(result.lines, np.cumsum(result.lengths)[:-1])
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
    cutoffs = read_cutoffs(step.cutoffs, step)
    if missing := sorted(set(step.models) - set(cutoffs)):
        raise CutoffsError(
            f"{step.cutoffs} has no column for {', '.join(missing)}, of which `models` has models; add it, or take the "
            "language out of `models`"
        )
    return step.model_copy(update={"cutoffs_read": {name: cutoffs[name] for name in sorted(step.models)}})
