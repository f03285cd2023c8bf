"""Flows and tasks whose recorded state matches the end of their process: Canceled by a signal, Crashed if killed."""

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
    """Begin the log lines of flows and tasks with the stage instead of the long names of Prefect's runs."""
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
_AWAY_SECONDS = 240  # how long a server of the user may be unreachable: Prefect retries an event once a second
_PATIENT_TRIES = 7  # of a request, with waits that double from two seconds on
_FEW_TRIES = 2  # of a request to a server on this machine, which has ended if it does not answer
_OPEN = {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}
# Prefect logs these once per flow and task that ends, with pages of traceback. The caller gets the error itself, and
# the records have both.
_SAID_ELSEWHERE = (
    "Crash detected!",
    "Finished in state",
    "Encountered exception during execution",
    "Task run failed",
    "Failed to write result",  # on a full disk; the error says so
)
# The server of a run has no pages, and the run itself reports that it has ended.
_OF_OWN_SERVER = ("View at", "Unable to connect to", "Service %r failed")


class RecordedFlow(Flow):
    """A flow of a recipe. It is recorded by the user's Prefect server, or by one of the home, and never stays RUNNING.

    SIGINT and SIGTERM end the flow and its tasks as Canceled. The outermost flow then raises KeyboardInterrupt, or
    SystemExit with 143. A second SIGINT ends the process at once. The flow also ends the records of earlier flows whose
    process is dead, which it finds by a tag. A Prefect worker runs the flow without calling it, and handles signals
    itself.
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
        """Return the parameters with their recipes loaded. Raises what `from_form` raises, because Prefect's own error
        and its log would show every value of an invalid recipe. In a run that was started through the API, the snapshot
        that `newest` stands for is recorded."""
        read = _loaded(parameters)
        noted = {"recipe": pinned(parameters["recipe"], read["recipe"])}
        if "against" in parameters:
            noted["against"] = [pinned(*both) for both in zip(parameters["against"], read["against"], strict=True)]
        if any(noted[name] != parameters[name] for name in noted) and (run := flow_run.get_id()) is not None:
            with get_client(sync_client=True) as client:
                client.update_flow_run(UUID(run), parameters=parameters | noted)
        return super().validate_parameters(read)

    def serialize_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters as Prefect's database stores them. Raises for an invalid recipe first, so that one that
        contains a password is not stored."""
        _loaded(parameters)
        return super().serialize_parameters(parameters)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except CancelledRun as error:
            raise KeyboardInterrupt from error  # callers need not know Prefect's error


def _without_types(signature: inspect.Signature) -> inspect.Signature:
    names = [one.replace(annotation=Any) for one in signature.parameters.values()]
    return signature.replace(parameters=names)


def _loaded(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with `recipe` and the recipes of `against` loaded."""
    read: dict[str, Any] = {"recipe": from_form(parameters["recipe"])}
    if "against" in parameters:
        read["against"] = [from_form(each) for each in parameters["against"]]
    return parameters | read


def recorded_flow(**settings: Any) -> Callable[[Callable[..., Any]], RecordedFlow]:
    """Decorator that makes a function a RecordedFlow. `settings`: of Prefect's Flow."""
    return functools.partial(RecordedFlow, **settings)


def cancellable(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorator for the body of a flow or task, which is recorded as Canceled if a signal ends it."""

    @functools.wraps(fn)
    def body(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return fn(*args, **kwargs)
        except (KeyboardInterrupt, TerminationSignal) as error:
            _received(error)
            return _cancelled()

    return body


def unless_cancelled(result: R) -> R:
    """Return the result of a task. Raises KeyboardInterrupt if it is the state with which Prefect reports a cancel."""
    if isinstance(result, State) and result.is_cancelled():
        raise KeyboardInterrupt
    return result


_signal = 0  # the signal that ends the flow of this process, or 0


def _received(error: BaseException) -> None:
    """Store the signal. The flow is ending now, and another Ctrl-C ends the process at once."""
    global _signal
    _signal = _signal or (error.signal if isinstance(error, TerminationSignal) else signal.SIGINT)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # timeout(1) sends it twice, to the process and to its group
        signal.signal(signal.SIGINT, lambda number, _: os._exit(128 + number))


def _cancelled() -> State:
    return Cancelled(message=f"ended by {signal.Signals(_signal or signal.SIGINT).name}")


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Let SIGTERM raise, also where Prefect does not handle it, and restore the handlers at the end."""
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
    """Record at the server that the user has configured, or at one of this home."""
    if get_current_settings().api.url:
        line = "Prefect's server does not answer. Retrying for four minutes."
        logging.getLogger("prefect.client").setLevel(logging.DEBUG)
        run_log.say_once("prefect.client", "Encountered retryable exception", line)
        known: dict[Any, Any] = {PREFECT_CLIENT_MAX_RETRIES: _PATIENT_TRIES}
        tries = _AWAY_SECONDS
    else:
        address, login = prefect_server.endpoint(MachineSettings())
        known = {PREFECT_API_URL: address, PREFECT_API_AUTH_STRING: login, PREFECT_CLIENT_MAX_RETRIES: _FEW_TRIES}
        tries = _FEW_TRIES
    # events are the states of tasks; by default Prefect drops them after ten seconds
    EventsWorker.set_client_override(PrefectEventsClient, reconnection_attempts=tries)
    # otherwise the last line of a run is how many events remain to be sent
    logging.getLogger(EventsWorker.__name__).setLevel(logging.ERROR)
    with temporary_settings(known):
        yield


# Packages whose errors are about records. Their texts do not help, or are pages long.
_RECORDERS = ("prefect", "httpx", "httpcore", "websockets", "mlflow", "sqlalchemy", "sqlite3")


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Raise RuntimeError with one sentence and the fix if a record could not be written: the database is damaged, the
    disk is full, or the server has ended. Other errors pass unchanged."""
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
    """Whether an error, or one of its causes, was raised by a package that writes the records of a run."""
    while error is not None:
        if type(error).__module__.partition(".")[0] in _RECORDERS:
            return True
        error = error.__cause__
    return False


@contextlib.contextmanager
def _quiet_console() -> Iterator[None]:
    """Keep lines from the console that repeat what else is printed. The records have all of them."""

    unwanted = _SAID_ELSEWHERE if get_current_settings().api.url else (*_SAID_ELSEWHERE, *_OF_OWN_SERVER)

    def wanted(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(unwanted)

    # Prefect's handler prints an error for each batch of lines that its server does not accept, until the process ends;
    # `_plain_errors` reports the cause
    before, logging.raiseExceptions = logging.raiseExceptions, False
    # Prefect's services have a separate handler
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
    """Decorator for the body of a flow. A flow that a Prefect worker has started gets the tag of this process, which
    replaces the tag of an earlier try, and so do the runs that it starts."""

    @functools.wraps(fn)
    def body(*args: P.args, **kwargs: P.kwargs) -> R:
        if _process_tag() in TagsContext.get().current_tags:  # the flow was called, or is part of one that was
            return fn(*args, **kwargs)
        context = FlowRunContext.get()
        if context is None or context.flow_run is None:  # only the body, without Prefect
            return fn(*args, **kwargs)
        others = [tag for tag in context.flow_run.tags if not tag.startswith(_TAG)]
        with tags(_process_tag()), get_client(sync_client=True) as client:
            client.update_flow_run(context.flow_run.id, tags=[*others, _process_tag()])
            _end_stale_runs(client)
            return fn(*args, **kwargs)

    return body


def _cancel_own_runs(client: SyncPrefectClient) -> None:
    """Record runs as Canceled that a signal interrupted inside of Prefect's engine, which records a crash."""
    mine = {"tags": {"all_": [_process_tag()]}, "state": {"type": {"any_": ["CRASHED", *_OPEN["type"]["any_"]]}}}
    for run in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(mine)):
        client.set_flow_run_state(run.id, _cancelled(), force=True)
    for task in client.read_task_runs(task_run_filter=TaskRunFilter.model_validate(mine)):
        client.set_task_run_state(task.id, _cancelled(), force=True)


def _end_stale_runs(client: SyncPrefectClient) -> None:
    """Record flows and tasks as Crashed if their process has ended without recording it."""
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
