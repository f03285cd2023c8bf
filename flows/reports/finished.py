"""What is finished of a recipe, looked up in the home."""

from typing import Any

from flows.context import RunContext, job_options, lookup
from flows.curation import curate
from flows.machine import MachineSettings
from flows.recipe import Recipe, load
from flows.reports.run import Report
from flows.stages.corpus import Corpus
from flows.stages.data import Data
from flows.stages.grouped_tokens import grouped_tokens
from flows.stages.heldout import before_takedowns, heldout
from flows.stages.mixture import mixture
from flows.stages.tokenizer import tokenizer
from flows.stages.tokens import tokens
from tasks.engine import options
from tasks.engine.make import NotFinishedError


def finished(recipe: Any, settings: MachineSettings | None = None) -> Report:
    """The report of a recipe's finished corpus, with data and training as far as they are finished. Makes nothing.

    Raises NotFinishedError, which names the remedy, where the corpus is not finished.
    """
    recipe = load(recipe)
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    context = lookup(settings, recipe.name)
    *_, passed = curate(context, recipe)
    corpus = passed.left
    data = _data(context, recipe, corpus)
    if data is None:
        return Report(recipe, settings, corpus)
    from flows.stages.model import Trained, model_spec

    model = context.find(model_spec(settings, recipe, data))
    trained = None if model is None else Trained(model, model.result["result"], mlflow_run="")
    return Report(recipe, settings, corpus, data, trained)


def _data(context: RunContext, recipe: Recipe, corpus: Corpus) -> Data | None:
    if recipe.mixture is None:
        return None
    try:
        split = heldout(context, recipe, corpus)
        model = tokenizer(context, recipe, before_takedowns(context, recipe, split))
        shards = tokens(context, split, model)
        groups = grouped_tokens(context, recipe, split.train, model, shards)
        plan = mixture(context, recipe, corpus.sources, model, shards, groups)
        return Data(corpus, split, model, shards, plan, groups)
    except NotFinishedError:
        return None
