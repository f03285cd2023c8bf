"""`content_duplicates` and `url_duplicates`: of documents that share words, or a URL, one is kept."""

from pydantic import SerializeAsAny

from flows.context import RunContext
from flows.recipe import Recipe
from flows.stages.corpus import Corpus, CorpusPlaces
from flows.stages.steps_behind import libraries
from tasks.dedup import exact_work
from tasks.dedup.exact import Exact, UrlDedup
from tasks.documents.step import Settings
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.url.canonical import Canonical
from tasks.url.step import Url


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
