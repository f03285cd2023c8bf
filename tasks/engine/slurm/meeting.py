"""The folder where a run and its SLURM workers meet. All nodes see it, and only their user may enter it.

<folder>/scheduler.json                address of the run's scheduler; each scheduler replaces the file
<folder>/tls-<id>/cert.pem, key.pem    required by the connections of the scheduler with this id
<folder>/ended                         the run has ended, so its workers end
<folder>/events.jsonl                  one event per line, written only by the run
<folder>/workers/<task>.json           state of a task of the array, written only by the task
<folder>/workers/<task>.log            output of the task; a requeued task appends
"""

import os
import shutil
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import orjson

from gristmill.storage import exclusive, files
from gristmill.tasks.engine import dask_processes

State = Literal["waiting", "joining", "working", "stopped", "gave up", "ended"]


@dataclass(frozen=True)
class SchedulerPlace:
    """`id`: differs for every scheduler; `host`: where the run is; `began`: seconds since 1970; `restarts`: number of
    times that SLURM has started the job of the run again."""

    id: str
    address: str
    host: str
    began: float
    restarts: int


@dataclass(frozen=True)
class TaskState:
    """A task of the array. `job`: as SLURM's commands name it; `processes`: number of worker processes; `restarts`:
    number of times that SLURM has started the task again; `joins`: number of schedulers that it has joined since then;
    `since`, `seen`: when the state began and when the task last wrote it, in seconds since 1970."""

    task: int
    job: str
    host: str
    state: State
    processes: int
    restarts: int
    joins: int
    since: float
    seen: float

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """None for a file that is not there."""
        content = exclusive.read(str(path))
        return None if content is None else cls(**orjson.loads(content))


@dataclass(frozen=True)
class Event:
    """`time`: seconds since 1970."""

    time: float
    text: str


class Meeting:
    """The meeting folder of a run."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.workers = self.folder / "workers"

    def open(self) -> None:
        """Make the folder, or take it over from an earlier start of the same run. Raises PermissionError as `check`."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.check()
        self.workers.mkdir(mode=0o700, exist_ok=True)
        self._ended.unlink(missing_ok=True)
        self.withdraw()  # of a run that was killed

    def check(self) -> None:
        """Raise PermissionError for a folder that another account owns or may enter: whoever writes its files could
        run code as this user."""
        status = self.folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o77:
            raise PermissionError(
                f"{self.folder} is not private: run and workers meet in a folder that only their user may enter. "
                f"Remove it, or choose another GRISTMILL_SLURM_FOLDER"
            )

    def publish(self, place: SchedulerPlace, cert: str, key: str) -> None:
        """Let workers find a scheduler. `cert`, `key`: texts in PEM."""
        keys = self._keys(place.id)
        keys.mkdir(mode=0o700)
        for name, text in (("cert.pem", cert), ("key.pem", key)):
            with open(keys / name, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(text)
        exclusive.replace(str(self._scheduler), orjson.dumps(asdict(place)))

    def withdraw(self) -> None:
        """Remove the scheduler and all keys."""
        self._scheduler.unlink(missing_ok=True)
        for keys in self.folder.glob("tls-*"):
            shutil.rmtree(keys, ignore_errors=True)

    def scheduler(self) -> SchedulerPlace | None:
        """The run's scheduler, which may have ended; None if there is none."""
        content = exclusive.read(str(self._scheduler))
        return None if content is None else SchedulerPlace(**orjson.loads(content))

    def security(self, place: SchedulerPlace) -> Any:
        """Dask's Security for a scheduler. Raises OSError if its key has been removed."""
        cert, key = (str(self._keys(place.id) / name) for name in ("cert.pem", "key.pem"))
        for path in (cert, key):
            files.read_bytes(path)
        return dask_processes.security(cert, cert, key)

    def end(self) -> None:
        """Let all workers end, also those that SLURM starts later."""
        self._ended.touch()
        self.withdraw()

    def is_ended(self) -> bool:
        """Whether the run has ended. True if the folder is gone."""
        return self._ended.exists() or not self.folder.exists()

    def add_event(self, text: str) -> None:
        """Append an event. Only the run calls it, because lines of several nodes could mix."""
        with open(self._events, "ab") as file:
            file.write(orjson.dumps(asdict(Event(time.time(), text))) + b"\n")

    def events(self) -> list[Event]:
        """All events, oldest first."""
        lines = (exclusive.read(str(self._events)) or b"").split(b"\n")[:-1]  # the last one may be half written
        return [Event(**orjson.loads(line)) for line in lines]

    def report(self, state: TaskState) -> None:
        """Write down what a task of the array does."""
        exclusive.replace(str(self.workers / f"{state.task}.json"), orjson.dumps(asdict(state)))

    def tasks(self) -> list[TaskState]:
        """All tasks of the array that have reported, by number."""
        states = [TaskState.read(path) for path in self.workers.glob("*.json")]
        return sorted((state for state in states if state is not None), key=lambda state: state.task)

    @property
    def _scheduler(self) -> Path:
        return self.folder / "scheduler.json"

    @property
    def _ended(self) -> Path:
        return self.folder / "ended"

    @property
    def _events(self) -> Path:
        return self.folder / "events.jsonl"

    def _keys(self, id_: str) -> Path:
        return self.folder / f"tls-{id_}"


def node_name() -> str:
    """This machine, as SLURM calls it if this is one of its jobs."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def meetings(folder: str) -> list[Meeting]:
    """The meeting folders of this account's runs in a folder, the newest last."""
    there = [path for path in Path(folder).iterdir() if path.is_dir()] if folder and Path(folder).is_dir() else []
    own = [Meeting(path) for path in there if path.stat().st_uid == os.getuid()]  # others' cannot be entered
    return sorted((each for each in own if each.workers.is_dir()), key=lambda each: each.folder.stat().st_mtime)
