"""Module documentation of the installed packages: which modules, and their pages from guarded children."""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("pydoc_child.py")

# Windows, toys, programs, or modules that act when they are imported.
STDLIB_LEFT_OUT = frozenset(
    "antigravity ensurepip idlelib lib2to3 pydoc_data test this tkinter turtle turtledemo venv".split()
)
PARTS_LEFT_OUT = frozenset("benchmarks conftest examples test testing tests vendor vendored _vendor".split())

BATCH = 120
"""Modules that one child renders: bounds its memory and evens out the work."""


@dataclass(frozen=True)
class ModulePage:
    module: str
    html: bytes


@dataclass(frozen=True)
class LostModule:
    module: str
    reason: str


def standard_library() -> list[str]:
    """Public modules of the standard library, submodules included, sorted."""
    names = [n for n in sys.stdlib_module_names if not n.startswith("_") and n not in STDLIB_LEFT_OUT]
    modules = [name for top in sorted(names) for name in submodules(top, sys.path)]
    return [name for name in modules if not any(part.startswith("_") for part in name.split("."))]


def submodules(top: str, search_path: Sequence[str]) -> list[str]:
    """`top` and every module below it, found by reading folders, none imported. Empty if not installed."""
    if top in sys.builtin_module_names:
        return [top]
    spec = PathFinder.find_spec(top, list(search_path))
    if spec is None:
        return []
    if not spec.submodule_search_locations:
        return [top]
    return sorted({name for folder in spec.submodule_search_locations for name in _below(Path(folder), top)})


def _below(folder: Path, package: str) -> Iterator[str]:
    if (folder / "__init__.py").exists():
        yield package
    for entry in sorted(folder.iterdir()):
        name = entry.name.split(".")[0]
        if not name.isidentifier() or name in PARTS_LEFT_OUT or name.startswith(("test_", "__")):
            continue
        if entry.is_dir():
            if (entry / "__init__.py").exists():
                yield from _below(entry, f"{package}.{name}")
        elif entry.name.endswith((".py", *EXTENSION_SUFFIXES)):
            yield f"{package}.{name}"


def render(
    groups: Sequence[Sequence[str]],
    *,
    search_path: Sequence[str] = (),
    processes: int,
    limit_seconds: float,
    max_page_bytes: int,
    on_done: Callable[[int], None] = lambda modules: None,
) -> list[ModulePage | LostModule]:
    """One outcome per module, sorted by module name, whatever `processes` is.

    Each group (a package) is cut into batches of `BATCH` modules; a batch has a child process to itself, so
    what a page holds never depends on how many children ran beside it. A module that raises, exits, crashes
    the interpreter or gives no answer within `limit_seconds` is lost alone: a fresh child takes the rest of
    its batch. `on_done` is called with 1 for each module, from several threads. Held in memory: all pages.
    """
    batches = [list(group[i : i + BATCH]) for group in groups for i in range(0, len(group), BATCH)]
    batches.sort(key=lambda batch: (-len(batch), batch))

    def run(batch: list[str]) -> list[ModulePage | LostModule]:
        with tempfile.TemporaryDirectory(prefix="harvest-") as home:
            return _render_batch(batch, home, search_path, limit_seconds, max_page_bytes, on_done)

    with ThreadPoolExecutor(processes) as pool:
        outcomes = [outcome for batch in pool.map(run, batches) for outcome in batch]
    return sorted(outcomes, key=lambda outcome: outcome.module)


def _render_batch(
    batch: list[str],
    home: str,
    search_path: Sequence[str],
    limit_seconds: float,
    max_page_bytes: int,
    on_done: Callable[[int], None],
) -> list[ModulePage | LostModule]:
    outcomes: list[ModulePage | LostModule] = []
    waiting = list(batch)
    while waiting:
        request = {
            "modules": waiting,
            "limit_seconds": limit_seconds,
            "max_page_bytes": max_page_bytes,
        }
        before = len(outcomes)
        for outcome in _ask(request, home, search_path, limit_seconds):
            outcomes.append(outcome)
            on_done(1)
        waiting = waiting[len(outcomes) - before :]
    return outcomes


def _ask(
    request: dict[str, Any], home: str, search_path: Sequence[str], limit_seconds: float
) -> Iterator[ModulePage | LostModule]:
    """Outcomes of one child, in the order asked for; ends early, after a lost module, if the child does."""
    child = subprocess.Popen(
        [sys.executable, "-s", "-P", "-X", "utf8", str(CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_clean_environment(home, search_path),
        cwd=home,
        start_new_session=True,
    )
    assert child.stdin is not None and child.stdout is not None, "they are pipes"
    try:
        try:
            child.stdin.write(json.dumps(request).encode())
            child.stdin.close()
        except BrokenPipeError:
            pass  # the child is dead already: reading finds that out and reports it
        frames = _Frames(child.stdout.fileno())
        module = request["modules"][0]
        while True:
            try:
                event, name, payload = frames.next(limit_seconds)
            except TimeoutError:
                yield LostModule(module, f"no answer within {limit_seconds:g} s")
                return
            except EOFError:
                yield LostModule(module, _death(child.wait()))
                return
            if event == "end":
                return
            if event == "begin":
                module = name
            elif event == "page":
                yield ModulePage(name, payload)
            else:
                yield LostModule(name, payload.decode())
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.stdout.close()
        child.wait()


class _Frames:
    """Frames from a pipe, each awaited for a limited time."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.buffer = bytearray()
        self.selector = selectors.DefaultSelector()
        self.selector.register(fd, selectors.EVENT_READ)

    def next(self, seconds: float) -> tuple[str, str, bytes]:
        deadline = time.monotonic() + seconds
        while (end := self.buffer.find(b"\n")) < 0:
            self._fill(deadline)
        header = json.loads(self.buffer[:end])
        size = end + 1 + header["size"]
        while len(self.buffer) < size:
            self._fill(deadline)
        payload = bytes(self.buffer[end + 1 : size])
        del self.buffer[:size]
        return header["event"], header["module"], payload

    def _fill(self, deadline: float) -> None:
        if not self.selector.select(max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        chunk = os.read(self.fd, 1 << 20)
        if not chunk:
            raise EOFError
        self.buffer += chunk


def _death(status: int) -> str:
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"ended the interpreter with status {status}"


def _clean_environment(home: str, search_path: Sequence[str]) -> dict[str, str]:
    """All that a child knows of the environment: nothing of it is inherited."""
    return {
        "PATH": os.defpath,
        "HOME": home,
        "TMPDIR": home,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "80",
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(search_path),
    }
