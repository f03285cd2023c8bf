"""The flows: a corpus from crawls, tokens from the corpus, a model from the tokens, and all three."""

from typing import Annotated

from prefect import flow
from prefect.artifacts import create_markdown_artifact
from pydantic import BeforeValidator

from flows import pretraining, report, stages
from flows.recipe import Recipe, load
from flows.workshop import Workshop, workshop
from tasks.dedup.minhash import MinHash
from tasks.perplexity import Perplexity
from tasks.quality import Quality
from tasks.step import DocumentStep

RecipeLike = Annotated[Recipe, BeforeValidator(load)]

_CORPUS_STEPS = {MinHash: stages.minhash, Perplexity: stages.by_perplexity, Quality: stages.by_quality}


@flow(name="corpus", flow_run_name="corpus-{recipe.name}", persist_result=False)
def corpus(recipe: RecipeLike) -> stages.Corpus:
    """Curated documents: the recipe's steps in their order, runs of document steps fused into one pass."""
    with workshop() as shop:
        groups = _groups(stages.pinned(shop, recipe.after))
        first = groups.pop(0) if groups and isinstance(groups[0], tuple) else ()
        made = stages.documents(shop, recipe, first)
        if first:
            made = stages.rules(shop, made, made.documents, first)
        for group in groups:
            if isinstance(group, tuple):
                made = stages.rules(shop, made, stages.signals(shop, made, group), group)
            else:
                made = _CORPUS_STEPS[type(group)](shop, recipe, made, group)
        shop.made["corpus", recipe.model_dump_json()] = made
        return made


@flow(name="tokens", flow_run_name="tokens-{recipe.name}", persist_result=False)
def tokens(recipe: RecipeLike) -> stages.Data:
    """Token shards and the plan of their mixture, from the curated documents."""
    with workshop() as shop:
        curated = _made(shop, "corpus", corpus, recipe)
        tokenizer = stages.tokenizer_model(shop, recipe, curated)
        encoded = stages.encoded(shop, recipe, curated, tokenizer)
        mixture = stages.mixed(shop, recipe, tokenizer, encoded)
        made = stages.Data(curated, tokenizer, encoded, mixture)
        shop.made["tokens", recipe.model_dump_json()] = made
        return made


@flow(name="pretrain", flow_run_name="pretrain-{recipe.name}", persist_result=False)
def pretrain(recipe: RecipeLike) -> pretraining.Trained:
    """A trained model, tracked in MLflow, from the token shards."""
    with workshop() as shop:
        return pretraining.train(shop, recipe, _made(shop, "tokens", tokens, recipe))


@flow(name="pipeline", flow_run_name="pipeline-{recipe.name}", persist_result=False)
def pipeline(recipe: RecipeLike) -> report.Report:
    """Everything: raw crawls in, a trained and tracked model out."""
    with workshop() as shop:
        curated = corpus(recipe)
        data = tokens(recipe)
        trained = pretrain(recipe)
        told = report.Report(recipe, curated, data, trained, shop.settings)
        create_markdown_artifact(key="funnel", markdown=told.markdown(), description=f"Funnel of {recipe.name}")
        return told


def _groups(steps: tuple) -> list[tuple[DocumentStep, ...] | MinHash | Perplexity | Quality]:
    """Consecutive document steps as one tuple, corpus steps by themselves."""
    groups: list = []
    for step in steps:
        if not isinstance(step, DocumentStep):
            groups.append(step)
        elif groups and isinstance(groups[-1], tuple):
            groups[-1] = (*groups[-1], step)
        else:
            groups.append((step,))
    return groups


def _made(shop: Workshop, name: str, run, recipe: Recipe):
    """What this run has made already, or the flow that makes it."""
    found = shop.made.get((name, recipe.model_dump_json()))
    return found if found is not None else run(recipe)
