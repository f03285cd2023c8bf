"""The context of all stages of a run: the machine's settings, and how stages are found or made."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from gristmill.flows.machine.settings import MachineSettings
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine import executors
from gristmill.tasks.engine.executors import Deferred, deferred
from gristmill.tasks.engine.make import StageResult, find
from gristmill.tasks.engine.options import JobOptions
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.engine.stage_jobs import StageJobs

# Declares a stage for the slot that it is made in, a number from 0 to the number of stages made at once minus 1. Its
# places may depend on the slot, such as the GPU that it uses, but its key does not.
SlotSpec = Callable[[int], StageSpec]


@dataclass
class RunContext:
    """`build` turns a stage to be made into a finished one; `outputs` holds the outputs of the flows of this run, by
    recipe, so that a later flow need not ask again. `at_once` makes several stages at the same time; without it one
    follows the other. `outside(given, look)`: what `look` says, in JSON's types, of files outside of the home that the
    settings `given` name; a run notes it, and who reads finished work is told what was noted. `look_up` finds a stage
    and makes nothing; default: by its key. `begin`: called with a stage before it is looked up, since a user may have
    asked to make it again. `use`: notes a finished stage that a run of another recipe made, and that this one reads as
    it is. `restore`: makes the files of a stage again, if they were removed. `is_reader`: the context makes nothing,
    and does without outputs that are not finished."""

    settings: MachineSettings
    build: Callable[[StageSpec], StageResult]
    outputs: dict[str, Any] = field(default_factory=dict)
    at_once: Callable[[Sequence[SlotSpec], Callable[[], int], StageJobs | None], list[StageResult]] | None = None
    outside: Callable[[Any, Callable[[], Any]], Any] = lambda given, look: look()
    begin: Callable[[StageSpec], None] = lambda spec: None
    look_up: Callable[[StageSpec], StageResult | None] | None = None
    use: Callable[[StageResult], StageResult] = lambda stage: stage
    restore: Callable[[StageResult], StageResult] = lambda stage: stage
    is_reader: bool = False

    def noting(self, note: Callable[[StageResult], None]) -> "RunContext":
        """The same context, which also calls `note` with each stage that it builds or finds."""

        def build(spec: StageSpec) -> StageResult:
            stage = self.build(spec)
            note(stage)
            return stage

        def look_up(spec: StageSpec) -> StageResult | None:
            stage = self.find(spec)
            if stage is not None:
                note(stage)
            return stage

        def use(stage: StageResult) -> StageResult:
            note(self.use(stage))
            return stage

        return replace(self, build=build, look_up=look_up, use=use)

    def build_all(
        self, specs: Sequence[SlotSpec], most: Callable[[], int], jobs: StageJobs | None = None
    ) -> list[StageResult]:
        """Find or make stages with different keys, and return them in their order. `most`: returns how many to make at
        once, called if one must be made here. `jobs`: how workers of the cluster make them instead. The first error
        stops the others."""
        if self.at_once is None:
            return [self.build(spec(0)) for spec in specs]
        return self.at_once(specs, most, jobs)

    def find(self, spec: StageSpec) -> StageResult | None:
        """Return the stage if it is finished. Makes nothing."""
        return find(self.settings.home, spec) if self.look_up is None else self.look_up(spec)

    def build_output(self, spec: StageSpec) -> StageResult | None:
        """Build a stage that no other stage reads. None for a reader if it is not finished."""
        return self.find(spec) if self.is_reader else self.build(spec)

    def placed(self, settings: Settings) -> Any:
        """A source or a step with the placeholders of its addresses filled in."""
        return self.settings.placed(settings)


def job_options(settings: MachineSettings) -> JobOptions:
    """How jobs run on this machine."""
    return JobOptions(settings.remote_io, settings.memory, int(settings.umask, 8), settings.own_seconds, settings.lm)


def check_executor(settings: MachineSettings) -> None:
    """Raise ValueError for settings with which the executor cannot start, MissingExtraError for a missing package.
    Starts nothing."""
    executors.check(
        settings.executor,
        settings.workers,
        settings.dask_address,
        settings.cluster,
        settings.dask_tls,
        settings.home,
        settings.slurm,
    )


def workers(settings: MachineSettings) -> AbstractContextManager[Deferred]:
    """This machine's executor, started by the first jobs and ended with the block."""
    return deferred(
        settings.executor,
        settings.workers,
        settings.dask_address,
        settings.cluster,
        json_lines=settings.log_format == "json",
        tls=settings.dask_tls,
        home=settings.home,
        slurm=settings.slurm,
    )
