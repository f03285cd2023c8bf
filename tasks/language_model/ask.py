"""Ask a language model about the documents of a corpus, store all answers in the home, and read them from there.

`annotate` and `rewrite` differ only in their conversations and in what they do with the answers. One job asks about all
documents, or a few clients ask about a part each, so the limits on the server are exact for any number of workers. The
request decides which client sends it, so equal requests have the same client.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import Field, field_validator

from gristmill.storage import files
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import gather, select_groups
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine import options
from gristmill.tasks.engine.log_fields import ProgressReport
from gristmill.tasks.language_model.answers import FOLDER, Answer, AnswerStore, Request
from gristmill.tasks.language_model.batches import FOLDER as BATCHES
from gristmill.tasks.language_model.batches import Batches, beginning
from gristmill.tasks.language_model.client import Client, ServerError
from gristmill.tasks.language_model.prompts import Prompt
from gristmill.tasks.language_model.sample import Thresholds, sampled, thresholds_of

log = logging.getLogger(__name__)

NO_ANSWER = ("refusal", "content_filter", "error")  # finish reasons that another request would not change
_LOG_SECONDS = 30.0
MAX_REFUSED = 20  # first requests of a stage that the server may refuse; if it refuses all of these, the stage fails
_MAX_THREADS = 64  # that read and write answers


class Conversation(Protocol):
    """Something that is asked about until it has no further request."""

    request: Request | None

    def take(self, answer: Answer) -> None:
        """Continue with the answer to `request`."""


class BudgetError(RuntimeError):
    """The answers of a stage have reached the budget."""


@dataclass
class _Counts:
    new: int = 0
    found: int = 0
    errors: int = 0
    bytes: int = 0
    logged: float = field(default_factory=time.monotonic)


def is_of_client(request: Request | None, client: int, clients: int) -> bool:
    """Whether a client has the conversation that begins with a request."""
    return clients == 1 or (request is not None and int(request.digest[:15], 16) % clients == client)


Items = Iterator[tuple[int, Sequence[Conversation]]]
"""The bytes of a document, and what is asked about it."""


def ask_all(step: str, home: str, template: str, items: Callable[[], Items]) -> dict[str, Any]:
    """Ask until every conversation has ended, and all answers are in the home. `template`: a digest that differs where
    no request can be equal; `items`: returns the documents, again for each pass over them. Returns `attempts`, counts
    of requests: `new`, `found`, `retries`, `uncertain`; and `bill`, the sums of the different answers, as in `Bill`.

    Without batches there is one pass. With them each pass sends the requests whose answers the home does not have, so
    there is another one after the ends of their batches.

    In memory are a few documents, as many as requests are in flight, and 64 bytes of each different request. If the
    server fails or the budget is spent, no request is begun, those in flight are waited for, and then ServerError or
    BudgetError is raised. Batches are not waited for: the next run reads their answers.
    """

    async def run() -> dict[str, Any]:
        return await _Asking(step, AnswerStore(home), files.join(home, FOLDER, BATCHES, template[:16])).run(items)

    return asyncio.run(run())


class _Asking:
    def __init__(self, step: str, store: AnswerStore, batches: str) -> None:
        self._step, self._store = step, store
        self._server = options.current().lm
        self._counts, self._bill, self._report = _Counts(), Bill(), ProgressReport()
        self._billed: set[int] = set()  # the beginnings of digests: equal texts are paid for once
        self._unbilled: dict[int, float] = {}  # prices of answers of batches, which the next pass adds to the bill
        self._unbilled_price = 0.0  # of all of them
        self._refused: set[int] = set()  # of batches: no pass of this run asks them again
        self._flying: dict[str, asyncio.Future[Answer | None]] = {}
        self._error: BaseException | None = None
        self._refusal = ""  # the message of the last one
        self._client: Client | None = None  # while all answers are found, no server is needed
        self._batches = Batches(batches, store, self._server, self._connected, self._take_from_batch)
        if self._server.clients > 1 and not self._batches.is_empty:
            raise ServerError(
                f"batches of an earlier run have not been read. Set GRISTMILL_LM__CLIENTS to 1, or delete {batches} to "
                "ask again, which is paid again"
            )

    async def run(self, items: Callable[[], Items]) -> dict[str, Any]:
        self._concurrency = max(1, self._server.concurrency // self._server.clients)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(min(_MAX_THREADS, 2 * self._concurrency)))
        try:
            await self._batches.finish()  # batches of a run that was killed
            await self._pass(items())
            while self._error is None and await self._batches.finish():
                self._check_refused(MAX_REFUSED)
                await self._pass(items())
        finally:
            if self._client is not None:
                await self._client.close()
        if isinstance(self._error, BudgetError):
            raise BudgetError(self._over_budget())  # with the answers that came since
        if self._error is not None:
            raise self._error
        if self._server.clients == 1 and not self._counts.found:  # of several clients, one may have a few texts only
            self._check_refused(1)
        retries, uncertain = (0, 0) if self._client is None else (self._client.retries, self._client.uncertain)
        uncertain += self._batches.uncertain
        attempts = {"new": self._counts.new, "found": self._counts.found, "retries": retries, "uncertain": uncertain}
        return {"attempts": attempts, "bill": self._bill.as_record()}

    async def _pass(self, items: Items) -> None:
        """Ask about all documents, with up to `concurrency` requests in flight."""
        self._counts.bytes = 0
        queue: asyncio.Queue[tuple[int, Sequence[Conversation]] | None] = asyncio.Queue(self._concurrency)
        workers = [asyncio.create_task(self._work(queue)) for _ in range(self._concurrency)]
        try:
            while self._error is None and (item := await asyncio.to_thread(next, items, None)) is not None:
                await queue.put(item)
        finally:
            for _ in workers:
                await queue.put(None)
            await asyncio.gather(*workers)

    async def _work(self, queue: asyncio.Queue) -> None:
        while (item := await queue.get()) is not None:
            size, conversations = item
            for conversation in conversations:
                repair = False
                while self._error is None and (request := conversation.request) is not None:
                    try:
                        answer = await self._obtain(request, repair)
                    except Exception as error:  # the others end their requests first, which are paid for
                        self._error = self._error or error
                        break
                    if answer is None:  # the next pass goes on
                        break
                    conversation.take(answer)
                    repair = True
            self._counts.bytes += size
            self._report.send(self._counts.new + self._counts.found, self._counts.bytes)
            self._log()

    async def _obtain(self, request: Request, repair: bool) -> Answer | None:
        """The answer from the home, or from the server, which is then in the home. None if it is sent in a batch."""
        digest = request.digest
        if (flying := self._flying.get(digest)) is not None:
            return await asyncio.shield(flying)
        future = self._flying[digest] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._found_or_new(request, digest)
            if answer is not None and (number := beginning(digest)) not in self._billed:
                self._billed.add(number)
                self._unbilled_price -= self._unbilled.pop(number, 0.0)
                self._bill.add(answer, repair)
            future.set_result(answer)
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # it is raised here, too
            raise
        finally:
            del self._flying[digest]
        return answer

    async def _found_or_new(self, request: Request, digest: str) -> Answer | None:
        answer = await asyncio.to_thread(self._store.find, digest)
        number = beginning(digest)
        # an error costs nothing, and the server may be repaired
        if answer is not None and (answer.finish != "error" or number in self._refused):
            self._counts.found += number not in self._unbilled and number not in self._billed
            return answer
        if self._server.batch:
            if self._batches.is_empty:
                self._check_budget()
            await self._batches.add(request, self._server.budget - self._spent if self._server.budget else math.inf)
            return None
        self._check_budget()
        answer = await asyncio.to_thread(self._store.keep, digest, await self._connected().answer(request))
        self._count_new(answer)
        if answer.finish == "error":
            self._check_refused(MAX_REFUSED)
        return answer

    def _connected(self) -> Client:
        self._client = self._client or Client(self._server)
        return self._client

    def _take_from_batch(self, digest: str, answer: Answer) -> None:
        """Count an answer of a batch, which is in the home."""
        number = beginning(digest)
        self._count_new(answer)
        price = self._server.price(answer.prompt_tokens or 0, answer.completion_tokens or 0)
        self._unbilled[number] = price
        self._unbilled_price += price
        if answer.finish == "error":
            self._refused.add(number)

    def _count_new(self, answer: Answer) -> None:
        self._counts.new += 1
        if answer.finish == "error":
            self._counts.errors += 1
            self._refusal = answer.content

    def _check_refused(self, least: int) -> None:
        """Raise ServerError if the server has refused all requests, and they are enough to judge by."""
        if self._counts.errors == self._counts.new >= least:
            raise ServerError(
                f"{self._server.host} refuses every request: {self._refusal}. Correct the step or the server"
            )

    @property
    def _spent(self) -> float:
        billed = self._server.price(self._bill.prompt_tokens, self._bill.completion_tokens)
        return billed + self._unbilled_price

    def _check_budget(self) -> None:
        if self._server.budget and self._spent >= self._server.budget / self._server.clients:
            raise BudgetError(self._over_budget())

    def _over_budget(self) -> str:
        budget, clients = self._server.budget, self._server.clients
        share = f", {budget / clients:.2f} for each of {clients} clients" if clients > 1 else ""
        return (
            f"{self._step}: the answers have cost {self._spent:.2f}, and GRISTMILL_LM__BUDGET is {budget:g}{share}. "
            f"Raise it and run again; the {self._bill.requests:,} answers are kept"
        )

    def _log(self) -> None:
        counts, now = self._counts, time.monotonic()
        if now - counts.logged < _LOG_SECONDS:
            return
        counts.logged = now
        price = f", price {self._spent:.2f}" if self._server.price_in or self._server.price_out else ""
        log.info(
            "%s: %s answers, %s of them new, %s prompt and %s completion tokens%s",
            self._step,
            f"{counts.new + counts.found:,}",
            f"{counts.new:,}",
            f"{self._bill.prompt_tokens:,}",
            f"{self._bill.completion_tokens:,}",
            price,
        )


def replay(store: AnswerStore, conversation: Conversation, folder: str) -> None:
    """Give a conversation its answers from the home. `folder`: of the stage. Raises LookupError for a missing one."""
    while (request := conversation.request) is not None:
        answer = store.find(request.digest)
        if answer is None:
            raise LookupError(
                f"the answer {store.path(request.digest)} was deleted while the stage was made. Remove the folder "
                f"{folder} and run again; only this answer is asked for again"
            )
        conversation.take(answer)


@dataclass
class Bill:
    """What different answers cost: `requests`; `repaired`: of them those about an invalid answer; `unreported`: answers
    whose tokens the server did not report; `models`: answers by the model that gave them, as the server names it."""

    requests: int = 0
    repaired: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unreported: int = 0
    models: dict[str, int] = field(default_factory=dict)

    def add(self, answer: Answer, repair: bool) -> None:
        """Add an answer."""
        self.requests += 1
        self.repaired += repair
        self.prompt_tokens += answer.prompt_tokens or 0
        self.completion_tokens += answer.completion_tokens or 0
        self.unreported += answer.prompt_tokens is None
        self.models[answer.model] = self.models.get(answer.model, 0) + 1

    def as_record(self) -> dict[str, Any]:
        return {**vars(self), "models": dict(sorted(self.models.items()))}


def total(records: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """The sum of bills."""
    result = Bill()
    for record in records:
        for name in ("requests", "repaired", "prompt_tokens", "completion_tokens", "unreported"):
            setattr(result, name, getattr(result, name) + record[name])
        for model, count in record["models"].items():
            result.models[model] = result.models.get(model, 0) + count
    return result.as_record()


class ModelCall(Settings):
    """Everything that decides the answers of a model about a text, except the text."""

    model: str = Field(min_length=1, description="Name of the model, as the server knows it.")
    temperature: float = Field(0.0, ge=0, le=2, description="Sampling temperature of the model.")
    max_tokens: int = Field(512, gt=0, description="Maximum tokens of an answer.")
    options: dict[str, Any] = Field({}, description="Further parameters of the API, such as `top_p` and `seed`.")

    @field_validator("options")
    @classmethod
    def _own_parameters(cls, options: dict[str, Any]) -> dict[str, Any]:
        own = ("model", "messages", "temperature", "max_tokens", "stream", "n", "response_format")
        if taken := [name for name in own if name in options]:
            raise ValueError(f"has {taken[0]}, which the step sets; remove it")
        return options

    def template_of(self, prompt: Prompt, structured: bool, values: Mapping[str, str] | None = None) -> Request:
        """The request with the templates of a prompt and the `values` that fill them in for all documents."""
        templates = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        return self.request([*templates, *([dict(sorted(values.items()))] if values else [])], prompt, structured)

    def request(self, messages: Sequence[Mapping[str, str]], prompt: Prompt, structured: bool) -> Request:
        """The request with these messages. `structured`: whether the server is given the schema of the answer."""
        parameters = {"temperature": self.temperature, "max_tokens": self.max_tokens, **self.options}
        if structured and prompt.answer:
            schema = {"name": "answer", "strict": True, "schema": prompt.schema_}
            parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
        return Request(self.model, tuple(messages), parameters)


@dataclass(frozen=True)
class DocumentShards:
    """Where the documents of all shards are. `signals`: the parts with the columns of earlier steps."""

    documents: Sequence[str]
    kept: Sequence[str]
    signals: Sequence[tuple[str, ...]]


class Questions(Protocol):
    """What a stage asks about a corpus. `step`: its name in the log; `by`, `bounds`, `seed`: of its sample; `reads`:
    the columns of documents that `conversations` gets; `template`: a request that differs if no two requests of two
    stages can be equal."""

    @property
    def step(self) -> str: ...
    @property
    def by(self) -> tuple[str, ...]: ...
    @property
    def bounds(self) -> Mapping[str, tuple[float, ...]]: ...
    @property
    def seed(self) -> int: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def template(self) -> Request: ...
    def conversations(self, text: str, values: Mapping[str, Any]) -> Sequence[Conversation]: ...


def ask_client(
    folder: str,
    client: int,
    clients: int,
    home: str,
    questions: Questions,
    sample: tuple[RecordedFile, ...],
    shards: Sequence[int],
    places: DocumentShards,
) -> dict:
    """Ask about the client's documents of all shards. Returns counts of requests. Raises as `ask_all` does."""
    thresholds = thresholds_of(sample)

    def items() -> Iterator[tuple[int, Sequence[Conversation]]]:
        for shard in shards:
            place = (places.documents[shard], places.kept[shard], places.signals[shard])
            for _, text, values in sampled_documents(questions, thresholds, *place):
                # each window by its first request, so that equal ones have one client
                asked = [] if text is None else questions.conversations(text, values)
                if mine := [each for each in asked if is_of_client(each.request, client, clients)]:
                    yield len(text or ""), mine

    return ask_all(questions.step, home, questions.template.digest, items)


def sampled_documents(
    questions: Questions, thresholds: Thresholds | None, documents: str, kept: str, signals: tuple[str, ...]
) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """The id, text and columns of each document of a shard; None as the text of one that is not in the
    sample. Holds these columns of the shard, and the texts of a row group."""
    names = list(questions.reads)
    if names or questions.by or thresholds is not None:
        table = gather((documents, kept, *signals), kept, list(dict.fromkeys((*names, *questions.by))))
        chosen = sampled(table, questions.by, questions.seed, thresholds, questions.bounds).tolist()
        rows = table.select(names).to_pylist() if names else [{}] * len(table)
        known = {each: row for each, row, asked in zip(table["id"].to_pylist(), rows, chosen, strict=True) if asked}
    else:
        known = None
    for group in select_groups(documents, kept, ["text"]):
        for each, text in zip(group["id"].to_pylist(), group["text"].to_pylist(), strict=True):
            if known is None:
                yield each, text, {}
            else:
                yield (each, text, known[each]) if each in known else (each, None, {})
