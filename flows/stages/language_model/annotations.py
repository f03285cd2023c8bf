"""Stages that ask a language model.

`annotate` asks about documents, or a sample of them. Its stages are `<step>_sample`, if it has a sample; `<step>`, with
the columns; and `<step>_cut`, if documents without a valid answer are dropped.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, work_of_steps
from gristmill.flows.stages.signals import RuleDecisions, exempt_of
from gristmill.storage import checked_json, files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.by_shard import Parts, PartsOfSeveral
from gristmill.tasks.documents.decisions import decide_shard
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.language_model.annotate import (
    Annotate,
    AnnotatedShards,
    Annotating,
    Annotation,
    Questions,
    Sampling,
    annotate_shard,
    ask_client,
    null_shard,
)
from gristmill.tasks.language_model.ask import total
from gristmill.tasks.language_model.sample import MAX_STRATA, SAMPLE, candidates_shard, find_thresholds, quotas

BILL = "bill.json"  # in a stage's folder: what its answers cost on the server that gave them


def annotate(context: RunContext, recipe: Recipe, corpus: Corpus, step: Annotate) -> Corpus:
    """The corpus with the columns of the step, without documents that have no valid answer if the step drops them."""
    sample = None if step.of is None else annotation_sample(context, corpus, step.part(Sampling), f"{step.step}_sample")
    annotated = annotations(context, corpus, step, sample)
    through = () if sample is None else (sample,)
    if not step.decisions():
        return replace(corpus.measuring(annotated), stages=(*corpus.stages, *through, annotated))
    spec = StageSpec(
        name=f"{step.step}_cut",
        version=1,
        body=_cut,
        record=RuleDecisions(decisions=((step.step, step.decisions()),), exempt=exempt_of((step,), corpus.sources)),
        inputs=corpus.inputs(annotated),
        places=AnnotationCutPlaces(corpus.places, annotated.folder),
        work=work_of_steps((step,)),
    )
    return corpus.then(context.build(spec), *through, annotated).measuring(annotated)


def annotation_sample(context: RunContext, corpus: Corpus, sampling: Sampling, name: str) -> StageResult:
    """The sample of documents that a model is asked about, as a number per stratum. `name`: of the stage."""
    spec = StageSpec(
        name=name,
        version=1,
        body=_sample,
        record=sampling,
        inputs=corpus.inputs(signals=bool(sampling.by)),
        places=corpus.places,
    )
    return context.build(spec)


def _sample(phases: PhaseRunner, record: Sampling, places: CorpusPlaces) -> dict:
    """Draw a sample of documents."""
    jobs = Each(places.applied, lambda i: {**places.shard(i), "signals": places.signals[i] if record.by else ()})
    common = {"by": record.by, "of": record.of, "seed": record.seed}
    counted = phases.map("candidates", candidates_shard, jobs, common=common)
    counts = Counter[str]()
    for each in counted.values():
        counts.update(each["counts"])
        if len(counts) > MAX_STRATA:
            raise ValueError(
                f"{', '.join(record.by)} have more than {MAX_STRATA:,} different values; use fewer columns in `by`"
            )
    sizes = quotas(counts, record.of or 0)
    parts = Parts(phases.folder, places.applied)
    phases.once("choose", find_thresholds, {"candidates": parts, "quotas": sizes}, grows="documents")
    return {"documents": dict(sorted(counts.items())), "sample": sizes}


@dataclass(frozen=True)
class AnnotationPlaces:
    """`home`: where answers are kept; `sample`: the file with the sample, none if all documents are annotated."""

    corpus: CorpusPlaces
    home: str
    sample: tuple[RecordedFile, ...]


def annotations(context: RunContext, corpus: Corpus, step: Annotate, sample: StageResult | None) -> StageResult:
    """The stage with the columns of the step."""
    settings = step.part(Annotating).model_copy(update={"prompt": step.full_prompt})
    spec = StageSpec(
        name=step.step,
        version=1,
        body=_annotate,
        record=Annotation(step=step.step, settings=settings, by=step.by, seed=step.seed),
        inputs=corpus.inputs(*(() if sample is None else (sample,)), signals=bool(step.reads)),
        places=lambda: AnnotationPlaces(
            corpus.places, context.settings.home, () if sample is None else (sample.file(SAMPLE),)
        ),
        work=work_of_steps((step,)),
    )
    return context.build(spec)


def _annotate(phases: PhaseRunner, record: Annotation, places: AnnotationPlaces) -> dict:
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


def measured_by(places: AnnotationPlaces, questions: Questions) -> PartsOfSeveral:
    """The parts with the signals that a stage's questions read; none if they read no columns."""
    signals = places.corpus.signals
    return signals if questions.reads or questions.by else replace(signals, folders=())


def ask(phases: PhaseRunner, questions: Questions, places: AnnotationPlaces) -> list[dict[str, Any]]:
    """Ask about the documents, so that all answers are in the home. Returns the counts of each client."""
    corpus, clients = places.corpus, options.current().lm.clients
    # jobs of other numbers of clients ask about other documents, so they are other phases
    asked = phases.map(
        f"ask-{clients}",
        ask_client,
        dict.fromkeys(range(clients), {}),
        temporary=True,
        common={
            "home": places.home,
            "questions": questions,
            "sample": places.sample,
            "clients": clients,
            "shards": corpus.applied,
            "places": AnnotatedShards(corpus.documents, corpus.kept, measured_by(places, questions)),
        },
    )
    return list(asked.values())


def write_bill(phases: PhaseRunner, step: str, bill: dict[str, Any], asked: Iterable[dict[str, Any]]) -> None:
    """Write the bill beside the manifest, since prices and attempts differ from machine to machine, and a line of the
    log. `step`: its name there; `asked`: the counts of each client."""
    server, counts = options.current().lm, Counter[str]()
    for each in asked:
        counts.update(each["attempts"])
    price = server.price(bill["prompt_tokens"], bill["completion_tokens"])
    prices = {"price_in": server.price_in, "price_out": server.price_out, "price": round(price, 6)}
    whole = {**bill, **prices, "host": server.host, "attempts": dict(counts)}
    checked_json.write(files.join(phases.folder, BILL), whole)
    phases.message(
        f"{step}: {bill['requests']:,} answers, {bill['prompt_tokens']:,} prompt and "
        f"{bill['completion_tokens']:,} completion tokens{f', price {price:.2f}' if price else ''}"
    )


@dataclass(frozen=True)
class AnnotationCutPlaces:
    """`annotations`: the folder of the parts with the columns."""

    corpus: CorpusPlaces
    annotations: str


def _cut(phases: PhaseRunner, record: RuleDecisions, places: AnnotationCutPlaces) -> dict:
    """Drop documents without a valid answer."""
    corpus = places.corpus
    jobs = Each(
        corpus.shards(),
        lambda i: {"kept": corpus.kept[i], "signals": (layout.part(places.annotations, i),)},
    )
    phases.map("decide", decide_shard, jobs, common={"decisions": record.decisions})
    return {}
