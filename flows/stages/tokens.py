"""`tokens`: every shard of documents as token shards, those held out in files of their own."""

from dataclasses import dataclass

from flows.context import RunContext
from flows.recipe import Recipe
from flows.stages.corpus import Corpus, CorpusPlaces
from flows.stages.tokenizer import library_of, tokenizer_of
from storage.recorded_file import RecordedFile
from tasks.documents.sampling import Heldout
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.tokens.encode import SPLITS, encode_shard


class Record(Settings):
    heldout: Heldout


@dataclass(frozen=True)
class TokensPlaces:
    corpus: CorpusPlaces
    tokenizer: RecordedFile


def tokens(context: RunContext, recipe: Recipe, corpus: Corpus, tokenizer: StageResult) -> StageResult:
    return encoded(context, corpus, tokenizer, Heldout(seed=recipe.seed, fraction=recipe.heldout_fraction))


def encoded(context: RunContext, corpus: Corpus, tokenizer: StageResult, heldout: Heldout) -> StageResult:
    record = Record(heldout=heldout)
    inputs = corpus.inputs() | {"tokenizer": tokenizer.key}

    def places() -> TokensPlaces:
        return TokensPlaces(corpus.places, tokenizer_of(tokenizer))

    return context.build(
        StageSpec("tokens", _encode, record, inputs, places, libraries=("gigatoken", library_of(tokenizer)))
    )


def _encode(phases: PhaseRunner, record: Record, places: TokensPlaces) -> dict:
    """Encode every shard of documents."""
    given = {"tokenizer": places.tokenizer, "heldout": record.heldout}
    jobs = {i: places.corpus.shard(i) | given for i in places.corpus.shards()}
    records = phases.map("encode", encode_shard, jobs).values()
    return {split: sum(counts[split]["tokens"] for counts in records) for split in SPLITS}
