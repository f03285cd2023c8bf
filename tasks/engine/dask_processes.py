"""How the Dask processes of a run start and talk: TLS with a key, no pages, no profiler, no Ctrl-C, no main script."""

import logging
import signal
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    import distributed
else:
    distributed = wrapt.lazy_import("distributed")

# What Dask measures of its own processes for its dashboard, which we do not start: it takes 7% of two cores, and before
# Python 3.11.9 its profiler can hang a process (python/cpython#106883).
UNWATCHED = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "2s",
}

# Dask's pages ask nobody who they are: they show what runs, and a worker's log.
NO_PAGES: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


def security(ca: str, cert: str, key: str) -> Any:
    """Dask's Security with one certificate for client, scheduler and worker. `ca`, `cert`, `key`: paths of PEM
    files."""
    roles = {
        f"tls_{role}_{what}": path
        for role in ("client", "scheduler", "worker")
        for what, path in (("cert", cert), ("key", key))
    }
    return distributed.Security(require_encryption=True, tls_ca_file=ca, **roles)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """What is started meanwhile, the cluster's thread and so its workers, now and later, never gets a SIGINT.

    A Ctrl-C at the terminal goes to all processes; what it means is for the flow to say, which gets it afterwards.
    """
    # it is started with the first process otherwise, and unblocks SIGINT then
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def quiet_refusals() -> Iterator[None]:
    """A block in which nothing is logged of connections without the key of a cluster. One that this process has started
    on loopback has no other clients: it is another account that tries its ports, and that is refused."""
    logger = logging.getLogger("distributed.comm.tcp")

    def is_own(record: logging.LogRecord) -> bool:
        return "TLS handshake failed" not in str(record.msg)

    logger.addFilter(is_own)
    try:
        yield
    finally:
        logger.removeFilter(is_own)


@contextmanager
def bare_main() -> Iterator[None]:
    """Workers are spawned, and a spawned child runs the parent's main script again to find its functions.

    Ours are found by module path, so there is nothing to look for; without this, each worker would import the
    whole command line, and a user's script without an `if __name__ == "__main__"` would start itself again.
    """
    main, bare = sys.modules["__main__"], types.ModuleType("__main__")
    sys.modules["__main__"] = bare
    try:
        yield
    finally:
        if sys.modules["__main__"] is bare:
            sys.modules["__main__"] = main
