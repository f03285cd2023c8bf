"""`evaluation_removal`: a corpus without the evaluation documents, and without what is like one of them."""

from dataclasses import dataclass

from flows.context import RunContext
from flows.stages.corpus import Corpus, CorpusPlaces
from storage import files
from tasks.dedup.near.settings import Shingling
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.evaluation.documents import evaluation_file
from tasks.evaluation.removal import collect_texts, find_shard, found_file, found_folder, remove_shard, texts_file

THRESHOLD = 0.8  # least Jaccard similarity of what goes with an evaluation document: that of the step `minhash`


class Record(Settings):
    shingling: Shingling
    threshold: float


@dataclass(frozen=True)
class RemovalPlaces:
    """`extracted`: the parts with the documents as they were extracted, by shard; `evaluation`: the file with the
    evaluation documents."""

    corpus: CorpusPlaces
    extracted: tuple[str, ...]
    evaluation: str

    def forms(self, i: int) -> tuple[str, ...]:
        """The parts that have texts of a shard's documents."""
        return tuple(dict.fromkeys((self.extracted[i], self.corpus.documents[i])))


def without_evaluation(context: RunContext, extracted: Corpus, corpus: Corpus, evaluation: StageResult) -> Corpus:
    """The corpus without the evaluation documents, by their records, and without all whose Jaccard similarity to one of
    them is at least .8. `extracted`: the documents that the corpus began with.

    Exact, not by MinHash: see `tasks.evaluation.similar`.
    """
    record = Record(shingling=Shingling(), threshold=THRESHOLD)
    inputs = corpus.inputs(evaluation) | {"extracted": extracted.documents.key}
    places = RemovalPlaces(corpus.places, extracted.places.documents, evaluation_file(evaluation.folder))
    return corpus.then(context.build(StageSpec("evaluation_removal", _remove, record, inputs, places)))


def _remove(phases: PhaseRunner, record: Record, places: RemovalPlaces) -> dict:
    """Remove evaluation documents and what is like them."""
    shards = places.corpus.shards()
    own = {"evaluation": places.evaluation}
    found = phases.map(
        "find", find_shard, {i: own | {"extracted": places.extracted[i]} for i in shards}, temporary=True
    )
    having = tuple(found_file(phases.folder, i) for i in shards if found[i]["found"])
    collected = phases.once("collect", collect_texts, own | {"found": having})
    given = {
        "texts": texts_file(phases.folder),
        "shingling": record.shingling,
        "threshold": record.threshold,
    }
    jobs = {i: given | {"kept": places.corpus.kept[i], "forms": places.forms(i)} for i in shards}
    phases.map("remove", remove_shard, jobs)
    files.remove(found_folder(phases.folder))
    return collected
