"""The last line of a command that fails, and the file with the traceback. Separate: only a command that fails imports
it."""

import errno
import os
import tempfile
import time
import traceback
from pathlib import Path

from gristmill.flows.machine import limits
from gristmill.flows.machine.settings import MachineSettings
from gristmill.tasks.engine import extras
from gristmill.tasks.engine.own_code import OwnCodeError

_EXPECTED = (OSError, ValueError, LookupError, RuntimeError)
# Errors that are not caused by a lack of memory.
_OF_VALUES = (FileNotFoundError, FileExistsError, PermissionError, ValueError, LookupError, OwnCodeError)


def sentence(error: Exception) -> str:
    """The message of a command for an error. The traceback of an error in a user's code, or of an unexpected error, is
    appended to `errors.log` in the local folder, or to a new file if that is not writable."""
    if not isinstance(error, _OF_VALUES) and (trouble := limits.few_addresses()):
        return trouble
    if isinstance(error, MemoryError):
        return f"out of memory; {_REMEDIES[errno.ENOMEM]}"
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        named = f": {error.filename}" if error.filename else ""
        return f"{os.strerror(error.errno)}{named}; {_REMEDIES[error.errno]}"
    if isinstance(error, OwnCodeError):
        return f"{error}; the traceback is in {_noted(error.trace)}" if error.trace else f"{error}"
    if shortage := extras.shortage_of(error, "this command"):
        return shortage
    notes = "".join(f"\n  ({note})" for note in getattr(error, "__notes__", ()))
    if isinstance(error, _EXPECTED):
        return f"{error}{notes}"
    trace = "".join(traceback.format_exception(error))
    return f"unexpected {type(error).__name__}: {error}{notes}; please report it with the traceback in {_noted(trace)}"


_REMEDIES = {
    errno.EMFILE: "raise the limit of open files in the shell that starts it, ulimit -n 4096, or lower "
    "GRISTMILL_WORKERS",
    errno.ENFILE: "this machine has too many open files: end other programs",
    errno.EROFS: "make it writable, or set GRISTMILL_HOME to a writable folder, such as a copy of this home",
    errno.ENOMEM: "close other programs, or raise the memory limit of this process (ulimit -v unlimited)",
    errno.EAGAIN: "this account has too many processes: end some, or raise the limit (ulimit -u)",
}


def _noted(trace: str) -> str:
    """Write the traceback, and return the path of the file."""
    text = f"{time.strftime('%Y-%m-%d %H:%M:%S')}\n{trace}\n"
    path = Path(MachineSettings().local_folder, "errors.log")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as log:
            log.write(text)
    except OSError:
        with tempfile.NamedTemporaryFile("w", prefix="gristmill-", suffix=".log", delete=False) as other:
            other.write(text)
        return other.name
    return str(path)
