"""Progress of unfinished runs, read from their home: stages, jobs, rates, and the workers of runs on SLURM."""

from dataclasses import dataclass
from typing import Literal

from gristmill.flows.machine.runs import RecordedRun, all_runs
from gristmill.storage import files, layout
from gristmill.tasks.engine.lease import Maker, PhaseProgress, maker
from gristmill.tasks.engine.slurm.meeting import Event, Meeting, SchedulerPlace, TaskState, meetings

SILENT_SECONDS = 90.0  # without a sign of life, of which a task gives one every 30 seconds
EVENTS = 8  # that are shown


@dataclass(frozen=True)
class StageProgress:
    """A stage of a run. `state`: `in progress` if a process is making it, `stopped` if it was begun and no process of
    this host is making it. `maker`: the process."""

    stage: str
    state: Literal["finished", "in progress", "stopped"]
    documents: str
    maker: Maker | None

    @property
    def progress(self) -> PhaseProgress | None:
        return self.maker.progress if self.maker else None

    @property
    def jobs(self) -> str:
        """`12 / 40 documents`: finished jobs of a phase."""
        each = self.progress
        return f"{each.done:,} / {each.jobs:,} {each.phase}" if each else ""

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the bytes that this maker has read if sizes are known, else from its jobs; None before the
        first job."""
        each = self.progress
        if self.maker is None or each is None:
            return None
        seconds = max(self.maker.time - each.began, 0.0)
        new, rest = (each.read - each.found_read, each.bytes - each.read)
        if not each.bytes:
            new, rest = each.done - each.found, each.jobs - each.done
        return rest * seconds / new if new > 0 and seconds > 0 else None

    @property
    def rate(self) -> str:
        """Jobs per minute of this maker, without jobs of earlier runs."""
        each = self.progress
        if self.maker is None or each is None or self.maker.time <= each.began or each.done == each.found:
            return ""
        return f"{60 * (each.done - each.found) / (self.maker.time - each.began):,.1f} jobs/min"

    @property
    def basis(self) -> str:
        """The basis of rate and estimate."""
        each = self.progress
        if self.maker is None or each is None:
            return ""
        what = f"{(each.read - each.found_read) / 1e6:,.1f} MB" if each.bytes else f"{each.done - each.found:,} jobs"
        found = f"; {each.found:,} jobs done earlier" if each.found else ""
        return f"{what} in {clock(max(self.maker.time - each.began, 0.0))}{found}"


@dataclass(frozen=True)
class SlurmProgress:
    """A run on SLURM: its scheduler, None between two starts, the tasks of its array, and what happened."""

    name: str
    scheduler: SchedulerPlace | None
    tasks: tuple[TaskState, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True)
class RunProgress:
    """A run that has not ended. `began`: in UTC."""

    run: str
    flow: str
    began: str
    stages: tuple[StageProgress, ...]


@dataclass(frozen=True)
class HomeProgress:
    """All runs of a home that have not ended, and all runs on SLURM that have not."""

    runs: tuple[RunProgress, ...]
    slurm: tuple[SlurmProgress, ...]


class Reader:
    """Reads the progress of a home again and again. The manifest of a finished stage is read once."""

    def __init__(self, home: str, slurm_folder: str) -> None:
        self._home, self._slurm_folder = home, slurm_folder
        self._finished: dict[str, StageProgress] = {}

    def read(self) -> HomeProgress:
        """The newest run of each recipe that has not ended. Raises DamagedFileError for a run that cannot be read."""
        newest: dict[str, RecordedRun] = {run.name: run for run in all_runs(self._home)}
        open_runs = tuple(
            RunProgress(run.label, run.flow, run.began, tuple(map(self._stage, run.stages)))
            for run in newest.values()
            if not run.ended
        )
        return HomeProgress(open_runs, slurm_progress(self._slurm_folder))

    def _stage(self, label: str) -> StageProgress:
        if label not in self._finished:
            folder = files.join(self._home, "stages", label)
            if (manifest := layout.manifest(folder)) is None:
                making = maker(folder)
                is_made = making is not None and not making.has_ended
                return StageProgress(label, "in progress" if is_made else "stopped", "", making if is_made else None)
            steps = manifest["counts"]["steps"]
            documents = f"{steps[0]['rows_in']:,} → {steps[-1]['rows_out']:,}" if steps else ""
            self._finished[label] = StageProgress(label, "finished", documents, None)
        return self._finished[label]


def slurm_progress(folder: str) -> tuple[SlurmProgress, ...]:
    """The runs on SLURM that have not ended, the newest last. `folder`: where runs meet their workers; "": nowhere."""
    return tuple(_slurm(each) for each in meetings(folder) if not each.is_ended())


def _slurm(meeting: Meeting) -> SlurmProgress:
    events = meeting.events()[-EVENTS:]
    return SlurmProgress(meeting.folder.name, meeting.scheduler(), tuple(meeting.tasks()), tuple(events))


def is_lost(task: TaskState, now: float) -> bool:
    """Whether a task has sent no heartbeat for too long. `now`: seconds since 1970."""
    return task.state in ("waiting", "joining", "working") and now - task.seen > SILENT_SECONDS


def clock(seconds: float) -> str:
    """`5 s`, `1:05` or `3:20:00`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}" if minutes else f"{rest} s"
