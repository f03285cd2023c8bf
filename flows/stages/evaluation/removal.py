"""What recipes are judged by, as tokens, and taken out of what they train on.

`task_examples` are the texts of tasks, which no recipe that is scored on them may train on. `evaluation_tokens` are the
evaluation documents as token shards, one for each set. `evaluation_removal` is a corpus without these documents,
without what is like one of them and without what contains one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.given_files import task_digests, tasks_at
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.flows.stages.tokenizer import library_of, tokenizer_of
from gristmill.storage import files, layout, parquet
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
from gristmill.training.evaluate.tasks import read_tasks

FILE = "examples.parquet"
_SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("text", pa.large_string())])


class ExamplesRecord(Settings):
    """Nothing: the files' digests are the stage's inputs."""


@dataclass(frozen=True)
class ExamplesPlaces:
    """`tasks`: the folder, which is on this machine's disk."""

    tasks: str


def examples_file(folder: str) -> str:
    return files.join(folder, FILE)


def task_examples(context: RunContext, tasks: str) -> StageResult:
    """A file with `id` (`<task>:<number of the example>`) and `text`: of each example every context, as a model is
    given it, and the right continuation behind its context. Raises as `tasks_at` and `read_tasks`."""
    folder = tasks_at(context.settings, tasks, "tasks")
    inputs = {f"eval_tasks {name}": digest for name, digest in task_digests(context.settings, folder).items()}
    places = ExamplesPlaces(str(folder))
    return context.build(
        StageSpec("task_examples", _collect, ExamplesRecord(), inputs, places, ("gristmill.training.evaluate.tasks",))
    )


def _collect(phases: PhaseRunner, record: ExamplesRecord, places: ExamplesPlaces) -> dict:
    """Collect the texts of tasks."""
    tasks, _ = read_tasks(Path(places.tasks))
    rows = []
    for task in tasks:
        for number, example in enumerate(task.examples):
            context, right = example.pairs[example.answer]
            texts = {one for one, _ in example.pairs} | {f"{context} {right}"}
            rows += [{"id": f"{task.name}:{number}", "text": text} for text in sorted(texts)]
    parquet.write_table(examples_file(phases.folder), pa.Table.from_pylist(rows, _SCHEMA))
    phases.once("record", layout.record_files, {"names": [FILE]})
    return {"examples": {task.name: len(task.examples) for task in tasks}}


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
    extracted: Sequence[str]
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

    Exact, not by MinHash: see `gristmill.tasks.evaluation.similar`.
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
    extracted = Each(shards, lambda i: {"extracted": places.extracted[i]})
    phases.map("find", find_shard, extracted, temporary=True, common=own)
    given = {"tasks": places.tasks, "least": record.least, "least_task": record.least_task}
    collected = phases.once("collect", collect_texts, own | given)
    phases.once("index", index_texts, {"shingling": record.shingling}, temporary=True)
    against = {"shingling": record.shingling, "threshold": record.threshold}
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
    inputs = {stage.name: stage.key for stage in evaluation} | {"tokenizer": tokenizer.key}

    def places() -> EvaluationTokensPlaces:
        read = tuple(evaluation_file(sets[name].folder) for name in record.sets)
        return EvaluationTokensPlaces(read, tokenizer_of(tokenizer))

    spec = StageSpec(
        "evaluation_tokens", _encode, record, inputs, places, libraries=("gigatoken", library_of(tokenizer))
    )
    return context.build(spec)


def _encode(phases: PhaseRunner, record: TokensRecord, places: EvaluationTokensPlaces) -> dict:
    """Encode the evaluation documents."""
    read = enumerate(zip(record.sets, places.evaluation, strict=True))
    jobs = {n: {"name": name, "evaluation": file, "tokenizer": places.tokenizer} for n, (name, file) in read}
    encoded = phases.map("encode", encode_set, jobs, grows="constant")
    return {"tokens": {record["set"]: record["heldout"]["tokens"] for record in encoded.values()}}
