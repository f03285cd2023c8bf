"""Repeated lines, paragraphs and spans of sentences: the stage of `line_dedup`, `paragraph_dedup`, `sentence_dedup`."""

from dataclasses import replace

from flows.context import PhaseRunner, RunContext, StageSpec, stage
from flows.recipe import Recipe
from flows.stages.all_stages import Corpus, inputs_of
from tasks.dedup import passages_work as passages
from tasks.dedup.passages import Step


def cut_repeated(context: RunContext, _: Recipe, corpus: Corpus, step: Step) -> Corpus:
    """The documents without the passages that occurred before, in a stage with the step's name.

    Signals that were measured before it stay those of the texts that it found.
    """

    def body(phases: PhaseRunner) -> dict:
        jobs = {i: corpus.shard(i) | {"step": step} for i in corpus.shards()}
        hashed = phases.map("hash", passages.hash_shard, jobs)
        among = {"n_shards": len(jobs), "step": step}
        found = phases.map("find", passages.find_partition, dict.fromkeys(range(step.partitions), among))
        cut = phases.map("cut", passages.cut_shard, jobs)
        return {
            "passages": sum(record["passages"] for record in hashed.values()),
            "repeated": sum(record["repeated"] for record in found.values()),
            "shards": list(cut.values()),
        }

    settings = step.model_dump(mode="json")
    made = context.build(StageSpec(stage(step.step, (passages.cut_shard,), settings, inputs_of(corpus)), body))
    return replace(corpus, documents=made, kept=made, stages=(*corpus.stages, made))
