"""Workers that jobs lose on a cluster whose workers may be taken away at any time: a job is done again, unless it is
itself what kills its workers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import wrapt

from gristmill.tasks.engine import shared

if TYPE_CHECKING:
    import distributed
else:
    distributed = wrapt.lazy_import("distributed")

Jobs: TypeAlias = list[tuple[int, Any]]  # with their indices

# How many worker processes may crash at a job, as Dask has it for other clusters.
MAX_CRASHES = 4
# How many workers a job may lose in any way. If half of all workers are taken away while a job runs, one in a billion
# jobs loses as many.
MAX_LOSSES = 30
# Before a job that has lost workers begins again, its worker waits: one second, then two, and so on, as often as this.
MAX_WAITS = 4


class Losses:
    """The losses of the jobs of a phase. `crashed`: addresses of worker processes that died while their task of the
    array lived, which may become known some seconds after the loss; None: the scheduler counts losses itself. `work`:
    of the phase."""

    def __init__(self, crashed: Collection[str] | None, work: Callable[[Any], Any]) -> None:
        self.waits: Counter[int] = Counter()  # by the index of a job: how often its worker waits before it begins
        self._crashed, self._work = crashed, work
        self._lost: dict[int, list[str]] = defaultdict(list)

    def split(self, batch: Sequence[Any], begun: dict[Any, Jobs]) -> tuple[Sequence[Any], Jobs]:
        """The futures of a batch without those whose worker was lost, and the jobs of these, to be sent again.

        `begun`: jobs with their indices by the key of their future, from which lost ones are removed. Raises
        RuntimeError for jobs at which too many worker processes crashed, or that were lost too often.
        """
        if self._crashed is None:
            return batch, []
        others, lost = [], []
        for future in batch:
            error = future.exception() if future.status == "error" else None
            if isinstance(error, distributed.KilledWorker):
                jobs = begun.pop(future.key)
                self._add(jobs, error, self._crashed)
                lost += jobs
            else:
                others.append(future)
        return others, lost

    def _add(self, jobs: Jobs, error: Any, crashed: Collection[str]) -> None:
        for index, _ in jobs:
            lost = self._lost[index]
            lost.append(error.last_worker.address)
            self.waits[index] = min(len(lost), MAX_WAITS)
            if len(lost) >= MAX_LOSSES or sum(address in crashed for address in lost) >= MAX_CRASHES:
                raise RuntimeError(shared.killed([job for _, job in jobs], self._work)) from error
