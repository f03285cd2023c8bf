"""The memory of a worker that it has freed. Separate: it is about the C library, not about executors."""

import ctypes

import pyarrow as pa

# Parameters of glibc's mallopt(3), and of each the value: up to so many free bytes at the end of the heap stay, blocks
# of up to so many are taken from there, and all threads take from the same.
_MALLOC = {-1: 1 << 29, -3: 1 << 25, -8: 1}


def keep_what_is_freed() -> None:
    """Let this process use memory again that it has freed: it may stay at the most that it has needed.

    The system clears all that it gives, page by page. Dask has its workers give back what they free at once, and
    Arrow's own pool does it soon, so that a fifth of a worker's time went by with that. Arrow's pool is malloc after
    this; where the C library is another than glibc, that is all.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        for parameter, value in _MALLOC.items():
            library.mallopt(parameter, value)
