"""`tokenizer`: SentencePiece, trained on a sample that follows the mixture."""

from flows.context import RunContext
from flows.recipe import Recipe
from flows.stages.corpus import Corpus, CorpusPlaces
from tasks.documents.sampling import Heldout
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.tokens.tokenizer import Tokenizer
from tasks.tokens.tokenizer_work import train_tokenizer


class Record(Settings):
    tokenizer: Tokenizer
    weights: dict[str, float]
    seed: int
    heldout: Heldout


def tokenizer(context: RunContext, recipe: Recipe, corpus: Corpus) -> StageResult:
    record = Record(
        tokenizer=recipe.tokenizer,
        weights=dict(sorted(recipe.training_mixture().weights.items())),
        seed=recipe.seed,
        heldout=Heldout(seed=recipe.seed, fraction=recipe.heldout_fraction),
    )
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
        "heldout": record.heldout,
    }
    return {"tokenizer": phases.once("train", train_tokenizer, given)}
