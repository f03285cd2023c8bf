"""Files that libraries of others open: every error of a library, a panic of Rust's too, is one sentence with the file.

What we wrote is compared with its digest first, by `gristmill.storage.damage.RecordedFile`: a library trusts its files,
and gives other values, or ends the process, where they are damaged.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gristmill.storage.printable import redact_url

# of pyo3, a BaseException that no package exports
_PANIC = "PanicException"
_SHOWN = 300  # characters of a library's message


@contextmanager
def opening(path: str, kind: str, fix: str, error: Callable[[str], Exception] = ValueError) -> Iterator[None]:
    """A block in which a library opens or reads a file.

    Raises `error` in place of what the library raises, with one sentence: the file, that it is no `kind`, the first
    line of the reason, and `fix`, what to do. MemoryError and what ends the process go through.
    """
    try:
        yield
    except BaseException as caught:
        if isinstance(caught, MemoryError) or not (isinstance(caught, Exception) or type(caught).__name__ == _PANIC):
            raise
        reason = " ".join(str(caught).split())[:_SHOWN] or type(caught).__name__
        raise error(f"{redact_url(path)} is no {kind}: {reason}; {fix}") from caught
