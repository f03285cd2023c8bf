"""`evaluation_removal`: a corpus without the evaluation documents, what is like one of them and what contains one."""

from dataclasses import dataclass

from flows.context import RunContext
from flows.stages.corpus import Corpus, CorpusPlaces
from flows.stages.task_examples import examples_file
from storage import files
from tasks.dedup.near.settings import Shingling
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.evaluation.documents import evaluation_file
from tasks.evaluation.removal import collect_texts, find_shard, found_file, found_folder, remove_shard, texts_file
from tasks.evaluation.similar import THRESHOLD

# Fewest shingles of five words of a document that counts as contained: of a sentence or two the most stand in many
# texts, and a set judges little by them.
LEAST = 25
# Of an example of a task: 13 words, as GPT-3's authors look for (Brown et al. 2020, appendix C).
LEAST_TASK = 9


class Record(Settings):
    """`threshold`: least Jaccard similarity, and least share of a document's shingles in a text that contains it."""

    shingling: Shingling
    threshold: float
    least: int
    least_task: int


@dataclass(frozen=True)
class RemovalPlaces:
    """`extracted`: the parts with the documents as they were extracted, by shard; `evaluation`: the file with the
    evaluation documents; `tasks`: that with the examples of tasks, or empty."""

    corpus: CorpusPlaces
    extracted: tuple[str, ...]
    evaluation: str
    tasks: str

    def forms(self, i: int) -> tuple[str, ...]:
        """The parts that have texts of a shard's documents."""
        return tuple(dict.fromkeys((self.extracted[i], self.corpus.documents[i])))


def without_evaluation(
    context: RunContext,
    extracted: Corpus,
    corpus: Corpus,
    evaluation: StageResult,
    tasks: StageResult | None = None,
) -> Corpus:
    """The corpus without the evaluation documents, by their records, without all whose Jaccard similarity to one of
    them is at least THRESHOLD, and without all that contain such a share of the shingles of one that has LEAST; so
    with the examples of tasks, if there are any. `extracted`: the documents that the corpus began with.

    Exact, not by MinHash: see `tasks.evaluation.similar`.
    """
    record = Record(shingling=Shingling(), threshold=THRESHOLD, least=LEAST, least_task=LEAST_TASK)
    others = [evaluation] if tasks is None else [evaluation, tasks]
    inputs = corpus.inputs(*others) | {"extracted": extracted.documents.key}
    examples = "" if tasks is None else examples_file(tasks.folder)
    places = RemovalPlaces(corpus.places, extracted.places.documents, evaluation_file(evaluation.folder), examples)
    return corpus.then(context.build(StageSpec("evaluation_removal", _remove, record, inputs, places)))


def _remove(phases: PhaseRunner, record: Record, places: RemovalPlaces) -> dict:
    """Remove evaluation documents, what is like them and what contains them."""
    shards = places.corpus.shards()
    own = {"evaluation": places.evaluation}
    found = phases.map(
        "find", find_shard, {i: own | {"extracted": places.extracted[i]} for i in shards}, temporary=True
    )
    having = tuple(found_file(phases.folder, i) for i in shards if found[i]["found"])
    given = {"found": having, "tasks": places.tasks, "least": record.least, "least_task": record.least_task}
    collected = phases.once("collect", collect_texts, own | given)
    against = {
        "texts": texts_file(phases.folder),
        "shingling": record.shingling,
        "threshold": record.threshold,
    }
    jobs = {i: against | {"kept": places.corpus.kept[i], "forms": places.forms(i)} for i in shards}
    phases.map("remove", remove_shard, jobs)
    files.remove(found_folder(phases.folder))
    return collected
