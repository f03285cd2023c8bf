"""The flows: a corpus from crawls, tokens from the corpus, a model from the tokens, and all three."""

from typing import TYPE_CHECKING

from gristmill.flows.curation import Outputs
from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.options import Changes, spread
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.variants import changed
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.run.source_losses import log_losses
from gristmill.flows.run.artifacts import flow_run_name, publish
from gristmill.flows.run.flow import recorded_flow
from gristmill.flows.run.runner import run_context
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.export import check_target
from gristmill.flows.stages.group_losses import LostGroupError, check_losses
from gristmill.tasks.engine.extras import require
from gristmill.tasks.engine.make import StageResult

if TYPE_CHECKING:
    from gristmill.flows.stages.model import Trained


@recorded_flow(name="corpus", flow_run_name=flow_run_name, persist_result=False)
@spread
def corpus(recipe: RecipeLike, changes: Changes) -> Run:
    """Curated documents: the recipe's steps in their order, consecutive document steps fused into one pass, and a check
    of groups that lost far more documents than similar groups. Then their export, if the recipe names one."""
    recipe = changed(recipe, changes.settings)
    with run_context(recipe) as context:
        check_target(context, recipe)
        outputs = Outputs(context, recipe, _check_losses, _train)
        context.outputs[recipe.model_dump_json()] = outputs
        outputs.make("corpus")
        return _published(outputs)


@recorded_flow(name="tokens", flow_run_name=flow_run_name, persist_result=False)
@spread
def tokens(recipe: RecipeLike, changes: Changes) -> Run:
    """Token shards and the plan of their mixture, from the curated documents."""
    recipe = changed(recipe, changes.settings)
    recipe.training_mixture()  # its error comes before any work
    with run_context(recipe) as context:
        if not _is_built(context, "corpus", recipe):
            corpus(recipe)
        outputs = outputs_of(context, recipe)
        outputs.make("tokens")
        return _published(outputs)


@recorded_flow(name="pretrain", flow_run_name=flow_run_name, persist_result=False)
@spread
def pretrain(recipe: RecipeLike, changes: Changes) -> Run:
    """A trained model, tracked in MLflow, from the token shards."""
    recipe = changed(recipe, changes.settings)
    recipe.training_mixture()
    require("train", "training a model")
    with run_context(recipe) as context:
        if not _is_built(context, "tokens", recipe):
            tokens(recipe)
        outputs = outputs_of(context, recipe)
        outputs.make("pretrain")
        return _published(outputs)


@recorded_flow(name="pipeline", flow_run_name=flow_run_name, persist_result=False)
@spread
def pipeline(recipe: RecipeLike, changes: Changes) -> Run:
    """Everything: raw crawls in, a trained and tracked model out."""
    recipe = changed(recipe, changes.settings)
    recipe.training_mixture()
    require("train", "training a model")
    with run_context(recipe):
        corpus(recipe)
        tokens(recipe)
        report = pretrain(recipe)
        publish(report)
        return report


def outputs_of(context: RunContext, recipe: Recipe) -> Outputs:
    """The outputs of a recipe whose flow `corpus` has run in this run."""
    return context.outputs[recipe.model_dump_json()]


def _is_built(context: RunContext, flow: str, recipe: Recipe) -> bool:
    outputs = context.outputs.get(recipe.model_dump_json())
    return outputs is not None and outputs.is_built(flow)


def _published(outputs: Outputs) -> Run:
    report = Run.of(outputs)
    publish(report)
    return report


def _check_losses(outputs: Outputs, corpus: Corpus, losses: StageResult) -> None:
    """Log what groups lost. Raises LostGroupError, which names the page of the steps so far, if the recipe stops."""
    try:
        check_losses(outputs.recipe, losses)
        if outputs.recipe.group_losses.then == "warn":  # then counted once, after the last step
            log_losses(outputs.recipe, corpus, losses)
    except LostGroupError as error:
        from gristmill.flows.reports.run_page import write_page  # here, since only this case needs its libraries

        settings = outputs.context.settings
        page = write_page(Run(outputs.recipe, settings, corpus, outputs.stages, group_losses=losses))
        raise LostGroupError(f"{error}\ncompleted steps, with what each dropped: {page}") from None


def _train(outputs: Outputs) -> "Trained":
    # here, since a corpus is made without the libraries of training
    from gristmill.flows.run.model_training import train

    return train(outputs)
