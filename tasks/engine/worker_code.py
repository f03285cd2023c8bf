"""Whether Dask workers have the code that jobs need."""

from typing import Any


def check_workers(client: Any) -> None:
    """Raise ImportError for a worker that has not the code which jobs need."""

    def import_jobs() -> str:
        """Sent as code, since a worker that lacks a module could not find it there."""
        try:
            from importlib import import_module

            for module in ("gristmill.tasks.engine.executors", "gristmill.tasks.engine.jobs"):
                import_module(module)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    for worker, trouble in client.run(import_jobs).items():
        if trouble:
            raise ImportError(cannot_import(f"the worker {worker}", trouble))


def cannot_import(worker: str, trouble: ImportError | str) -> str:
    return f"{worker} cannot import what its jobs need ({trouble}): install the same code there as where the flow runs"
