"""`contained_examples`: which examples of tasks stand in the documents that a recipe trains on.

These do not count where recipes are compared. The documents stay: so tasks may be named after a training is finished,
and tell nothing apart but what they score.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.given_files import task_digests
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.storage import files, parquet, shards
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.evaluation.similar import THRESHOLD, find_contained, index_examples, index_folder
from gristmill.training.evaluate.tasks import read_tasks

FILE = "examples.parquet"
_SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("text", pa.large_string())])
# Shingles of five words: 13 words, as GPT-3's authors look for (Brown et al. 2020, appendix C).
LEAST = 9


class ExamplesRecord(Settings):
    """Nothing: the files' digests are the stage's inputs."""


@dataclass(frozen=True)
class ExamplesPlaces:
    """`tasks`: the folder, which is on this machine's disk."""

    tasks: str


def task_examples(context: RunContext, folder: Path) -> StageResult:
    """A file with `id` (`<task>:<number of the example>`) and `text`: of each example of a folder's tasks every
    context, as a model is given it, and the right continuation behind its context. Raises as `read_tasks`."""
    inputs = {f"tasks {name}": digest for name, digest in task_digests(context.settings, folder).items()}
    places = ExamplesPlaces(str(folder))
    modules = ("gristmill.training.evaluate.tasks",)
    spec = StageSpec("task_examples", _collect, ExamplesRecord(), inputs, places, version=1, modules=modules)
    return context.build(spec)


def _collect(phases: PhaseRunner, record: ExamplesRecord, places: ExamplesPlaces) -> dict:
    """Collect the texts of tasks."""
    tasks, _ = read_tasks(Path(places.tasks))
    rows = []
    for task in tasks:
        for number, example in enumerate(task.examples):
            context, right = example.pairs[example.answer]
            texts = {one for one, _ in example.pairs} | {f"{context} {right}"}
            rows += [{"id": f"{task.name}:{number}", "text": text} for text in sorted(texts)]
    parquet.write_table(_file(phases.folder), pa.Table.from_pylist(rows, _SCHEMA))
    phases.once("record", shards.record_files, {"names": [FILE]})
    return {"examples": {task.name: len(task.examples) for task in tasks}}


def _file(folder: str) -> str:
    return files.join(folder, FILE)


class Record(Settings):
    """`threshold`: least share of an example's shingles in one document; `least`: fewest that count."""

    shingling: Shingling
    threshold: float
    least: int


@dataclass(frozen=True)
class ContainedPlaces:
    """`examples`: the file with the texts of the examples."""

    corpus: CorpusPlaces
    examples: str


def contained_examples(context: RunContext, corpus: Corpus, examples: StageResult) -> frozenset[str]:
    """The ids of the examples, of which a text stands in a kept document of the corpus: THRESHOLD of its shingles, of
    which it has LEAST. Exact, not by MinHash: see `gristmill.tasks.evaluation.similar`."""
    record = Record(shingling=Shingling(), threshold=THRESHOLD, least=LEAST)
    places = ContainedPlaces(corpus.places, _file(examples.folder))
    made = context.build(StageSpec("contained_examples", _find, record, corpus.inputs(examples), places, version=1))
    return frozenset(made.result["examples"])


def _find(phases: PhaseRunner, record: Record, places: ContainedPlaces) -> dict:
    """Look for the examples of tasks in the documents that are trained on."""
    common = {"examples": places.examples, "shingling": record.shingling}
    phases.once("index", index_examples, common, temporary=True)
    jobs = Each(places.corpus.shards(), places.corpus.shard)
    given = common | {"threshold": record.threshold, "least": record.least}
    found = phases.map("find", find_contained, jobs, common=given)
    files.remove(index_folder(phases.folder))
    return {"examples": sorted({name for part in found.values() for name in part["examples"]})}
