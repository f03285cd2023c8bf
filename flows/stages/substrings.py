"""Duplicated spans of words or bytes: the stages of the step `substring_dedup`."""

from dataclasses import replace

from flows.context import PhaseRunner, RunContext, StageSpec, stage
from flows.recipe import Recipe
from flows.stages.all_stages import Corpus, inputs_of
from tasks.dedup import substring_cuts
from tasks.dedup import substrings_work as substrings
from tasks.dedup.substrings import SubstringDedup


def substring_dedup(context: RunContext, _: Recipe, corpus: Corpus, step: SubstringDedup) -> Corpus:
    """The documents without duplicated spans, or without the documents of which they are too large a part."""

    def find(phases: PhaseRunner) -> dict:
        jobs = {i: {"kept": corpus.kept.part(i)} for i in corpus.shards()}
        counted = phases.map("count", substrings.count_shard, jobs)
        partitions = substrings.partitions(sum(record["characters"] for record in counted.values()), step)
        dealt = {"partitions": partitions}
        jobs = {i: corpus.shard(i) | dealt | {"settings": step} for i in corpus.shards()}
        keyed = phases.map("key", substrings.key_shard, jobs)
        among = {"n_shards": len(corpus.sources)}
        hot = phases.map("match", substrings.match_partition, dict.fromkeys(range(partitions), among | dealt))
        blocks = substrings.blocks(sum(record["bytes"] for record in hot.values()), step)
        jobs = {i: given | {"blocks": blocks} for i, given in jobs.items()}
        phases.map("gather", substrings.gather_shard, jobs)
        given = among | {"settings": step, "blocks": blocks}
        found = phases.map("find", substrings.find_block, dict.fromkeys(range(blocks), given))
        phases.once("clear", substrings.clear, {})
        return {
            "blocks": blocks,
            "windows": sum(record["windows"] for record in keyed.values()),
            "runs": sum(record["runs"] for record in keyed.values()),
            "runs_looked_at": sum(record["runs"] for record in found.values()),
            "bytes_sorted": sum(record["bytes"] for record in found.values()),
        }

    works = (substrings.find_block,)
    spans = context.build(StageSpec(stage("substring_spans", works, step.span_settings(), inputs_of(corpus)), find))
    work = substring_cuts.cut_shard if step.policy == "cut" else substring_cuts.drop_shard

    def decide(phases: PhaseRunner) -> dict:
        given = {"found": spans.folder, "blocks": spans.manifest["blocks"], "settings": step}
        jobs = {i: corpus.shard(i) | given for i in corpus.shards()}
        return {"shards": list(phases.map(step.policy, work, jobs).values())}

    inputs = inputs_of(corpus, spans)
    made = context.build(StageSpec(stage(step.step, (work,), step.decision_settings(), inputs), decide))
    left = corpus.then(made, spans)
    return replace(left, documents=made) if step.policy == "cut" else left
