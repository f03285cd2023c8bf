"""`rules`: decisions over stored signals, one pass over the columns for consecutive document steps."""

from flows.context import RunContext
from flows.stages.corpus import Corpus, CorpusPlaces
from tasks.documents.decide_shards import decide_shard
from tasks.documents.step import Bound, DocumentStep, Member, Settings
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec


class Record(Settings):
    """(step, its rules in order) in the order of the steps."""

    decisions: tuple[tuple[str, tuple[Bound | Member, ...]], ...]


def decided(context: RunContext, corpus: Corpus, steps: tuple[DocumentStep, ...]) -> Corpus:
    """The corpus of the documents that all steps keep."""
    record = Record(decisions=tuple((step.step, tuple(step.decisions())) for step in steps))
    return corpus.then(context.build(StageSpec("rules", _decide, record, corpus.inputs(signals=True), corpus.places)))


def _decide(phases: PhaseRunner, record: Record, places: CorpusPlaces) -> dict:
    """Decide by stored signals."""
    jobs = {
        i: {"kept": places.kept[i], "signals": places.signals[i], "decisions": record.decisions}
        for i in places.shards()
    }
    phases.map("decide", decide_shard, jobs)
    return {}
