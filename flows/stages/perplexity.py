"""`perplexity`: a learned filter whose scores are also put into buckets, a stage of their own."""

from dataclasses import dataclass, replace
from typing import Any

from flows.context import RunContext
from flows.recipe import Recipe
from flows.stages.corpus import Corpus
from flows.stages.learned_filter import learned_filter
from flows.stages.steps_behind import modules
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.models.perplexity import Cuts, Perplexity
from tasks.models.perplexity_cuts import bucket_ends, bucket_shard


@dataclass(frozen=True)
class BucketPlaces:
    """`scores`: the parts with scores, by shard; `scored`: the shards of sources that are scored."""

    scores: tuple[str, ...]
    scored: tuple[int, ...]


def perplexity(
    context: RunContext, recipe: Recipe, corpus: Corpus, step: Perplexity, learns_from: Corpus | None = None
) -> Corpus:
    """The corpus of the documents that the filter keeps, with the column `perplexity_bucket`."""
    left = learned_filter(context, recipe, corpus, step, learns_from)
    *measured, scores = left.measured
    places = corpus.places
    where = BucketPlaces(
        tuple(scores.part(i) for i in places.shards()), tuple(places.shards(without=tuple(step.reference)))
    )
    cuts = step.decision_settings().model_copy(update=_WITHOUT_POLICY)
    code: dict[str, Any] = {"modules": modules((step,)), "libraries": step.libraries}
    bucketed = context.build(StageSpec("perplexity_bucket", _bucket, cuts, {"scores": scores.key}, where, **code))
    stages = (*left.stages[:-1], bucketed, left.kept)
    return replace(left, measured=(*measured, bucketed, scores), stages=stages)


# The buckets are the same whichever are kept, and whatever else is cut.
_WITHOUT_POLICY = {
    name: Cuts.model_fields[name].default for name in ("min_percentile", "max_percentile", "keep_buckets")
}


def _bucket(phases: PhaseRunner, record: Cuts, places: BucketPlaces) -> dict:
    """Put documents into buckets by their perplexity."""
    ends = bucket_ends(record, [places.scores[i] for i in places.scored])
    given = {"by_language": record.by_language, "ends": ends}
    phases.map("bucket", bucket_shard, {i: {"scores": part} | given for i, part in enumerate(places.scores)})
    return {"ends": ends}
