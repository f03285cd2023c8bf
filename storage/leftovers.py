"""Temporary files with their owner in their name, so that files of a killed process can be recognized and removed."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import fsspec
import xxhash
from fsspec.implementations.local import LocalFileSystem

_DEAD = ("Z", "X")  # proc(5): a zombie, a dead process


def this_process() -> str:
    """`<host>-<process>-<start>`: a number between two of 16 hexadecimal characters. No other process ever has it."""
    return f"{_host()}-{os.getpid()}-{_started(os.getpid())}"


def is_of_this_host(owner: str) -> bool:
    """Whether a process, as `this_process` names it, is or was on this host."""
    return owner.split("-")[0] == _host()


def has_ended(owner: str) -> bool:
    """Whether a process, as `this_process` names it, has surely ended: it was on this host, and is there no more."""
    host, process, started = owner.split("-")
    return host == _host() and _started(int(process)) != started


@cache
def _host() -> str:
    """The installed system, and the process namespace in it, so that containers on one machine differ."""
    identifiers = [socket.gethostname()]
    if sys.platform.startswith("linux"):
        identifiers.append(os.readlink("/proc/self/ns/pid"))
        if (machine := Path("/etc/machine-id")).is_file():
            identifiers.append(machine.read_text())
    return xxhash.xxh3_64_hexdigest("\n".join(identifiers).encode())


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


_OWNER = r"(?P<owner>[0-9a-f]{16}-\d+-[0-9a-f]{16})"
_TEMPORARY = re.compile(rf"\..*\.{_OWNER}\.[0-9a-f]+\.tmp")
_SCRATCH = re.compile(rf"gristmill-{_OWNER}-.*")


def temporary_name(name: str) -> str:
    """A name for a file of which not all is written, in the folder where it will be called `name`."""
    return f".{name}.{this_process()}.{uuid.uuid4().hex}.tmp"


def owner_of(name: str) -> str:
    """The process that `temporary_name` names in a file's name, as `this_process` gives it; "" for another name."""
    match = _TEMPORARY.fullmatch(name)
    return match["owner"] if match else ""


def scratch_prefix() -> str:
    """How the names of this process's files and folders begin in the system's temporary folder."""
    return f"gristmill-{this_process()}-"


# Waits for the end of its parent, which closes the pipe however it comes, and removes a folder. Others who work in it
# end with the parent as well, in the same moment.
_REMOVER = """
import os, shutil, sys, time
sys.stdin.read()
for _ in range(100):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


@contextmanager
def scratch_folder(purpose: str, parent: str | None = None) -> Iterator[Path]:
    """A folder that only this user may enter, for files of a process and its children while they work: in the system's
    temporary folder or in `parent`. It is removed at the end of the block, or when the process is killed."""
    folder = tempfile.mkdtemp(prefix=f"{scratch_prefix()}{purpose}-", dir=parent and os.path.abspath(parent))
    # in a session of its own, so that what ends the process and its group leaves it be
    remover = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _REMOVER, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield Path(folder)
    finally:
        assert remover.stdin is not None, "it is a pipe"
        remover.stdin.close()
        remover.wait()
        shutil.rmtree(folder, ignore_errors=True)  # if it was killed


def remove_temporary(folder: str) -> None:
    """Remove below a folder the temporary files of processes that have ended. An object store has none."""
    fs, inner = fsspec.core.url_to_fs(folder)
    if isinstance(fs, LocalFileSystem):
        for path in Path(inner).rglob(".*.tmp"):
            _remove(path, _TEMPORARY)


def remove_scratch() -> None:
    """Remove from the system's temporary folder what this user's processes have left that have ended."""
    for path in Path(tempfile.gettempdir()).glob("gristmill-*"):
        try:
            ours = path.lstat().st_uid == os.getuid()
        except FileNotFoundError:
            continue
        if ours:
            _remove(path, _SCRATCH)


def _remove(path: Path, pattern: re.Pattern[str]) -> None:
    match = pattern.fullmatch(path.name)
    if match is None or not has_ended(match["owner"]):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)  # another run may be at it, too
    else:
        path.unlink(missing_ok=True)
