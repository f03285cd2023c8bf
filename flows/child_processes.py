"""Nothing that a flow started outlives it: the embedded Prefect server is a child that a kill -9 would leave behind."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import psutil

# Ends when the pipe to its parent closes, which the kernel does however the parent ended.
_WATCH = """
import os, signal, sys
sys.stdin.read()
for pid in map(int, sys.argv[1:]):
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
"""


@contextlib.contextmanager
def child_process_cleanup() -> Iterator[None]:
    """Within the block, the Prefect server that this process has started is ended when the process is killed."""
    children = [str(child.pid) for child in psutil.Process().children() if "uvicorn" in child.cmdline()]
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-c", _WATCH, *children], stdin=subprocess.PIPE, start_new_session=True
    )
    assert watcher.stdin is not None, "it is a pipe"
    try:
        yield
    finally:
        watcher.kill()
        watcher.wait()
        watcher.stdin.close()
