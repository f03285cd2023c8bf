"""A process that has loaded training and forks one for each run, so that a run does without the seconds of a start.

    with preloaded({"OMP_NUM_THREADS": "1"}) as address:
        launch(run_json, 1, log, preloaded=address)

The process only imports: it computes nothing, so no thread of a library for sums is there and no GPU is touched, and
what it forks is as a process that has just imported the same. It dies with the thread that began the block, and what
it has forked dies with it. A run asks for its process by a socket, and gives it its environment and the file of its
output; its number and then its exit code come back by the same socket, a message each; a run that a signal ends
sends no code. Linux only.
"""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from gristmill.training.run import launch
from gristmill.training.run.deathsig import PARENT, die_with_parent
from gristmill.training.run.environment import OF_RANKS, environment_of

MAX_REQUEST_BYTES = 1 << 20  # bytes of a request
WAITING = 256  # runs that may ask at once
# Arrow's jemalloc begins a thread when it is loaded, and Python 3.12 warns of a fork beside one
# (https://jemalloc.net/jemalloc.3.html, opt.background_thread)
ONE_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
# What a run imports, also what libraries import when they are first used.
MODULES = ("gristmill.training.run.loop", "torch._dynamo", "pyarrow.pandas_compat", "pandas")


@contextmanager
def preloaded(environment: Mapping[str, str]) -> Iterator[str]:
    """The address of such a process, for as long as the block lasts; "" where there are none. `environment`: what the
    libraries of all runs read when they are loaded."""
    if sys.platform != "linux":
        yield ""
        return
    own = {name: value for name, value in environment_of(1, "").items() if name not in OF_RANKS}
    # in /tmp, not TMPDIR: an address has 107 bytes at most. Only its owner may enter the folder, since requests are
    # executed.
    with (
        tempfile.TemporaryDirectory(prefix="gristmill-", dir="/tmp") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door,
    ):
        address = f"{folder}/runs"
        door.bind(address)
        door.listen(WAITING)  # here, so that a run may ask at once
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "gristmill.training.run.preloaded", str(os.getpid())],
            stdin=door.fileno(),
            stdout=subprocess.DEVNULL,
            env={**own, **ONE_THREAD, **environment},
            start_new_session=True,
        )
        door.close()  # or a run would wait at the door of a process that is gone
        try:
            yield address
        finally:
            process.kill()
            process.wait()


@cache
def kept(environment: tuple[tuple[str, str], ...]) -> str:
    """The address of such a process that lives as long as this one; "" as for `preloaded`. `environment`: names and
    values."""
    addresses: queue.SimpleQueue[str | BaseException] = queue.SimpleQueue()
    ended = threading.Event()

    def keep() -> None:
        try:
            with preloaded(dict(environment)) as address:
                addresses.put(address)
                ended.wait()
        except BaseException as error:
            addresses.put(error)

    # a thread that lives on, since what it starts would die with it
    thread = threading.Thread(target=keep, name="preloaded", daemon=True)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()

    atexit.register(end)
    answer = addresses.get()
    if isinstance(answer, BaseException):
        raise answer
    return answer


def serve(door: socket.socket) -> None:
    """Fork for each that asks."""
    for name in MODULES:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries what has ended
    own = os.getpid()
    while True:
        channel, _ = door.accept()
        request, descriptors, _, _ = socket.recv_fds(channel, MAX_REQUEST_BYTES, 1)
        if not request:
            channel.close()
            continue
        if os.fork() == 0:
            door.close()
            _run(json.loads(request), own, descriptors[0], channel)
        os.close(descriptors[0])
        channel.close()


def _run(request: dict, parent: int, output: int, channel: socket.socket) -> None:
    """The forked process: one rank, and never back."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel.send(str(os.getpid()).encode())  # by itself, so that it is before the code
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, standard in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, standard)
    os.close(nothing)
    os.close(output)
    os.environ.update(request["environment"])
    os.environ[PARENT] = str(parent)
    code = 1
    try:
        code = launch.main(request["run"])
    except BaseException:
        traceback.print_exc()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    channel.send(str(code).encode())
    os._exit(code)  # as in gristmill.training.run.launch


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    serve(socket.socket(fileno=os.dup(0)))
