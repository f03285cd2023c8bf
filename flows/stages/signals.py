"""`signals` and `edited`: document steps behind a corpus step, measured on the documents that are kept."""

from pydantic import SerializeAsAny

from flows.context import RunContext
from flows.stages.corpus import Corpus, CorpusPlaces
from flows.stages.steps_behind import classes, libraries, modules
from tasks.documents.measure_shards import edit_shard, measure_shard
from tasks.documents.step import DocumentStep, EditStep, Settings
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec


class Record(Settings):
    """The steps, with all thresholds at their defaults, and their classes."""

    steps: tuple[SerializeAsAny[DocumentStep], ...]
    classes: tuple[str, ...]


def measured(context: RunContext, corpus: Corpus, steps: tuple[DocumentStep, ...]) -> Corpus:
    """The corpus with the signals of the steps, and with the texts that they leave, if one of them edits."""
    edits = any(isinstance(step, EditStep) for step in steps)
    spec = StageSpec(
        "edited" if edits else "signals",
        _edit if edits else _measure,
        Record(steps=tuple(step.measuring() for step in steps), classes=classes(steps)),
        corpus.inputs(signals=True),
        corpus.places,
        modules(steps),
        libraries(steps),
    )
    made = context.build(spec)
    if edits:
        return Corpus(corpus.sources, made, made, (*corpus.measured, made), (*corpus.stages, made))
    return Corpus(corpus.sources, corpus.documents, corpus.kept, (*corpus.measured, made), (*corpus.stages, made))


def _measure(phases: PhaseRunner, record: Record, places: CorpusPlaces) -> dict:
    """Measure signals."""
    phases.map("measure", measure_shard, _jobs(record, places))
    return {}


def _edit(phases: PhaseRunner, record: Record, places: CorpusPlaces) -> dict:
    """Edit texts and measure signals."""
    phases.map("measure", edit_shard, _jobs(record, places))
    return {}


def _jobs(record: Record, places: CorpusPlaces) -> dict[int, dict]:
    return {i: places.shard(i) | {"measured": places.signals[i], "steps": record.steps} for i in places.shards()}
