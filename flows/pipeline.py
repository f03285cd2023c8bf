"""The flows: a corpus from crawls, tokens from the corpus, a model from the tokens, and all three."""

import flows.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
from typing import Annotated, Any

from pydantic import BeforeValidator

from flows.context import RunContext
from flows.curation import curate
from flows.prefect_artifacts import publish
from flows.prefect_flow import recorded_flow
from flows.prefect_runner import run_context
from flows.recipe import Recipe, load
from flows.reports.run import Report
from flows.stages.corpus import Corpus
from flows.stages.data import Data
from flows.stages.mixture import mixture
from flows.stages.model import Trained, train
from flows.stages.tokenizer import tokenizer
from flows.stages.tokens import tokens as token_shards

RecipeLike = Annotated[Recipe, BeforeValidator(load)]


@recorded_flow(name="corpus", flow_run_name="corpus-{recipe.name}", persist_result=False)
def corpus(recipe: RecipeLike) -> Corpus:
    """Curated documents: the recipe's steps in their order, consecutive document steps fused into one pass."""
    with run_context(recipe) as context:
        *_, last = curate(context, recipe)
        return _finished(context, "corpus", recipe, last.left)


@recorded_flow(name="tokens", flow_run_name="tokens-{recipe.name}", persist_result=False)
def tokens(recipe: RecipeLike) -> Data:
    """Token shards and the plan of their mixture, from the curated documents."""
    with run_context(recipe) as context:
        curated = _found(context, "corpus", recipe) or corpus(recipe)
        model = tokenizer(context, recipe, curated)
        shards = token_shards(context, recipe, curated, model)
        plan = mixture(context, recipe, curated.sources, model, shards)
        return _finished(context, "tokens", recipe, Data(curated, model, shards, plan))


@recorded_flow(name="pretrain", flow_run_name="pretrain-{recipe.name}", persist_result=False)
def pretrain(recipe: RecipeLike) -> Trained:
    """A trained model, tracked in MLflow, from the token shards."""
    with run_context(recipe) as context:
        return train(context, recipe, _found(context, "tokens", recipe) or tokens(recipe))


@recorded_flow(name="pipeline", flow_run_name="pipeline-{recipe.name}", persist_result=False)
def pipeline(recipe: RecipeLike) -> Report:
    """Everything: raw crawls in, a trained and tracked model out."""
    with run_context(recipe) as context:
        report = Report(recipe, corpus(recipe), tokens(recipe), pretrain(recipe), context.settings)
        publish(report)
        return report


def _finished(context: RunContext, flow_name: str, recipe: Recipe, result: Any) -> Any:
    """Keep what a flow returns for the flows behind it in this run."""
    context.finished[flow_name, recipe.model_dump_json()] = result
    return result


def _found(context: RunContext, flow_name: str, recipe: Recipe) -> Any:
    return context.finished.get((flow_name, recipe.model_dump_json()))
