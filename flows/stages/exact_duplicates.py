"""Exact duplicates: whole documents, passages, long substrings.

Of documents that share words (`content_duplicates`) or a URL (`url_duplicates`) one is kept. `passages` and
`substring_spans` find what is repeated within documents; `substring_dedup` says what becomes of them.
"""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import SerializeAsAny

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, libraries
from gristmill.tasks.dedup import exact_work, passages, passages_work, substring_cuts, substrings_work
from gristmill.tasks.dedup.exact import Exact, UrlDedup
from gristmill.tasks.dedup.substrings import SpanCutting, SpanSearch, SubstringDedup
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.url.canonical import Canonical
from gristmill.tasks.url.step import Url


class Record(Settings):
    settings: SerializeAsAny[Exact]


def by_url(context: RunContext, recipe: Recipe, corpus: Corpus, step: UrlDedup) -> Corpus:
    """One document of each URL, in the canonical form of the recipe's step `url` unless the step has its own."""
    if step.canonical is None:
        canonical = next((other.canonical for other in recipe.steps if isinstance(other, Url)), Canonical())
        step = step.model_copy(update={"canonical": canonical})
    return by_content(context, recipe, corpus, step)


def by_content(context: RunContext, recipe: Recipe, corpus: Corpus, step: Exact) -> Corpus:
    """One document of each that share what the step compares: digests, groups of them, kept documents."""
    inputs = corpus.inputs(signals=step.best is not None)
    spec = StageSpec(
        f"{step.rule}_duplicates",
        _deduplicate,
        Record(settings=step),
        inputs,
        corpus.places,
        libraries=libraries((Url(),)) if isinstance(step, UrlDedup) else (),
    )
    return corpus.then(context.build(spec))


def _deduplicate(phases: PhaseRunner, record: Record, places: CorpusPlaces) -> dict:
    """Keep one document of each group of equal ones."""
    given = {"settings": record.settings}
    shards = {i: places.shard(i) | given for i in places.shards()}
    signals = places.signals if record.settings.best else [()] * len(places.sources)
    numbers = places.source_numbers()
    jobs = {i: job | {"signals": signals[i], "source": numbers[i]} for i, job in shards.items()}
    phases.map("hash", exact_work.hash_shard, jobs)
    among = dict.fromkeys(range(record.settings.partitions), given | {"n_shards": len(shards)})
    phases.map("choose", exact_work.choose, among)
    phases.map("split", exact_work.split_shard, shards)
    return {}


class PassagesRecord(Settings):
    step: SerializeAsAny[passages.Step]


def cut_repeated(context: RunContext, _: Recipe, corpus: Corpus, step: passages.Step) -> Corpus:
    """The corpus of the documents without repeated passages, in a stage with the step's name.

    Signals that were measured before it stay those of the texts that it found.
    """
    made = context.build(StageSpec(step.step, _cut, PassagesRecord(step=step), corpus.inputs(), corpus.places))
    return replace(corpus, documents=made, kept=made, stages=(*corpus.stages, made))


def _cut(phases: PhaseRunner, record: PassagesRecord, places: CorpusPlaces) -> dict:
    """Cut passages that occurred before."""
    jobs = {i: places.shard(i) | {"step": record.step} for i in places.shards()}
    hashed = phases.map("hash", passages_work.hash_shard, jobs)
    among = {"n_shards": len(jobs), "step": record.step}
    found = phases.map("find", passages_work.find_partition, dict.fromkeys(range(record.step.partitions), among))
    phases.map("cut", passages_work.cut_shard, jobs)
    return {
        "passages": sum(record["passages"] for record in hashed.values()),
        "repeated": sum(record["repeated"] for record in found.values()),
    }


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
