"""The flows: a corpus from crawls, tokens from the corpus, a model from the tokens, and all three."""

import gristmill.flows.run.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
from dataclasses import replace

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.extras import require
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.run import Report
from gristmill.flows.run.artifacts import publish
from gristmill.flows.run.flow import recorded_flow
from gristmill.flows.run.prefect_names import flow_run_name
from gristmill.flows.run.runner import run_context
from gristmill.flows.stages import export
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.group_losses import LostGroupError, group_losses
from gristmill.flows.stages.indexes import search_index_spec, word_index_spec
from gristmill.flows.stages.mixture import training_data


@recorded_flow(name="corpus", flow_run_name=flow_run_name, persist_result=False)
def corpus(recipe: RecipeLike) -> Report:
    """Curated documents: the recipe's steps in their order, consecutive document steps fused into one pass, and a look
    at groups that lost far more than their like. Then their export, if the recipe names one."""
    with run_context(recipe) as context:
        export.check_target(context, recipe)
        for last in curate(context, recipe):
            if recipe.group_losses.then == "stop":  # ahead of the next step, which may be a costly one
                _stop_at_losses(context, recipe, last.left)
        if recipe.group_losses.then == "warn":
            group_losses(context, recipe, last.left)
        if recipe.word_index:
            context.build(word_index_spec(context, recipe, last.left))
        for stage in (last.left.documents, last.left.kept, *last.left.measured):
            context.restore(stage)
        exported = export.export(context, recipe, last.left)
        return _finished(context, "corpus", Report(recipe, context.settings, last.left, exported=exported))


@recorded_flow(name="tokens", flow_run_name=flow_run_name, persist_result=False)
def tokens(recipe: RecipeLike) -> Report:
    """Token shards and the plan of their mixture, from the curated documents."""
    recipe.training_mixture()  # its error comes before any work
    with run_context(recipe) as context:
        made = _found(context, "corpus", recipe) or corpus(recipe)
        data = training_data(context, recipe, made.corpus)
        grouped = () if data.grouped is None else (data.grouped,)
        for stage in (data.tokenizer, data.tokens, *grouped, data.evaluation_tokens, data.mixture):
            context.restore(stage)
        if recipe.index:
            context.build(search_index_spec(context, recipe, data))
        return _finished(context, "tokens", replace(made, data=data))


@recorded_flow(name="pretrain", flow_run_name=flow_run_name, persist_result=False)
def pretrain(recipe: RecipeLike) -> Report:
    """A trained model, tracked in MLflow, from the token shards."""
    recipe.training_mixture()
    require("train", "training a model")
    # a corpus is made without the libraries of training
    from gristmill.flows.tracking.train import train

    with run_context(recipe) as context:
        made = _found(context, "tokens", recipe) or tokens(recipe)
        assert made.data is not None, "tokens were made"
        report = replace(made, trained=train(context, recipe, made.data))
        publish(report)
        return report


@recorded_flow(name="pipeline", flow_run_name=flow_run_name, persist_result=False)
def pipeline(recipe: RecipeLike) -> Report:
    """Everything: raw crawls in, a trained and tracked model out."""
    recipe.training_mixture()
    require("train", "training a model")
    with run_context(recipe):
        corpus(recipe)
        tokens(recipe)
        report = pretrain(recipe)
        publish(report)
        return report


def _stop_at_losses(context: RunContext, recipe: Recipe, corpus: Corpus) -> None:
    """Look at what groups have lost so far. Raises LostGroupError, which names the page of the steps that were done."""
    try:
        group_losses(context, recipe, corpus)
    except LostGroupError as error:
        from gristmill.flows.reports.run_page import write_page  # whose libraries a run needs here alone

        page = write_page(Report(recipe, context.settings, corpus))
        raise LostGroupError(f"{error}\nthe steps that were done, and what each dropped: {page}") from None


def _finished(context: RunContext, flow_name: str, made: Report) -> Report:
    """Keep what a flow returns for the flows behind it in this run, and publish it."""
    context.finished[flow_name, made.recipe.model_dump_json()] = made
    publish(made)
    return made


def _found(context: RunContext, flow_name: str, recipe: Recipe) -> Report | None:
    return context.finished.get((flow_name, recipe.model_dump_json()))
