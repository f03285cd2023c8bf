"""How often a run starts again by itself, and how the machines of a run find each other when they do.

On several machines each launcher ends its ranks and starts them again, and node 0 leads: it writes a new name for each
attempt to `attempt.json` in the folder that all machines see, the run's folder or its home in an object store. The
others begin when they read a name that they have not used. So no machine joins the store of an attempt that has ended.
Imports no torch.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gristmill.storage import checked_json, files

HOUR = 3600.0  # seconds
MEETING_SECONDS = 900.0  # that a machine waits for the others
ENDED_SECONDS = 60.0  # without the file, after which node 0 has ended the run
LOOK_SECONDS = 5.0
ATTEMPT = "attempt.json"


class Restarts:
    """At most `most` within an hour."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most, self.clock = most, clock
        self.times: deque[float] = deque()

    def take(self) -> int:
        """The number of a restart that is made now, among the restarts of the last hour; 0: it may not be made."""
        now = self.clock()
        while self.times and now - self.times[0] >= HOUR:
            self.times.popleft()
        if len(self.times) >= self.most:
            return 0
        self.times.append(now)
        return len(self.times)


class Attempts:
    """What a machine knows of the attempts of a run. `address`: of the file; `leads`: node 0, which writes it."""

    def __init__(self, out: Path, store: str | None, node: int) -> None:
        self.address = files.join(store.rsplit("/", 1)[0] if store else str(out), ATTEMPT)
        self.leads = node == 0
        self.name = ""
        self.looked = 0.0

    def begin(self, poll: Callable[[], None]) -> bool:
        """Set `name` to the name of a new attempt, for which all nodes but 0 wait. `poll` is called meanwhile. False:
        node 0 has ended the run. Raises TimeoutError if it does not begin."""
        if self.leads:
            self.name = uuid.uuid4().hex
            checked_json.write(self.address, {"attempt": self.name})
            return True
        began = seen = time.monotonic()
        while not (name := self._read()) or name == self.name:
            now = time.monotonic()
            seen = now if name else seen
            if self.name and now - seen > ENDED_SECONDS:
                return False
            if now - began > MEETING_SECONDS:
                raise TimeoutError(
                    f"node 0 did not start the run within {MEETING_SECONDS:.0f} s; see its log, and start both again"
                )
            poll()
            time.sleep(1)
        self.name = name
        return True

    def is_over(self) -> bool:
        """Whether node 0 has begun another attempt than this one; asked now and then."""
        now = time.monotonic()
        if self.leads or now - self.looked < LOOK_SECONDS:
            return False
        self.looked = now
        return self._read() not in ("", self.name)

    def end(self) -> None:
        if self.leads:
            files.remove(self.address)

    def _read(self) -> str:
        """The newest name; empty if there is none, or if the store does not answer."""
        with suppress(OSError, RuntimeError):  # RemoteIOError is one
            return str(checked_json.read(self.address)["attempt"])
        return ""
