"""Flows and tasks whose records end as their process does: Canceled by a signal, Crashed when it was killed."""

import contextlib
import functools
import inspect
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar
from uuid import UUID

from prefect import Flow, tags
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.context import FlowRunContext, TagsContext
from prefect.events.clients import PrefectEventsClient
from prefect.events.worker import EventsWorker
from prefect.exceptions import CancelledRun, TerminationSignal
from prefect.logging.formatters import PrefectFormatter
from prefect.runtime import flow_run
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    get_current_settings,
    temporary_settings,
)
from prefect.states import Cancelled, Crashed, State
from prefect.utilities.callables import ParameterSchema, parameter_schema

from gristmill.flows.machine import run_log
from gristmill.flows.machine.databases import MLFLOW_HOLDS, trouble
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.forms import from_form, pinned
from gristmill.flows.run import server as prefect_server
from gristmill.storage.leftovers import has_ended, this_process
from gristmill.storage.printable import redact_urls

_OTHER_LINE = "%(asctime)s.%(msecs)03d | %(levelname)-7s | %(name)s - %(message)s"  # Prefect's own


def _set_up_console() -> None:
    """Lines of flows and tasks begin with the stage: the names of Prefect's runs, ahead of it, leave it no room."""
    run_log.install(MachineSettings().log_format)
    lines = PrefectFormatter(_OTHER_LINE, run_log.TIME, flow_run_fmt=run_log.LINE, task_run_fmt=run_log.LINE)
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, PrefectFormatter):
            handler.setFormatter(lines)


_set_up_console()

P = ParamSpec("P")
R = TypeVar("R")

_TAG = "process:"
_SQLITE = "sqlite:///"
_AWAY_SECONDS = 240  # that a server which the user named may be away: Prefect tries to send an event once a second
_PATIENT_TRIES = 7  # of a request: the waits between them double, from two seconds on
_FEW_TRIES = 2  # where the server is of this machine: if it does not answer, it has ended
_OPEN = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
# What the engine says once for each flow and task that ends, with pages of traceback; who started the flow gets the
# error itself, and the records have both.
_SAID_ELSEWHERE = (
    "Crash detected!",
    "Finished in state",
    "Encountered exception during execution",
    "Task run failed",
    "Failed to write result",  # on a full disk; the error says so
)
# The server of a run has no pages, and if it has ended, the run says so itself.
_OF_OWN_SERVER = ("View at", "Unable to connect to", "Service %r failed")


class RecordedFlow(Flow):
    """A flow of a recipe, recorded by a server of the home if the user named none, whose runs do not stay RUNNING.

    SIGINT and SIGTERM end it and its parts as Canceled. The outermost one then raises KeyboardInterrupt, or SystemExit
    with 143. A second SIGINT ends the process at once. It also ends the records of flows whose process is dead, which
    are known by a tag. A worker of Prefect's runs the flow without calling it, and sees to signals itself.
    """

    _parameters: ParameterSchema | None = None

    def __init__(self, fn: Callable[..., Any], **settings: Any) -> None:
        body = cancellable(_tagged(fn))
        signature = inspect.signature(fn)
        vars(body)["__signature__"] = _without_types(signature)
        super().__init__(body, **settings)
        for each in (body, self):  # to which Prefect has copied it
            vars(each)["__signature__"] = signature

    @property
    def parameters(self) -> ParameterSchema:
        """The schema of the parameters, for deployments. It is made when it is first read, because the schema of a
        recipe takes .2 s of CPU and a run does not need it."""
        if self._parameters is None:
            self._parameters = parameter_schema(self.fn)
        return self._parameters

    @parameters.setter
    def parameters(self, untyped: ParameterSchema) -> None:
        """Ignore the schema that Prefect sets for the signature without types."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if FlowRunContext.get() is not None:
            return self._run(*args, **kwargs)
        with _plain_errors(), _quiet_console(), _server(), _signals(), tags(_process_tag()):
            with get_client(sync_client=True) as client:
                _end_stale_runs(client)
            try:
                return self._run(*args, **kwargs)
            except (KeyboardInterrupt, TerminationSignal) as error:
                _received(error)
                with get_client(sync_client=True) as client:
                    _cancel_own_runs(client)
            if _signal == signal.SIGTERM:
                raise SystemExit(128 + _signal)
            raise KeyboardInterrupt

    def validate_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters with the recipes read. Raises what `from_form` raises: Prefect's own error, and the log of it,
        show every value of a wrong recipe. A newest snapshot is noted in a run that was asked for through the API."""
        read = _loaded(parameters)
        noted = {"recipe": pinned(parameters["recipe"], read["recipe"])}
        if "against" in parameters:
            noted["against"] = [pinned(*both) for both in zip(parameters["against"], read["against"], strict=True)]
        if any(noted[name] != parameters[name] for name in noted) and (run := flow_run.get_id()) is not None:
            with get_client(sync_client=True) as client:
                client.update_flow_run(UUID(run), parameters=parameters | noted)
        return super().validate_parameters(read)

    def serialize_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """What Prefect's database keeps of the parameters, of a recipe without an error alone: one that has a password
        is not written down."""
        _loaded(parameters)
        return super().serialize_parameters(parameters)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except CancelledRun as error:
            raise KeyboardInterrupt from error  # which is known without Prefect


def _without_types(signature: inspect.Signature) -> inspect.Signature:
    names = [one.replace(annotation=Any) for one in signature.parameters.values()]
    return signature.replace(parameters=names)


def _loaded(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters with `recipe`, and the recipes that it is compared with, read."""
    read: dict[str, Any] = {"recipe": from_form(parameters["recipe"])}
    if "against" in parameters:
        read["against"] = [from_form(each) for each in parameters["against"]]
    return parameters | read


def recorded_flow(**settings: Any) -> Callable[[Callable[..., Any]], RecordedFlow]:
    """Decorator: the function as a flow; `settings` are those of Prefect's Flow."""
    return functools.partial(RecordedFlow, **settings)


def cancellable(fn: Callable[P, R]) -> Callable[P, R]:
    """The body of a flow or a task that is recorded as Canceled if a signal ends it."""

    @functools.wraps(fn)
    def body(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return fn(*args, **kwargs)
        except (KeyboardInterrupt, TerminationSignal) as error:
            _received(error)
            return _cancelled()

    return body


def unless_cancelled(result: R) -> R:
    """What a task returned; raises KeyboardInterrupt if that is a state, with which Prefect says it was canceled."""
    if isinstance(result, State) and result.is_cancelled():
        raise KeyboardInterrupt
    return result


_signal = 0  # the one that ends the flow of this process


def _received(error: BaseException) -> None:
    """Remember the signal. From now on the flow is ending, and another Ctrl-C does not wait for that."""
    global _signal
    _signal = _signal or (error.signal if isinstance(error, TerminationSignal) else signal.SIGINT)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # timeout(1) sends it twice, to the process and to its group
        signal.signal(signal.SIGINT, lambda number, _: os._exit(128 + number))


def _cancelled() -> State:
    return Cancelled(message=f"ended by {signal.Signals(_signal or signal.SIGINT).name}")


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM raises, also where Prefect does not see to it; afterwards the handlers are what they were."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, _: object) -> NoReturn:
        raise TerminationSignal(number)

    global _signal
    _signal = 0
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _server() -> Iterator[None]:
    """Record at the server that the user has named, or at one of this home."""
    if get_current_settings().api.url:
        said = "Prefect's server does not answer. Retrying for four minutes."
        logging.getLogger("prefect.client").setLevel(logging.DEBUG)
        run_log.say_once("prefect.client", "Encountered retryable exception", said)
        known: dict[Any, Any] = {PREFECT_CLIENT_MAX_RETRIES: _PATIENT_TRIES}
        tries = _AWAY_SECONDS
    else:
        address, login = prefect_server.endpoint(MachineSettings())
        known = {PREFECT_API_URL: address, PREFECT_API_AUTH_STRING: login, PREFECT_CLIENT_MAX_RETRIES: _FEW_TRIES}
        tries = _FEW_TRIES
    # events are the states of tasks; by itself Prefect gives them up after ten seconds
    EventsWorker.set_client_override(PrefectEventsClient, reconnection_attempts=tries)
    # or the last line of a run says, behind what was done, how many events it has still to send
    logging.getLogger(EventsWorker.__name__).setLevel(logging.ERROR)
    with temporary_settings(known):
        yield


# What raises errors of records: their text is of no help, or pages long.
_RECORDERS = ("prefect", "httpx", "httpcore", "websockets", "mlflow", "sqlalchemy", "sqlite3")


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise RuntimeError with one sentence, which has the remedy, for what became of a record in a database that is
    damaged, on a full disk, or behind a server that is gone. What ends the flow for another reason is left as it is."""
    try:
        yield
    except Exception as error:
        if not _of_a_record(error):
            raise
        settings = MachineSettings()
        why = "" if get_current_settings().api.url else prefect_server.why_none(settings)
        if not why and settings.tracking_uri.startswith(_SQLITE):
            why = trouble(Path(settings.tracking_uri.removeprefix(_SQLITE)), MLFLOW_HOLDS)
        if not why:
            first = redact_urls(" ".join(f"{type(error).__name__}: {error}".split()))[:300]
            why = f"a record of this run could not be written ({first}): check that its server answers, then run again"
        raise RuntimeError(f"{why}; finished stages are kept") from error


def _of_a_record(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, was raised by those who write the records of a run."""
    while error is not None:
        if type(error).__module__.partition(".")[0] in _RECORDERS:
            return True
        error = error.__cause__
    return False


@contextlib.contextmanager
def _quiet_console() -> Iterator[None]:
    """Keep from the console what is said elsewhere; the records have all of it."""

    unwanted = _SAID_ELSEWHERE if get_current_settings().api.url else (*_SAID_ELSEWHERE, *_OF_OWN_SERVER)

    def wanted(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(unwanted)

    # Prefect's handler writes a line for each batch of lines that its server does not take; if that ends the flow, it
    # does so up to the process's end, and `_plain_errors` says why
    before, logging.raiseExceptions = logging.raiseExceptions, False
    # Prefect's services have a handler of their own
    handlers = [*logging.getLogger().handlers, *logging.getLogger("prefect._internal").handlers]
    for handler in handlers:
        handler.addFilter(wanted)
    try:
        yield
        logging.raiseExceptions = before
    finally:
        for handler in handlers:
            handler.removeFilter(wanted)


def _process_tag() -> str:
    return _TAG + this_process()


def _tagged(fn: Callable[P, R]) -> Callable[P, R]:
    """The body of a flow: one that a worker of Prefect's has started gets the tag of this process, in place of the one
    of an earlier try, and all that it starts has it, too."""

    @functools.wraps(fn)
    def body(*args: P.args, **kwargs: P.kwargs) -> R:
        if _process_tag() in TagsContext.get().current_tags:  # it was called, or is a part of such a flow
            return fn(*args, **kwargs)
        context = FlowRunContext.get()
        if context is None or context.flow_run is None:  # the body alone, without Prefect
            return fn(*args, **kwargs)
        others = [tag for tag in context.flow_run.tags if not tag.startswith(_TAG)]
        with tags(_process_tag()), get_client(sync_client=True) as client:
            client.update_flow_run(context.flow_run.id, tags=[*others, _process_tag()])
            _end_stale_runs(client)
            return fn(*args, **kwargs)

    return body


def _cancel_own_runs(client: SyncPrefectClient) -> None:
    """Those that a signal met within Prefect's engine, which records it as a crash."""
    mine = {"tags": {"all_": [_process_tag()]}, "state": {"type": {"any_": ["CRASHED", *_OPEN["type"]["any_"]]}}}
    for run in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(mine)):
        client.set_flow_run_state(run.id, _cancelled(), force=True)
    for task in client.read_task_runs(task_run_filter=TaskRunFilter.model_validate(mine)):
        client.set_task_run_state(task.id, _cancelled(), force=True)


def _end_stale_runs(client: SyncPrefectClient) -> None:
    """Record as Crashed the flows and tasks whose process has ended without a word."""
    crashed: State = Crashed(message="its process was killed")
    for task in client.read_task_runs(task_run_filter=TaskRunFilter.model_validate({"state": _OPEN})):
        if _is_stale(task.tags):
            client.set_task_run_state(task.id, crashed, force=True)
    for run in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate({"state": _OPEN})):
        if run.deployment_id is not None and run.state is not None and run.state.is_pending():
            continue  # a worker is about to try it again; the tag is that of the try before
        if _is_stale(run.tags):
            client.set_flow_run_state(run.id, crashed, force=True)


def _is_stale(given: Iterable[str]) -> bool:
    process = next((tag.removeprefix(_TAG) for tag in given if tag.startswith(_TAG)), "")
    return bool(process) and has_ended(process)
