"""A name for this process, for files that must not outlive it, and whether the process of a name has ended."""

import os
import socket
import sys
from functools import cache
from pathlib import Path

import xxhash

_DEAD = ("Z", "X")  # proc(5): a zombie, a dead process


def this_process() -> str:
    """`<host>-<process>-<start>`: a number between two of 16 hexadecimal characters. No other process ever has it."""
    return f"{_host()}-{os.getpid()}-{_started(os.getpid())}"


def has_ended(owner: str) -> bool:
    """Whether a process, as `this_process` names it, has surely ended: it was on this host, and is there no more."""
    host, process, started = owner.split("-")
    return host == _host() and _started(int(process)) != started


@cache
def _host() -> str:
    """The installed system, and the process namespace in it, so that containers on one machine differ."""
    known = [socket.gethostname()]
    if sys.platform.startswith("linux"):
        known.append(os.readlink("/proc/self/ns/pid"))
        if (machine := Path("/etc/machine-id")).is_file():
            known.append(machine.read_text())
    return xxhash.xxh3_64_hexdigest("\n".join(known).encode())


def _started(process: int) -> str:
    """When a process started, by the system's boot and its clock since then; empty if it does not run."""
    if not sys.platform.startswith("linux"):
        import psutil  # where it is needed: files are read without it

        try:
            return xxhash.xxh3_64_hexdigest(str(int(psutil.Process(process).create_time())).encode())
        except psutil.NoSuchProcess:
            return ""
    # psutil adds the time of boot, which changes when the clock is set
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    if state in _DEAD:
        return ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return xxhash.xxh3_64_hexdigest(f"{boot}{fields[18]}".encode())
