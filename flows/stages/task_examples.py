"""`task_examples`: the texts of tasks, which no recipe that is scored on them may train on."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from flows.context import RunContext
from flows.eval_tasks import task_digests, tasks_at
from storage import files, layout, parquet
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from training.evaluation_tasks import read_tasks

FILE = "examples.parquet"
_SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("text", pa.large_string())])


class Record(Settings):
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
    return context.build(StageSpec("task_examples", _collect, Record(), inputs, places, ("training.evaluation_tasks",)))


def _collect(phases: PhaseRunner, record: Record, places: ExamplesPlaces) -> dict:
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
