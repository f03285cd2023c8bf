"""The flows: a corpus from crawls, tokens from the corpus, a model from the tokens, and all three."""

import flows.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
from typing import Annotated, Any

from prefect import flow
from pydantic import BeforeValidator, Field

from flows.context import RunContext
from flows.curation import curate
from flows.prefect_artifacts import publish
from flows.prefect_names import flow_run_name
from flows.prefect_runner import run_context
from flows.recipe import Recipe, load
from flows.reports.run import Report
from flows.stages.corpus import Corpus
from flows.stages.data import Data
from flows.stages.mixture import mixture
from flows.stages.model import Trained, train
from flows.stages.tokenizer import tokenizer
from flows.stages.tokens import tokens as token_shards

RecipeName = Annotated[
    str, Field(title="Name or path", description="of a recipe that ships (`demo`), or of a YAML file", min_length=1)
]
# Prefect holds parameters against the schema before they are loaded: a word, a path or the whole mapping
RecipeLike = Annotated[Recipe, BeforeValidator(load, json_schema_input_type=RecipeName | Recipe)]


@flow(name="corpus", flow_run_name=flow_run_name, persist_result=False)
def corpus(recipe: RecipeLike) -> Corpus:
    """Curated documents: the recipe's steps in their order, consecutive document steps fused into one pass."""
    with run_context() as context:
        *_, last = curate(context, recipe)
        return _finished(context, "corpus", recipe, last.left)


@flow(name="tokens", flow_run_name=flow_run_name, persist_result=False)
def tokens(recipe: RecipeLike) -> Data:
    """Token shards and the plan of their mixture, from the curated documents."""
    with run_context() as context:
        curated = _found(context, "corpus", recipe) or corpus(recipe)
        model = tokenizer(context, recipe, curated)
        shards = token_shards(context, recipe, curated, model)
        plan = mixture(context, recipe, curated.sources, model, shards)
        return _finished(context, "tokens", recipe, Data(curated, model, shards, plan))


@flow(name="pretrain", flow_run_name=flow_run_name, persist_result=False)
def pretrain(recipe: RecipeLike) -> Trained:
    """A trained model, tracked in MLflow, from the token shards."""
    with run_context() as context:
        return train(context, recipe, _found(context, "tokens", recipe) or tokens(recipe))


@flow(name="pipeline", flow_run_name=flow_run_name, persist_result=False)
def pipeline(recipe: RecipeLike) -> Report:
    """Everything: raw crawls in, a trained and tracked model out."""
    with run_context() as context:
        report = Report(recipe, context.settings, corpus(recipe), tokens(recipe), pretrain(recipe))
        publish(report)
        return report


def _finished(context: RunContext, flow_name: str, recipe: Recipe, result: Any) -> Any:
    """Keep what a flow returns for the flows behind it in this run."""
    context.finished[flow_name, recipe.model_dump_json()] = result
    return result


def _found(context: RunContext, flow_name: str, recipe: Recipe) -> Any:
    return context.finished.get((flow_name, recipe.model_dump_json()))
