"""The guard as the parent sees it: calls go in, results come out, whatever happens in between."""

import atexit
import contextlib
import fcntl
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

from pydantic import Field

from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine import job_costs
from gristmill.tasks.guard import child
from gristmill.tasks.guard.channel import CALL, RESULT, Ring, framed, pack, unpack


class Limits(Settings):
    """Limits for one page. A page over a limit is dropped with the rule `page_timeout` or `page_memory`.

    The defaults leave room: of 500 pages of a crawl up to 1 MB long the slowest took 0.15 s with resiliparse and 1.9 s
    with trafilatura, and 11 MB of plain paragraphs took resiliparse 1.1 s and 0.1 GB, and trafilatura 30 s and 0.6 GB.
    Where the kernel has no limit on the address space (macOS), the zygote looks at the worker's resident memory
    ten times a second instead, so a page that allocates fast gets further than `page_memory` before it is stopped.
    """

    page_seconds: float = Field(
        20.0,
        gt=0,
        description="Maximum CPU time (seconds). CPU time is used so that a busy machine gives the same "
        "results as an idle one.",
    )
    page_wall_seconds: float = Field(
        600.0,
        gt=0,
        description="Maximum wall-clock time (seconds), for a page that sleeps or waits for a lock.",
    )
    page_memory: int = Field(2 << 30, gt=0, description="Maximum memory that a page may add to its worker (bytes).")
    page_result: int = Field(
        64 << 20, gt=0, description="Maximum size of a page's result (bytes), which the parent process holds in memory."
    )


log = logging.getLogger("gristmill.tasks.guard")

WINDOW = 2 << 20  # bytes of calls that are on their way
_PIPE = 1 << 20  # as much as Linux allows everybody (fs.pipe-max-size)
_READ = 1 << 18
_STARTS = 3
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class Guard:
    """Calls of `work`, a function named `module:function`, under limits and in another process.

    The function takes plain data (None, bool, int of 64 bits, float, str, bytes, lists and dicts of these) and
    returns a dict of plain data. Its process has this one's import path, one thread for numerical libraries, and no
    standard output. Guards of several threads have a worker each; the process that they are forked from is
    started by the first call of one and kept. There the calls `rehearsals` are made before any worker is forked,
    without limits: what they load and compile, workers have from their beginning. So are `trials`, calls of code
    that nobody vouches for, if they end within the limits in a process of their own; what they raise is not reported.
    `name`: what does the work, for the log.
    `map` raises RuntimeError if the function cannot be imported, a rehearsal raises, or no process can be started.
    """

    def __init__(
        self,
        work: str,
        limits: Limits | None = None,
        *rehearsals: tuple[Any, ...],
        trials: tuple[tuple[Any, ...], ...] = (),
        name: str = "",
    ) -> None:
        self.work = work
        self.name = name or work
        self.limits = limits or Limits()
        self.first_calls = _FirstCalls(rehearsals, trials)
        self._worker: _Worker | None = None
        self._in_use = False
        self._told: set[str] = set()

    def __enter__(self) -> Self:
        self._ring = Ring(2 * WINDOW)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_worker()
        self._ring.close()

    def map(self, calls: Iterable[tuple[Any, ...]]) -> Generator[dict]:
        """The result of each call, in order: what the function returned, or why it did not.

        That is `{"rule": ..., "detail": ...}` with the rule `page_timeout`, `page_memory`, `page_crash` or
        `extractor_error` (the function raised, or returned what is no plain data). A call whose worker
        crashed is tried once more in a fresh one, for the crash may have been another page's doing or come from
        outside. So a result depends on its own call only.

        Calls are taken ahead of their results, up to 2 MiB of them and always one. Holds these, packed, and the
        results that have arrived; the worker holds one call and one result.
        """
        if self._in_use:
            raise RuntimeError("this guard is in use by other calls: use one guard per thread")
        self._in_use = True
        self._ring.clear()
        source = iter(calls)
        waiting: deque[_Call] = deque()
        bytes_waiting = unforked = 0
        try:
            while True:
                if bytes_waiting < WINDOW // 2:
                    new_calls = []
                    while bytes_waiting < WINDOW and (call := next(source, None)) is not None:
                        new_calls.append(self._put(pack(call)))
                        bytes_waiting += new_calls[-1].length
                    waiting += new_calls
                    if self._worker:
                        self._worker.send(new_calls)
                    del new_calls  # a call holds its result, which must go with it
                if not waiting:
                    return
                if self._worker is None:
                    self._worker = _worker(self.work, self.first_calls, self.limits, self._ring)
                    unanswered = [call for call in waiting if call.result is None]
                    # one that crashed goes first: nothing that others do to a worker must touch it again
                    self._worker.send(sorted(unanswered, key=lambda call: not call.crashed))
                    del unanswered
                if self._worker.receive():
                    unforked = 0
                else:
                    worker, self._worker = self._worker, None
                    end = worker.close()
                    unforked = 0 if end else unforked + 1
                    if unforked == _STARTS:
                        raise RuntimeError(
                            f"the process that forks workers for {self.work} was killed {unforked} times"
                        )
                    if end and not worker.retired and end.done < len(worker.sent):
                        self._blame(worker.sent[end.done], end)
                    del worker  # it has calls whose results are still to come
                while waiting and (result := waiting[0].result) is not None:
                    answered = waiting.popleft()
                    bytes_waiting -= answered.length
                    if answered.packed is None:
                        self._ring.let_go(answered.mark)
                    del answered
                    yield result
        finally:
            self._in_use = False
            if waiting:
                self._end_worker()

    def _put(self, packed: bytes) -> "_Call":
        place = self._ring.put(packed) if len(packed) <= WINDOW else None
        return _Call(len(packed), *place) if place else _Call(len(packed), packed=packed)

    def _blame(self, call: "_Call", end: "_End") -> None:
        lost = self._lost(end)
        if lost["rule"] == "page_crash" and not call.crashed:
            call.crashed = True
            return
        call.result = lost
        if lost["detail"] not in self._told:
            self._told.add(lost["detail"])
            where = _innermost(end.trace)
            name = f"{self.name} ({where})" if where else self.name
            log.warning("%s: %s, %s; more of these are not logged", name, *lost.values())
            # where a library looped or crashed is for who works on it
            log.debug("%s: %s\n%s", name, lost["detail"], end.trace)

    def _lost(self, end: "_End") -> dict[str, str]:
        if end.status == child.OVER_MEMORY:
            return child.over_memory(self.limits.page_memory)
        code = os.waitstatus_to_exitcode(end.status)
        if code == -signal.SIGPROF:
            return {"rule": "page_timeout", "detail": f"over {self.limits.page_seconds:g} s of processor time"}
        if code == -signal.SIGALRM:
            return {"rule": "page_timeout", "detail": f"over {self.limits.page_wall_seconds:g} s by the clock"}
        detail = f"killed by {_signal_name(-code)}" if code < 0 else f"exited with status {code}"
        return {"rule": "page_crash", "detail": detail}

    def _end_worker(self) -> None:
        if self._worker:
            self._worker.kill()
            self._worker.close()
            self._worker = None


_FRAME = re.compile(r'File "([^"]*)", line (\d+) in (\S+)')
_INSTALLED = ("site-packages", "dist-packages", os.path.dirname(os.__file__))


def _innermost(trace: str) -> str:
    """`file.py:17, name` of a crash's traceback, the innermost call first: of the first that is not in an installed
    library; empty without a traceback."""
    frames = _FRAME.findall(trace)
    for path, line, function in sorted(frames, key=lambda frame: any(part in frame[0] for part in _INSTALLED)):
        return f"{os.path.basename(path)}:{line}, {function}"
    return ""


class _FirstCalls(NamedTuple):
    rehearsals: tuple[tuple[Any, ...], ...]
    trials: tuple[tuple[Any, ...], ...]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


@dataclass(slots=True)
class _Call:
    """A call whose result has not been given out: it, or one before it, is not there yet."""

    length: int
    place: int = -1
    mark: int = 0
    packed: bytes | None = None
    result: dict | None = None
    crashed: bool = False


@dataclass(frozen=True)
class _End:
    """How a worker ended, as `os.waitpid` says it; how many calls of `sent` it had done; the traceback of a crash."""

    status: int
    done: int
    trace: str


class _Worker:
    """A worker as the parent sees it: three pipes, and the calls in `sent` that it has not answered."""

    def __init__(self, process: int, calls: int, results: int, status: int) -> None:
        self.process = process
        self.calls, self.results, self.status = calls, results, status
        self.sent: deque[_Call] = deque()
        self.answered = 0
        self.retired = False
        self._unwritten = memoryview(b"")
        self._arrived = bytearray()
        self._poll = select.poll()
        self._poll.register(results, select.POLLIN)
        os.set_blocking(calls, False)

    def send(self, calls: list[_Call]) -> None:
        """Put calls on their way; what the pipe does not take goes with the next `receive`."""
        if not calls:
            return
        parts: list[bytes | memoryview] = [self._unwritten]
        silent = 0
        for call in calls:
            silent += call.length
            asks = silent >= WINDOW // 2 or call is calls[-1]
            silent = 0 if asks else silent
            parts += CALL.pack(call.length, call.place, asks), call.packed or b""
        self.sent += calls
        self._unwritten = memoryview(b"".join(parts))
        self._poll.register(self.calls, select.POLLOUT)
        self._write()

    def receive(self) -> bool:
        """Wait for results and give those that are complete to their calls; False if no more will come."""
        while True:
            ready = dict(self._poll.poll())
            if self.calls in ready:
                self._write()
            if self.results in ready:
                break
        data = os.read(self.results, _READ)
        self._arrived += data
        position = 0
        while len(self._arrived) >= (begin := position + RESULT.size):
            (length,) = RESULT.unpack_from(self._arrived, position)
            if len(self._arrived) < (position := begin + length):
                position = begin - RESULT.size
                break
            with memoryview(self._arrived) as view, view[begin:position] as packed:
                result = unpack(packed)
            if result is None:
                self.retired = True
            else:
                self.sent.popleft().result = result
                self.answered += 1
        del self._arrived[:position]
        return bool(data)

    def _write(self) -> None:
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self.calls, self._unwritten) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it has ended: `receive` will see it
            self._unwritten = memoryview(b"")
        self._poll.unregister(self.calls)

    def kill(self) -> None:
        """Stop it, whatever it is doing."""
        status = select.poll()
        status.register(self.status, select.POLLIN)
        if not status.poll(0):  # else its number may be another's by now
            os.kill(self.process, signal.SIGKILL)

    def close(self) -> _End | None:
        """Wait for its end; None if the zygote could not tell of it, because they died together."""
        os.close(self.calls)
        os.close(self.results)
        with open(self.status, "rb") as f:
            trace = f.read()
        trace, report = trace[: -child.ENDED.size], trace[-child.ENDED.size :]
        if len(report) < child.ENDED.size:
            return None
        status, done = child.ENDED.unpack(report)
        return _End(status, done - self.answered, trace.decode(errors="replace"))


class _Zygote:
    """The process that imports the function of a guard and forks workers."""

    def __init__(self, work: str, first_calls: _FirstCalls, limits: Limits) -> None:
        self.control, theirs = socket.socketpair()
        path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
        # a fixed seed of hashes, so that a message which prints a set is the same in every run
        settings = {"PYTHONPATH": path, "PYTHONHASHSEED": "0", **dict.fromkeys(_ONE_THREAD, "1")}
        # Arrow's own allocator reserves 1 GiB of addresses at once, which the limit on memory counts
        settings["ARROW_DEFAULT_MEMORY_POOL"] = "system"
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", child.__name__, work],
                stdin=theirs.fileno(),
                env=os.environ | settings,
                start_new_session=True,  # a signal to the terminal's processes is the parent's to handle
            )
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # what it died of is said below
            self.control.sendall(framed((*first_calls, tuple(_allowance(limits)))))
        with self.control.makefile("rb", buffering=0) as stream:
            head = stream.read(RESULT.size)
            answer = unpack(stream.read(RESULT.unpack(head)[0])) if head else {"error": "it ended while it started"}
        if answer["error"] is not None:
            self.close()
            raise RuntimeError(f"the guarded process cannot import {work}: {answer['error']}")
        job_costs.count_child(self.process.pid)

    def fork(self, limits: Limits, ring: Ring) -> _Worker:
        """A new worker. Raises ConnectionError if the zygote has left or dies over it."""
        allowance = _allowance(limits)
        (calls, ours_calls), (ours_results, results), (ours_status, status) = (os.pipe() for _ in range(3))
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(PermissionError):  # the sum of a user's pipes may be limited
                fcntl.fcntl(ours_results, fcntl.F_SETPIPE_SZ, _PIPE)
        try:
            try:
                socket.send_fds(self.control, [pack(allowance)], [ring.fd, calls, results, status])
            finally:
                for fd in (calls, results, status):
                    os.close(fd)
            answer = self.control.recv(child.PROCESS.size)
            if len(answer) < child.PROCESS.size:
                raise ConnectionResetError("the zygote has ended")
        except BaseException:
            for fd in (ours_calls, ours_results, ours_status):
                os.close(fd)
            raise
        (process,) = child.PROCESS.unpack(answer)
        return _Worker(process, ours_calls, ours_results, ours_status)

    def close(self) -> None:
        self.control.close()
        self.process.wait()


def _allowance(limits: Limits) -> child.Allowance:
    return child.Allowance(**limits.model_dump())


_zygotes: dict[tuple[str, _FirstCalls], _Zygote] = {}
_lock = threading.Lock()


def _worker(work: str, first_calls: _FirstCalls, limits: Limits, ring: Ring) -> _Worker:
    key = work, first_calls
    with _lock:
        for _ in range(_STARTS):
            if key not in _zygotes:
                _zygotes[key] = _Zygote(work, first_calls, limits)
            try:
                return _zygotes[key].fork(limits, ring)
            except ConnectionError:  # idle zygotes leave, and others are killed
                _zygotes.pop(key).close()
    raise RuntimeError(
        f"the process that guards {work} ended {_STARTS} times before it could fork: this machine has too "
        "little memory, or too few processes are allowed"
    )


def _forget() -> None:
    global _lock
    _zygotes.clear()
    _lock = threading.Lock()


@atexit.register
def _leave() -> None:
    """At the end of this process; if it is killed, the zygotes find out themselves."""
    for zygote in _zygotes.values():
        zygote.close()


os.register_at_fork(after_in_child=_forget)  # a fork's zygotes are its parent's
