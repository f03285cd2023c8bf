"""Limits of this process that the shell has set (ulimit). Separate: used before a run, and after a command fails.

With too few open files or too little address space, a run ends in the middle of a library call, without a reason.
"""

import resource

MIN_ADDRESSES = 2 * 10**9  # bytes of a run: below 1.5 GB Arrow, numba and Dask end the process where they are
MIN_START = 500 * 10**6  # bytes of any command: with less, the libraries that report errors cannot be imported
_MIN_FILES, _WANTED_FILES = 128, 4096  # open at once: a run of two workers has 90

_FIX = "raise the limit in the shell that starts it"


def open_more_files() -> None:
    """Raise the limit of open files to at most 4,096, because the default of shells is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_run() -> None:
    """Raise RuntimeError if a run would exceed a limit of this process, with the command that raises the limit."""
    open_more_files()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < _MIN_FILES:
        raise RuntimeError(
            f"this process may open {files} files, but a run needs at least {_MIN_FILES}: {_FIX}, ulimit -n "
            f"{_WANTED_FILES}"
        )
    if trouble := few_addresses():
        raise RuntimeError(trouble)


def few_addresses(needed: int = MIN_ADDRESSES) -> str:
    """Why this process has less address space than `needed` bytes; empty if it has enough."""
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    if addresses == resource.RLIM_INFINITY or addresses >= needed:
        return ""
    have = f"this process may use {addresses / 1000000000.0:.1f} GB of address space"
    return f"{have}, but its libraries need {needed / 1000000000.0:g} GB: {_FIX}, ulimit -v unlimited"
