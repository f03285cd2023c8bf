"""Exact duplicates: the stages of the steps `content_dedup` and `url_dedup`."""

from flows.context import PhaseRunner, RunContext, StageSpec, stage
from flows.recipe import Recipe
from flows.stages.all_stages import Corpus, inputs_of, measured_by
from tasks.dedup import exact_work as exact
from tasks.dedup.exact import Exact, UrlDedup
from tasks.url.canonical import Canonical
from tasks.url.step import Url


def by_url(context: RunContext, recipe: Recipe, corpus: Corpus, step: UrlDedup) -> Corpus:
    """One document of each URL, in the canonical form of the recipe's step `url` unless the step has its own."""
    if step.canonical is None:
        canonical = next((other.canonical for other in recipe.steps if isinstance(other, Url)), Canonical())
        step = step.model_copy(update={"canonical": canonical})
    return by_content(context, recipe, corpus, step)


def by_content(context: RunContext, recipe: Recipe, corpus: Corpus, step: Exact) -> Corpus:
    """One document of each that share what the step compares: digests, groups of them, kept documents."""
    names = [source.name for source in recipe.sources]
    needs_signals = step.best is not None

    def body(phases: PhaseRunner) -> dict:
        given = {"settings": step}
        jobs = {
            i: corpus.shard(i)
            | given
            | {"signals": corpus.signals(i) if needs_signals else (), "source": names.index(corpus.sources[i])}
            for i in corpus.shards()
        }
        hashed = phases.map("hash", exact.hash_shard, jobs)
        among = dict.fromkeys(range(step.partitions), given | {"n_shards": len(corpus.sources)})
        chosen = phases.map("choose", exact.choose, among)
        shards = phases.map("split", exact.split_shard, {i: corpus.shard(i) | given for i in corpus.shards()})
        return {"hashed": list(hashed.values()), "chosen": list(chosen.values()), "shards": list(shards.values())}

    inputs = inputs_of(corpus) | (measured_by(corpus) if needs_signals else {})
    made = stage(f"{step.rule}_duplicates", (exact.choose,), step.model_dump(mode="json"), inputs)
    return corpus.then(context.build(StageSpec(made, body)))
