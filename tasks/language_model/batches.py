"""Requests that are sent in files, to servers with OpenAI's Batch API, and the records of batches in the home.

A file is uploaded, its id is written to the home, the batch is created from it, and the batch's id is written. A
process that is killed leaves this record, so the next run reads the answers of the batch instead of paying for them
again. If it was killed between the last two steps, the batch is found in the server's list by the id of its file.

The record is removed when the answers are in the home, under the digests of their requests, like answers of single
calls. Requests without an answer in an ended batch, such as those of an expired one, are left to the next pass over the
documents.
"""

import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Literal, TypeVar

import orjson
import wrapt
from pydantic import BaseModel, ValidationError

from gristmill.storage import checked_json, files
from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.language_model.answers import Answer, AnswerStore, Request
from gristmill.tasks.language_model.batch_answers import BatchAnswers, Problem
from gristmill.tasks.language_model.client import Client, Malformed, ServerError, is_refusal, message_of, redact

if TYPE_CHECKING:
    import openai
else:
    openai = wrapt.lazy_import("openai")

log = logging.getLogger(__name__)
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

FOLDER = "batches"  # in the folder of answers: the records, by model and prompt
MAX_BYTES = 200_000_000  # of a file (OpenAI's API reference, `POST /v1/batches`)
BYTES_A_TOKEN = 3  # for the budget, before a server has counted: English has about four, Chinese and Thai three
_ENDPOINT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
_ENDS = ("completed", "failed", "expired", "cancelled")
_MIN_POLL, _MAX_POLL, _POLL_GROWTH = 0.2, 60.0, 1.5  # seconds between looks at a batch
_LOG_SECONDS = 300.0
SETTLE_SECONDS = 60.0  # in which a batch may appear in the list, when the response to its creation is lost
_TOO_MANY_TOKENS = "token_limit_exceeded"  # the error of a batch that is accepted once others have ended


class _Problems(BaseModel):
    data: list[Problem] | None = None


class _Counts(BaseModel):
    total: int = 0
    completed: int = 0
    failed: int = 0


class _Batch(BaseModel):
    """What is read of a batch (OpenAI's API reference); servers leave out what they do not have."""

    id: str
    status: str
    input_file_id: str = ""
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: _Problems | None = None
    request_counts: _Counts | None = None

    @property
    def counts(self) -> _Counts:
        return self.request_counts or _Counts()

    @property
    def problem(self) -> Problem:
        return next(iter(self.errors.data or ()), Problem()) if self.errors else Problem()


class _File(BaseModel):
    id: str


class _Page(BaseModel):
    data: list[_Batch]
    has_more: bool = False


@dataclass
class _Record:
    """A batch that has not been read. `server`: its address; `input_file`: the id of its file; `batch`: its id, ""
    until it is known; `count`: of its requests; `price`: an estimate."""

    server: str
    input_file: str
    batch: str
    model: str
    count: int
    price: float


class _RefusedError(ServerError):
    """The server will not do what it was asked for."""


class Batches:
    """The batches of a stage, including batches of a run that was killed.

    Attributes:
        uncertain: Requests that no file of their batch has, though it has ended, or whose answer cannot be read. The
            server may have billed them.
    """

    def __init__(
        self,
        folder: str,
        store: AnswerStore,
        server: LanguageModelServer,
        connect: Callable[[], Client],
        on_answer: Callable[[str, Answer], None],
    ) -> None:
        """`folder`: of the records, `store`: of the answers; `connect` returns a client; `on_answer` is called for each
        answer that has come, with the digest of its request, by one thread at a time. Raises ServerError for a batch
        of another server."""
        self._folder, self._store, self._server = folder, store, server
        self._connect, self._on_answer = connect, on_answer
        self._lock = asyncio.Lock()
        self._waiting: set[int] = set()  # the beginnings of digests
        self._open = [self._known(path) for path in self._paths()]
        self._begin_file()
        self._failing: float | None = None  # since when no batch has had an answer
        self._reason = ""  # why the last request without an answer has none
        self.uncertain = 0

    def _paths(self) -> list[str]:
        return [files.join(self._folder, name) for name in sorted(files.names(self._folder)) if name.endswith(".json")]

    def _path(self, record: _Record) -> str:
        return files.join(self._folder, f"{files.digest(record.input_file.encode())}.json")

    def _known(self, path: str) -> _Record:
        values = checked_json.read(path)
        del values["requests"]
        record = _Record(**values)
        if record.server != self._server.base_url:
            raise ServerError(
                f"a batch of {record.server} has not been read. Set GRISTMILL_LM__BASE_URL to this address, or delete "
                f"{path} to ask again, which is paid again"
            )
        return record

    def _begin_file(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()
        self._digests: list[str] = []
        self._price = 0.0
        self._model = ""

    @property
    def is_empty(self) -> bool:
        """Whether no request waits for an answer."""
        return not self._open and not self._digests

    # Sending

    async def add(self, request: Request, left: float) -> None:
        """Add a request to the file, which is sent when it is full, unless it waits for an answer already. `left`: what
        requests that wait may cost: when they cost so much by an estimate, none is added. Raises ServerError."""
        number = beginning(request.digest)
        async with self._lock:
            price = self._price + sum(record.price for record in self._open)
            if number in self._waiting or (self._waiting and price >= left):
                return
            line = _line_of(request)
            if self._digests and self._file.tell() + len(line) > MAX_BYTES:
                await self._send()
            self._file.write(line)
            self._waiting.add(number)
            self._digests.append(request.digest)
            self._model = request.model
            self._price += self._server.price(len(line) // BYTES_A_TOKEN, request.parameters.get("max_tokens") or 0)
            if len(self._digests) >= self._server.batch:
                await self._send()

    async def _send(self) -> None:
        """Upload the file, and create its batch."""
        api = self._connect().api

        async def upload() -> str:
            self._file.seek(0)
            found = await api.files.with_raw_response.create(file=("batch.jsonl", self._file), purpose="batch")
            return _parsed(_File, found.text).id

        file = await self._call(upload, "no Files API")
        record = _Record(self._server.base_url, file, "", self._model, len(self._digests), self._price)
        await asyncio.to_thread(self._keep, record, self._digests)
        self._open.append(record)
        digests = self._digests
        self._file.close()
        self._begin_file()
        await self._create(record, digests, is_new=True)

    def _keep(self, record: _Record, digests: list[str]) -> None:
        checked_json.write(self._path(record), {**asdict(record), "requests": digests})

    async def _create(self, record: _Record, digests: list[str], is_new: bool) -> None:
        """Create the batch of a file, unless the server lists it: the response to an earlier attempt may be lost."""
        api = self._connect().api
        lost = None if is_new else time.monotonic()  # when an attempt ended whose response is unknown

        async def create() -> str:
            nonlocal lost
            if lost is not None:
                if (found := await self._listed(record.input_file)) is not None:
                    return found
                if time.monotonic() - lost < SETTLE_SECONDS:
                    raise Malformed("the response to the creation of a batch is lost, and the list does not have it")
            before, lost = lost, time.monotonic()
            try:
                response = await api.batches.with_raw_response.create(
                    input_file_id=record.input_file,
                    endpoint=_ENDPOINT,
                    completion_window="24h",
                    extra_headers={"Idempotency-Key": record.input_file},
                )
                return _parsed(_Batch, response.text).id
            except openai.APIStatusError as error:
                lost = before if is_refusal(error.status_code) else time.monotonic()
                raise
            except BaseException:  # the time limit is a cancellation here
                lost = time.monotonic()
                raise

        try:
            record.batch = await self._call(create, "no Batch API")
        except _RefusedError:
            self._close(record, digests)  # nothing was paid
            raise
        await asyncio.to_thread(self._keep, record, digests)
        log.info("%s: sent %s requests as batch %s", self._server.host, f"{record.count:,}", record.batch)

    async def _listed(self, file: str) -> str | None:
        """The id of the batch with an input file, if the server has it."""
        api = self._connect().api
        after: str | openai.Omit = openai.omit
        while True:
            response = await api.batches.with_raw_response.list(limit=100, after=after)
            page = _parsed(_Page, response.text)
            for each in page.data:
                if each.input_file_id == file:
                    return each.id
            if not page.has_more or not page.data:
                return None
            after = page.data[-1].id

    async def _call(self, attempt: Callable[[], Awaitable[T]], lacks: str) -> T:
        """`Client.call` with a time limit for each attempt. `lacks`: what a server that answers 404 does not
        have."""

        async def limited() -> T:
            async with asyncio.timeout(self._server.timeout_seconds):
                return await attempt()

        try:
            return await self._connect().call(limited)
        except openai.APIStatusError as error:
            what = f"has {lacks}" if error.status_code == 404 else "refuses a batch"
            raise _RefusedError(
                f"{self._server.host} {what}: {message_of(error)}. Correct GRISTMILL_LM__BASE_URL, or set "
                "GRISTMILL_LM__BATCH to 0"
            ) from error

    # Reading

    async def finish(self) -> bool:
        """Send the rest, wait until all batches have ended, and keep their answers. Returns whether there was a batch.
        Raises ServerError, also if no batch has had an answer for `patience_seconds`."""
        if self._digests:
            await self._send()
        if not self._open:
            return False
        answers = 0
        while self._open:
            record = self._open[0]
            digests: list[str] = (await asyncio.to_thread(checked_json.read, self._path(record)))["requests"]
            if not record.batch:
                await self._create(record, digests, is_new=False)
            answers += await self._read(record, digests, await self._ended(record))
        await self._be_patient(answers)
        return True

    async def _be_patient(self, answers: int) -> None:
        if answers:
            self._failing = None
            return
        self._failing = self._failing or time.monotonic()
        failing = time.monotonic() - self._failing
        if failing > self._server.patience_seconds:
            raise ServerError(
                f"{self._server.host} has answered no request of its batches for {failing:.0f} s: {self._reason}. "
                "Lower GRISTMILL_LM__BATCH or repair the server, and run again; the answers so far are kept"
            )
        await asyncio.sleep(min(max(failing / 2, 1.0), _MAX_POLL))

    async def _ended(self, record: _Record) -> _Batch:
        """The batch, once it has ended."""
        api, pause, shown, logged = self._connect().api, _MIN_POLL, "", time.monotonic()

        async def look() -> _Batch:
            return _parsed(_Batch, (await api.batches.with_raw_response.retrieve(record.batch)).text)

        while (batch := await self._call(look, f"no batch {record.batch}; {self._again(record)}")).status not in _ENDS:
            if batch.status != shown or time.monotonic() - logged > _LOG_SECONDS:
                shown, logged = batch.status, time.monotonic()
                log.info(
                    "%s: batch %s is %s, %s of %s requests are done",
                    self._server.host,
                    record.batch,
                    shown,
                    f"{batch.counts.completed + batch.counts.failed:,}",
                    f"{record.count:,}",
                )
            await asyncio.sleep(pause)
            pause = min(_POLL_GROWTH * pause, _MAX_POLL)
        return batch

    def _again(self, record: _Record) -> str:
        return f"delete {self._path(record)} to ask again, which is paid again"

    async def _read(self, record: _Record, digests: list[str], batch: _Batch) -> int:
        """Keep the answers of a batch that has ended, and remove its record. Returns how many there are."""
        if batch.status == "failed":  # its validation, so no request was answered
            self._reason = batch.problem.message or "it has failed"
            self._close(record, digests)
            if batch.problem.code != _TOO_MANY_TOKENS:
                raise ServerError(
                    f"{self._server.host} refuses the batch {record.batch}: {self._reason}. Correct the step or the "
                    "server, or set GRISTMILL_LM__BATCH to 0"
                )
            return 0
        lines = BatchAnswers(digests, record.model, self._store, self._on_answer)
        listed = min(batch.counts.completed + batch.counts.failed, batch.counts.total or record.count)

        async def read() -> None:
            for file in (batch.output_file_id, batch.error_file_id):
                if file:
                    await self._download(file, lines)
            if len(digests) - len(lines.left) < listed:
                raise Malformed(
                    f"the files of the batch {record.batch} have {len(digests) - len(lines.left):,} of {listed:,} "
                    f"requests; {self._again(record)}"
                )

        await self._call(read, f"no file of the batch {record.batch}; {self._again(record)}")
        self.uncertain += len(lines.left) + lines.unreadable
        self._reason = lines.reason or "its requests are in no file"
        self._close(record, digests)
        if batch.status == "cancelled":
            raise ServerError(
                f"the batch {record.batch} was cancelled at {self._server.host}; its {lines.answers:,} answers are "
                "kept. Run again to ask for the others"
            )
        return lines.answers

    def _close(self, record: _Record, digests: list[str]) -> None:
        files.remove(self._path(record))
        self._open.remove(record)
        self._waiting -= set(map(beginning, digests))

    async def _download(self, file: str, lines: BatchAnswers) -> None:
        with tempfile.TemporaryFile() as whole:
            async with self._connect().api.files.with_streaming_response.content(file) as response:
                chunks = aiter(response.iter_bytes())
                while chunk := await _next(chunks, file):
                    whole.write(chunk)
            whole.seek(0)
            await asyncio.to_thread(lines.take, whole)


def beginning(digest: str) -> int:
    """The beginning of a digest, as a number: 60 bits that differ where digests do."""
    return int(digest[:15], 16)


def _line_of(request: Request) -> bytes:
    line = {"custom_id": request.digest, "method": "POST", "url": _ENDPOINT, "body": request.body}
    return orjson.dumps(line) + b"\n"


def _parsed(model: type[M], body: str) -> M:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise Malformed(f"the response is not of the Batch API: {redact(body[:100])!r}") from error


async def _next(chunks: AsyncIterator[bytes], file: str) -> bytes:
    """The next bytes of a file, none at its end. Any exception of the library below is a lost connection."""
    try:
        return await anext(chunks, b"")
    except Exception as error:
        raise Malformed(f"the file {file} broke off: {type(error).__name__}: {error}") from error
