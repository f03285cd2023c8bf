"""`line_dedup`, `paragraph_dedup`, `sentence_dedup`: documents without the passages that occurred before."""

from dataclasses import replace

from pydantic import SerializeAsAny

from flows.context import RunContext
from flows.recipe import Recipe
from flows.stages.corpus import Corpus, CorpusPlaces
from tasks.dedup import passages, passages_work
from tasks.documents.step import Settings
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec


class Record(Settings):
    step: SerializeAsAny[passages.Step]


def cut_repeated(context: RunContext, _: Recipe, corpus: Corpus, step: passages.Step) -> Corpus:
    """The corpus of the documents without repeated passages, in a stage with the step's name.

    Signals that were measured before it stay those of the texts that it found.
    """
    made = context.build(StageSpec(step.step, _cut, Record(step=step), corpus.inputs(), corpus.places))
    return replace(corpus, documents=made, kept=made, stages=(*corpus.stages, made))


def _cut(phases: PhaseRunner, record: Record, places: CorpusPlaces) -> dict:
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
