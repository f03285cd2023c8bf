"""Compiles all kernels once per machine, before the first run, in separate processes (`kernel_calls`).

numba compiles a kernel for the types of its arguments and stores it in `gristmill.tasks.kernels.compiled.FOLDER`. A
wheel contains compiled kernels (`gristmill.tasks.kernels.packed`). For a checkout, or with another numba, this module
compiles them.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import wrapt
from filelock import FileLock, Timeout

import gristmill
from gristmill.flows.run.progress import progress_bar

if TYPE_CHECKING:
    from gristmill.tasks.kernels import compiled
else:
    compiled = wrapt.lazy_import("gristmill.tasks.kernels.compiled")

PARTS = ("extraction", "rules", "deduplication")  # a process each, which `kernel_calls` has the calls of
COMPILED = "compiled "  # what its lines begin with that name a kernel

PACKAGE = Path(gristmill.__file__).resolve().parent
_OLD_SECONDS = 30 * 24 * 3600
_WAIT_SECONDS = 2.0
_LINE_SECONDS = 10.0
# a kernel that is inlined is compiled with the kernels that call it
_KERNEL = re.compile(r"^@nb\.njit\((?!.*inline=).*\n(?:@.*\n)*def (\w+)", re.MULTILINE)


def kernels() -> set[str]:
    """The names of all kernels, as `module.function`, by the texts of their modules."""
    return {
        f"gristmill.{'.'.join(path.relative_to(PACKAGE).with_suffix('').parts)}.{name}"
        for path in sorted((PACKAGE / "tasks").rglob("*.py"))
        for name in _KERNEL.findall(path.read_text(encoding="utf-8"))
    }


def compile_kernels(say: Callable[[str], None]) -> int:
    """Compile the missing kernels, and return how many were compiled.

    `say` gets a line at the beginning and every ten seconds. A terminal also has a bar. If two processes call this at
    the same time, the second waits for the first. Raises RuntimeError with the last output of a process that failed.
    """
    if compiled.COMPLETE.is_file():
        return 0
    wanted, new = kernels(), set[str]()
    done = _stored(wanted)
    stored = f"; {len(done)} of them are compiled already" if done else ""
    say(f"kernels: compiling {len(wanted)}, once per machine (about a minute on two cores){stored}")
    last_line = time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task("kernels", total=len(wanted), completed=len(done))
        for names in _until(compiled.COMPLETE):
            new |= (names or set()) & wanted
            done |= new
            bar.update(task, completed=len(done))
            if time.monotonic() - last_line > _LINE_SECONDS:
                last_line = time.monotonic()
                waits = "waiting for another process to compile them"
                say(f"kernels: {waits if names is None else f'{len(done)} of {len(wanted)} compiled'}")
    return len(new)


def _stored(wanted: set[str]) -> set[str]:
    """The kernels in the cache, also of a run that was killed, because numba stores each one when it is ready. Its
    files are called `module.function-LINE.PYTHON.nbi`."""
    there = {path.name.rpartition("-")[0] for path in compiled.FOLDER.rglob("*.nbi")}
    return {name for name in wanted if ".".join(name.split(".")[-2:]) in there}


def _until(complete: Path) -> Iterator[set[str] | None]:
    """Yield names of new kernels, often none, until the file states that all exist; None while another process
    works."""
    complete.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(complete.parent / ".lock")
    try:
        while not lock.is_locked:
            try:
                lock.acquire(timeout=_WAIT_SECONDS)
            except Timeout:
                yield None
        if not complete.is_file():
            _remove_old(complete.parent)
            yield from _compiled()
            complete.touch()
    finally:
        lock.release()


def _remove_old(folder: Path) -> None:
    """Remove caches of other versions of the sources that have not been written for a month."""
    for other in folder.parent.glob("kernels-*"):
        if other != folder and time.time() - other.stat().st_mtime > _OLD_SECONDS:
            shutil.rmtree(other, ignore_errors=True)


def _compiled() -> Iterator[set[str]]:
    """Yield the names of kernels as processes compile them, and an empty list every few seconds."""
    lines: SimpleQueue[tuple[str, str | None]] = SimpleQueue()
    path = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    children: dict[str, subprocess.Popen[str]] = {}

    def forward(part: str, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put((part, line.rstrip()))
        lines.put((part, None))

    try:
        for part in PARTS:
            children[part] = subprocess.Popen(
                [sys.executable, "-P", "-m", "gristmill.flows.run.kernel_calls", part],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=os.environ | {"PYTHONPATH": path},
            )
            threading.Thread(target=forward, args=(part, children[part]), daemon=True).start()
        words: dict[str, list[str]] = {part: [] for part in children}
        while children:
            try:
                part, line = lines.get(timeout=_WAIT_SECONDS)
            except Empty:
                yield set()
                continue
            if line is None:
                if code := children.pop(part).wait():
                    last = "\n".join(words[part][-15:])
                    raise RuntimeError(f"compilation of the kernels of {part} ended with code {code}:\n{last}")
            elif line.startswith(COMPILED):
                yield {line.removeprefix(COMPILED)}
            else:
                words[part].append(line)
    finally:
        for child in children.values():
            child.kill()
            child.wait()
