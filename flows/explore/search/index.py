"""Flows that make a recipe's indexes. Separate: it imports Prefect, searches do not."""

from gristmill.flows.pipeline import corpus, outputs_of, tokens
from gristmill.flows.recipe.forms import RecipeLike
from gristmill.flows.recipe.recipe import load
from gristmill.flows.run.artifacts import flow_run_name
from gristmill.flows.run.flow import recorded_flow
from gristmill.flows.run.runner import run_context
from gristmill.tasks.engine.make import StageResult


@recorded_flow(name="index", flow_run_name=flow_run_name, persist_result=False)
def index(recipe: RecipeLike) -> StageResult:
    """Build the index that finds phrases in a recipe's token shards and in the documents that it dropped, and all that
    comes before it. A recipe without a mixture has its curated documents encoded for it."""
    with run_context(recipe) as context:
        (corpus if load(recipe).mixture is None else tokens)(recipe)
        return context.build(outputs_of(context, recipe).search_index_spec)


@recorded_flow(name="word_index", flow_run_name=flow_run_name, persist_result=False)
def word_index(recipe: RecipeLike) -> StageResult:
    """The index by which documents are ranked by their words, kept and dropped; its corpus is made, too."""
    with run_context(recipe) as context:
        corpus(recipe)
        return context.build(outputs_of(context, recipe).word_index_spec)
