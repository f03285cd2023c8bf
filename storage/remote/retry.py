"""The retry policy of remote reads, its errors, and connection slots."""

import errno
import logging
import os
import random
import re
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from filelock import FileLock, Timeout

from gristmill.storage.printable import redact_urls
from gristmill.storage.remote.config import RemoteIOConfig

if TYPE_CHECKING:
    import tenacity

log = logging.getLogger(__name__)
T = TypeVar("T")

# Common Crawl asks for fewer requests by 403, 429 and 503.
_THROTTLED = frozenset({403, 429, 503})
TRANSIENT = _THROTTLED | {408, 500, 502, 504}
# OSErrors of the network, not of this machine's disks and rights, that Python has no classes for.
_NETWORK = {errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH}
NEVER = threading.Event()
# hosts with a successful response to this process
_proven: set[str] = set()


class RemoteIOError(RuntimeError):
    """Remote bytes could not be read; the message names address, bytes, response, attempts and remedy.

    Not an OSError: parsers take those for damage in the file.
    """


class BadResponse(Exception):
    """A response that is not the bytes. `transient`: the next one may be, after `wait` seconds."""

    def __init__(self, reason: str, status: int | None = None, transient: bool = False, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.status, self.transient, self.wait = status, transient, wait


@contextmanager
def slot(host: str, slots: int, stop: threading.Event) -> Iterator[None]:
    """One of a host's connection slots: a locked file, which the system unlocks when its process dies."""
    folder = Path(tempfile.gettempdir(), f"gristmill-slots-{os.getuid()}")
    _private(folder)
    name = re.sub(r"[^A-Za-z0-9.-]", "_", host)
    while not stop.is_set():
        for number in range(slots):
            lock = FileLock(folder / f"{name}-{number}.lock")
            try:
                lock.acquire(blocking=False)
            except Timeout:
                continue
            try:
                yield
            finally:
                lock.release()
            return
        stop.wait(random.uniform(0.01, 0.1))
    raise RemoteIOError(f"{host}: the read was cancelled")


def _private(folder: Path) -> None:
    """Make a folder that only this user can write to: the temporary folder is everybody's."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise RemoteIOError(
            f"{folder}, for the locks of this user's connections, is not private to this user (owner {status.st_uid}, "
            f"mode {stat.filemode(status.st_mode)}): remove it, or set TMPDIR to a private folder"
        )


def with_retries(
    call: Callable[[], T], what: str, remote_io: RemoteIOConfig, stop: threading.Event, host: str = ""
) -> T:
    """The result of an idempotent call, retried on transient errors; `stop`, once set, ends the waiting.

    Raises FileNotFoundError as the call does, and RemoteIOError for all else, with `what` in the message.
    """
    import tenacity  # of the extra `remote`

    warned = False

    def refused_at_first(state: "tenacity.RetryCallState") -> bool:
        return _status(_raised(state)) == 403 and host not in _proven

    def stop_early(state: "tenacity.RetryCallState") -> bool:
        return refused_at_first(state) and tenacity.stop_before_delay(remote_io.refused_seconds)(state)

    def log_retry(state: "tenacity.RetryCallState") -> None:
        nonlocal warned
        level = logging.WARNING if refused_at_first(state) and not warned else logging.INFO
        warned = warned or level == logging.WARNING
        log.log(level, "%s: %s; again in %.1f s", what, _reason(_raised(state)), state.upcoming_sleep)

    jitter = tenacity.wait_random_exponential(remote_io.backoff_seconds, remote_io.backoff_cap_seconds)
    budget = tenacity.stop_before_delay(remote_io.budget_seconds)
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_is_transient),
        wait=lambda state: jitter(state) + getattr(_raised(state), "wait", 0.0),
        stop=tenacity.stop_any(
            budget,
            tenacity.stop_when_event_set(stop),
            stop_early,  # type: ignore[arg-type]  # tenacity takes functions too, its annotation does not name them
        ),
        sleep=tenacity.sleep_using_event(stop),
        before_sleep=log_retry,
        reraise=True,
    )
    began = time.monotonic()
    try:
        result = retrying(call)
    except FileNotFoundError as error:
        if (message := redact_urls(str(error))) == str(error):
            raise
        raise FileNotFoundError(message) from None
    except Exception as error:
        attempts = retrying.statistics["attempt_number"]
        spent = f"{attempts} attempt{'s' * (attempts > 1)} in {time.monotonic() - began:.1f} s"
        # a traceback shows the cause, too
        cause = error if redact_urls(str(error)) == str(error) else None
        raise RemoteIOError(f"{what}: {_reason(error)} ({spent}). {_remedy(error, remote_io)}") from cause
    if host:
        _proven.add(host)
    return result


def _raised(state: "tenacity.RetryCallState") -> BaseException:
    """The error of a failed attempt: only after one does tenacity ask whether to stop, and how long to wait."""
    error = state.outcome.exception() if state.outcome else None
    assert error is not None, "the attempt did not fail"
    return error


def _is_transient(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    import aiohttp  # of the extra `remote`

    if isinstance(error, BadResponse):
        return error.transient
    if isinstance(unresolved := getattr(error, "os_error", error), socket.gaierror):
        return unresolved.errno != socket.EAI_NONAME
    if isinstance(error, aiohttp.InvalidURL | aiohttp.ClientConnectorCertificateError | aiohttp.TooManyRedirects):
        return False
    if isinstance(error, aiohttp.ClientResponseError):
        return error.status in TRANSIENT
    if isinstance(error, aiohttp.ClientError | TimeoutError | ConnectionError):
        return True
    # imported here because a machine that reads no S3 need not wait for it
    from botocore.exceptions import HTTPClientError

    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError | PermissionError):
        return isinstance(error, HTTPClientError)
    return _status(error) in TRANSIENT or error.errno in _NETWORK


def _status(error: BaseException) -> int | None:
    """The HTTP status in our own, aiohttp's or botocore's exception."""
    import aiohttp

    if isinstance(error, BadResponse | aiohttp.ClientResponseError):
        return error.status
    response = getattr(error.__cause__ or error, "response", None) or {}
    return response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None


def _reason(error: BaseException) -> str:
    if isinstance(error, BadResponse):
        return str(error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    status = _status(error)
    return f"{type(error).__name__}: {redact_urls(str(error))}".rstrip(": ") + (f" (status {status})" if status else "")


def _remedy(error: BaseException, remote_io: RemoteIOConfig) -> str:
    status = _status(error)
    if status in _THROTTLED and not isinstance(error, PermissionError):
        remedy = (
            "The host wants fewer requests, or bars this machine: run the same command again later, with a setting "
            f"per_host below {remote_io.per_host} or budget_seconds above {remote_io.budget_seconds:g}"
        )
        if status == 403:
            remedy += (
                f" (or refused_seconds above {remote_io.refused_seconds:g}, if this was the first request). The "
                "address may also be wrong or need credentials, which a mirror on S3 answers in the same way: check it"
            )
        return remedy
    if _is_transient(error):
        return f"Run the same command again; a setting budget_seconds above {remote_io.budget_seconds:g} may help"
    if isinstance(error, PermissionError) or status == 401:
        return "Check the address and the credentials for it"
    return "Check the address, and that the file there is complete and at rest; then run the same command again"
