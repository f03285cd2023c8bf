"""Calls of user functions: steps, readers, engines, filters. Their errors are reported with name, file and line.

    columns = own_code.call("step profanity", work.measure, step, batch, accept=checked_columns)

Gristmill's functions are called directly. A user's function runs in a separate thread, so that a call that never
returns ends the job. Functions that run in guarded processes (`gristmill.tasks.guard`) have a time limit there, so
`call_guarded` calls them.
"""

import ctypes
import errno
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from inspect import unwrap
from itertools import islice
from queue import SimpleQueue
from types import FrameType, TracebackType
from typing import Any, TextIO, TypeVar, cast

from gristmill.tasks.engine import options
from gristmill.tasks.engine.code_version import is_ours

T = TypeVar("T")
log = logging.getLogger(__name__)

FIRST_LINE_SECONDS = 60.0  # until a log line names the long call; the next line comes after twice as long
# Documents of a reader that are taken together. A switch of threads per document would cost more than most readers.
ROWS_TOGETHER, TOGETHER_SECONDS, TOGETHER_BYTES = 64, 0.05, 1 << 20
_MAX_MESSAGE, _MAX_PRINTED = 300, 2000  # characters


class OwnCodeError(RuntimeError):
    """A user's function failed. `sentence`: its name, file and line, and what happened. `trace`: the traceback."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence, trace)
        self.sentence, self.trace = sentence, trace

    def __str__(self) -> str:
        return self.sentence


class Unacceptable(ValueError):
    """The result of a function cannot be used. The message has what it is, and what to return instead."""


def is_own(function: Any) -> bool:
    """Whether a function is a user's."""
    return not is_ours(getattr(function, "__module__", None) or "")


def call(label: str, function: Callable[..., Any], *arguments: Any, accept: Callable[[Any], T], **named: Any) -> T:
    """Call a function, and return `accept(result)`. `label`: what the function is to the user, such as `step
    profanity`. `accept` raises Unacceptable for a result that cannot be used. The result of a Gristmill function is
    returned as it is.

    Raises OwnCodeError if a user's function raises, exits, returns a result that is not accepted, or does not return
    within `own_seconds` of the job's options. Its prints become log lines.
    """
    if not is_own(function):
        return function(*arguments, **named)
    task = _Task(label, function, lambda: accept(function(*arguments, **named)))
    if _running.get() is not None:  # within another function of a user's, which has the clock
        return task.run_here()
    return _companion().run(task)


def call_guarded(label: str, function: Callable[..., Any], *arguments: Any, accept: Callable[[Any], T]) -> T:
    """As `call`, but without a time limit, for processes that the kernel limits. MemoryError passes unchanged."""
    if not is_own(function):
        return function(*arguments)
    return _Task(label, function, lambda: accept(function(*arguments))).run_here()


def rows_of(label: str, function: Callable[..., Iterable[Any]], *arguments: Any) -> Iterator[Any]:
    """Yield the items of a user's generator. They are taken in batches of at most 64, 50 ms and a megabyte. The time
    limit applies to each batch. Raises OwnCodeError as `call` does, after the items before the error."""
    if not is_own(function):
        yield from function(*arguments)
        return
    items = _companion().run(_Task(label, function, lambda: _iterator(function(*arguments))))
    while True:
        batch = _Batch()
        try:
            _companion().run(_Task(label, function, partial(batch.fill, items)))
        except OwnCodeError:
            yield from [*batch.items]
            raise
        yield from batch.items
        if batch.ended:
            return


def _iterator(result: Any) -> Iterator[Any]:
    if not isinstance(result, Iterable) or isinstance(result, str | bytes):
        raise Unacceptable(f"returned {shown(result)}; yield a mapping for each document")
    return iter(result)


class _Batch:
    """The items of a batch so far."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.ended = False

    def fill(self, items: Iterator[Any]) -> None:
        until, size = time.monotonic() + TOGETHER_SECONDS, 0
        for item in islice(items, ROWS_TOGETHER):
            self.items.append(item)
            if isinstance(item, Mapping):
                size += sum(len(value) for value in item.values() if isinstance(value, str | bytes))
            if size > TOGETHER_BYTES or time.monotonic() > until:
                return
        self.ended = len(self.items) < ROWS_TOGETHER


@dataclass(frozen=True)
class OwnWork:
    """A user's function as the work of a phase. `accept(result, folder, number, **named)` returns the record of a job.
    It is sent to workers, so `accept` is a function of a module, or a `partial` of one."""

    label: str
    function: Callable[..., Any]
    accept: Callable[..., Any]

    def __call__(self, folder: str, number: int, **named: Any) -> Any:
        accept = partial(self.accept, folder=folder, number=number, **named)
        return call(self.label, self.function, folder, number, accept=accept, **named)


def unacceptable(label: str, function: Callable[..., Any], what: str) -> OwnCodeError:
    """The error for a result of a user's function: `what` it is, and what to return instead."""
    return OwnCodeError(f"{label} ({place(function)}) {what}")


def shown(value: Any) -> str:
    """A result as errors name it: `None`, `a str`."""
    return "None" if value is None else f"a {type(value).__name__}"


def place(function: Callable[..., Any]) -> str:
    """`file.py:17, name`: where a function is defined."""
    inner = unwrap(getattr(function, "__func__", function))
    name = getattr(inner, "__name__", type(inner).__name__)
    code = getattr(inner, "__code__", None)
    module = getattr(inner, "__module__", None) or ""
    if code is None:
        source = getattr(sys.modules.get(module), "__file__", None) or module
        return f"{_shown_file(module, source)}, {name}"
    return f"{_shown_file(module, code.co_filename)}:{code.co_firstlineno}, {name}"


def raised(label: str, function: Callable[..., Any] | str, error: BaseException) -> OwnCodeError:
    """The error for an exception of a user's function, or of the import of a user's module (`function` is its name)."""
    trace = "".join(traceback.format_exception(error))
    kind = type(error).__name__
    message = _message(error)
    if isinstance(error, SystemExit):
        status = "" if error.code is None else f" with status {error.code!r}"
        message = f"it ends the program{status}; raise an error instead"
    module = function if isinstance(function, str) else getattr(function, "__module__", None) or ""
    where = _error_place(error, module)
    if where is None:
        where = place(function) if callable(function) else module
    return OwnCodeError(f"{label} ({where}, {kind}){f': {message}' if message else ''}", trace)


def _message(error: BaseException) -> str:
    try:
        words = " ".join(str(error).split())
    except Exception:
        return "the error has no message"
    return words if len(words) <= _MAX_MESSAGE else f"{words[:_MAX_MESSAGE]}..."


def _error_place(error: BaseException, module: str) -> str | None:
    """`file.py:17`: the innermost line of the user's package in the traceback of an error."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{os.path.basename(error.filename)}:{error.lineno}"
    where = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if _is_in(trace.tb_frame, module):
            where = f"{_shown_frame(trace.tb_frame)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return where


def _running_place(frame: FrameType | None, function: Callable[..., Any]) -> str:
    """`file.py:17, name`: the innermost line of the user's package that a thread is executing."""
    while frame is not None:
        if _is_in(frame, getattr(function, "__module__", None) or ""):
            return f"{_shown_frame(frame)}:{frame.f_lineno}, {frame.f_code.co_name}"
        frame = frame.f_back
    return place(function)


def _is_in(frame: FrameType, module: str) -> bool:
    """Whether a frame is in a module, or in the package that contains the module."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == module.partition(".")[0]


def _shown_frame(frame: FrameType) -> str:
    return _shown_file(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename)


def _shown_file(module: str, path: str) -> str:
    """A file below the folder of its package, as `my_package/steps.py`."""
    name = os.path.basename(path)
    folders = module.split(".") if name == "__init__.py" else module.split(".")[:-1]
    return "/".join([*folders, name])


class _Task:
    """A call of a user's function: `run` makes it."""

    def __init__(self, label: str, function: Callable[..., Any], run: Callable[[], Any]) -> None:
        self.label, self.function, self._run = label, function, run
        self.printed: list[str] = []
        self.print_place = ""
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Event()

    def run_here(self) -> Any:
        """Return the result. Raises OwnCodeError; MemoryError passes unchanged."""
        _catch_prints()
        token = _running.set(self)
        try:
            return self._run()
        except OwnCodeError:
            raise
        except Unacceptable as error:
            raise unacceptable(self.label, self.function, f"{error}") from error
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or _is_of_machine(error):
                raise
            raise raised(self.label, self.function, error) from error
        finally:
            _running.reset(token)
            self._report_prints()

    def run_aside(self) -> None:
        """Run in another thread, and store `result` or `error`."""
        try:
            self.result = self.run_here()
        except BaseException as error:
            self.error = error
        self.done.set()

    def _report_prints(self) -> None:
        if not self.printed:
            return
        text = "".join(self.printed)[:_MAX_PRINTED]
        first = next((line for line in text.splitlines() if line.strip()), "")[:_MAX_MESSAGE]
        if first and self.print_place not in _told:
            _told.add(self.print_place)
            log.warning("%s (%s) prints: %s; further output is not shown", self.label, self.print_place, first)
        else:
            log.debug("%s (%s) prints: %s", self.label, self.print_place, text)


_running: ContextVar[_Task | None] = ContextVar("own_code", default=None)
_told: set[str] = set()  # places whose prints have been reported by this process
_FULL = (errno.ENOSPC, errno.EDQUOT)


def _is_of_machine(error: BaseException) -> bool:
    """Whether an error in a user's function has another cause: no memory, a full disk, or an error of Gristmill, such
    as a remote file that cannot be read."""
    is_full = isinstance(error, OSError) and error.errno in _FULL
    return is_full or isinstance(error, MemoryError) or is_ours(type(error).__module__)


class _Companion:
    """A thread that makes the calls of another thread, one at a time."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=_work_off, args=(self._tasks,), name="own code", daemon=True)
        self._thread.start()

    def __del__(self) -> None:
        self._tasks.put(None)

    def run(self, task: _Task) -> Any:
        """Return the result of a call. Raises as `_Task.run_here`, and OwnCodeError if it takes too long."""
        limit = options.current().own_seconds
        self._tasks.put(partial(copy_context().run, task.run_aside))
        try:
            self._wait(task, limit)
        except BaseException:
            _threads.companion = None  # it is busy, perhaps for ever
            raise
        if task.error is not None:
            raise task.error
        return task.result

    def _wait(self, task: _Task, limit: float) -> None:
        began, line = time.monotonic(), FIRST_LINE_SECONDS
        while not task.done.wait(max(0.0, min(limit, line) - (time.monotonic() - began))):
            passed = time.monotonic() - began
            if passed < min(limit, line):
                continue
            where = _running_place(sys._current_frames().get(self._thread.ident or 0), task.function)
            if passed >= limit:
                self._interrupt()
                raise OwnCodeError(
                    f"{task.label} ({where}) has not returned after {limit:,.0f} s; reduce its work, or "
                    "raise GRISTMILL_OWN_SECONDS"
                )
            log.warning(
                "%s (%s) has been running for %.0f s; it will be ended after %.0f s", task.label, where, passed, limit
            )
            line *= 2

    def _interrupt(self) -> None:
        """Interrupt the thread's Python code. A thread that waits in C code ends with the process."""
        identity = ctypes.c_ulong(self._thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(SystemExit))


def _work_off(tasks: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # it holds documents


class _Threads(threading.local):
    companion: _Companion | None = None


_threads = _Threads()


def _companion() -> _Companion:
    """The companion of this thread."""
    if _threads.companion is None:
        _threads.companion = _Companion()
    return _threads.companion


class _Prints:
    """The standard output. Text that a user's function writes is kept for the log instead."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, or keep it up to a limit."""
        task = _running.get()
        if task is None:
            return self._stream.write(text)
        if not task.printed:
            task.print_place = _running_place(sys._getframe(1), task.function)
        if len(task.printed) < _MAX_PRINTED:
            task.printed.append(text[:_MAX_PRINTED])
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _catch_prints() -> None:
    if not isinstance(sys.stdout, _Prints):
        sys.stdout = cast(TextIO, _Prints(sys.stdout))
