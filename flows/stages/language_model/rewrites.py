"""`rewrites`: what a language model writes from the curated documents of another recipe.

The stage is a source of the recipe: `documents` reads its parts as it reads tables, so every later step treats rewrites
as any documents. Documents that the lists of the other recipe exclude have none, and the others keep theirs: the sample
is drawn from the documents before these lists, and a rewrite depends on its own document only.
"""

from collections import Counter
from importlib import import_module

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.rewritten import recipe_of
from gristmill.flows.stages.corpus import Corpus, NothingLeftError, dropped, pinned, work_of_steps
from gristmill.flows.stages.language_model.asking import (
    AskingPlaces,
    ask,
    document_sample,
    measured_by,
    sample_files,
    write_bill,
)
from gristmill.flows.stages.removal import AllowedCorpus
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.language_model.ask import total
from gristmill.tasks.language_model.prompts import Prompt, PromptFile
from gristmill.tasks.language_model.rewrite import (
    OF_SOURCE,
    Checks,
    Rewrite,
    RewriteRecord,
    RewriteSettings,
    rewrite_shard,
)
from gristmill.tasks.language_model.sample import Sampling
from gristmill.tasks.models.language import Identification, Language
from gristmill.tasks.reading.sources import Rewrites

PHASE = "rewrite"
_CURATE = "gristmill.flows.curation:curate"  # by its address, since a recipe reads rewrites of another recipe


def rewrites(context: RunContext, source: Rewrites) -> StageResult:
    """The rewrites of a source. Makes the corpus of the recipe that is rewritten, if it is not finished. Raises
    NothingLeftError where no document has a rewrite."""
    recipe = recipe_of(context, source)
    corpus = _curated(context, recipe)
    settings = source.rewrite
    if isinstance(settings.prompt, PromptFile):
        named = {"prompt": settings.prompt.model_dump(mode="json")}
        prompt = context.outside(named, lambda: settings.full_prompt.model_dump(mode="json"))
        settings = settings.model_copy(update={"prompt": Prompt.model_validate(prompt)})
    sample = _sample(context, corpus, settings)
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
    counted = phases.map(PHASE, rewrite_shard, jobs, common=common).values()
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
    return [record["steps"][0]["characters_out"] for record in stage.records(PHASE)]


def _curated(context: RunContext, recipe: Recipe) -> Corpus:
    module, function = _CURATE.split(":")
    corpus: Corpus | None = None
    for passed in getattr(import_module(module), function)(context, recipe):
        corpus = passed.left
    assert corpus is not None, "a recipe has a first part"
    return corpus


def _sample(context: RunContext, corpus: Corpus, settings: Rewrite) -> StageResult | None:
    if settings.of is None:
        return None
    before = corpus.before if isinstance(corpus, AllowedCorpus) else corpus
    return document_sample(context, before, settings.part(Sampling), "rewrites_sample")


def _language(context: RunContext, recipe: Recipe, settings: Rewrite) -> Language | None:
    """The step by which languages of rewrites are identified: that of the recipe, or with a code the default one; None
    if they are not checked."""
    if settings.language is None:
        return None
    steps = [step for step in recipe.steps if isinstance(step, Language)]
    if not steps and settings.language == OF_SOURCE:
        return None
    [language] = pinned(context, (steps[-1] if steps else Language(),))
    return language
