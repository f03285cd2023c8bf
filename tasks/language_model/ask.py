"""Ask a server about the documents of a corpus, so that all answers are in the home; and read them from there.

One job asks about all documents, or each of a few clients about its part, so the limits on the server are exact
whatever the number of workers is. The part of a client is decided by the request, so equal ones have one client.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from gristmill.storage import files
from gristmill.tasks.engine import options
from gristmill.tasks.engine.log_fields import ProgressReport
from gristmill.tasks.language_model.answers import FOLDER, Answer, AnswerStore, Request
from gristmill.tasks.language_model.batches import FOLDER as BATCHES
from gristmill.tasks.language_model.batches import Batches, beginning
from gristmill.tasks.language_model.client import Client, ServerError

log = logging.getLogger(__name__)

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
            await self._batches.finish()  # those of a run that was killed
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
        """Ask about all documents, with so many requests in flight."""
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
        """Raise ServerError if the server has refused all of at least so many requests."""
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
