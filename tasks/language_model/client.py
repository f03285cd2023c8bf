"""A client of an OpenAI-compatible server: rates, retries, and errors that end a stage.

Each request has its digest as `Idempotency-Key` on all attempts, so a server that honors it bills one of them. Other
servers may bill an attempt whose answer was lost on the way; `uncertain` counts these.
"""

import asyncio
import email.utils
import logging
import os
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import wrapt
from pydantic import BaseModel, Field, ValidationError

from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.language_model.answers import Answer, Request

if TYPE_CHECKING:
    import openai
else:
    openai = wrapt.lazy_import("openai")

log = logging.getLogger(__name__)

SECRET = "GRISTMILL_SECRET_LM"  # the variable that has the key of the server
_MIN_WAIT, _MAX_WAIT = 0.5, 60.0  # seconds before another attempt, unless the server says how long
# Statuses after which the same request may succeed (openai-python retries the same ones, and 425 is RFC 8470's).
_RETRIED = (408, 409, 425, 429)
_QUOTA = "insufficient_quota"  # code of OpenAI for an account without money, which it answers with 429


class ServerError(RuntimeError):
    """The server cannot be used. The message has the fix."""


class _Malformed(Exception):
    """A response with status 200 that is not a chat completion."""


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
    choices: list[_Choice] = Field(min_length=1)
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
        self.uncertain = self.retries = 0
        self._client = openai.AsyncOpenAI(
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
        await self._client.close()

    async def answer(self, request: Request) -> Answer:
        """The server's answer. Raises ServerError if the server cannot be used, or has not answered for
        `patience_seconds`."""
        began, wait = time.monotonic(), _MIN_WAIT
        while True:
            await self._turn()
            try:
                return await self._attempt(request)
            except openai.APIStatusError as error:
                self._check_usable(error, request.model)
                if error.status_code < 500 and error.status_code not in _RETRIED:
                    return Answer(_message(error), request.model, "error", 0, 0)
                reason, asked = f"status {error.status_code}: {_message(error)}", retry_after(error.response.headers)
            except (openai.APIConnectionError, openai.APIResponseValidationError, _Malformed, TimeoutError) as error:
                # a connection that was refused has sent nothing
                self.uncertain += not _is_refused(error)
                reason, asked = " ".join(str(error).split()) or type(error).__name__, None
            if time.monotonic() - began > self._server.patience_seconds:
                raise ServerError(
                    f"{self._server.host} has not answered for {self._server.patience_seconds:g} s: {reason}. Start or "
                    "repair the server and run again; the answers so far are kept"
                )
            self.retries += 1
            if asked is None:
                await asyncio.sleep(wait * (0.5 + random.random() / 2))
                wait = min(2 * wait, _MAX_WAIT)
            else:
                self._resumes = max(self._resumes, time.monotonic() + asked)

    async def _turn(self) -> None:
        """Wait for this client's turn: for a pause that the server asked for, and for the rates."""
        while (left := self._resumes - time.monotonic()) > 0:
            await asyncio.sleep(left)
        await self._tokens.wait()
        await self._requests.wait(1)

    async def _attempt(self, request: Request) -> Answer:
        async with asyncio.timeout(self._server.timeout_seconds):
            # as text: the library's types of requests and responses cost 6 ms of CPU time for each
            response = await self._client.post(
                "/chat/completions",
                cast_to=str,
                body={"model": request.model, "messages": list(request.messages), **request.parameters},
                options={"headers": {"Idempotency-Key": request.digest}},
            )
        answer = read_completion(response)
        self._tokens.charge((answer.prompt_tokens or 0) + (answer.completion_tokens or 0))
        return answer

    def _check_usable(self, error: "openai.APIStatusError", model: str) -> None:
        """Raise ServerError for an error that all requests will have."""
        host, message = self._server.host, _message(error)
        if error.status_code in (401, 403):
            raise ServerError(f"{host} refuses the key: {message}. Set {SECRET} to a valid key")
        if error.status_code == 404:
            raise ServerError(
                f"{host} has no model {model} or no chat completions: {message}. Correct `model` in the recipe, or "
                "GRISTMILL_LM__BASE_URL, which usually ends with /v1"
            )
        if error.code == _QUOTA:
            raise ServerError(f"{host} has no quota left: {message}. Add credit and run again; answers are kept")


def read_completion(body: str) -> Answer:
    """What is kept of the body of a response. Raises _Malformed for one that is not a chat completion."""
    try:
        completion = _Completion.model_validate_json(body)
    except ValidationError as error:
        raise _Malformed(f"the response is not a chat completion: {body[:100]!r}") from error
    choice, usage = completion.choices[0], completion.usage
    refusal = choice.message.refusal
    return Answer(
        content=refusal or choice.message.content or "",
        model=completion.model,
        finish="refusal" if refusal else choice.finish_reason or "stop",
        prompt_tokens=None if usage is None else usage.prompt_tokens,
        completion_tokens=None if usage is None else usage.completion_tokens,
    )


def _message(error: "openai.APIStatusError") -> str:
    body = error.body if isinstance(error.body, Mapping) else {}
    message = " ".join(str(body.get("message") or error.response.text or error.message).split())[:300]
    key = os.environ.get(SECRET)
    return message.replace(key, "***") if key else message  # some servers repeat what they were sent


def _is_refused(error: BaseException) -> bool:
    """Whether no connection was made, so the server has seen nothing."""
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__name__ in ("ConnectError", "ConnectTimeout"):
            return True
        cause = cause.__cause__
    return False


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait, at most an hour: a number or an HTTP date (RFC 9110, 10.2.3), or
    OpenAI's `retry-after-ms`. None without a readable one."""
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
    return min(max(seconds, 0.0), 3600.0) if seconds == seconds else None
