"""`tokenizer`: trained on a sample that follows the mixture, or the recipe's file, or that of the first weights."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.given_files import digest, initial_folder, tokenizer_file, tokenizer_path
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import files
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.by_shard import Names, PartsOfSeveral
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import Inputs, StageSpec, Work
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.strategies import sample_mixture
from gristmill.tasks.tokens.tokenizer import (
    Tokenizer,
    group_sizes,
    measure_texts,
    sample_folder,
    sample_rates,
    sample_texts,
    take_tokenizer,
    train_tokenizer,
)


class TokenizerTraining(Settings):
    """`mixture`: what the sample follows."""

    tokenizer: Tokenizer
    mixture: Mixture
    seed: int


class TokenizerCopy(Settings):
    """The tokenizer's digest is an input."""

    end_of_text: str | None = None


def tokenizer(context: RunContext, recipe: Recipe, corpus: Corpus) -> StageResult:
    """`corpus`: the documents that it is trained on. Weights that were trained go on with their own tokenizer: then the
    recipe's `tokenizer` is not used."""
    if (folder := initial_folder(context.settings, recipe)) is not None:
        return file_tokenizer(context, tokenizer_file(folder))
    if (path := tokenizer_path(context.settings, recipe)) is not None:
        return file_tokenizer(context, path, recipe.tokenizer.end_of_text)
    mixture = sample_mixture(recipe.training_mixture())
    return corpus_tokenizer(context, corpus, recipe.trained_tokenizer(), mixture, recipe.seed)


def file_tokenizer(context: RunContext, path: Path, end_of_text: str | None = None) -> StageResult:
    """The tokenizer in a file. `end_of_text`: the name of that token in a tokenizer.json, None for a usual one."""
    known = digest(context.settings, path)
    spec = StageSpec(
        name="tokenizer",
        version=1,
        body=_take,
        record=TokenizerCopy(end_of_text=end_of_text),
        inputs={"file": known},
        places=RecordedFile(str(path), known),
        work=Work(libraries=(_library(path.name),)),
    )
    return context.build(spec)


def _take(phases: PhaseRunner, record: TokenizerCopy, places: RecordedFile) -> dict:
    """Take the tokenizer that is there."""
    given = {"tokenizer": places, "end_of_text": record.end_of_text}
    return {"tokenizer": phases.once("train", take_tokenizer, given) | {"sample_bytes": {}}}


def corpus_tokenizer(
    context: RunContext, corpus: Corpus, settings: Tokenizer, mixture: Mixture, seed: int
) -> StageResult:
    """A tokenizer trained on a sample that follows a mixture."""
    signals = not mixture.by_source
    names = mixture.source_weights(dict.fromkeys(corpus.places.sources.distinct()))
    parts = {name: corpus.places.parts((name,), signals) for name in names}
    return sources_tokenizer(context, parts, corpus.inputs(signals=signals), settings, mixture, seed)


def sources_tokenizer(
    context: RunContext,
    sources: Mapping[str, PartsOfSeveral],
    inputs: Inputs,
    settings: Tokenizer,
    mixture: Mixture,
    seed: int,
) -> StageResult:
    """A tokenizer trained on a sample of sources, which may be of several corpora. `sources`: by name the parts of
    their shards, as `CorpusPlaces.parts` gives them; `inputs`: the stages that have these."""
    spec = StageSpec(
        name="tokenizer",
        version=1,
        body=_train,
        record=TokenizerTraining(tokenizer=settings, mixture=mixture, seed=seed),
        inputs=inputs,
        places=dict(sources),
        work=Work(libraries=("tokenizers" if settings.kind == "byte_bpe" else "sentencepiece",)),
    )
    return context.build(spec)


def _train(phases: PhaseRunner, record: TokenizerTraining, places: dict[str, PartsOfSeveral]) -> dict:
    """Train the tokenizer on a sample."""
    mixture, wanted = record.mixture, sorted(places)
    sources = Names(tuple((name, len(places[name])) for name in wanted))
    first = {name: shards.runs[0][0] for name in wanted if (shards := sources.shards([name])).runs}

    def job(number: int) -> dict[str, Any]:
        name = sources[number]
        return {"source": name, "parts": places[name][number - first[name]]}

    jobs = Each(range(len(sources)), job)
    measured = phases.map("measure", measure_texts, jobs, common={"mixture": mixture})
    sizes = group_sizes((sources[i], measured[i]["bytes"]) for i in range(len(sources)))
    rates = sample_rates(sizes, mixture, record.tokenizer.sample_bytes)
    common = {"mixture": mixture, "rates": rates, "seed": record.seed}
    sampled = phases.map("sample", sample_texts, jobs, common=common, temporary=True)
    taken = Counter[str]()
    for i in range(len(sources)):
        taken.update(sampled[i]["bytes"])
    given = {"shards": range(len(sources)), "settings": record.tokenizer}
    full = record.tokenizer.sample_bytes / max(1, taken.total())
    made = phases.once("train", train_tokenizer, given, full=full)
    files.remove(sample_folder(phases.folder))
    return {"tokenizer": made | {"sample_bytes": dict(sorted(taken.items()))}}


def tokenizer_of(stage: StageResult) -> RecordedFile:
    """The file of a tokenizer that was made. Reads the list of parts."""
    return stage.file(stage.result["tokenizer"]["file"])


def library_of(stage: StageResult) -> str:
    """The library that encodes by it."""
    return _library(stage.result["tokenizer"]["file"])


def _library(name: str) -> str:
    return "tokenizers" if name.endswith(".json") else "sentencepiece"
