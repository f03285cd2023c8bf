"""Tasks of a decision: what finished runs make of them, and the sets that `--judge` may name.

A set `task:<name>` has the right answers of a task's examples as documents. Examples that stand in what one of the
recipes trains on do not count, in any run: so all runs are scored on the same, and none on what it may have read.
"""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from gristmill.flows.experiments.decisions.arm_data import ComparisonData
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.given_files import task_digests, tasks_at
from gristmill.flows.stages.evaluation.judge import TASK
from gristmill.flows.stages.evaluation.tasks import (
    both_ways,
    contained_examples,
    read_losses,
    task_examples,
    task_losses,
)
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import digest
from gristmill.training.evaluate.tasks import LETTERS, PREFIX, write_lm_eval_tasks


def tasks_folder(settings: MachineSettings, given: str) -> Path:
    """The folder of tasks that `--tasks` names: itself, or one written from tasks of lm-eval (`lm-eval:NAME,NAME`).
    Raises as `tasks_at` and `write_lm_eval_tasks`."""
    if not given.startswith(PREFIX):
        return tasks_at(settings, given, "tasks")
    names = sorted({name.strip() for name in given.removeprefix(PREFIX).split(",")})
    return write_lm_eval_tasks(names, Path(settings.local_folder) / "lm-eval-tasks" / "-".join(names))


def task_sets(folder: Path | None) -> dict[str, int]:
    """The examples of each set that a folder of tasks gives, by the set's name."""
    return {TASK + task.name: len(task.examples) for task in both_ways(folder)} if folder else {}


class DecisionTasks:
    """The tasks in a folder, for runs on these data. Raises as `read_tasks`."""

    def __init__(self, context: RunContext, folder: Path, data: ComparisonData) -> None:
        self._context, self._folder, self._data = context, folder, data
        self._tasks = both_ways(folder)

    @cached_property
    def contained(self) -> frozenset[str]:
        """`<task>:<number>` of the examples that stand in what one of the recipes trains on."""
        examples = task_examples(self._context, self._folder)
        stages = [contained_examples(self._context, arm.corpus, examples) for arm in self._data.arms.values()]
        return frozenset(name for stage in stages for name in stage.result["examples"])

    @cached_property
    def counted(self) -> np.ndarray:
        """bool (examples,): those that count, of all tasks in their order; none of a task that has fewer than two."""
        counted = []
        for task in self._tasks:
            name = task.name.removesuffix(LETTERS)
            mask = np.array([f"{name}:{number}" not in self.contained for number in range(len(task.examples))])
            counted.append(mask & (mask.sum() >= 2))
        return np.concatenate(counted)

    @cached_property
    def left_out(self) -> dict[str, int]:
        """How many examples of each task do not count, by the name of the task; letters are no task of their own."""
        found: dict[str, int] = {}
        for name, counts in zip(self._names, self.counted, strict=True):
            if not name.endswith(LETTERS):
                found[name] = found.get(name, 0) + int(not counts)
        return found

    @cached_property
    def _names(self) -> list[str]:
        return [task.name for task in self._tasks for _ in task.examples]

    @property
    def sets(self) -> tuple[str, ...]:
        """The names of the sets, in the order of `set_of`."""
        return tuple(dict.fromkeys(TASK + name for name in self._of_counted(self._names)))

    @property
    def set_of(self) -> np.ndarray:
        """The set of each example that counts, int64 (examples,)."""
        numbers = {name: number for number, name in enumerate(self.sets)}
        return np.array([numbers[TASK + name] for name in self._of_counted(self._names)], np.int64)

    @property
    def sizes(self) -> np.ndarray:
        """UTF-8 bytes of the right answer of each example that counts, int64 (examples,)."""
        examples = [example for task in self._tasks for example in task.examples]
        sizes = [len(example.pairs[example.answer][1].encode()) for example in examples]
        return np.array(sizes, np.int64)[self.counted]

    def _of_counted(self, values: Iterable[str]) -> list[str]:
        return [value for value, counts in zip(values, self.counted, strict=True) if counts]

    def scored(self, model: StageResult) -> pa.Table:
        """What a finished run makes of the examples that count, in their order: the columns of `task_losses`."""
        losses = task_losses(self._context, self._folder, model, self._data.tokenizer)
        return read_losses(losses).filter(pa.array(self.counted))

    @property
    def digest(self) -> str:
        """Of all that decides which examples count, and what they are."""
        return digest(
            task_digests(self._context.settings, self._folder) | {"contained": digest(sorted(self.contained))}
        )
