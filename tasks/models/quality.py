"""A fastText classifier that separates reference documents from raw ones, after DCLM (Li et al. 2024).

DCLM trains on unigrams and bigrams and keeps documents by their probability of the label `hq`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.settings import Address
from gristmill.tasks.documents.selection import Heldout, gather, null_columns_shard, select, uniform
from gristmill.tasks.documents.step import Bound, CorpusStep, Problem, Settings, Signal
from gristmill.tasks.models import classifiers
from gristmill.tasks.models.classifiers import (
    BAD,
    FOLDS,
    GOOD,
    Classifier,
    Examples,
    Texts,
    cross_fit,
    fold,
    line,
    measures,
    ordered,
    probabilities,
)
from gristmill.tasks.models.filter import LearnedFilter
from gristmill.tasks.models.model_files import label_of
from gristmill.tasks.models.percentiles import percentiles
from gristmill.tasks.url.canonical import host_columns, known_hosts

# Li et al. 2024: baselines/baselines_configs/fasttext_filter.yaml
MIN_SCORE = 0.018112
SCORED_BY = "quality_model"  # the column that says which of the two models has scored a document


class Scoring(Settings):
    """What decides the scores, besides the documents and the models."""

    characters: int
    lowercase: bool
    seed: int
    label: str | None


class Threshold(Settings):
    """Which documents are kept."""

    min_score: float | None = Field(
        None, ge=0, le=1, description=f"Lowest score that is kept. null, without keep_top: {MIN_SCORE} (DCLM)."
    )
    keep_top: float | None = Field(
        None,
        gt=0,
        le=100,
        description="Percentage of the documents scored by each model to keep: those with the highest scores.",
    )

    @model_validator(mode="after")
    def _one_cut(self) -> Self:
        if self.min_score is not None and self.keep_top is not None:
            raise ValueError(f"has min_score {self.min_score} and keep_top {self.keep_top}; give one of them")
        return self


class Quality(Classifier, Threshold, LearnedFilter):
    """Keep documents that a classifier scores as likely good examples.

    Two models learn from `reference` against the other sources, and each document is scored by the model that has not
    seen it. Or `model` names a fastText file. Reference documents are kept without a score.
    """

    libraries: ClassVar = ("fasttext-ng",)
    signals: ClassVar = (
        Signal(
            "quality",
            "float64",
            "probability",
            "Li et al. 2024, fasttext_filter.yaml",
            description="How probable the classifier takes it to be that the document is a reference document.",
        ),
    )
    decision_fields: ClassVar = ("min_score", "keep_top")

    step: Literal["quality"] = "quality"
    reference: tuple[str, ...] = Field((), description="Names of the sources with good examples.")
    against: tuple[str, ...] = Field((), description="Names of the sources with bad examples; none: all others.")
    model: Address | None = Field(None, description="Path or address of a fastText classifier, instead of `reference`.")
    label: str | None = Field(None, description="Label of `model` whose probability is the score; none: hq.")

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if bool(self.reference) == bool(self.model):
            raise ValueError("needs either `reference`, the sources of good examples, or `model`, a file; give one")
        if self.model is None and self.label is not None:
            raise ValueError(f"has the label {self.label}, but no `model` for it; remove it")
        if self.model is not None and self.against:
            raise ValueError(
                f"has a model, which is not trained on sources, and `against` {list(self.against)}; remove one"
            )
        trained = {**Classifier().model_dump(), **self.part(Texts).model_dump()}
        if self.model is not None and (changes := dict(self.part(Classifier).model_dump().items() - trained.items())):
            raise ValueError(f"has a model, which is already trained, and {', '.join(sorted(changes))}; remove it")
        if both := sorted(set(self.reference) & set(self.against)):
            raise ValueError(f"has {', '.join(both)} both in `reference` and in `against`; remove it from one")
        return self

    @property
    def packages(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the settings
        return () if self.model else ("scikit-learn",)  # which measures what is trained here

    @property
    def groups(self) -> tuple[str, ...]:
        return (SCORED_BY,)

    @property
    def named_models(self) -> tuple[str, ...]:
        return () if self.model is None else (self.model,)

    @property
    def fasttext_classifier(self) -> str | None:
        return self.model

    @property
    def disk_bytes(self) -> int:
        # fastText's matrices of two models; a model that is named is not stored again
        return 0 if self.model is not None else 2 * 4 * self.dimensions * self.buckets

    def problems(self, deep: bool) -> Iterator[Problem]:
        if self.model is not None:
            yield from classifiers.problems(self.model, self, self.label, deep)

    def remarks(self) -> Iterator[str]:
        if self.min_score is None and self.keep_top is None and self._is_trained_here():
            yield (
                f"steps.quality has no cutoff: DCLM's {MIN_SCORE} was measured for DCLM's own model, and a "
                "classifier trained here on equally many good and bad examples would drop almost nothing "
                "with it; set `keep_top: 10`, the percentage to keep, or `min_score: 0` to drop nothing"
            )

    def _is_trained_here(self) -> bool:
        """Whether the classifier is trained in the run, or with `gristmill train classifier`, which describes it."""
        if self.model is None:
            return True
        description = classifiers.description(self.model)
        return files.is_local(description) and files.exists(description)

    def raw(self, sources: Sequence[str]) -> tuple[str, ...]:
        return tuple(sorted(self.against)) or super().raw(sources)

    def training_settings(self) -> Classifier:
        return self.part(Classifier)

    def scoring_settings(self) -> Scoring:
        return Scoring.model_validate({name: getattr(self, name) for name in Scoring.model_fields})

    def decision_settings(self) -> Threshold:
        return self.part(Threshold)


MODELS = tuple(f"model-{number}.bin" for number in range(FOLDS))
CROSS_FITTED = "cross_fitted.parquet"


def train_model(
    folder: str,
    shard: int,
    reference: Sequence[tuple[str, ...]],
    raw: Sequence[tuple[str, ...]],
    settings: Classifier,
    heldout: Heldout,
) -> dict:
    """Train two models on (documents, selection) parts of reference and of raw documents; writes `model-0.bin`,
    `model-1.bin`, and `cross_fitted.parquet`: of each example whether it is `good`, and its `score` by the model that
    has not seen it. Returns the counts, and how good these scores are (`classifier_measures.measures`).

    As many of either kind, drawn by a keyed hash. Holds one shard's texts and a model.
    """
    with ordered(settings, sample(reference, raw, settings, heldout)) as examples:
        by_label = cross_fit(examples, settings, [files.join(folder, name) for name in MODELS], (GOOD, BAD))
        scores = by_label[:, examples.names.index(GOOD)]
        table = pa.table({"good": examples.good, "score": scores})
        parquet.write_table(files.join(folder, CROSS_FITTED), table)
        trained = [int((examples.folds != number).sum()) for number in range(FOLDS)]
        return {"files": list(MODELS), "trained": trained, **measures(examples.good, scores)}


def sample(
    reference: Sequence[tuple[str, ...]],
    raw: Sequence[tuple[str, ...]],
    settings: Classifier,
    heldout: Heldout,
    by_host: bool = False,
) -> Callable[[Examples], None]:
    """A function that adds the training examples; the arguments are those of `train_model`. `by_host`: all examples of
    a host are in one fold, not only those with one id. Raises ValueError for too few."""
    good_rows, raw_rows = _rows(reference), _rows(raw)
    n_rows = min(FOLDS * settings.documents, good_rows, raw_rows)
    if n_rows < 2:
        raise ValueError(
            "the step `quality` needs at least two documents of its `reference` and two of other sources, but "
            f"{good_rows} and {raw_rows} are left: use other sources in `reference`, or loosen the steps before it"
        )

    def fill(examples: Examples) -> None:
        for good, inputs, rows in ((True, reference, good_rows), (False, raw, raw_rows)):
            for documents, kept in inputs:
                columns = dict.fromkeys(["source", "text", *(host_columns(documents) if by_host else ())])
                table = heldout.without(select(documents, kept, list(columns)))
                table = table.filter(pa.array(uniform(table["id"], settings.seed, "quality") < n_rows / rows))
                own = (
                    pa.chunked_array([pc.coalesce(known_hosts(table), table["id"].combine_chunks())])
                    if by_host
                    else None
                )
                examples.add(table["id"], table["text"].to_pylist(), GOOD if good else BAD, own)

    return fill


def score_shard(
    folder: str, shard: int, documents: str, kept: str, models: Sequence[RecordedFile], settings: Scoring
) -> dict:
    """Write `id`, `quality` (probability of being a reference document) and `quality_model` (the model that has scored
    it, as its file is called: `model-0`; `model` for the only one) of a selection's documents.

    `models`: one for each fold, or one for all. A score depends only on the id, the text and the models. Every
    document is scored by the model of its fold, also where it is in no training sample: the mean of both for these
    would be spread less than the scores of the others, and a share that is kept would prefer one kind.
    """
    table = select(documents, kept, ["text"])
    texts = [line(text, settings.characters, settings.lowercase) for text in table["text"].to_pylist()]
    folds = fold(table["id"], settings.seed, len(models))
    names = np.array([name.removesuffix(".bin") for name in MODELS] if len(models) > 1 else ["model"])
    scores = np.empty(len(table))
    for number, file in enumerate(models):
        rows = np.flatnonzero(folds == number)
        model = classifiers.load(file)
        scores[rows] = probabilities(model, [texts[row] for row in rows], label_of(model.labels, settings.label))
    columns = {"id": table["id"], "quality": scores, SCORED_BY: names[folds]}
    parquet.write_table(layout.part(folder, shard), pa.table(columns))
    return {"rows": len(table)}


def bounds(settings: Threshold, scores: Sequence[str]) -> list[Bound]:
    """At least `min_score`; or at least the score that `keep_top` percent of all documents
    that the same model has scored have, so that documents with equal scores stay together. Two models of other halves
    of the examples need not be as sure as each other: one cut for both would keep more of one fold than of the other,
    which says nothing about documents. `scores`: the parts with scores."""
    if settings.keep_top is None:
        return [Bound("min_score", "quality", low=MIN_SCORE if settings.min_score is None else settings.min_score)]
    lows = {name: low for name, [low] in percentiles(scores, "quality", [100 - settings.keep_top], SCORED_BY).items()}
    if len(lows) == 1:
        return [Bound("keep_top", "quality", low=low) for low in lows.values()]
    return [Bound("keep_top", "quality", languages={name: (low, None) for name, low in lows.items()}, by=SCORED_BY)]


def _rows(inputs: Sequence[tuple[str, ...]]) -> int:
    return sum(parquet.rows(kept) for _, kept in inputs)


# Several scorers as one: the best of the places that a document has among all by each of them.
#
# After Nemotron-CC (Su et al. 2024, arXiv 2412.02595): the scores of each scorer are cut into 20 buckets of equally
# many documents, and a document is in the highest of its buckets, since scorers prefer different kinds of good
# documents.


class Scorers(Settings):
    """What decides the buckets, besides the scores."""

    scores: tuple[str, ...] = Field((), description="Signals of earlier steps where a higher value is better.")
    inverse: tuple[str, ...] = Field((), description="Signals where a lower value is better, such as perplexity.")
    buckets: int = Field(
        20, ge=2, le=100, description="Number of buckets, each with the same number of documents; Nemotron-CC: 20."
    )


class QualityBucket(Scorers, CorpusStep):
    """Assign each document to a quality bucket, from 0 (worst), by the best rank that it has in several scores.

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
                f"has the scores {list(self.reads)}; list at least one in `scores` or `inverse`, each once"
            )
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.scores, *self.inverse)


_GATHERED = "gathered"


def gathered_folder(folder: str) -> str:
    """The folder with the scores of the arriving documents while the stage is made."""
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
            raise ValueError(f"the step `quality_bucket` has the score {name}, whose values are {kind}; use numbers")
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


def unnumbered_shard(folder: str, shard: int, kept: str) -> dict:
    """Write `id` and a null `quality_bucket` for a selection of a source without the step."""
    return null_columns_shard(folder, shard, kept, {"quality_bucket": pa.int32()})


def _group(score: str) -> str | None:
    """The column of the groups in which a score's places are counted: two models that score are not as sure as each
    other."""
    return SCORED_BY if score == "quality" else None
