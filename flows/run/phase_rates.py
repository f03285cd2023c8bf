"""What the jobs of a phase have done so far, at which rates, and how long the rest will take."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from gristmill.tasks.engine.jobs import JobResult
from gristmill.tasks.engine.log_fields import JobProgress


@dataclass
class PhaseRates:
    """What the jobs of a phase have done. Jobs that were found done count, but not for the rates.

    `clock` gives seconds; `size`: bytes that a job reads, by its number, if they are known, and `bytes` those of all
    jobs. `documents`: those that arrived, where the records have them; `written`: bytes. Running jobs have reported
    what they have read so far.
    """

    phase: str
    total: int
    clock: Callable[[], float] = time.monotonic
    size: Callable[[int], int] | None = None
    bytes: int = 0
    done: int = 0
    found: int = 0
    documents: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        self.started = self.clock()
        self._read_done = self._read_found = 0
        self._running: dict[int, JobProgress] = {}

    def take(self, number: int, progress: JobProgress) -> None:
        """A job that runs is so far."""
        self._running[number] = progress

    def add(self, result: JobResult, number: int = 0) -> None:
        """A job has ended."""
        self._running.pop(number, None)
        self.done += 1
        read = self.size(number) if self.size else 0
        self._read_done += read
        if result.found:
            self.found += 1
            self._read_found += read
            return
        record = result.record
        self.documents += record.get("rows_in", record.get("documents", 0))
        self.written += sum(facts["bytes"] for facts in result.files.values())

    @property
    def jobs(self) -> float:
        """How many are done; of one that runs, the part of its bytes that it has read."""
        return self.done + sum(self._part(number, reported) for number, reported in [*self._running.items()])

    def _part(self, number: int, reported: JobProgress) -> float:
        size = self.size(number) if self.size else 0
        return min(reported.read / size, 0.999) if size else 0.0

    @property
    def documents_so_far(self) -> int:
        return self.documents + sum(reported.documents for reported in [*self._running.values()])

    @property
    def read_so_far(self) -> int:
        """Bytes, of which those count that the jobs have by their size."""
        running = sum(
            min(reported.read, self.size(number)) for number, reported in [*self._running.items()] if self.size
        )
        return self._read_done + running

    @property
    def seconds_left(self) -> float | None:
        """By the bytes so far where they are known, else by the time of the jobs; None before the first of either."""
        seconds = self.clock() - self.started
        if self.bytes:
            read = self.read_so_far
            made = read - self._read_found
            return (self.bytes - read) * seconds / made if made > 0 else None
        made = self.done - self.found
        return (self.total - self.done) * seconds / made if made else None

    def __str__(self) -> str:
        """`310 of 1,024 MB read, 5,120 documents, 120 documents/s, 3.4 MB/s written, 0:12 left`, as far as it is known;
        nobody knows the last ten seconds."""
        seconds = max(self.clock() - self.started, 1e-9)
        documents = self.documents_so_far
        known = []
        if self.bytes:
            known.append(f"{self.read_so_far / 1e6:,.0f} of {self.bytes / 1e6:,.0f} MB read")
        if documents:
            known += [f"{documents:,} documents", f"{documents / seconds:,.0f} documents/s"]
        if self.written:
            known.append(f"{self.written / seconds / 1e6:,.1f} MB/s written")
        if self.seconds_left is not None and self.done < self.total:
            known.append(f"{duration(self.seconds_left) if self.seconds_left >= 10 else 'seconds'} left")
        return ", ".join(known)


def duration(seconds: float) -> str:
    """`2.4 s`, `1:05` or `3:20:00`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{whole:02d}" if hours else f"{minutes}:{whole:02d}"
