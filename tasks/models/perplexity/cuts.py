"""Where the scores of perplexity are cut: percentiles of this corpus, or published ones."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from gristmill.storage import files, layout, parquet
from gristmill.tasks.documents.step import Bound, Settings
from gristmill.tasks.models.percentiles import percentiles

Bucket = Literal["head", "middle", "tail"]
BUCKETS: tuple[Bucket, ...] = ("head", "middle", "tail")


UNSCORED = "all"  # cc_net/perplexity.py: PerplexityBucket


class Percentiles(Settings):
    """Which documents are kept, by their place among the scores of all, or of all in their language."""

    min_percentile: float = Field(0, ge=0, le=100, description="documents with a lower perplexity are dropped")
    max_percentile: float = Field(95, ge=0, le=100, description="documents with a higher perplexity are dropped")
    head_percentile: float = Field(30, ge=0, le=100, description="up to it a document is in the bucket `head`")
    middle_percentile: float = Field(60, ge=0, le=100, description="up to it in `middle`, above in `tail`")
    min_documents: int = Field(
        20,
        ge=1,
        description="of a language that has models: with fewer scored documents none is dropped by a percentile, and "
        "all are in the bucket `all`",
    )
    keep_buckets: tuple[Bucket, ...] = Field(BUCKETS, min_length=1, description="documents in others are dropped")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for low, high in (("min_percentile", "max_percentile"), ("head_percentile", "middle_percentile")):
            if (least := getattr(self, low)) >= (most := getattr(self, high)):
                raise ValueError(f"{low} {least} is not below {high} {most}; lower it")
        if set(self.keep_buckets) == {"head", "tail"}:
            raise ValueError("keep_buckets is head and tail, between which lies middle; add `middle`, or drop one")
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
    """`ends`: those of `bucket_ends`."""
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
            f"{path} is no table of numbers with percentiles in the first column and a column for each "
            f"language ({error}); write it as CCNet's cutoff.csv is"
        ) from error
    levels = settings.head_percentile, settings.middle_percentile
    if missing := [each for each in levels if each not in table]:
        raise CutoffsError(
            f"{path} has no row for the percentile {missing[0]:g}; name in head_percentile and "
            f"middle_percentile two of {', '.join(f'{each:g}' for each in table)}"
        )
    for name in header[1:]:
        head, middle = (table[each][name] for each in levels)
        if not head <= middle:
            raise CutoffsError(
                f"{path} has the perplexities {head:g} and {middle:g} for {name} at the percentiles "
                f"{levels[0]:g} and {levels[1]:g}, which do not ascend; correct them"
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
        remedy = "leave a source out of its `reference`"
        if settings.by_language:
            remedy = "name in `models` models for the languages that the step `language` keeps"
        raise ValueError(f"the step `perplexity` has no document to score: {remedy}, or drop the step")
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
