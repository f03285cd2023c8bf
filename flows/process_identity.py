"""Names of processes that outlive them: whether the one that began a record still runs."""

import os
import socket

import psutil

_SLACK_SECONDS = 2.0  # the time of a start is counted from that of boot, which follows a clock that is set


def this_process() -> str:
    """Host, number and start of this process: `host/4711/1700000000`."""
    return f"{socket.gethostname()}/{os.getpid()}/{psutil.Process().create_time():.0f}"


def has_ended(process: str) -> bool:
    """Whether a process that `this_process` named has ended; of another machine's nothing is known, so it has not."""
    host, number, started = process.rsplit("/", 2)
    if host != socket.gethostname():
        return False
    try:
        return abs(psutil.Process(int(number)).create_time() - float(started)) > _SLACK_SECONDS
    except psutil.NoSuchProcess:
        return True
