"""`signals` and `edited`, `rules`, `quality_bucket`: what is measured of documents, and what is decided by it.

Document steps after a corpus step are measured on the documents that are kept. A quality bucket is the best place that
several scores give a document.
"""

from collections.abc import Iterable
from dataclasses import replace

from pydantic import Field, SerializeAsAny

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, work_of_steps
from gristmill.storage import files
from gristmill.tasks.documents.by_shard import Names, Parts
from gristmill.tasks.documents.decisions import decide_shard, edit_shard, measure_shard
from gristmill.tasks.documents.step import Decision, DocumentStep, EditStep, Settings, Step
from gristmill.tasks.documents.where import Where
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.models.quality import (
    QualityBucket,
    Scorers,
    bucket_shard,
    find_edges,
    gather_shard,
    gathered_folder,
    unnumbered_shard,
)


class SignalSteps(Settings):
    """The steps, with all thresholds at their defaults."""

    steps: tuple[SerializeAsAny[DocumentStep], ...]


def measuring(steps: tuple[DocumentStep, ...]) -> tuple[DocumentStep, ...]:
    """Those that measure or edit: without the ones that decide by what others have measured."""
    return tuple(step for step in steps if step.signals or isinstance(step, EditStep))


def signals(context: RunContext, corpus: Corpus, steps: tuple[DocumentStep, ...]) -> Corpus:
    """The corpus with the signals of the steps, and with the texts that they leave, if one of them edits; the same one
    for steps that only decide."""
    if not (steps := measuring(steps)):
        return corpus
    edits = any(isinstance(step, EditStep) for step in steps)
    spec = StageSpec(
        name="edited" if edits else "signals",
        version=1,
        body=_edit if edits else _measure,
        record=SignalSteps(steps=tuple(step.measuring() for step in steps)),
        inputs=corpus.inputs(signals=True),
        places=corpus.places,
        work=work_of_steps(steps),
    )
    stage = context.build(spec)
    if edits:
        return Corpus(corpus.sources, stage, stage, (*corpus.measured, stage), (*corpus.stages, stage))
    return Corpus(corpus.sources, corpus.documents, corpus.kept, (*corpus.measured, stage), (*corpus.stages, stage))


def _measure(phases: PhaseRunner, record: SignalSteps, places: CorpusPlaces) -> dict:
    """Measure signals."""
    phases.map("measure", measure_shard, _jobs(places), common={"steps": record.steps})
    return {}


def _edit(phases: PhaseRunner, record: SignalSteps, places: CorpusPlaces) -> dict:
    """Edit texts and measure signals."""
    phases.map("measure", edit_shard, _jobs(places), common={"steps": record.steps})
    return {}


def _jobs(places: CorpusPlaces) -> Each:
    return Each(
        places.shards(), lambda i: {**places.shard(i), "measured": places.signals[i], "source": places.sources[i]}
    )


class RuleDecisions(Settings):
    """`decisions`: (step, its rules in order) in the order of the steps; `exempt`: by step the sources that it does not
    apply to."""

    decisions: tuple[tuple[str, tuple[Decision, ...]], ...]
    exempt: dict[str, tuple[str, ...]] = Field(default={}, exclude_if=lambda exempt: not exempt)


def exempt_of(steps: Iterable[Step], sources: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """By the names of steps the sources, of these, that they do not apply to."""
    names = Names.of(sources).distinct()
    return {step.step: exempt for step in steps if (exempt := step.exempt(names))}


def rules(context: RunContext, corpus: Corpus, steps: tuple[DocumentStep, ...]) -> Corpus:
    """The corpus of the documents that all steps keep."""
    spec = StageSpec(
        name="rules",
        version=1,
        body=_decide,
        record=RuleDecisions(
            decisions=tuple((step.step, tuple(step.decisions())) for step in steps),
            exempt=exempt_of(steps, corpus.sources),
        ),
        inputs=corpus.inputs(signals=True),
        places=corpus.places,
        # expressions are evaluated here; bounds and labels only replay what other stages measured
        work=replace(
            work_of_steps(step for step in steps if isinstance(step, Where)), steps=tuple(step.step for step in steps)
        ),
    )
    return corpus.then(context.build(spec))


def _decide(phases: PhaseRunner, record: RuleDecisions, places: CorpusPlaces) -> dict:
    """Apply rules to stored signals."""
    jobs = Each(
        places.shards(),
        lambda i: {"kept": places.kept[i], "signals": places.signals[i], "source": places.sources[i]},
    )
    phases.map("decide", decide_shard, jobs, common={"decisions": record.decisions, "exempt": record.exempt})
    return {}


def quality_bucket(context: RunContext, recipe: Recipe, corpus: Corpus, step: QualityBucket) -> Corpus:
    """The same documents, with the column `quality_bucket`."""
    spec = StageSpec(
        name="quality_bucket",
        version=1,
        body=_number,
        record=step.part(Scorers),
        inputs=corpus.inputs(signals=True),
        places=corpus.places,
        work=work_of_steps((step,)),
    )
    numbered = context.build(spec)
    return corpus.through(numbered).measuring(numbered)


def _number(phases: PhaseRunner, record: Scorers, places: CorpusPlaces) -> dict:
    """Assign documents to buckets by their scores."""
    settings = {"settings": record}
    jobs = Each(places.applied, lambda i: {"signals": places.signals[i], "kept": places.kept[i]})
    phases.map("gather", gather_shard, jobs, temporary=True, common=settings)
    folder = gathered_folder(phases.folder)
    edges = phases.once("edges", find_edges, {"parts": Parts(folder, places.applied)} | settings, grows="documents")
    phases.map("number", bucket_shard, Each(places.applied, lambda i: {}), common=edges | settings)
    _, passed = places.judged()
    phases.map("pass", unnumbered_shard, passed)
    files.remove(folder)
    return edges
