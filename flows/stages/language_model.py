"""Stages that ask a language model: what they share, the columns of `annotate`, and the source `rewrites`.

`annotate` has the stages `<step>_sample`, if it has a sample; `<step>`, with the columns; and `<step>_cut`, if it drops
documents without a valid answer.

`rewrites` has the texts that a model writes from the curated documents of another recipe. It is a source of the recipe:
the stage `documents` reads its parts like tables, so later steps treat rewrites like other documents. If a takedown
list of the other recipe excludes a document, its rewrite is removed and no other one changes, because the sample is
drawn before the lists apply, and a rewrite depends only on its own document.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.rewritten import recipe_of
from gristmill.flows.stages.corpus import (
    Corpus,
    CorpusAndStage,
    CorpusPlaces,
    NothingLeftError,
    dropped,
    pinned,
    work_of_steps,
)
from gristmill.flows.stages.removal import AllowedCorpus
from gristmill.flows.stages.signals import RuleDecisions, exempt_of
from gristmill.storage import checked_json, files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.by_shard import Parts, PartsOfSeveral
from gristmill.tasks.documents.decisions import decide_shard
from gristmill.tasks.engine import options
from gristmill.tasks.engine.lease import lease
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.tasks.language_model.annotate import (
    Annotate,
    AnnotationRecord,
    AnnotationSettings,
    annotate_shard,
    null_shard,
)
from gristmill.tasks.language_model.answers import FOLDER as ANSWERS
from gristmill.tasks.language_model.ask import DocumentShards, Questions, ask_client, total
from gristmill.tasks.language_model.prompts import Prompt, PromptFile
from gristmill.tasks.language_model.rewrite import (
    OF_SOURCE,
    Checks,
    Rewrite,
    RewriteRecord,
    RewriteSettings,
    rewrite_shard,
)
from gristmill.tasks.language_model.sample import (
    SAMPLE,
    WEIGHTS,
    Sampling,
    candidates_shard,
    check_strata,
    columns_of_few,
    described_sample,
    find_thresholds,
    numbers_shard,
    quotas,
)
from gristmill.tasks.models.language import Identification, Language
from gristmill.tasks.reading.sources import Rewrites

ASKING = "asking"  # in the folder of answers: leases of stages that ask, by model and prompt
# 2: one for each number of columns with few different ones
# 3: the weights of their documents are written, and a column of the annotations
STRATA = 3
REWRITE = "rewrite"
_CURATE = "gristmill.flows.curation:curate"  # by its address, since a recipe reads rewrites of another recipe
BILL = "bill.json"  # in a stage's folder: what its answers cost on the server that gave them


def document_sample(context: RunContext, corpus: Corpus, sampling: Sampling, name: str) -> StageResult:
    """The sample of documents to ask a model about, with a quota per stratum. `name`: of the stage."""
    spec = StageSpec(
        name=name,
        version=1,
        body=_sample,
        record=sampling,
        inputs=corpus.inputs(signals=bool(sampling.by)),
        places=corpus.places,
        work=Work(versions={"strata": STRATA} if sampling.by else {}),
    )
    return context.build(spec)


def _sample(phases: PhaseRunner, record: Sampling, places: CorpusPlaces) -> dict:
    """Draw a sample of documents."""
    jobs = Each(places.applied, lambda i: {**places.shard(i), "signals": places.signals[i] if record.by else ()})
    common: dict[str, Any] = {"by": record.by, "of": record.of, "seed": record.seed, "bounds": record.bounds}
    if record.by:
        numbers = phases.map("numbers", numbers_shard, jobs, temporary=True, common={"by": record.by})
        common["single"] = columns_of_few(numbers.values(), record.by)
    counted = phases.map("candidates", candidates_shard, jobs, common=common)
    counts = Counter[str]()
    for each in counted.values():
        counts.update(each["counts"])
        check_strata(counts, record.by)
    sizes = quotas(counts, record.of or 0)
    if record.by:
        phases.message(described_sample(record.by, counts, sizes))
    parts = Parts(phases.folder, places.applied)
    arguments = {"candidates": parts, "quotas": sizes, "counts": counts if record.by else None}
    phases.once("choose", find_thresholds, arguments, grows="documents")
    return {"documents": dict(sorted(counts.items())), "sample": sizes}


@dataclass(frozen=True)
class AskingPlaces:
    """`home`: where answers are stored; `sample`: the file with the sample, and with strata the file with their
    weights; empty for all documents."""

    corpus: CorpusPlaces
    home: str
    sample: tuple[RecordedFile, ...]


def sample_files(sample: StageResult | None, by: tuple[str, ...]) -> tuple[RecordedFile, ...]:
    """The files of a sample, as `AskingPlaces` has them."""
    if sample is None:
        return ()
    return tuple(map(sample.file, (SAMPLE, WEIGHTS) if by else (SAMPLE,)))


def measured_by(places: AskingPlaces, questions: Questions) -> PartsOfSeveral:
    """The parts with the signals that a stage's questions read; no parts if they read no columns."""
    signals = places.corpus.signals
    return signals if questions.reads or questions.by else replace(signals, folders=())


def ask(phases: PhaseRunner, questions: Questions, places: AskingPlaces) -> list[dict[str, Any]]:
    """Ask about the documents, until all answers are in the home, and return the counts of each client. Waits for
    another stage that asks with the same model and prompt, so that no answer is paid for twice."""
    corpus, clients = places.corpus, options.current().lm.clients
    folder = files.join(places.home, ANSWERS, ASKING, questions.template.digest[:16])

    def waits(line: str) -> None:
        phases.message(f"{questions.step}: another run asks with the same model and prompt; {line}")

    with lease(folder, waits, phases.check):
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
                "places": DocumentShards(corpus.documents, corpus.kept, measured_by(places, questions)),
            },
        )
        return list(asked.values())


def write_bill(phases: PhaseRunner, step: str, bill: dict[str, Any], asked: Iterable[dict[str, Any]]) -> None:
    """Log the bill and write it next to the manifest, since prices and attempts differ between machines. `step`: the
    name in the log; `asked`: the counts of each client."""
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
    judged, passed = corpus.judged()
    jobs = Each(judged, lambda i: {**corpus.shard(i), "signals": measured[i]})
    counted = phases.map("annotate", annotate_shard, jobs, common=common)
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


def annotation_cut(context: RunContext, corpus: Corpus, step: Annotate, annotated: StageResult) -> StageResult:
    """The stage that drops documents without a valid answer. `annotated`: the stage with the columns."""
    spec = StageSpec(
        name=f"{step.step}_cut",
        version=1,
        body=_cut,
        record=RuleDecisions(decisions=((step.step, step.decisions()),), exempt=exempt_of((step,), corpus.sources)),
        inputs=corpus.inputs(annotated),
        places=CorpusAndStage(corpus.places, annotated.folder),
        work=work_of_steps((step,)),
    )
    return context.build(spec)


def _cut(phases: PhaseRunner, record: RuleDecisions, places: CorpusAndStage) -> dict:
    """Drop documents without a valid answer."""
    corpus = places.corpus
    jobs = Each(corpus.shards(), lambda i: {"kept": corpus.kept[i], "signals": (layout.part(places.stage, i),)})
    phases.map("decide", decide_shard, jobs, common={"decisions": record.decisions})
    return {}


def rewrites(context: RunContext, source: Rewrites) -> StageResult:
    """The rewrites of a source. Makes the corpus of the recipe to rewrite, if it is not finished. Raises
    NothingLeftError if there are no rewrites."""
    recipe = recipe_of(context, source)
    corpus = _curated(context, recipe)
    settings = source.rewrite
    if isinstance(settings.prompt, PromptFile):
        named = {"prompt": settings.prompt.model_dump(mode="json")}
        prompt = context.outside(named, lambda: settings.full_prompt.model_dump(mode="json"))
        settings = settings.model_copy(update={"prompt": Prompt.model_validate(prompt)})
    sample = _rewrite_sample(context, corpus, settings)
    language = _language(context, recipe, settings)
    record = RewriteRecord(
        settings=settings.part(RewriteSettings).model_copy(update={"prompt": settings.full_prompt}),
        name=settings.name,
        checks=settings.part(Checks),
        by=settings.by,
        bounds=settings.bounds,
        seed=settings.seed,
        of_source=language is not None and settings.language == OF_SOURCE,
        identify=None if language is None else language.part(Identification),
    )
    spec = StageSpec(
        name="rewrites",
        version=1,
        body=_rewrite,
        record=record,
        inputs=corpus.inputs(*(() if sample is None else (sample,)), signals=bool(record.reads or record.by)),
        places=lambda: AskingPlaces(corpus.places, context.settings.home, sample_files(sample, settings.by)),
        work=work_of_steps(() if language is None else (language,)),
    )
    stage = context.build(spec)
    if not stage.result["rewrites"]:
        raise NothingLeftError(
            f"the source {source.name} has no rewrites: of {stage.result['asked']:,} documents, "
            f"{dropped(stage.result['drops'])}. Change the prompt, the model or the checks of the source"
        )
    return stage


def _rewrite(phases: PhaseRunner, record: RewriteRecord, places: AskingPlaces) -> dict:
    """Ask a language model for rewrites of documents."""
    corpus, measured = places.corpus, measured_by(places, record)
    asked = ask(phases, record, places)
    jobs = Each(corpus.shards(), lambda i: {**corpus.shard(i), "signals": measured[i]})
    common = {"home": places.home, "record": record, "sample": places.sample}
    counted = phases.map(REWRITE, rewrite_shard, jobs, common=common).values()
    bill = total(each["bill"] for each in asked)
    write_bill(phases, record.step, bill, asked)
    drops = Counter[str]()
    for each in counted:
        drops.update(each["steps"][0]["drops"])
    dropped_by = f"; {dropped(dict(drops))}" if drops else ""
    phases.message(f"{record.step}: {sum(each['rows_out'] for each in counted):,} rewrites{dropped_by}")
    return {
        "asked": sum(each["rows_in"] for each in counted),
        "rewrites": sum(each["rows_out"] for each in counted),
        "drops": dict(sorted(drops.items())),
        "answers": bill,
    }


def characters_of(stage: StageResult) -> list[int]:
    """The characters of the rewrites in each part of the stage."""
    return [record["steps"][0]["characters_out"] for record in stage.records(REWRITE)]


def _curated(context: RunContext, recipe: Recipe) -> Corpus:
    module, function = _CURATE.split(":")
    corpus: Corpus | None = None
    for passed in getattr(import_module(module), function)(context, recipe):
        corpus = passed.left
    assert corpus is not None, "a recipe has a first part"
    return corpus


def _rewrite_sample(context: RunContext, corpus: Corpus, settings: Rewrite) -> StageResult | None:
    if settings.of is None:
        return None
    before = corpus.before if isinstance(corpus, AllowedCorpus) else corpus
    return document_sample(context, before, settings.part(Sampling), "rewrites_sample")


def _language(context: RunContext, recipe: Recipe, settings: Rewrite) -> Language | None:
    """The step that identifies the languages of rewrites: the recipe's, or with a language code the default one; None
    if languages are not checked."""
    if settings.language is None:
        return None
    steps = [step for step in recipe.steps if isinstance(step, Language)]
    if not steps and settings.language == OF_SOURCE:
        return None
    [language] = pinned(context, (steps[-1] if steps else Language(),))
    return language
