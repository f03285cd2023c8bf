"""`substring_spans` and `substring_dedup`: duplicated spans of words or bytes, and what becomes of their documents."""

from dataclasses import dataclass, replace
from typing import Any

from flows.context import RunContext
from flows.recipe import Recipe
from flows.stages.corpus import Corpus, CorpusPlaces
from tasks.dedup import substring_cuts, substrings_work
from tasks.dedup.substrings import SpanCutting, SpanSearch, SubstringDedup
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec


@dataclass(frozen=True)
class SpanPlaces:
    corpus: CorpusPlaces
    spans: str
    blocks: int


def substring_dedup(context: RunContext, _: Recipe, corpus: Corpus, step: SubstringDedup) -> Corpus:
    """The corpus without duplicated spans, or without the documents of which they are too large a part."""
    search = step.part(SpanSearch)
    spans = context.build(StageSpec("substring_spans", _find, search, corpus.inputs(), corpus.places))
    places = SpanPlaces(corpus.places, spans.folder, spans.result["blocks"])
    made = context.build(StageSpec(step.step, _decide, step.part(SpanCutting), corpus.inputs(spans), places))
    left = corpus.then(made, spans)
    return replace(left, documents=made) if step.policy == "cut" else left


def _find(phases: PhaseRunner, settings: SpanSearch, places: CorpusPlaces) -> dict:
    """Find duplicated spans."""
    jobs = {i: {"kept": places.kept[i]} for i in places.shards()}
    counted = phases.map("count", substrings_work.count_shard, jobs)
    partitions = substrings_work.partitions(sum(record["characters"] for record in counted.values()), settings)
    divided: dict[str, Any] = {"partitions": partitions}
    jobs = {i: places.shard(i) | divided | {"settings": settings} for i in places.shards()}
    keyed = phases.map("key", substrings_work.key_shard, jobs, temporary=True)
    among: dict[str, Any] = {"n_shards": len(places.sources)}
    matched = dict.fromkeys(range(partitions), among | divided)
    hot = phases.map("match", substrings_work.match_partition, matched, temporary=True)
    blocks = substrings_work.blocks(sum(record["bytes"] for record in hot.values()), settings)
    phases.map("gather", substrings_work.gather_shard, {i: j | {"blocks": blocks} for i, j in jobs.items()}, True)
    given = among | {"settings": settings, "blocks": blocks}
    found = phases.map("find", substrings_work.find_block, dict.fromkeys(range(blocks), given))
    phases.once("clear", substrings_work.clear, {})
    return {
        "blocks": blocks,
        "windows": sum(record["windows"] for record in keyed.values()),
        "runs": sum(record["runs"] for record in keyed.values()),
        "runs_compared": sum(record["runs"] for record in found.values()),
        "bytes_sorted": sum(record["bytes"] for record in found.values()),
    }


def _decide(phases: PhaseRunner, settings: SpanCutting, places: SpanPlaces) -> dict:
    """Cut or drop by duplicated spans."""
    work = substring_cuts.cut_shard if settings.policy == "cut" else substring_cuts.drop_shard
    given = {"found": places.spans, "blocks": places.blocks, "settings": settings}
    phases.map(settings.policy, work, {i: places.corpus.shard(i) | given for i in places.corpus.shards()})
    return {}
