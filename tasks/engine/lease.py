"""Leases: of all processes that share a home, one at a time makes a stage.

    <stage folder>/lease/000001.json    the owner, since when, and a counter that the owner raises while it lives

The process that created the file with the highest number is the maker. Another process that needs the stage waits. When
the maker's process has ended, or its counter has not changed for SILENCE_SECONDS on the clock of the waiting process,
that one creates the next number, which only one of several processes can. Leases are not in keys, and their files are
removed at the end.
"""

import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from gristmill.storage import exclusive, files, leftovers

HEARTBEAT_SECONDS = 5.0
SILENCE_SECONDS = 60.0
POLL_SECONDS = 0.5

_NUMBERED = re.compile(r"(\d{6})\.json")


class LeaseLostError(RuntimeError):
    """Another process has taken over the stage, because this one sent no heartbeat for too long."""


@dataclass(frozen=True)
class PhaseProgress:
    """How far the maker of a stage is with a phase. `done`: jobs, of which `found` were done by an earlier run;
    `bytes`, `read`, `found_read`: bytes that all jobs, finished jobs, and jobs of an earlier run read, 0 if sizes
    are not known; `began`: seconds since 1970, on the maker's clock."""

    phase: str
    jobs: int
    done: int
    found: int
    bytes: int
    read: int
    found_read: int
    began: float


@dataclass(frozen=True)
class Maker:
    """Who makes a stage, as its last heartbeat has it. `beats`: number of heartbeats; `time`: of the last one, in
    seconds since 1970, on the maker's clock; `has_ended`: it was a process of this host that has ended."""

    host: str
    process: int
    since: str
    beats: int
    time: float
    progress: PhaseProgress | None
    has_ended: bool


class Lease:
    """The lease of a stage that this process makes. A thread writes heartbeats with the progress of the stage."""

    def __init__(self, folder: str, number: int, content: dict[str, Any]) -> None:
        self.folder, self.number = folder, number
        self._content = content
        self._progress: PhaseProgress | None = None
        self._ended, self._lost = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise LeaseLostError if the last heartbeat found another maker. Reads nothing."""
        if self._lost.is_set():
            raise LeaseLostError(
                f"another run is now making {self.folder}, because this run sent no sign of life for "
                f"{SILENCE_SECONDS:g} s: run the same command again, and it will reuse the stage"
            )

    def confirm(self) -> None:
        """Read the lease. Raises LeaseLostError if this process is not the maker any more."""
        if not self._is_ours():
            self._lost.set()
        self.check()

    def note(self, progress: PhaseProgress) -> None:
        """Send the progress of the stage with the next heartbeat."""
        self._progress = progress

    def release(self) -> None:
        self._ended.set()
        self._thread.join()
        if self._is_ours():
            for number in range(1, self.number + 1):
                exclusive.remove(_path(self.folder, number))

    def _is_ours(self) -> bool:
        if max(_numbers(self.folder), default=0) != self.number:
            return False
        owner = _owner(exclusive.read(_path(self.folder, self.number)))
        return owner is not None and owner["token"] == self._content["token"]

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                if not self._is_ours():
                    self._lost.set()
                    return
                self._content["beats"] += 1
                progress = self._progress
                self._content |= {"time": time.time(), "progress": None if progress is None else asdict(progress)}
                exclusive.replace(_path(self.folder, self.number), orjson.dumps(self._content))
            except Exception:  # a full disk, a store that does not answer: tried again at the next beat
                continue


@contextmanager
def lease(folder: str, message: Callable[[str], Any], check: Callable[[], None] = lambda: None) -> Iterator[Lease]:
    """The lease of a stage folder, for a block. Waits for another maker, which it reports once through `message`.
    `check` is called while it waits, and may raise."""
    owned = _acquire(folder, message, check)
    try:
        yield owned
    finally:
        owned.release()


def is_held(folder: str) -> bool:
    """Whether a process is making the stage of a folder; see `maker_of`."""
    return bool(maker_of(folder))


def is_taken(folder: str) -> bool:
    """Whether a process has the lease of a folder. Does not wait, so a process on another host may have ended."""
    number = max(_numbers(folder), default=0)
    maker = _owner(exclusive.read(_path(folder, number))) if number else None
    return number > 0 and not (maker is not None and leftovers.has_ended(maker["owner"]))


def maker(folder: str) -> Maker | None:
    """The maker of the stage of a folder; None if there is none. Does not wait, as `is_taken`."""
    number = max(_numbers(folder), default=0)
    content = _owner(exclusive.read(_path(folder, number))) if number else None
    if content is None:
        return None
    progress = content.get("progress")
    return Maker(
        *(content["host"], content["process"], content["since"], content["beats"], content.get("time", 0.0)),
        progress=None if progress is None else PhaseProgress(**progress),
        has_ended=leftovers.has_ended(content["owner"]),
    )


def maker_of(folder: str) -> str:
    """The process that is making the stage of a folder, as `leftovers.this_process` names it; "" if there is none.

    Returns at once if there is no maker, or if it was a process of this host that has ended. Otherwise it waits for a
    heartbeat, which takes seconds, or SILENCE_SECONDS if there is none.
    """
    since = time.monotonic()
    seen: tuple[int, bytes | None] | None = None
    while True:
        number = max(_numbers(folder), default=0)
        content = exclusive.read(_path(folder, number)) if number else None
        maker = _owner(content)
        if number == 0 or (maker is not None and leftovers.has_ended(maker["owner"])):
            return ""
        if seen is not None and (number, content) != seen and maker is not None:
            return maker["owner"]
        if time.monotonic() - since > SILENCE_SECONDS:
            return ""
        seen = (number, content)
        time.sleep(POLL_SECONDS)


def _acquire(folder: str, message: Callable[[str], Any], check: Callable[[], None]) -> Lease:
    seen: tuple[int, bytes | None] = (0, None)
    since, reported = time.monotonic(), 0
    while True:
        number = max(_numbers(folder), default=0)
        content = exclusive.read(_path(folder, number)) if number else None
        now = time.monotonic()
        if (number, content) != seen:
            seen, since = (number, content), now
        maker = _owner(content)
        free = number == 0 or (maker is not None and leftovers.has_ended(maker["owner"]))
        if free or now - since > SILENCE_SECONDS:
            if (owned := _create(folder, number + 1)) is not None:
                return owned
            continue
        if maker is not None and number != reported:
            reported = number
            message(
                f"waiting for the run that makes {folder} since {maker['since']} UTC: process "
                f"{maker['process']} on {maker['host']}"
            )
        check()
        time.sleep(POLL_SECONDS)


def _create(folder: str, number: int) -> Lease | None:
    """Create the lease with a number. None if another process has it."""
    content = {
        "owner": leftovers.this_process(),
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "token": uuid.uuid4().hex,
        "beats": 0,
        "time": time.time(),
    }
    data = orjson.dumps(content)
    path = _path(folder, number)
    if exclusive.create(path, data) or exclusive.read(path) == data:
        return Lease(folder, number, content)
    return None


def _path(folder: str, number: int) -> str:
    return files.join(folder, "lease", f"{number:06d}.json")


def _numbers(folder: str) -> list[int]:
    matches = (_NUMBERED.fullmatch(name) for name in exclusive.names(files.join(folder, "lease")))
    return [int(match[1]) for match in matches if match]


def _owner(content: bytes | None) -> dict[str, Any] | None:
    """Read a lease file. None if it is being written, or if a crash left it incomplete."""
    try:
        value = orjson.loads(content or b"")
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) and {"owner", "token", "since"} <= value.keys() else None
