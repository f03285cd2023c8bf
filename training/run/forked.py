"""A run that a process forked which had loaded training (`gristmill.training.run.preloaded`), as its launcher sees it.
Separate: that process, too, imports it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress

_KILLED = -signal.SIGKILL


class Forked:
    """A run that was forked, as subprocess.Popen has a process. `channel`: by which its exit code comes."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid, self._channel = pid, channel
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._channel], [], [], 0)[0]:
            reply = self._channel.recv(16)
            self._channel.close()
            self.returncode = int(reply) if reply else _KILLED
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            remaining = None if until is None else until - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise subprocess.TimeoutExpired(f"the run in process {self.pid}", timeout or 0)
            select.select([self._channel], [], [], remaining)
        return code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)


def fork(address: str, run_json: str, environment: Mapping[str, str], output: int) -> Forked | None:
    """A process for a run, whose output goes to the file descriptor `output`, from the one at an address; None where
    that is gone."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        channel.connect(address)
        request = json.dumps({"run": run_json, "environment": dict(environment)}).encode()
        socket.send_fds(channel, [request], [output])
        if pid := channel.recv(32):
            return Forked(int(pid), channel)
    except OSError:
        pass
    channel.close()
    return None
