"""Perplexity under KenLM models of prose known to be good: how far a document is from it.

After CCNet (Wenzek et al. 2020, `cc_net/perplexity.py`): pp = 10 ** (-log10 score / length), where length counts the
words or pieces of every line and one end of sentence a line. The model is one of words that is trained on `reference`
in the run (sequences of word characters and single marks of punctuation, in lower case, digits folded to 0), or one for
each language that is named in `models`, of SentencePiece's pieces as CCNet has them.
"""

import csv
import io
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator, model_validator

from gristmill.storage import files, layout, leftovers, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.settings import Address
from gristmill.tasks.documents.file_problems import file_problems, own_sentence
from gristmill.tasks.documents.selection import Heldout, gather, select
from gristmill.tasks.documents.step import Bound, Problem, Settings, Signal
from gristmill.tasks.models import ngram_models
from gristmill.tasks.models.filter import LearnedFilter
from gristmill.tasks.models.ngram_models import (
    MODEL_SUFFIX,
    Scored,
    estimate,
    load,
    load_pieces,
    pieces_of,
    score_pieces,
    score_words,
    sentences,
)
from gristmill.tasks.models.percentiles import percentiles

Bucket = Literal["head", "middle", "tail"]
BUCKETS: tuple[Bucket, ...] = ("head", "middle", "tail")


UNSCORED = "all"  # cc_net/perplexity.py: PerplexityBucket


class Percentiles(Settings):
    """Which documents are kept, by their place among the scores of all, or of all in their language."""

    min_percentile: float = Field(
        0, ge=0, le=100, description="Documents with a lower perplexity percentile are dropped."
    )
    max_percentile: float = Field(
        95, ge=0, le=100, description="Documents with a higher perplexity percentile are dropped."
    )
    head_percentile: float = Field(30, ge=0, le=100, description="Upper percentile of the bucket `head`.")
    middle_percentile: float = Field(
        60, ge=0, le=100, description="Upper percentile of the bucket `middle`; documents above it are in `tail`."
    )
    min_documents: int = Field(
        20,
        ge=1,
        description="Minimum number of scored documents of a language that has its own model. With fewer, "
        "none is dropped by a percentile and all are in the bucket `all`.",
    )
    keep_buckets: tuple[Bucket, ...] = Field(
        BUCKETS, min_length=1, description="Buckets to keep; documents in other buckets are dropped."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for low, high in (("min_percentile", "max_percentile"), ("head_percentile", "middle_percentile")):
            if (least := getattr(self, low)) >= (most := getattr(self, high)):
                raise ValueError(f"{low} {least} is not below {high} {most}; lower it")
        if set(self.keep_buckets) == {"head", "tail"}:
            raise ValueError(
                "keep_buckets is head and tail without middle, which is between them; add `middle`, or remove one"
            )
        return self


class Cuts(Percentiles):
    """What decides which documents are kept. `by_language`: the scores have the column `language`, and each language
    its own percentiles. `cutoffs`: where a file has them, by language the lowest perplexities of `middle` and of
    `tail`."""

    by_language: bool
    cutoffs: dict[str, tuple[float, float]] | None


# The highest perplexities of `head` and of `middle`, by language; "" where languages are one.
Ends = Mapping[str, Sequence[float]]


class CutoffsError(ValueError):
    """A file of cut-offs cannot be used: which, why, and what to do."""


def bounds(settings: Cuts, scores: Sequence[str]) -> list[Bound]:
    """Between the perplexities at two percentiles of all that were scored (linear interpolation), or of all in the
    language, and within the buckets that are kept. A document without a score stays, and one in a language with too
    few.

    `scores`: the parts with scores. Raises ValueError if there is none.
    """
    cuts = _percentiles(settings, scores, [settings.min_percentile, settings.max_percentile])
    ends: list[tuple[str, dict[str, tuple[float | None, float | None]]]] = [
        ("min_percentile", {name: (low, None) for name, (low, _) in cuts.items()}),
        ("max_percentile", {name: (None, high) for name, (_, high) in cuts.items()}),
    ]
    if set(settings.keep_buckets) != set(BUCKETS):
        ends.append(
            ("bucket", {name: _kept_range(settings, each) for name, each in bucket_ends(settings, scores).items()})
        )
    return [_bound(rule, by_language) for rule, by_language in ends]


def bucket_ends(settings: Cuts, scores: Sequence[str]) -> dict[str, list[float]]:
    """The highest perplexities that are in `head` and in `middle`, by language; none for one with too few documents."""
    if settings.cutoffs is not None:
        # CCNet's are exclusive: a document at the cut-off is in the next bucket
        return {name: [math.nextafter(end, -math.inf) for end in ends] for name, ends in settings.cutoffs.items()}
    return _percentiles(settings, scores, [settings.head_percentile, settings.middle_percentile])


def find_ends(folder: str, number: int, settings: Cuts, scores: Sequence[str]) -> dict:
    """`ends`: the result of `bucket_ends`."""
    return {"ends": bucket_ends(settings, scores)}


def read_cutoffs(path: str, settings: Percentiles) -> dict[str, tuple[float, float]]:
    """The cut-offs of a file at the percentiles where `head` and `middle` end, by language.

    Raises FileNotFoundError; CutoffsError for a file of another form, or without a percentile.
    """
    try:
        header, *rows = csv.reader(io.StringIO(files.read_bytes(path).decode()))
        table = {float(row[0]): dict(zip(header[1:], map(float, row[1:]), strict=True)) for row in rows}
    except (ValueError, IndexError, csv.Error) as error:
        raise CutoffsError(
            f"{path} is not a table of numbers with percentiles in the first column and a column for each "
            f"language ({error}); write it as CCNet's cutoff.csv is"
        ) from error
    levels = settings.head_percentile, settings.middle_percentile
    if missing := [each for each in levels if each not in table]:
        raise CutoffsError(
            f"{path} has no row for the percentile {missing[0]:g}; set head_percentile and middle_percentile "
            f"to two of {', '.join(f'{each:g}' for each in table)}"
        )
    for name in header[1:]:
        head, middle = (table[each][name] for each in levels)
        if not head <= middle:
            raise CutoffsError(
                f"{path} has the perplexities {head:g} and {middle:g} for {name} at the percentiles "
                f"{levels[0]:g} and {levels[1]:g}, which are not ascending; correct them"
            )
    return {name: (table[levels[0]][name], table[levels[1]][name]) for name in header[1:]}


def bucket_shard(folder: str, shard: int, scores: str, by_language: bool, ends: Ends) -> dict:
    """Write `id` and `perplexity_bucket` of the documents that have a row in a part with scores."""
    table = parquet.read_table(scores, ["id", "perplexity", *(["language"] if by_language else [])])
    names = table["language"].combine_chunks() if by_language else pa.array([""] * len(table), pa.string())
    languages = pa.array(list(ends), pa.string())
    indices = pc.index_in(names, languages)
    head, middle = (pa.array([each[i] for each in ends.values()], pa.float64()).take(indices) for i in range(2))
    score = table["perplexity"].combine_chunks().cast(pa.float64())
    scored = pc.and_(pc.is_valid(score), pc.is_valid(indices))
    bucket = pc.case_when(
        pc.make_struct(pc.invert(scored), pc.less_equal(score, head), pc.less_equal(score, middle)),
        UNSCORED,
        *BUCKETS,
    )
    parquet.write_table(layout.part(folder, shard), pa.table({"id": table["id"], "perplexity_bucket": bucket}))
    return {"rows": len(table)}


def _percentiles(settings: Cuts, scores: Sequence[str], levels: Sequence[float]) -> dict[str, list[float]]:
    group, least = ("language", settings.min_documents) if settings.by_language else (None, 1)
    by_language = percentiles(scores, "perplexity", levels, group, least)
    if not by_language:
        remedy = "remove a source from its `reference`"
        if settings.by_language:
            remedy = "add models to `models` for the languages that the step `language` keeps"
        raise ValueError(f"the step `perplexity` has no documents to score: {remedy}, or remove the step")
    return {name: values for name, values in by_language.items() if values}


def _kept_range(settings: Cuts, ends: Sequence[float]) -> tuple[float | None, float | None]:
    head, middle = ends
    lows = {"head": None, "middle": math.nextafter(head, math.inf), "tail": math.nextafter(middle, math.inf)}
    highs = {"head": head, "middle": middle, "tail": None}
    kept = [bucket for bucket in BUCKETS if bucket in settings.keep_buckets]
    return lows[kept[0]], highs[kept[-1]]


def _bound(rule: str, ends: Mapping[str, tuple[float | None, float | None]]) -> Bound:
    low, high = ends.get("", (None, None))
    by_language = {name: each for name, each in ends.items() if name}
    return Bound(rule, "perplexity", low=low, high=high, languages=by_language, keeps_null=True)


class LanguageModel(Settings):
    """What decides the model that is trained, besides the reference."""

    order: int = Field(5, ge=2, le=6, description="Longest n-gram of the trained model (words).")


class Scoring(Settings):
    """What decides the scores, besides the models and the texts.

    `languages`: of each pair of models, KenLM's and SentencePiece's; none: there is one model, trained in the run.
    """

    languages: tuple[str, ...] = ()
    unit: Literal["line", "document"] = "line"
    lines: bool = False


class Perplexity(Percentiles, LanguageModel, LearnedFilter):
    """Keep documents whose perplexity is between two percentiles, or in certain buckets, of all documents of their
    language.

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
    reference: tuple[str, ...] = Field(
        (), description="Names of the sources that a model is trained on during the run."
    )
    models: dict[str, Address] = Field(
        {},
        description="KenLM model for each language (column `language`): LANGUAGE.arpa.bin, with LANGUAGE.sp.model in "
        "the same folder. `gristmill train lm` trains them, and CCNet's have the same form.",
    )
    unit: Literal["line", "document"] = Field(
        "line",
        description="What the models in `models` score as one sentence. `document`: the whole text with "
        "its lines joined, as in CCNet's own run and its cutoff.csv.",
    )
    lines: bool = Field(False, description="Also store the perplexity of every line, as `line_perplexities`.")
    cutoffs: Address | None = Field(
        None,
        description="CSV file with perplexities by percentile (first column) and language, such as CCNet's "
        "cutoff.csv. Its values replace this corpus's own percentiles as bucket boundaries.",
    )
    cutoffs_read: dict[str, tuple[float, float]] | None = Field(None, description="Content of the file; see `pinned`.")

    @field_validator("models")
    @classmethod
    def _named(cls, models: dict[str, str]) -> dict[str, str]:
        for language, path in models.items():
            if not path.endswith(MODEL_SUFFIX):
                raise ValueError(f"has {path} for {language}, whose name does not end in {MODEL_SUFFIX}; rename it")
        return models

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.reference) == bool(self.models):
            both = "both `reference` and" if self.models else "neither `reference` nor"
            raise ValueError(
                f"has {both} `models`; give one: sources to train a model on, or the models of some languages"
            )
        if self.cutoffs is not None and not self.models:
            raise ValueError(f"has `cutoffs` {self.cutoffs}, which apply to models of languages; set `models`")
        if self.models and self.order != LanguageModel().order:
            raise ValueError(f"has order {self.order}, but the models in `models` have their own; remove it")
        if self.unit == "document" and not self.models:
            raise ValueError("has `unit: document`, which is for models of languages; set `models`, or remove it")
        return self

    def remarks(self) -> Iterator[str]:
        if "tail" not in self.keep_buckets:
            yield (
                f"steps.{self.step}: dropping the bucket tail drops most code, formulas, dialects and lists, which are "
                "unlike the reference; exempt their sources with `except`, or weight the bucket in the mixture"
            )

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
            check = partial(ngram_models.check, model)
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
                f"the step `perplexity` trains on words, but its `reference` has none ({documents} "
                "documents): use another source in `reference`, or loosen the steps before it"
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
            f"{step.cutoffs} has no column for {', '.join(missing)}, which have models in `models`; add it, "
            "or remove the language from `models`"
        )
    return step.model_copy(update={"cutoffs_read": {name: cutoffs[name] for name in sorted(step.models)}})
