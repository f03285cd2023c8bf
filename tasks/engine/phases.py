"""The phases of a stage: its body gets the stage's folder, and `map` for the jobs of a phase."""

import time
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Protocol

from gristmill.storage import layout
from gristmill.storage.layout import Part, Parts
from gristmill.tasks.engine.executors import Executor
from gristmill.tasks.engine.job_costs import Grows, PhaseCost
from gristmill.tasks.engine.jobs import Code, Job, JobResult, Phase, done_jobs, run_job
from gristmill.tasks.engine.lease import PhaseProgress


class Progress(Protocol):
    """Shows the progress of a stage. All methods are called in the thread that makes it."""

    def start(self) -> None:
        """The stage is being made by this process."""

    def phase(self, phase: str, total: int, size: Callable[[int], int] | None = None, bytes: int = 0) -> None:
        """A phase with `total` jobs begins. `size`: bytes that a job reads, by its number, if known; `bytes`: of all
        jobs."""

    def advance(self, result: JobResult, number: int) -> None: ...

    def drain(self) -> None:
        """Handle the log lines of workers and the progress of their jobs."""

    def message(self, line: str) -> None: ...


class Silent:
    """Progress that is not shown."""

    def start(self) -> None: ...

    def phase(self, phase: str, total: int, size: Callable[[int], int] | None = None, bytes: int = 0) -> None: ...

    def advance(self, result: JobResult, number: int) -> None: ...

    def drain(self) -> None: ...

    def message(self, line: str) -> None: ...


class Each(Mapping[int, Mapping[str, Any]]):
    """Arguments of jobs by number, created when a job is sent: `make(number)` for each of the ascending `numbers`."""

    def __init__(self, numbers: Sequence[int], make: Callable[[int], Mapping[str, Any]]) -> None:
        self._numbers, self._make = numbers, make

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __getitem__(self, number: int) -> Mapping[str, Any]:
        return self._make(number)


class Records(Mapping[int, dict[str, Any]]):
    """Records of jobs by number. They are held as lines of JSON and parsed when read."""

    def __init__(self, numbers: Sequence[int], parts: Parts) -> None:
        self._numbers, self._parts = numbers, parts

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __getitem__(self, number: int) -> dict[str, Any]:
        index = bisect_left(self._numbers, number)
        if index == len(self._numbers) or self._numbers[index] != number:
            raise KeyError(number)
        return self._parts[index].record


class _Jobs:
    """Jobs by number, created when they are sent. The executor reads their number."""

    def __init__(self, numbers: Sequence[int], arguments: Mapping[int, Mapping[str, Any]]) -> None:
        self._numbers, self._arguments = numbers, arguments

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Job]:
        return (Job(number, self._arguments[number]) for number in self._numbers)


# Marks of finished jobs that one job reads: a few requests for each of its threads.
_MARKS = 128


class PhaseRunner:
    """`parts`: what the jobs have written and counted so far, but for those of temporary phases; `costs`: what the jobs
    of each phase took, also those that an earlier run of the stage did. `check` raises when the stage must not be made
    any longer; a body that waits for something calls it now and then. `note` is called with the progress of a phase.

    Held: of each job a line of JSON with its record and its files. Jobs that an earlier run has done are known by one
    listing, and are not done again; jobs read their marks, many each.
    """

    def __init__(
        self,
        folder: str,
        code: Code,
        executor: Executor,
        progress: Progress,
        check: Callable[[], None],
        note: Callable[[PhaseProgress], None] = lambda progress: None,
    ) -> None:
        self.folder = folder
        self.parts = Parts()
        self.costs: dict[str, PhaseCost] = {}
        self._code = code
        self._executor = executor
        self._progress = progress
        self.check = check
        self._note = note

    @cached_property
    def _done_numbers(self) -> dict[str, set[int]]:
        return layout.done_numbers(self.folder)

    def map(
        self,
        phase: str,
        work: Callable[..., dict[str, Any]],
        jobs: Mapping[int, Mapping[str, Any]],
        temporary: bool = False,
        common: Mapping[str, Any] | None = None,
        size: Callable[[int], int] | None = None,
        grows: Grows = "documents",
        shared: float = 1.0,
    ) -> Records:
        """Run `work(folder, number, **common, **jobs[number])` for every unfinished job, and return the records.

        `common`: arguments of all jobs, which are sent to a worker once. `size`: bytes that a job reads, by its number,
        for the progress. `temporary`: the body removes the files of the phase before it ends, so they are not part of
        the stage. `grows`: how the work of all jobs together grows. `shared`: every job also reads something that grows
        with the corpus up to a limit, such as held-out texts; the factor by which the corpus must grow to reach the
        limit.
        """
        if phase in self.costs:
            raise ValueError(f"the stage has two phases named {phase}, but finished jobs are recorded by phase name")
        cost = self.costs[phase] = PhaseCost(grows, shared=max(1.0, shared))
        numbers = sorted(jobs)
        together = Phase(work, self._code, self.folder, phase, common or {}, temporary)
        lines: dict[int, bytes] = {}
        whole = sum(map(size, numbers)) if size else 0
        sofar = PhaseProgress(phase, len(numbers), 0, 0, whole, 0, 0, time.time())
        self._note(sofar)

        def take(number: int, result: JobResult) -> None:
            nonlocal sofar
            read = size(number) if size else 0
            sofar = replace(
                sofar,
                done=sofar.done + 1,
                found=sofar.found + result.found,
                read=sofar.read + read,
                found_read=sofar.found_read + read * result.found,
            )
            self._note(sofar)
            lines[number] = Part(phase, number, result.record, result.files).line()
            left = 0 if temporary else sum(facts["bytes"] for facts in result.files.values())
            cost.add(result.cost, left, result.record.get("rows_in"))
            self._progress.advance(result, number)

        self._progress.phase(phase, len(numbers), size, whole)
        done_numbers = self._done_numbers.get(phase, set())
        done = [number for number in numbers if number in done_numbers]
        marks = [done[start : start + _MARKS] for start in range(0, len(done), _MARKS)]
        for index, results in self._executor.map(partial(done_jobs, together), marks) if marks else ():
            self.check()
            for number, result in zip(marks[index], results, strict=True):
                if result is not None:
                    take(number, result)
        todo = [number for number in numbers if number not in lines]
        for index, result in self._executor.map(partial(run_job, together), _Jobs(todo, jobs)):
            self.check()
            take(todo[index], result)
        self._progress.drain()
        parts = Parts(lines[number] for number in numbers)
        if not temporary:
            self.parts.lines += parts.lines
        return Records(numbers, parts)

    def forget(self, phase: str, numbers: Container[int]) -> None:
        """Exclude jobs of a phase from the stage, because jobs of another phase write the same files."""
        self.parts = Parts(part.line() for part in self.parts if part.phase != phase or part.number not in numbers)

    def once(
        self,
        phase: str,
        work: Callable[..., dict[str, Any]],
        arguments: Mapping[str, Any],
        temporary: bool = False,
        grows: Grows = "constant",
        full: float = 1.0,
    ) -> dict[str, Any]:
        """Run a phase with one job, whose time and memory do not grow with the corpus unless `grows` is set. `full`:
        for a job on a sample, the factor by which the corpus must grow to fill the sample; the job grows up to that."""
        result = self.map(phase, work, {0: arguments}, temporary=temporary, grows=grows)[0]
        self.costs[phase].once, self.costs[phase].full = True, max(1.0, full)
        return result

    def message(self, line: str) -> None:
        """Write a line to the run's log."""
        self.check()
        self._progress.message(line)
