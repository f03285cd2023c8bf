"""What recipes are judged by, as tokens, and taken out of what they train on.

`evaluation_tokens` are the evaluation documents as token shards, one for each set. `evaluation_removal` is a corpus
without these documents, without what is like one of them and without what contains one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.flows.machine.context import RunContext
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.flows.stages.tokenizer import library_of, tokenizer_of
from gristmill.storage import files
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.evaluation.documents import encode_set, evaluation_file
from gristmill.tasks.evaluation.removal import (
    collect_texts,
    find_shard,
    found_folder,
    given_folder,
    index_texts,
    remove_shard,
)
from gristmill.tasks.evaluation.similar import THRESHOLD

# Fewest shingles of five words of a document that counts as contained: of a sentence or two the most stand in many
# texts, and a set judges little by them.
LEAST = 25


class Record(Settings):
    """`threshold`: least Jaccard similarity, and least share of a document's shingles in a text that contains it."""

    shingling: Shingling
    threshold: float
    least: int


@dataclass(frozen=True)
class RemovalPlaces:
    """`extracted`: the parts with the documents as they were extracted, by shard; `evaluation`: the file with the
    evaluation documents."""

    corpus: CorpusPlaces
    extracted: Sequence[str]
    evaluation: str

    def forms(self, i: int) -> tuple[str, ...]:
        """The parts that have texts of a shard's documents."""
        return tuple(dict.fromkeys((self.extracted[i], self.corpus.documents[i])))


def without_evaluation(context: RunContext, extracted: Corpus, corpus: Corpus, evaluation: StageResult) -> Corpus:
    """The corpus without the evaluation documents, by their records, without all whose Jaccard similarity to one of
    them is at least THRESHOLD, and without all that contain such a share of the shingles of one that has LEAST.
    `extracted`: the documents that the corpus began with.

    Exact, not by MinHash: see `gristmill.tasks.evaluation.similar`.
    """
    record = Record(shingling=Shingling(), threshold=THRESHOLD, least=LEAST)
    inputs = corpus.inputs(evaluation) | {"extracted": extracted.documents}
    places = RemovalPlaces(corpus.places, extracted.places.documents, evaluation_file(evaluation.folder))
    return corpus.then(context.build(StageSpec("evaluation_removal", _remove, record, inputs, places, version=1)))


def _remove(phases: PhaseRunner, record: Record, places: RemovalPlaces) -> dict:
    """Remove evaluation documents, what is like them and what contains them."""
    shards = places.corpus.shards()
    own = {"evaluation": places.evaluation}
    extracted = Each(shards, lambda i: {"extracted": places.extracted[i]})
    phases.map("find", find_shard, extracted, temporary=True, common=own)
    collected = phases.once("collect", collect_texts, own)
    phases.once("index", index_texts, {"shingling": record.shingling}, temporary=True)
    against = {"shingling": record.shingling, "threshold": record.threshold, "least": record.least}
    jobs = Each(shards, lambda i: {"kept": places.corpus.kept[i], "forms": places.forms(i)})
    phases.map("remove", remove_shard, jobs, common=against)
    files.remove(found_folder(phases.folder))
    files.remove(given_folder(phases.folder))
    return collected


class TokensRecord(Settings):
    sets: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationTokensPlaces:
    """`evaluation`: by set the file with its documents."""

    evaluation: tuple[str, ...]
    tokenizer: RecordedFile


def evaluation_tokens(context: RunContext, evaluation: tuple[StageResult, ...], tokenizer: StageResult) -> StageResult:
    """Shard n has the documents of the n-th set, by name, in their order. `evaluation`: stages with other sets each."""
    sets = {name: stage for stage in evaluation for name in stage.result["sets"]}
    record = TokensRecord(sets=tuple(sorted(sets)))
    inputs = {stage.name: stage for stage in evaluation} | {"tokenizer": tokenizer}

    def places() -> EvaluationTokensPlaces:
        read = tuple(evaluation_file(sets[name].folder) for name in record.sets)
        return EvaluationTokensPlaces(read, tokenizer_of(tokenizer))

    libraries = ("gigatoken", library_of(tokenizer))  # whose ids are stored
    spec = StageSpec(
        "evaluation_tokens", _encode, record, inputs, places, version=1, libraries=libraries, unicode=False
    )
    return context.build(spec)


def _encode(phases: PhaseRunner, record: TokensRecord, places: EvaluationTokensPlaces) -> dict:
    """Encode the evaluation documents."""
    read = enumerate(zip(record.sets, places.evaluation, strict=True))
    jobs = {n: {"name": name, "evaluation": file, "tokenizer": places.tokenizer} for n, (name, file) in read}
    encoded = phases.map("encode", encode_set, jobs, grows="constant")
    return {"tokens": {record["set"]: record["heldout"]["tokens"] for record in encoded.values()}}
