"""`task_losses`: what a finished model makes of tasks, example by example.

Apart from training: another folder of tasks reads the weights again, and trains nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.given_files import task_digests
from gristmill.flows.stages.model import local_files
from gristmill.flows.stages.tokenizer import library_of, tokenizer_of
from gristmill.storage import files, parquet, shards
from gristmill.storage.damage import RecordedFile
from gristmill.storage.tokens.text_tokens import read_tokenizer
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import FinishedInput, StageSpec
from gristmill.training.evaluate.tasks import Task, lettered, read_tasks
from gristmill.training.hub.weight_files import CONFIG, WEIGHTS

FILE = "task_losses.parquet"
SCHEMA = pa.schema(
    [
        pa.field("task", pa.string(), nullable=False),
        pa.field("example", pa.int64(), nullable=False),  # counted from 0 within its task
        pa.field("bits", pa.float64(), nullable=False),  # of the right answer
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("hit", pa.bool_(), nullable=False),
        pa.field("hit_bytes", pa.bool_(), nullable=False),  # by the log-likelihood a byte, as acc_bytes
        pa.field("chance", pa.float64(), nullable=False),
    ]
)
_WORK = ("gristmill.training.evaluate.task_scores", "gristmill.training.hub.weights")


class Record(Settings):
    """Nothing: the model and the digests of the files of tasks are the stage's inputs."""


@dataclass(frozen=True)
class TaskPlaces:
    """`model`: a local folder with weights and their config; `tasks`: a folder on this machine's disk."""

    model: str
    tokenizer: RecordedFile
    tasks: str


def both_ways(folder: Path) -> list[Task]:
    """The tasks of a folder by name, and those with choices once more with letters as answers. Raises as
    `read_tasks`."""
    return [each for task in read_tasks(folder)[0] for each in (task, lettered(task)) if each is not None]


def task_losses(context: RunContext, folder: Path, model: StageResult, tokenizer: StageResult) -> pa.Table:
    """SCHEMA, in the order of `both_ways`. `model`: a stage with weights and their config."""
    inputs: dict[str, FinishedInput | str] = {}
    inputs |= {f"tasks {name}": digest for name, digest in task_digests(context.settings, folder).items()}
    inputs |= {model.name: model, "tokenizer": tokenizer}

    def places() -> TaskPlaces:
        return TaskPlaces(
            str(local_files(context.settings, model, (CONFIG, WEIGHTS))), tokenizer_of(tokenizer), str(folder)
        )

    libraries = ("torch", library_of(tokenizer))
    spec = StageSpec("task_losses", _score, Record(), inputs, places, version=1, modules=_WORK, libraries=libraries)
    made = context.build(spec)
    return parquet.read_table(files.join(made.folder, FILE))


def _score(phases: PhaseRunner, record: Record, places: TaskPlaces) -> dict:
    """Score a trained model on tasks."""
    # here, since a check of a recipe does without torch, which takes seconds
    import torch

    from gristmill.training.evaluate.task_scores import example_scores
    from gristmill.training.hub.weights import load_model
    from gristmill.training.model.parallel import processes

    tasks = both_ways(Path(places.tasks))
    tokenizer = read_tokenizer(places.tokenizer.read(), places.tokenizer.path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on every machine: a second one changes rounding
    try:
        with processes(timeout_seconds=600) as world:
            model = load_model(Path(places.model)).to(world.device)
            found = example_scores(model, tasks, tokenizer, world, lambda done, total: phases.check())
    finally:
        torch.set_num_threads(threads)
    rows = [
        pa.table(
            [
                [task.name] * len(task.examples),
                range(len(task.examples)),
                scores.bits,
                scores.sizes,
                scores.hits,
                scores.hits_bytes,
                scores.chances,
            ],
            schema=SCHEMA,
        )
        for task, scores in zip(tasks, found, strict=True)
    ]
    parquet.write_table(files.join(phases.folder, FILE), pa.concat_tables(rows))
    phases.once("record", shards.record_files, {"names": [FILE]})
    return {"examples": {task.name: len(task.examples) for task in tasks}}
