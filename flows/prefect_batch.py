"""Several stages at the same time, each as a Prefect task in a thread of its own."""

import flows.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context

from prefect.exceptions import TerminationSignal

from flows.context import SlotSpec
from tasks.engine.make import StageResult
from tasks.engine.spec import StageSpec

# Makes one stage; `check` is called meanwhile, and raises what is to end it.
Make = Callable[[StageSpec, Callable[[], None]], StageResult]


class EndedError(RuntimeError):
    """A stage that was given up since another one, made at the same time, has failed."""


class _End:
    """Why the stages that are being made shall end, if they shall."""

    def __init__(self) -> None:
        self.why: BaseException | None = None
        self._lock = threading.Lock()

    def now(self, why: BaseException) -> None:
        with self._lock:
            self.why = self.why or why

    def check(self) -> None:
        """Raises in a stage's thread what ends it: the signal that the flow's own thread has got, or EndedError."""
        why = self.why
        if why is None:
            return
        if isinstance(why, TerminationSignal):
            raise TerminationSignal(why.signal)
        if isinstance(why, KeyboardInterrupt):
            raise KeyboardInterrupt
        raise EndedError(f"ended, since a stage that was made at the same time has failed: {why}") from why


def build_at_once(make: Make, specs: Sequence[SlotSpec], most: int) -> list[StageResult]:
    """The stages in their order, at most `most` of them made at the same time.

    The first error ends the others, and is raised when they have ended; so does a signal, which Python raises in the
    flow's thread alone. What has not begun then is left.
    """
    end, slots = _End(), queue.SimpleQueue[int]()
    for slot in range(most):
        slots.put(slot)

    def one(spec: SlotSpec) -> StageResult:
        end.check()
        slot = slots.get()
        try:
            return make(spec(slot), end.check)
        except BaseException as error:
            end.now(error)  # before this thread takes up another one
            raise
        finally:
            slots.put(slot)

    with ThreadPoolExecutor(most, thread_name_prefix="stage") as pool:
        futures: list[Future[StageResult]] = []
        try:
            # Prefect's task finds its flow, and its log the server, in the context
            futures += [pool.submit(copy_context().run, one, spec) for spec in specs]
            wait(futures, return_when=FIRST_EXCEPTION)
            if end.why is not None:
                raise end.why
        except BaseException as error:
            end.now(error)
            for future in futures:
                future.cancel()
            raise
        return [future.result() for future in futures]
