"""`pairs_of_copies`: how many pairs of near-duplicates the step `minhash` of a recipe has found."""

from gristmill.flows.machine.context import RunContext
from gristmill.flows.stages.corpus import Corpus
from gristmill.tasks.dedup.near_reports.copies import count_pairs
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec


class Record(Settings):
    """Nothing of the recipe: what was kept is an input."""


def pairs_of_copies(context: RunContext, corpus: Corpus) -> int | None:
    """The sum of c (c - 1) / 2 over the clusters, of c documents; None for a recipe without `minhash`."""
    found = [stage for stage in corpus.stages if stage.name == "near_duplicates"]
    if not found:
        return None
    [kept] = found
    parts = Parts(kept.folder, corpus.places.shards())
    made = context.build(StageSpec("pairs_of_copies", _count, Record(), {"kept": kept.key}, parts))
    return made.result["pairs"]


def _count(phases: PhaseRunner, record: Record, places: Parts) -> dict:
    """Count the pairs of near-duplicates."""
    jobs = Each(places.shards, lambda i: {"kept": places[i]})
    return {"pairs": sum(counts["pairs"] for counts in phases.map("count", count_pairs, jobs).values())}
