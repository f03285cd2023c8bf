"""`annotate`: the answers of a language model about documents, or about a sample of them, as columns.

Its stages are `<step>_sample`, if it has a sample; `<step>`, with the columns; and `<step>_cut`, if documents without a
valid answer are dropped.
"""

from collections import Counter
from dataclasses import dataclass, replace

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, work_of_steps
from gristmill.flows.stages.language_model.asking import (
    AskingPlaces,
    ask,
    document_sample,
    measured_by,
    sample_files,
    write_bill,
)
from gristmill.flows.stages.signals import RuleDecisions, exempt_of
from gristmill.storage import layout
from gristmill.tasks.documents.decisions import decide_shard
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.language_model.annotate import (
    Annotate,
    AnnotationRecord,
    AnnotationSettings,
    annotate_shard,
    null_shard,
)
from gristmill.tasks.language_model.ask import total
from gristmill.tasks.language_model.sample import Sampling


def annotate(context: RunContext, recipe: Recipe, corpus: Corpus, step: Annotate) -> Corpus:
    """The corpus with the columns of the step, without documents that have no valid answer if the step drops them."""
    sample = None if step.of is None else document_sample(context, corpus, step.part(Sampling), f"{step.step}_sample")
    annotated = annotations(context, corpus, step, sample)
    through = () if sample is None else (sample,)
    if not step.decisions():
        return replace(corpus.measuring(annotated), stages=(*corpus.stages, *through, annotated))
    cut = annotation_cut(context, corpus, step, annotated)
    return corpus.then(cut, *through, annotated).measuring(annotated)


def annotations(context: RunContext, corpus: Corpus, step: Annotate, sample: StageResult | None) -> StageResult:
    """The stage with the columns of the step."""
    settings = step.part(AnnotationSettings).model_copy(update={"prompt": step.full_prompt})
    spec = StageSpec(
        name=step.step,
        version=1,
        body=_annotate,
        record=AnnotationRecord(step=step.step, settings=settings, by=step.by, bounds=step.bounds, seed=step.seed),
        inputs=corpus.inputs(*(() if sample is None else (sample,)), signals=bool(step.reads)),
        places=lambda: AskingPlaces(corpus.places, context.settings.home, sample_files(sample, step.by)),
        work=work_of_steps((step,)),
    )
    return context.build(spec)


def _annotate(phases: PhaseRunner, record: AnnotationRecord, places: AskingPlaces) -> dict:
    """Ask a language model about documents."""
    corpus, measured = places.corpus, measured_by(places, record)
    asked = ask(phases, record, places)
    common = {"home": places.home, "annotation": record, "sample": places.sample}
    jobs = Each(corpus.applied, lambda i: {**corpus.shard(i), "signals": measured[i]})
    counted = phases.map("annotate", annotate_shard, jobs, common=common)
    passed = Each(corpus.sources.shards(corpus.exempt), lambda i: {"kept": corpus.kept[i]})
    phases.map("pass", null_shard, passed, common={"annotation": record})
    bill = total(each["bill"] for each in asked)
    problems = Counter[str]()
    for each in counted.values():
        problems.update(each["problems"])
    write_bill(phases, record.step, bill, asked)
    annotated = sum(each["annotated"] for each in counted.values())
    if problems:
        kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(problems.items()))
        phases.message(
            f"{record.step}: {problems.total():,} of {annotated:,} documents have no valid answer ({kinds}); see the "
            f"column {record.step}_problem"
        )
    return {"annotated": annotated, "problems": dict(sorted(problems.items())), "answers": bill}


@dataclass(frozen=True)
class AnnotationCutPlaces:
    """`annotations`: the folder of the parts with the columns."""

    corpus: CorpusPlaces
    annotations: str


def annotation_cut(context: RunContext, corpus: Corpus, step: Annotate, annotated: StageResult) -> StageResult:
    """The stage that drops documents without a valid answer. `annotated`: the stage with the columns."""
    spec = StageSpec(
        name=f"{step.step}_cut",
        version=1,
        body=_cut,
        record=RuleDecisions(decisions=((step.step, step.decisions()),), exempt=exempt_of((step,), corpus.sources)),
        inputs=corpus.inputs(annotated),
        places=AnnotationCutPlaces(corpus.places, annotated.folder),
        work=work_of_steps((step,)),
    )
    return context.build(spec)


def _cut(phases: PhaseRunner, record: RuleDecisions, places: AnnotationCutPlaces) -> dict:
    """Drop documents without a valid answer."""
    corpus = places.corpus
    jobs = Each(
        corpus.shards(),
        lambda i: {"kept": corpus.kept[i], "signals": (layout.part(places.annotations, i),)},
    )
    phases.map("decide", decide_shard, jobs, common={"decisions": record.decisions})
    return {}
