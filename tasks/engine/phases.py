"""What a stage's body works with: the stage's folder, and `map` for the jobs of a phase."""

from collections.abc import Callable, Container, Mapping
from typing import Any, Protocol

from gristmill.storage.layout import Part
from gristmill.tasks.engine.executors import Executor
from gristmill.tasks.engine.jobs import Code, Job, JobResult, run_job


class Progress(Protocol):
    """Shows how far a stage is. All is called in the thread that makes the stage."""

    def start(self) -> None:
        """The stage is made now: no other process makes it."""

    def phase(self, phase: str, total: int, size: Callable[[int], int] | None = None, bytes: int = 0) -> None:
        """A phase of so many jobs begins. `size`: bytes that a job reads, by its number, if they are known, and `bytes`
        those of all jobs."""

    def advance(self, result: JobResult, number: int) -> None: ...

    def drain(self) -> None:
        """Take up what workers have logged, and told of the jobs that they are at."""

    def message(self, line: str) -> None: ...


class Silent:
    """Progress that nobody looks at."""

    def start(self) -> None: ...

    def phase(self, phase: str, total: int, size: Callable[[int], int] | None = None, bytes: int = 0) -> None: ...

    def advance(self, result: JobResult, number: int) -> None: ...

    def drain(self) -> None: ...

    def message(self, line: str) -> None: ...


class PhaseRunner:
    """`parts`: what the jobs have written and counted so far, but for those of temporary phases; `cpu_seconds`: what
    all jobs took, also those that an earlier run of the stage did. `check` raises when the stage must not be made any
    longer; a body that waits for something calls it now and then."""

    def __init__(
        self, folder: str, code: Code, executor: Executor, progress: Progress, check: Callable[[], None]
    ) -> None:
        self.folder = folder
        self.parts: list[Part] = []
        self.cpu_seconds = 0.0
        self._code = code
        self._phases: set[str] = set()
        self._executor = executor
        self._progress = progress
        self.check = check

    def map(
        self,
        phase: str,
        work: Callable[..., dict[str, Any]],
        jobs: Mapping[int, Mapping[str, Any]],
        temporary: bool = False,
        size: Callable[[int], int] | None = None,
    ) -> dict[int, dict[str, Any]]:
        """Run `work(folder, number, **jobs[number])` for every job not yet done; returns the records by number.

        `size`: bytes that a job reads, by its number, for the progress. `temporary`: the body removes the files of the
        phase before it ends, so they are no part of the stage.
        """
        if phase in self._phases:
            raise ValueError(f"the stage has two phases that are called {phase}: done jobs are known by that name")
        self._phases.add(phase)
        numbers = sorted(jobs)
        todo = [Job(work, self._code, self.folder, phase, number, dict(jobs[number])) for number in numbers]
        results: dict[int, JobResult] = {}
        self._progress.phase(phase, len(todo), size, sum(map(size, numbers)) if size else 0)
        for index, result in self._executor.map(run_job, todo):
            self.check()
            results[numbers[index]] = result
            self.cpu_seconds += result.cpu_seconds
            self._progress.advance(result, numbers[index])
        self._progress.drain()
        if not temporary:
            self.parts += [Part(phase, number, results[number].record, results[number].files) for number in numbers]
        return {number: results[number].record for number in numbers}

    def forget(self, phase: str, numbers: Container[int]) -> None:
        """These jobs of a phase are no part of the stage: those of another phase write the files that they wrote."""
        self.parts = [part for part in self.parts if part.phase != phase or part.number not in numbers]

    def once(
        self, phase: str, work: Callable[..., dict[str, Any]], arguments: Mapping[str, Any], temporary: bool = False
    ) -> dict[str, Any]:
        """A phase that is one job."""
        return self.map(phase, work, {0: arguments}, temporary)[0]

    def message(self, line: str) -> None:
        """A line for the run's log."""
        self.check()
        self._progress.message(line)
