"""`tokenizer`: trained on a sample that follows the mixture, or the recipe's file, or that of the first weights."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.given_files import digest, initial_folder, tokenizer_file, tokenizer_path
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.storage import files
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.by_shard import Shards
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.strategies import sample_mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer
from gristmill.tasks.tokens.tokenizer_sample import (
    group_sizes,
    measure_texts,
    sample_folder,
    sample_rates,
    sample_texts,
)
from gristmill.tasks.tokens.tokenizer_work import take_tokenizer, train_tokenizer


class Record(Settings):
    """`mixture`: what the sample follows."""

    tokenizer: Tokenizer
    mixture: Mixture
    seed: int


class TakenRecord(Settings):
    """The tokenizer's digest is an input."""

    end_of_text: str | None = None


@dataclass(frozen=True)
class TakenPlaces:
    tokenizer: RecordedFile


def tokenizer(context: RunContext, recipe: Recipe, corpus: Corpus) -> StageResult:
    """`corpus`: the documents that it is trained on. Weights that were trained go on with their own tokenizer: then the
    recipe's `tokenizer` is not used."""
    if (folder := initial_folder(context.settings, recipe)) is not None:
        return _taken(context, tokenizer_file(folder), None)
    if (path := tokenizer_path(context.settings, recipe)) is not None:
        return _taken(context, path, recipe.tokenizer.end_of_text)
    mixture = sample_mixture(recipe.training_mixture())
    return trained(context, corpus, recipe.tokenizer, mixture, recipe.seed)


def _taken(context: RunContext, path: Path, end_of_text: str | None) -> StageResult:
    known = digest(context.settings, path)
    places = TakenPlaces(RecordedFile(str(path), known))
    record, library = TakenRecord(end_of_text=end_of_text), _library(path.name)
    return context.build(StageSpec("tokenizer", _take, record, {"file": known}, places, libraries=(library,)))


def tokenizer_of(stage: StageResult) -> RecordedFile:
    """The file of a tokenizer that was made. Reads the list of parts."""
    return stage.file(stage.result["tokenizer"]["file"])


def library_of(stage: StageResult) -> str:
    """The library that encodes by it."""
    return _library(stage.result["tokenizer"]["file"])


def _library(name: str) -> str:
    return "tokenizers" if name.endswith(".json") else "sentencepiece"


def trained(context: RunContext, corpus: Corpus, settings: Tokenizer, mixture: Mixture, seed: int) -> StageResult:
    """A tokenizer trained on a sample that follows a mixture."""
    record = Record(tokenizer=settings, mixture=mixture, seed=seed)
    library = "tokenizers" if settings.kind == "byte_bpe" else "sentencepiece"
    return context.build(
        StageSpec(
            "tokenizer",
            _train,
            record,
            corpus.inputs(signals=not mixture.by_source),
            corpus.places,
            libraries=(library,),
        )
    )


def _train(phases: PhaseRunner, record: Record, places: CorpusPlaces) -> dict:
    """Train the tokenizer on a sample."""
    mixture = record.mixture
    wanted = sorted(mixture.source_weights(dict.fromkeys(places.sources.distinct())))
    parts = places.parts(places.sources.distinct(), signals=not mixture.by_source)
    shards = Shards.joined(run for name in wanted for run in places.sources.shards([name]).runs)

    def job(shard: int) -> dict[str, Any]:
        return {"source": places.sources[shard], "parts": parts[shard]}

    measured = phases.map("measure", measure_texts, Each(shards, job), common={"mixture": mixture})
    sizes = group_sizes((places.sources[i], measured[i]["bytes"]) for i in shards)
    rates = sample_rates(sizes, mixture, record.tokenizer.sample_bytes)
    common = {"mixture": mixture, "rates": rates, "seed": record.seed}
    sampled = phases.map("sample", sample_texts, Each(shards, job), common=common, temporary=True)
    taken = Counter[str]()
    for i in shards:
        taken.update(sampled[i]["bytes"])
    made = phases.once("train", train_tokenizer, {"shards": shards, "settings": record.tokenizer})
    files.remove(sample_folder(phases.folder))
    return {"tokenizer": made | {"sample_bytes": dict(sorted(taken.items()))}}


def _take(phases: PhaseRunner, record: TakenRecord, places: TakenPlaces) -> dict:
    """Take the tokenizer that is there."""
    given = {"tokenizer": places.tokenizer, "end_of_text": record.end_of_text}
    return {"tokenizer": phases.once("train", take_tokenizer, given) | {"sample_bytes": {}}}
