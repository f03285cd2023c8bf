"""A client of an OpenAI-compatible server: rates, retries, and errors that end a stage.

Each request has its digest as `Idempotency-Key` on all attempts, so a server that honors it bills one of them. Other
servers may bill an attempt whose answer was lost on the way; `uncertain` counts these.
"""

import asyncio
import email.utils
import logging
import math
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import wrapt
from pydantic import BaseModel, Field, ValidationError

from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.language_model.answers import Answer, Request

if TYPE_CHECKING:
    import aiohttp
    import openai
else:
    aiohttp = wrapt.lazy_import("aiohttp")
    openai = wrapt.lazy_import("openai")

log = logging.getLogger(__name__)
T = TypeVar("T")

SECRET = "GRISTMILL_SECRET_LM"  # the variable that has the key of the server
_MIN_WAIT, _MAX_WAIT = 0.5, 60.0  # seconds before another attempt, unless the server says how long
_MAX_PAUSE = 3600.0  # seconds that a server may ask to wait
# Statuses after which the same request may succeed (openai-python retries the same ones, and 425 is RFC 8470's).
_RETRIED = (408, 409, 425, 429)
_UNCERTAIN = (408, 502, 504)  # of a proxy, whose server may have answered too late for it
_PAYMENT_REQUIRED, _QUOTA = 402, "insufficient_quota"  # OpenAI answers 429 with this code, and others 402
_LOG_SECONDS = 30.0


class ServerError(RuntimeError):
    """The server cannot be used. The message has the fix."""


class Malformed(Exception):
    """A response with status 200 that is not what it must be."""


# What is read of a chat completion (OpenAI's API reference); servers leave out what they do not have.
class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)


class _Completion(BaseModel):
    model: str = ""
    choices: list[_Choice]
    usage: _Usage | None = None


class _Pace:
    """Spreads out what is charged to at most so much per minute; 0: no limit."""

    def __init__(self, per_minute: float) -> None:
        self._seconds = 60 / per_minute if per_minute else 0.0
        self._next = 0.0

    async def wait(self, charge: float = 0.0) -> None:
        """Wait until it is time, and charge."""
        now = time.monotonic()
        begin = max(now, self._next)
        self._next = begin + charge * self._seconds
        while (left := begin - time.monotonic()) > 0:
            await asyncio.sleep(left)

    def charge(self, amount: float) -> None:
        if self._seconds:
            self._next = max(time.monotonic(), self._next) + amount * self._seconds


class Client:
    """Sends requests to the server, within this client's share of its rates.

    Attributes:
        api: The library's client, without retries of its own.
        uncertain: Attempts without a whole answer that the server may have billed.
        retries: Attempts that were made again, these included.

    Raises ServerError without an address.
    """

    def __init__(self, server: LanguageModelServer) -> None:
        if not server.base_url:
            raise ServerError(
                "no language model server is configured. Set GRISTMILL_LM__BASE_URL to an OpenAI-compatible one"
            )
        self._server = server
        self._requests = _Pace(server.requests_per_minute / server.clients)
        self._tokens = _Pace(server.tokens_per_minute / server.clients)
        self._resumes = 0.0  # when a server that asked for a pause is asked again
        self._logged = -_LOG_SECONDS
        self.uncertain = self.retries = 0
        self.api = openai.AsyncOpenAI(
            base_url=server.base_url,
            # servers without keys ignore it, and the library wants one
            api_key=os.environ.get(SECRET) or "none",
            max_retries=0,
            timeout=server.timeout_seconds,
            # with 64 requests in flight httpcore needs 8 ms of CPU time for each, since it goes through its connections
            http_client=openai.DefaultAioHttpClient(timeout=server.timeout_seconds),
        )

    async def close(self) -> None:
        """Close its connections."""
        await self.api.close()

    async def answer(self, request: Request) -> Answer:
        """The server's answer. Raises as `call`."""
        try:
            return await self.call(lambda: self._attempt(request), self._turn)
        except openai.APIStatusError as error:
            if error.status_code == 404:
                raise ServerError(
                    f"{self._server.host} has no model {request.model} or no chat completions: {message_of(error)}. "
                    "Correct `model` in the recipe, or GRISTMILL_LM__BASE_URL, which usually ends with /v1"
                ) from error
            return Answer(message_of(error), request.model, "error", 0, 0)

    async def call(self, attempt: Callable[[], Awaitable[T]], turn: Callable[[], Awaitable[None]] | None = None) -> T:
        """What an attempt returns, which is made again after errors that may pass. `turn`: waits until one may be made,
        for no longer than the server asks by default.

        Raises openai.APIStatusError for an error of this request, and ServerError if the server cannot be used, or has
        not answered for `patience_seconds`, without the time that `turn` takes.
        """
        failing, wait = 0.0, _MIN_WAIT
        while True:
            await (turn or self._pause)()
            began = time.monotonic()
            try:
                return await attempt()
            except openai.APIStatusError as error:
                self._check_account(error)
                if not is_transient(error.status_code):
                    raise
                reason = f"status {error.status_code}: {message_of(error)}"
                requested_delay = retry_after(error.response.headers)
            except _lost() as error:
                reason, requested_delay = self._reason(error), None
            failing += time.monotonic() - began
            if failing > self._server.patience_seconds:
                raise ServerError(
                    f"{self._server.host} has not answered for {self._server.patience_seconds:g} s: {reason}. Start or "
                    "repair the server and run again; the answers so far are kept"
                )
            self.retries += 1
            self._log(reason, requested_delay)
            if requested_delay is None:
                pause = wait * (0.5 + random.random() / 2)
                wait = min(2 * wait, _MAX_WAIT)
                await asyncio.sleep(pause)
            else:
                pause = requested_delay
                self._resumes = max(self._resumes, time.monotonic() + pause)
            failing += pause

    def _reason(self, error: Exception) -> str:
        """Why there is no answer."""
        if isinstance(error, TimeoutError):
            return f"no whole answer within {self._server.timeout_seconds:g} s"
        root: BaseException = error
        while isinstance(error, openai.APIConnectionError) and root.__cause__ is not None:
            root = root.__cause__  # the library says "Connection error." or "Request timed out." of all of them
        message = redact(" ".join(str(root).split())) or type(root).__name__
        return f"no connection: {message}" if _is_refused(error) else message

    def _log(self, reason: str, delay: float | None) -> None:
        """Else a user who waits for a server that is not there would see nothing."""
        if time.monotonic() - self._logged < _LOG_SECONDS:
            return
        self._logged = time.monotonic()
        retried = f"for at most {self._server.patience_seconds:g} s" if delay is None else f"in {delay:g} s"
        log.warning("%s has not answered: %s. Retrying %s", self._server.host, reason, retried)

    async def _pause(self) -> None:
        """Wait for the end of a pause that the server asked for."""
        while (left := self._resumes - time.monotonic()) > 0:
            await asyncio.sleep(left)

    async def _turn(self) -> None:
        """Wait for this client's turn: for a pause that the server asked for, and for the rates."""
        await self._pause()
        await self._tokens.wait()
        await self._requests.wait(1)

    async def _attempt(self, request: Request) -> Answer:
        try:
            async with asyncio.timeout(self._server.timeout_seconds):
                # as text: the library's types of requests and responses cost 6 ms of CPU time for each
                response = await self.api.post(
                    "/chat/completions",
                    cast_to=str,
                    body=request.body,
                    options={"headers": {"Idempotency-Key": request.digest}},
                )
            answer = read_completion(response)
        except openai.APIStatusError as error:
            self.uncertain += error.status_code in _UNCERTAIN
            raise
        except _lost() as error:
            self.uncertain += not _is_refused(error)  # a connection that was refused has sent nothing
            raise
        self._tokens.charge((answer.prompt_tokens or 0) + (answer.completion_tokens or 0))
        return answer

    def _check_account(self, error: "openai.APIStatusError") -> None:
        """Raise ServerError for an error that all requests will have."""
        host, message = self._server.host, message_of(error)
        if error.status_code in (401, 403):
            raise ServerError(f"{host} refuses the key: {message}. Set {SECRET} to a valid key")
        if error.code == _QUOTA or error.status_code == _PAYMENT_REQUIRED:
            raise ServerError(f"{host} has no quota left: {message}. Add credit and run again; answers are kept")


def is_refusal(status: int) -> bool:
    """Whether a server with this status has done nothing."""
    return status == 429 or (400 <= status < 500 and status not in _RETRIED)


def _lost() -> tuple[type[Exception], ...]:
    """The errors of a call that has no whole response."""
    return openai.APIConnectionError, openai.APIResponseValidationError, Malformed, TimeoutError


def is_transient(status: int) -> bool:
    """Whether the same request may succeed after this status."""
    return status >= 500 or status in _RETRIED


def read_completion(body: str) -> Answer:
    """What is kept of the body of a response. Raises Malformed for one that is not a chat completion."""
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError as error:
        raise Malformed(f"the response is not a chat completion: {body[:100]!r}") from error
    usage = completion.usage
    if not completion.choices and usage is None:
        raise Malformed(f"the response has no choices: {body[:100]!r}")
    # without choices but with usage, it is an empty answer that was billed, and would be again
    choice = completion.choices[0] if completion.choices else _Choice(message=_Message())
    refusal = choice.message.refusal
    return Answer(
        content=refusal or choice.message.content or "",
        model=completion.model,
        finish="refusal" if refusal else choice.finish_reason or "stop",
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        completion_tokens=None if usage is None else usage.completion_tokens,
    )


def message_of(error: "openai.APIStatusError") -> str:
    """The message of an error, without the key, in one line of at most 300 characters."""
    body = error.body if isinstance(error.body, Mapping) else {}
    return redact(" ".join(str(body.get("message") or error.response.text or error.message).split()))[:300]


def redact(message: str) -> str:
    """The message without the key: some servers repeat what they were sent."""
    key = os.environ.get(SECRET)
    return message.replace(key, "***") if key else message


def _is_refused(error: BaseException) -> bool:
    """Whether no connection was made, so the server has seen nothing. By aiohttp's errors: the library in between calls
    a connection that the server has closed ConnectError, too."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, aiohttp.ClientConnectorError):
            return True
        cause = cause.__cause__
    return False


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait, at most an hour: a number or an HTTP date (RFC 9110, 10.2.3), or
    OpenAI's `retry-after-ms`. None without a readable one, or one that is not in the future."""
    try:
        seconds = float(headers["retry-after-ms"]) / 1000
    except (KeyError, ValueError):
        value = headers.get("retry-after", "")
        try:
            seconds = float(value)
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError):
                return None
    return min(seconds, _MAX_PAUSE) if seconds > 0 and math.isfinite(seconds) else None
