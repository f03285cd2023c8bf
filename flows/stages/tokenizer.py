"""`tokenizer`: SentencePiece, trained on a sample that follows the mixture, or the one of the first weights."""

from dataclasses import dataclass

from flows.context import RunContext
from flows.initial_weights import TOKENIZER, initial_folder, tokenizer_digest
from flows.recipe import Recipe
from flows.stages.corpus import Corpus, CorpusPlaces
from storage.recorded_file import RecordedFile
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.tokens.tokenizer import Tokenizer
from tasks.tokens.tokenizer_work import take_tokenizer, train_tokenizer


class Record(Settings):
    tokenizer: Tokenizer
    weights: dict[str, float]
    seed: int


class TakenRecord(Settings):
    """Nothing of the recipe: the tokenizer's digest is an input."""


@dataclass(frozen=True)
class TakenPlaces:
    tokenizer: RecordedFile


def tokenizer(context: RunContext, recipe: Recipe, corpus: Corpus) -> StageResult:
    """`corpus`: the documents that it is trained on. Weights that were trained go on with their own tokenizer: then the
    recipe's `tokenizer` is not used."""
    if (folder := initial_folder(context.settings, recipe)) is not None:
        digest = tokenizer_digest(context.settings, folder)
        places = TakenPlaces(RecordedFile(str(folder / TOKENIZER), digest))
        return context.build(
            StageSpec("tokenizer", _take, TakenRecord(), {TOKENIZER: digest}, places, libraries=("sentencepiece",))
        )
    return trained(context, corpus, recipe.tokenizer, recipe.training_mixture().weights, recipe.seed)


def trained(
    context: RunContext, corpus: Corpus, settings: Tokenizer, weights: dict[str, float], seed: int
) -> StageResult:
    """A tokenizer trained on a sample of some sources, in proportion to their weights."""
    record = Record(tokenizer=settings, weights=dict(sorted(weights.items())), seed=seed)
    return context.build(
        StageSpec("tokenizer", _train, record, corpus.inputs(), corpus.places, libraries=("sentencepiece",))
    )


def _train(phases: PhaseRunner, record: Record, places: CorpusPlaces) -> dict:
    """Train the tokenizer on a sample."""
    given = {
        "inputs": {name: places.parts((name,)) for name in record.weights},
        "weights": record.weights,
        "settings": record.tokenizer,
        "seed": record.seed,
    }
    return {"tokenizer": phases.once("train", train_tokenizer, given)}


def _take(phases: PhaseRunner, record: TakenRecord, places: TakenPlaces) -> dict:
    """Take the tokenizer of the first weights."""
    return {"tokenizer": phases.once("train", take_tokenizer, {"tokenizer": places.tokenizer})}
