"""The zygote and its workers: import a function once, fork a process for each guard, work its calls off.

    python -P -m gristmill.tasks.guard.child MODULE:FUNCTION

Standard input is a socket to the parent. The zygote sends one frame, `{"error": None}` when it is ready. Then the
parent sends limits with four file descriptors (`ring`, `calls`, `results`, `status`), as often as it likes, and is
answered with the number of the process that was forked. A worker reads from `calls` where in the ring the next call
lies, or the call itself if the ring has no room for it, and writes results, in their order, until the calls end.
`status` gets the traceback of a crash, if there is one, and as its last twelve bytes how the worker ended, as
`os.waitpid` says it, and how many calls it had done by then: more, perhaps, than it sent results of.

Everything ends with the parent: the zygote sees the end of the socket, or that it has another parent, and kills its
workers; a worker is killed by the kernel when the zygote dies, where the kernel can do that (Linux), and ends at
the limits of its page elsewhere.
"""

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import mmap
import os
import re
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import psutil

from gristmill.tasks.guard.channel import CALL, RESULT, framed, pack, readable, unpack

ENDED = struct.Struct("<iq")
PROCESS = struct.Struct("<q")
DONE = struct.Struct("<q")
REQUEST = 4096
RETIRED = framed(None)  # a worker's last word when it ends of its own will
OVER_MEMORY = -1  # the status of a worker that was killed for its memory; waitpid's are never negative

LINUX = sys.platform.startswith("linux")
IDLE_SECONDS = 60.0  # a zygote without workers leaves: the stages that follow need its memory
ORPHAN_SECONDS = 1.0  # how often a zygote looks whose child it is
WATCH_SECONDS = 0.1
KEPT_BYTES = 256 << 20  # what pages may leave behind in a worker, and at most an eighth of `page_memory`
READY_BYTES = 1 << 18
DETAIL = 200

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")

Function = Callable[..., dict]


class Allowance(NamedTuple):
    """The fields of `gristmill.tasks.guard.parent.Limits`, as they are sent: the child does without pydantic."""

    page_seconds: float
    page_wall_seconds: float
    page_memory: int
    page_result: int


class Worker(NamedTuple):
    """What the zygote knows of a worker: its pipe `status`, the calls it has done, in memory that both see, and
    the resident bytes at which it is killed."""

    status: int
    done: mmap.mmap
    resident: int


def over_memory(bound: int) -> dict[str, str]:
    return {"rule": "page_memory", "detail": f"over {bound} bytes"}


def main(target: str) -> None:
    gc.set_threshold(50_000)  # imports leave almost no garbage
    control = socket.socket(fileno=os.dup(0))
    # what parsers print must get neither between the frames nor into the parent's log
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what an interrupt means is for the parent to say
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with control.makefile("rb") as stream:
        rehearsals, trials, limits = unpack(stream.read(*RESULT.unpack(stream.read(RESULT.size))))
    try:
        module, _, name = target.partition(":")
        function = getattr(importlib.import_module(module), name)
        for rehearsal in rehearsals:
            function(*rehearsal)
    except Exception as error:
        control.sendall(framed({"error": describe(error)}))
        return
    for trial in trials:
        if returns(function, trial, Allowance(*limits)):
            with contextlib.suppress(BaseException):  # the pages will tell
                function(*trial)
    control.sendall(framed({"error": None}))
    gc.collect()
    gc.freeze()  # a collection in a worker would copy all memory that it shares with the zygote
    serve(control, function)


def returns(function: Function, trial: tuple, allowance: Allowance) -> bool:
    """Whether a call returns or raises, under the limits of a page, in a process of its own."""
    process = os.fork()
    if process == 0:
        Memory(allowance.page_memory)
        signal.setitimer(signal.ITIMER_PROF, allowance.page_seconds)
        signal.setitimer(signal.ITIMER_REAL, allowance.page_wall_seconds)
        with contextlib.suppress(BaseException):
            function(*trial)
        os._exit(0)
    return os.waitpid(process, 0)[1] == 0


def serve(control: socket.socket, function: Function) -> None:
    """Fork workers until the parent goes away, and tell it how each of them ended."""
    parent = os.getppid()
    woken, wake = os.pipe()
    for pipe in (woken, wake):
        os.set_blocking(pipe, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    workers: dict[int, Worker] = {}
    sources: list[socket.socket | int] = [control, woken]
    last = time.monotonic()
    while os.getppid() == parent and (workers or time.monotonic() < last + IDLE_SECONDS):
        wait = ORPHAN_SECONDS if LINUX or not workers else WATCH_SECONDS
        ready, _, _ = select.select(sources, [], [], wait)
        if woken in ready:
            os.read(woken, REQUEST)
        for process in [*workers]:
            over = not LINUX and stop_above(process, workers[process].resident)
            ended, status = os.waitpid(process, 0 if over else os.WNOHANG)
            if ended:
                worker = workers.pop(process)
                _tell(worker.status, ENDED.pack(OVER_MEMORY if over else status, *DONE.unpack(worker.done)))
                worker.done.close()
                last = time.monotonic()
        if control in ready:
            request, pipes, _, _ = socket.recv_fds(control, REQUEST, 4)
            if not request:
                break
            allowance = Allowance(*unpack(request))
            zygote = os.getpid()
            done = mmap.mmap(-1, DONE.size)
            process = os.fork()
            if process == 0:
                signal.set_wakeup_fd(-1)
                for fd in (woken, wake, control.fileno(), *(worker.status for worker in workers.values())):
                    os.close(fd)
                _become_worker(zygote, function, allowance, done, *pipes)
            *used, status = pipes
            for fd in used:
                os.close(fd)
            workers[process] = Worker(status, done, 0 if LINUX else _resident(zygote) + allowance.page_memory)
            control.sendall(PROCESS.pack(process))
    for process in workers:
        os.kill(process, signal.SIGKILL)


def stop_above(process: int, resident: int) -> bool:
    """Kill a process that holds more than `resident` bytes: for kernels that do not limit the address space."""
    if _resident(process) <= resident:
        return False
    os.kill(process, signal.SIGKILL)
    return True


def _resident(process: int) -> int:
    try:
        return psutil.Process(process).memory_info().rss
    except psutil.Error:  # it has just ended
        return 0


def _tell(pipe: int, status: bytes) -> None:
    try:
        os.write(pipe, status)
    except BrokenPipeError:
        pass  # the guard was closed and does not want to know
    finally:
        os.close(pipe)


def _become_worker(
    zygote: int,
    function: Function,
    allowance: Allowance,
    done: mmap.mmap,
    ring: int,
    calls: int,
    results: int,
    status: int,
) -> NoReturn:
    try:
        if LINUX:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() == zygote:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            faulthandler.enable(status, all_threads=False)
            # shows where it looped or waited, and then dies of the signal all the same
            for number in (signal.SIGPROF, signal.SIGALRM):
                faulthandler.register(number, status, all_threads=False, chain=True)
            work_off(function, allowance, done, readable(ring), calls, results)
    except (BrokenPipeError, EOFError):
        pass  # nobody is there any more
    finally:
        os._exit(0)


def work_off(
    function: Function, allowance: Allowance, done: mmap.mmap, ring: memoryview, calls: int, results: int
) -> None:
    """Call the function for each call of the pipe, under limits, and send the results back.

    Each result that is written wakes the parent up, which costs more than the writing, so results wait until a call
    asks for them or until there are 256 kB. Holds these, one call and its result. Ends where the calls end; or,
    having said so, after a page that needed more memory than it may or left much behind, because the next page
    could use what is free in the heap.
    """
    memory = Memory(allowance.page_memory)
    ready = bytearray()
    number = 0
    with open(calls, "rb", buffering=1 << 16) as stream:
        while head := stream.read(CALL.size):
            length, place, asks = CALL.unpack(head)
            try:
                call = stream.read(length) if place < 0 else ring[place : place + length]
                signal.setitimer(signal.ITIMER_PROF, allowance.page_seconds)
                signal.setitimer(signal.ITIMER_REAL, allowance.page_wall_seconds)
                result = answer(function, call)
                if len(result) > allowance.page_result:
                    result = pack({"rule": "page_memory", "detail": f"a result over {allowance.page_result} bytes"})
                over = False
            except MemoryError:
                over = True
            # the parent may take its time to read, and to write the next call
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if over:
                memory.lift()
                result = pack(over_memory(allowance.page_memory))
            number += 1
            DONE.pack_into(done, 0, number)
            ready += RESULT.pack(len(result))
            if len(result) < READY_BYTES:
                ready += result
            else:  # without another copy, for which there may be no memory
                _write(results, ready)
                _write(results, result)
                ready.clear()
            retires = memory.next_page() or over
            if asks or retires or len(ready) >= READY_BYTES:
                _write(results, ready)
                ready.clear()
            if retires:
                _write(results, RETIRED)
                return


class Memory:
    """The limit on the address space, set anew for each page from what the worker has by then.

    Nothing is limited where the kernel does not do it (macOS); there the zygote watches.
    """

    def __init__(self, page_memory: int) -> None:
        self.page_memory = page_memory
        self.hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        self.unit = resource.getpagesize()
        self.most: int | None = None
        if LINUX:
            self.sizes = os.open("/proc/self/statm", os.O_RDONLY)
            self._limit(self._size())

    def next_page(self) -> bool:
        """Set the limit for the next page; True if this worker should not do it.

        That is when it has grown too much since its first page, which may have loaded what all pages need.
        """
        if not LINUX:
            return False
        size = self._size()
        if self.most is None:
            self.most = size + min(KEPT_BYTES, self.page_memory // 8)
        self._limit(size)
        return size > self.most

    def lift(self) -> None:
        if LINUX:
            resource.setrlimit(resource.RLIMIT_AS, (self.hard, self.hard))

    def _limit(self, size: int) -> None:
        soft = size + self.page_memory
        soft = soft if self.hard == resource.RLIM_INFINITY else min(soft, self.hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, self.hard))

    def _size(self) -> int:
        return int(os.pread(self.sizes, 64, 0).split(b" ", 1)[0]) * self.unit


def answer(function: Function, call: bytes | memoryview) -> bytes:
    """The packed result of a call, or the rule `extractor_error` with what it raised. MemoryError goes through."""
    try:
        result = function(*unpack(call))
        if not isinstance(result, dict):
            raise TypeError(f"the result is not a dict but a {type(result).__name__}")
        return pack(result)
    except MemoryError:
        raise
    except BaseException as error:
        return pack({"rule": "extractor_error", "detail": describe(error)})


def describe(error: BaseException) -> str:
    """Type and message, without memory addresses and what no file takes; at most 200 characters."""
    try:
        message = str(error)
    except Exception:
        message = "(it has no message)"
    text = _ADDRESS.sub("0x...", f"{type(error).__name__}: {message}")
    return text[:DETAIL].encode("utf-8", "replace").decode().rstrip(": ")


def _write(pipe: int, data: bytes | bytearray) -> None:
    written = 0
    with memoryview(data) as view:
        while written < len(view):
            written += os.write(pipe, view[written:])


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)  # the exit handlers of what was imported have no say
