"""The flows: a corpus from crawls, tokens from the corpus, a model from the tokens, and all three."""

import flows.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
from typing import Annotated

from prefect import flow
from pydantic import BeforeValidator

from flows.context import RunContext
from flows.curation import curate
from flows.prefect_artifacts import publish
from flows.prefect_runner import context
from flows.recipe import Recipe, load
from flows.reports import run
from flows.stages import all_stages, model

RecipeLike = Annotated[Recipe, BeforeValidator(load)]


@flow(name="corpus", flow_run_name="corpus-{recipe.name}", persist_result=False)
def corpus(recipe: RecipeLike) -> all_stages.Corpus:
    """Curated documents: the recipe's steps in their order, runs of document steps fused into one pass."""
    with context() as shop:
        *_, last = curate(shop, recipe)
        made = last.left
        shop.made["corpus", recipe.model_dump_json()] = made
        return made


@flow(name="tokens", flow_run_name="tokens-{recipe.name}", persist_result=False)
def tokens(recipe: RecipeLike) -> all_stages.Data:
    """Token shards and the plan of their mixture, from the curated documents."""
    with context() as shop:
        curated = _made(shop, "corpus", corpus, recipe)
        tokenizer = all_stages.tokenizer_model(shop, recipe, curated)
        encoded = all_stages.encoded(shop, recipe, curated, tokenizer)
        mixture = all_stages.mixed(shop, recipe, tokenizer, encoded)
        made = all_stages.Data(curated, tokenizer, encoded, mixture)
        shop.made["tokens", recipe.model_dump_json()] = made
        return made


@flow(name="pretrain", flow_run_name="pretrain-{recipe.name}", persist_result=False)
def pretrain(recipe: RecipeLike) -> model.Trained:
    """A trained model, tracked in MLflow, from the token shards."""
    with context() as shop:
        return model.train(shop, recipe, _made(shop, "tokens", tokens, recipe))


@flow(name="pipeline", flow_run_name="pipeline-{recipe.name}", persist_result=False)
def pipeline(recipe: RecipeLike) -> run.Report:
    """Everything: raw crawls in, a trained and tracked model out."""
    with context() as shop:
        curated = corpus(recipe)
        data = tokens(recipe)
        trained = pretrain(recipe)
        report = run.Report(recipe, curated, data, trained, shop.settings)
        publish(report)
        return report


def _made(shop: RunContext, name: str, run, recipe: Recipe):
    """What this run has made already, or the flow that makes it."""
    found = shop.made.get((name, recipe.model_dump_json()))
    return found if found is not None else run(recipe)
