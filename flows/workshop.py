"""What all flows of one run share: settings, the executor, and the stages that this run has already been through."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from flows.orphans import watched_children
from flows.settings import MachineSettings
from storage import patience
from tasks.executor import Executor, executor

_current: ContextVar["Workshop | None"] = ContextVar("workshop", default=None)


@dataclass
class Workshop:
    """`made` holds what a flow has already returned in this run, so that a later flow need not ask again."""

    settings: MachineSettings
    executor: Executor
    made: dict[tuple[str, str], Any] = field(default_factory=dict)


@contextlib.contextmanager
def workshop() -> Iterator[Workshop]:
    """The run's workshop; the outermost flow opens it, starts the executor and closes it."""
    if (open_one := _current.get()) is not None:
        yield open_one
        return
    settings = MachineSettings()
    patience.use(settings.transfer)
    with watched_children(), executor(settings.executor, settings.workers, settings.dask_address) as workers:
        token = _current.set(Workshop(settings, workers))
        try:
            yield _current.get()
        finally:
            _current.reset(token)
