"""The stages of tasks with right answers: their examples, those that a recipe trains on, and a model's losses on them.

`task_examples` are the texts of a folder of tasks. `contained_examples` are the examples that are in the documents that
a recipe trains on. They do not count when recipes are compared. The documents stay, so tasks may be chosen after a
training is finished, and change only what is scored. `task_losses` are a finished model's losses, example by example:
another folder of tasks reads the weights again and trains nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.given_files import task_digests
from gristmill.flows.stages.corpus import Corpus, CorpusAndStage
from gristmill.flows.stages.model import local_files
from gristmill.flows.stages.tokens import library_of, tokenizer_of
from gristmill.storage import files, ledger, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.tokenizer_files import read_tokenizer
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import FinishedInput, StageSpec, Work
from gristmill.tasks.evaluation.similar import THRESHOLD, find_contained, index_examples, index_folder
from gristmill.training.evaluate.tasks import Task, lettered, read_tasks
from gristmill.training.hub.weight_files import CONFIG, WEIGHTS

EXAMPLES, LOSSES = "examples.parquet", "task_losses.parquet"
EXAMPLES_SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("text", pa.large_string())])
LOSSES_SCHEMA = pa.schema(
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
# Shingles of five words: 13 words, as the authors of GPT-3 use (Brown et al. 2020, appendix C).
MIN_SHINGLES = 9


def _digests(context: RunContext, folder: Path) -> dict[str, FinishedInput | str]:
    return {f"tasks {name}": digest for name, digest in task_digests(context.settings, folder).items()}


def task_examples(context: RunContext, folder: Path) -> StageResult:
    """A file with `id` (`<task>:<number of the example>`) and `text`: of each example of a folder's tasks every
    context, as a model is given it, and the right continuation after its context. Raises as `read_tasks`."""
    spec = StageSpec(
        name="task_examples",
        version=1,
        body=_collect,
        record=Settings(),
        inputs=_digests(context, folder),
        places=str(folder),
        work=Work(modules=("gristmill.training.evaluate.tasks",)),
    )
    return context.build(spec)


def _collect(phases: PhaseRunner, record: Settings, places: str) -> dict:
    """Collect the texts of tasks."""
    tasks, _ = read_tasks(Path(places))
    rows = []
    for task in tasks:
        for number, example in enumerate(task.examples):
            context, right = example.pairs[example.answer]
            texts = {one for one, _ in example.pairs} | {f"{context} {right}"}
            rows += [{"id": f"{task.name}:{number}", "text": text} for text in sorted(texts)]
    parquet.write_table(files.join(phases.folder, EXAMPLES), pa.Table.from_pylist(rows, EXAMPLES_SCHEMA))
    phases.once("record", ledger.record_files, {"names": [EXAMPLES]})
    return {"examples": {task.name: len(task.examples) for task in tasks}}


class ContainedSearch(Settings):
    """`threshold`: least share of an example's shingles in one document; `least`: fewest that count."""

    shingling: Shingling
    threshold: float
    least: int


def contained_examples(context: RunContext, corpus: Corpus, examples: StageResult) -> StageResult:
    """The result's `examples` are the ids of the examples that have a text in a kept document of the corpus: THRESHOLD
    of its shingles, of which it has MIN_SHINGLES. Exact, not by MinHash: see `gristmill.tasks.evaluation.similar`."""
    spec = StageSpec(
        name="contained_examples",
        version=1,
        body=_find,
        record=ContainedSearch(shingling=Shingling(), threshold=THRESHOLD, least=MIN_SHINGLES),
        inputs=corpus.inputs(examples),
        places=CorpusAndStage(corpus.places, examples.folder),
    )
    return context.build(spec)


def _find(phases: PhaseRunner, record: ContainedSearch, places: CorpusAndStage) -> dict:
    """Find examples of tasks in the training documents."""
    common = {"examples": files.join(places.stage, EXAMPLES), "shingling": record.shingling}
    phases.once("index", index_examples, common, temporary=True)
    jobs = Each(places.corpus.shards(), places.corpus.shard)
    arguments = common | {"threshold": record.threshold, "least": record.least}
    contained = phases.map("find", find_contained, jobs, common=arguments)
    files.remove(index_folder(phases.folder))
    return {"examples": sorted({name for part in contained.values() for name in part["examples"]})}


@dataclass(frozen=True)
class TaskLossesPlaces:
    """`model`: a local folder with weights and their config; `tasks`: a folder on this machine's disk."""

    model: str
    tokenizer: RecordedFile
    tasks: str


def both_ways(folder: Path) -> list[Task]:
    """The tasks of a folder by name, and those with choices a second time with letters as answers. Raises as
    `read_tasks`."""
    return [each for task in read_tasks(folder)[0] for each in (task, lettered(task)) if each is not None]


def task_losses(context: RunContext, folder: Path, model: StageResult, tokenizer: StageResult) -> StageResult:
    """A model's losses on the tasks of a folder. `model`: a stage with weights and their config."""

    def places() -> TaskLossesPlaces:
        local = local_files(context.settings, model, (CONFIG, WEIGHTS))
        return TaskLossesPlaces(str(local), tokenizer_of(tokenizer), str(folder))

    spec = StageSpec(
        name="task_losses",
        version=1,
        body=_score,
        record=Settings(),
        inputs=_digests(context, folder) | {model.name: model, "tokenizer": tokenizer},
        places=places,
        work=Work(
            modules=("gristmill.training.evaluate.task_scores", "gristmill.training.hub.weights"),
            libraries=("torch", library_of(tokenizer)),
        ),
    )
    return context.build(spec)


def _score(phases: PhaseRunner, record: Settings, places: TaskLossesPlaces) -> dict:
    """Score a trained model on tasks."""
    # here, since torch takes seconds to import, and checking a recipe does not need it
    import torch

    from gristmill.training.evaluate.task_scores import example_scores
    from gristmill.training.hub.weights import load_model
    from gristmill.training.world import processes

    tasks = both_ways(Path(places.tasks))
    tokenizer = read_tokenizer(places.tokenizer.read(), places.tokenizer.path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on every machine: a second one changes rounding
    try:
        with processes(timeout_seconds=600) as world:
            model = load_model(Path(places.model)).to(world.device)
            scored = example_scores(model, tasks, tokenizer, world, lambda done, total: phases.check())
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
            schema=LOSSES_SCHEMA,
        )
        for task, scores in zip(tasks, scored, strict=True)
    ]
    parquet.write_table(files.join(phases.folder, LOSSES), pa.concat_tables(rows))
    phases.once("record", ledger.record_files, {"names": [LOSSES]})
    return {"examples": {task.name: len(task.examples) for task in tasks}}


def read_losses(losses: StageResult) -> pa.Table:
    """The table of a stage `task_losses`: LOSSES_SCHEMA, in the order of `both_ways`."""
    return parquet.read_table(files.join(losses.folder, LOSSES))
