"""CPU time that a process takes once, whatever its jobs hold: for imports, and for kernels that it loads or compiles.

It grows with the processes of a run and not with its documents, and a short run has little else. So jobs say how much
of their time it was (see `job_costs`).
"""

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

import psutil
import wrapt

if TYPE_CHECKING:
    from numba.core import event as numba_events
else:
    numba_events = wrapt.lazy_import("numba.core.event")

_lock = threading.Lock()
_thread = threading.local()  # `depth`: of an import or a kernel within another, which counts once
_counted = 0.0


def seconds() -> float:
    """CPU seconds of this process that were counted so far."""
    return _counted


def count_child(process: int) -> None:
    """Count what a process that this one has started took so far: until it was ready."""
    times = psutil.Process(process).cpu_times()
    _count(times.user + times.system)


def _count(seconds: float) -> None:
    global _counted
    with _lock:
        _counted += seconds


def watch() -> None:
    """Count from now on; further calls do nothing. Imports of the modules of packages that are there already count
    too."""
    with _lock:
        if any(isinstance(finder, _Imports) for finder in sys.meta_path):
            return
        sys.meta_path.insert(0, _Imports())
    if "numba" in sys.modules:
        _watch_kernels()


def _begin() -> None:
    _thread.depth = getattr(_thread, "depth", 0) + 1
    if _thread.depth == 1:
        _thread.began = time.thread_time()


def _end() -> None:
    _thread.depth -= 1
    if _thread.depth == 0:
        _count(time.thread_time() - _thread.began)


class _Imports(MetaPathFinder):
    """Finds what the other finders find, and has its loader counted."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        _begin()
        try:
            spec = next(filter(None, (each.find_spec(name, path, target) for each in self._others())), None)
        finally:
            _end()
        loader = None if spec is None else spec.loader
        # a loader that is a class, as of builtin modules, takes no time; another may load many modules, and is counted
        load = getattr(loader, "exec_module", None)
        if load is not None and not isinstance(loader, type) and not isinstance(load, _Counted):
            with suppress(AttributeError):  # one that takes no attributes is not counted
                loader.exec_module = _Counted(load)  # type: ignore[union-attr]
        return spec

    def _others(self) -> list[Any]:
        return [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]


class _Counted:
    """The loading of a module, counted."""

    def __init__(self, load: Any) -> None:
        self.load = load

    def __call__(self, module: ModuleType) -> None:
        _begin()
        try:
            self.load(module)
        finally:
            _end()
        if module.__name__ == "numba":
            _watch_kernels()


def _watch_kernels() -> None:
    """Count what numba does under the lock of its compiler: it compiles kernels there, and loads those it has kept."""

    class Kernels(numba_events.Listener):
        def on_start(self, event: Any) -> None:
            _begin()

        def on_end(self, event: Any) -> None:
            _end()

    numba_events.register("numba:compiler_lock", Kernels())
