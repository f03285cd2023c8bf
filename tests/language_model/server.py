"""An OpenAI-compatible server on loopback with planted answers, seeded faults and a bill of what it answered.

    python -m tests.language_model.server --seed 7 --faults plan.json --log bill.jsonl

It serves `POST /v1/chat/completions` (whole answers) and `GET /v1/models`, and prints its address as its first line.
With `--batches plan.json` it also serves the interfaces of tests.language_model.batch_server.
`GET /_stats` counts requests, statuses and faults. It is written on asyncio streams because its faults are faults of
bytes: bodies that end early or come slowly, connections that close without an answer.

The bill has one JSON line for each answer with status 200 that a model gave, also when the client did not wait for it.
The line is written before the last byte of the answer is sent, so a client that has an answer finds it in the bill.

OpenAI's API reference does not document idempotency. With `--idempotent` this server does what Stripe's documents: a
known Idempotency-Key gets the stored answer, which is not billed again, and 400 for another request. A request
that comes while the first one is still at work waits for it.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Any, TextIO

from tests.language_model import checks, planted
from tests.language_model.batch_server import BatchApi, BatchPlan
from tests.language_model.faults import (
    CONTENTS,
    DELIVERIES,
    NEEDS_SCHEMA,
    PAGE,
    SILENCES,
    Error,
    Plan,
    choice_of,
    error_of,
)
from tests.language_model.faults import is_valid as is_valid_content

MAX_BODY = 16 << 20
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 411: "Length Required"}
BUSY = "Too many requests in flight. Please slow down."


@dataclass
class Reply:
    """An answer: `delivery` is the kind of a fault of DELIVERIES or SILENCES; `bill` is its line in the bill."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    kind: str = "application/json"
    delivery: str | None = None
    bill: dict[str, Any] | None = None


@dataclass
class Settings:
    """`latency` is in seconds, `jitter` a share of it; `max_in_flight` 0 means no limit; `context` is in tokens."""

    seed: int = 7
    plan: Plan = field(default_factory=Plan)
    model: planted.Model = field(default_factory=planted.Model)
    models: tuple[str, ...] = ("planted",)
    key: str = "test-key"
    latency: float = 0.2
    jitter: float = 0.25
    max_in_flight: int = 0
    context: int = 16384
    idempotent: bool = False
    dialect: str = "openai"
    batches: BatchPlan | None = None


class Server:
    def __init__(self, settings: Settings, log: TextIO | None, record: TextIO | None):
        self.settings = settings
        self.log = log
        self.record = record
        self.attempts: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.stored: dict[str, tuple[str, asyncio.Future[bytes]]] = {}
        self.in_flight = self.max_in_flight = self.requests = self.drawn = 0
        self.batches = settings.batches and BatchApi(settings.batches, settings.seed, self._answer_line)

    # ---------------------------------------------------------------- HTTP

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """All requests of one connection."""
        try:
            while head := await self._head(reader):
                method, path, headers = head
                size = headers.get("content-length", "0")
                if "transfer-encoding" in headers or not size.isdigit() or int(size) > MAX_BODY:
                    await self._send(reader, writer, Reply(411, Error(411, "Send a Content-Length.").body("openai")))
                    break
                body = await reader.readexactly(int(size))
                if not await self._respond(reader, writer, method, path, headers, body):
                    break
                if headers.get("connection", "").lower() == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except asyncio.CancelledError:
            pass  # the process ends, and Python 3.11 prints a traceback for each task of a connection that is cancelled
        finally:
            writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]] | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def _respond(self, reader, writer, method: str, path: str, headers: dict, body: bytes) -> bool:
        """Answer a request. False ends the connection."""
        if headers.get("authorization") != f"Bearer {self.settings.key}":
            message = "Incorrect API key provided. You can find your API key at your account's page."
            error = Error(401, message, code="invalid_api_key")
            return await self._send(reader, writer, self._error(error))
        if (method, path) == ("POST", "/v1/chat/completions"):
            self.requests += 1
            self.in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self.in_flight)
            release = _Once(self._release)
            try:
                reply = await self._complete(reader, headers, body)
                self.statuses[str(reply.status)] += 1
                return await self._send(reader, writer, reply, release)
            finally:
                release()
        if (method, path) == ("GET", "/v1/models"):
            models = [
                {"id": name, "object": "model", "created": 0, "owned_by": "tests"} for name in self.settings.models
            ]
            return await self._send(reader, writer, _json(200, {"object": "list", "data": models}))
        if (method, path) == ("GET", "/_stats"):
            return await self._send(reader, writer, _json(200, self.stats()))
        if self.batches is not None and (endpoint := self.batches.endpoint(method, path)) is not None:
            reply = await self._batch_call(self.batches, endpoint, path, headers, body)
            return await self._send(reader, writer, reply)
        return await self._send(reader, writer, self._error(Error(404, f"Invalid URL ({method} {path})")))

    def _release(self) -> None:
        self.in_flight -= 1

    def stats(self) -> dict[str, Any]:
        """Requests of completions, the most of them in flight, answers by status (0: none was sent), faults by kind."""
        return {
            "requests": self.requests,
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "statuses": dict(self.statuses),
            "faults": dict(self.faults),
            **({} if self.batches is None else {"batch": self.batches.stats()}),
        }

    async def _send(self, reader, writer, reply: Reply, release: Callable[[], None] = lambda: None) -> bool:
        """Send an answer and write its line of the bill. `release` is called before the client can have it whole."""
        if reply.delivery in SILENCES:
            return False
        head = f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Error')}\r\n"
        fields = (("Content-Type", reply.kind), ("Content-Length", str(len(reply.body))), *reply.headers)
        data = (head + "".join(f"{name}: {value}\r\n" for name, value in fields) + "\r\n").encode()
        if reply.delivery == "lost_answer":
            self._bill(reply, False)
            return False
        if reply.delivery == "cut_body":
            writer.write(data + reply.body[: len(reply.body) // 2])
            await writer.drain()
            self._bill(reply, False)
            return False

        def is_gone() -> bool:
            return reader.at_eof() or writer.transport.is_closing()

        try:
            if reply.delivery == "slow_body":
                writer.write(data)
                rate = self.settings.plan.bytes_per_second
                size = max(1, int(rate / 5))
                for start in range(0, len(reply.body) - 1, size):
                    await asyncio.sleep(size / rate)
                    if is_gone():
                        break
                    writer.write(reply.body[start : min(start + size, len(reply.body) - 1)])
                    await writer.drain()
            else:
                writer.write(data + reply.body[:-1])
                await writer.drain()
        except ConnectionError:
            writer.transport.abort()
        whole = not is_gone()
        self._bill(reply, whole)
        release()
        if whole:
            writer.write(reply.body[-1:])
            await writer.drain()
        return whole

    def _bill(self, reply: Reply, whole: bool) -> None:
        if self.log is not None and reply.bill is not None:
            self.log.write(json.dumps({**reply.bill, "whole": whole}) + "\n")

    def _error(self, error: Error) -> Reply:
        return Reply(error.status, error.body(self.settings.dialect), error.headers)

    # ---------------------------------------------------------------- batches

    async def _batch_call(self, api: BatchApi, endpoint: str, path: str, headers: dict, body: bytes) -> Reply:
        fault = api.fault(endpoint)
        if fault:
            self.faults[f"{endpoint}_{fault}"] += 1
        if fault in SILENCES:
            return Reply(0, b"", delivery=fault)
        if error := error_of(fault or "", self.settings.plan, self.settings.seed, endpoint):
            return self._error(error)
        if fault in ("bad_gateway", "html_page"):
            return Reply(502 if fault == "bad_gateway" else 200, PAGE, kind="text/html")
        if fault == "late":
            await asyncio.sleep(self.settings.plan.late)
        try:
            found = api.respond(endpoint, path, headers, body)
        except checks.Refused as refused:
            return self._error(refused.error)
        data = found if isinstance(found, bytes) else json.dumps(found).encode()
        return Reply(200, data, delivery=fault if fault in DELIVERIES else None)

    def _answer_line(self, body: dict[str, Any], key: str) -> tuple[int, dict]:
        """The status and the body for a request of a batch, which is billed."""
        settings = self.settings
        try:
            checks.check(body, settings.models, settings.context, settings.dialect)
            body_hash = planted.request_hash(body)
            answer = settings.model.answer(body, body_hash)
        except checks.Refused as refused:
            return refused.error.status, json.loads(refused.error.body(settings.dialect))
        attempt = self.attempts[body_hash]
        self.attempts[body_hash] += 1
        fault = settings.plan.draw(settings.seed, body_hash, attempt, self.drawn)
        self.drawn += 1
        if fault in NEEDS_SCHEMA and planted.schema_of(body) is None:
            fault = None
        if error := error_of(fault or "", settings.plan, settings.seed, body_hash, attempt):
            return error.status, json.loads(error.body(settings.dialect))
        reply = self._answered(body, body_hash, answer, attempt, fault if fault in CONTENTS else None, key)
        self._bill(reply, True)
        return 200, json.loads(reply.body)

    # ---------------------------------------------------------------- completions

    async def _complete(self, reader: asyncio.StreamReader, headers: dict[str, str], data: bytes) -> Reply:
        settings = self.settings
        try:
            body = checks.parse(data)
            body_hash = planted.request_hash(body)
            if self.record is not None:
                self.record.write(json.dumps({"hash": body_hash, "came": monotonic(), "body": body}) + "\n")
            # The limit is checked before the attempt is counted: which faults happen does not depend on time.
            if 0 < settings.max_in_flight < self.in_flight:
                self.faults["busy"] += 1
                return self._error(Error(429, BUSY, "requests", "rate_limit_exceeded"))
            checks.check(body, settings.models, settings.context, settings.dialect)
            answer = settings.model.answer(body, body_hash)
        except checks.Refused as refused:
            return self._error(refused.error)
        except planted.Unsupported as keyword:
            return self._error(Error(400, f"Invalid schema: '{keyword}' is not permitted.", param="response_format"))

        attempt = self.attempts[body_hash]
        self.attempts[body_hash] += 1
        fault = settings.plan.draw(settings.seed, body_hash, attempt, self.drawn)
        self.drawn += 1
        if fault in NEEDS_SCHEMA and planted.schema_of(body) is None:
            fault = None
        if fault:
            self.faults[fault] += 1
        if fault == "hang":
            await _until_gone(reader, settings.plan.hang)
        if fault in SILENCES:
            return Reply(0, b"", delivery=fault)
        if error := error_of(fault or "", settings.plan, settings.seed, body_hash, attempt):
            return self._error(error)
        if fault in ("bad_gateway", "html_page"):
            return Reply(502 if fault == "bad_gateway" else 200, PAGE, kind="text/html")
        delivery = fault if fault in DELIVERIES else None

        key = headers.get("idempotency-key")
        if settings.idempotent and key in self.stored:
            first, future = self.stored[key]
            if first != body_hash:
                message = "This idempotency key was used for another request. Use a new key."
                return self._error(Error(400, message, "idempotency_error"))
            return Reply(200, await asyncio.shield(future), delivery=delivery)
        future = asyncio.get_running_loop().create_future()
        if settings.idempotent and key:
            self.stored[key] = (body_hash, future)
        spread = settings.jitter * (2 * planted.uniform(settings.seed, "latency", body_hash, attempt) - 1)
        await asyncio.sleep(settings.latency * (1 + spread) + (settings.plan.late if fault == "late" else 0))
        reply = self._answered(body, body_hash, answer, attempt, fault, key)
        reply.delivery = delivery
        future.set_result(reply.body)
        return reply

    def _answered(self, body: dict, body_hash: str, answer: str, attempt: int, fault: str | None, key) -> Reply:
        seed = self.settings.seed
        limit = checks.limit_of(body)
        finish = "stop"
        if limit is not None and planted.tokens(answer) > limit:
            answer, finish = answer.encode()[: 4 * limit].decode(errors="ignore"), "length"
        choice = choice_of(fault, answer, finish, body, seed, body_hash, attempt)
        message = choice["message"]
        prompt = planted.prompt_tokens(body["messages"])
        completion = planted.tokens(message["content"] or message["refusal"] or "")
        identity = f"chatcmpl-{int(planted.uniform(seed, body_hash, attempt) * 16**12):012x}"
        completed = {
            "id": identity,
            "object": "chat.completion",
            "created": int(time()),
            "model": f"{body['model']}-other" if fault == "other_model" else body["model"],
            "choices": [] if fault == "no_choices" else [choice],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            },
            "system_fingerprint": f"fp_{seed}",
        }
        if fault == "no_usage":
            del completed["usage"]
        text = planted.last_user_text(body["messages"])
        schema = planted.schema_of(body)
        quality = planted.marker(planted.QUALITY, text)
        bill = {
            "id": identity,
            "hash": body_hash,
            "key": key,
            "model": body["model"],
            "attempt": attempt,
            "fault": fault,
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "document": planted.marker(planted.DOCUMENT, text),
            "quality": None if quality is None else int(quality),
            "content": message["content"],
            "finish_reason": choice["finish_reason"],
            "valid": None if schema is None else is_valid_content(message["content"], schema),
        }
        return _json(200, completed, bill)


class _Once:
    """A call that happens once, however often it is asked for."""

    def __init__(self, call: Callable[[], None]):
        self.call: Callable[[], None] | None = call

    def __call__(self) -> None:
        call, self.call = self.call, None
        if call is not None:
            call()


def _json(status: int, value: Any, bill: dict | None = None) -> Reply:
    return Reply(status, json.dumps(value).encode(), bill=bill)


async def _until_gone(reader: asyncio.StreamReader, seconds: float) -> None:
    """Wait until the client closes its connection, at most so many seconds. A client sends nothing meanwhile."""
    try:
        await asyncio.wait_for(reader.read(1), seconds)
    except TimeoutError:
        pass


# ---------------------------------------------------------------- the process


async def _run(server: Server, port: int, end_with_stdin: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", port, backlog=1024)
    print(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", flush=True)
    if end_with_stdin:
        stdin = asyncio.StreamReader()
        await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, stdin), sys.stdin)
        ended = asyncio.create_task(stdin.read())
        ended.add_done_callback(lambda _: stop.set())
    await stop.wait()
    listener.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.language_model.server")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--faults", type=Path, metavar="FILE", help="JSON of tests.language_model.faults.Plan")
    parser.add_argument("--log", type=Path, metavar="FILE", help="the bill, JSON lines are appended")
    parser.add_argument("--record", type=Path, metavar="FILE", help="every request as it came, JSON lines")
    parser.add_argument("--key", default="test-key", help="the bearer key")
    parser.add_argument("--models", default="planted", help="names, with commas")
    parser.add_argument("--mode", default="grade", choices=("grade", "rewrite", "echo-injection"))
    parser.add_argument("--noise", default='{"0": 1}', metavar="JSON", help="grade minus quality: probability")
    parser.add_argument("--latency", type=float, default=0.2, metavar="SECONDS")
    parser.add_argument("--jitter", type=float, default=0.25, metavar="SHARE", help="of the latency, to both sides")
    parser.add_argument("--max-in-flight", type=int, default=0, metavar="N", help="429 above it; 0: no limit")
    parser.add_argument("--context", type=int, default=16384, metavar="TOKENS", help="prompt and most of the answer")
    parser.add_argument("--idempotent", action="store_true", help="store answers by Idempotency-Key")
    parser.add_argument("--dialect", default="openai", choices=("openai", "vllm"), help="whose errors and checks")
    parser.add_argument(
        "--batches", type=Path, metavar="FILE", help="JSON of tests.language_model.batch_server.BatchPlan"
    )
    parser.add_argument("--end-with-stdin", action="store_true", help="end when stdin ends, with the parent")
    options = parser.parse_args()
    settings = Settings(
        seed=options.seed,
        plan=Plan.read(options.faults.read_text()) if options.faults else Plan(),
        model=planted.Model(options.seed, {int(key): p for key, p in json.loads(options.noise).items()}, options.mode),
        models=tuple(options.models.split(",")),
        key=options.key,
        latency=options.latency,
        jitter=options.jitter,
        max_in_flight=options.max_in_flight,
        context=options.context,
        idempotent=options.idempotent,
        dialect=options.dialect,
        batches=BatchPlan(**json.loads(options.batches.read_text())) if options.batches else None,
    )
    # Buffered by the line: whoever reads the files finds whole lines.
    log, record = (path and path.open("a", buffering=1, encoding="utf-8") for path in (options.log, options.record))
    try:
        asyncio.run(_run(Server(settings, log, record), options.port, options.end_with_stdin))
    finally:
        for file in (log, record):
            if file:
                file.close()


if __name__ == "__main__":
    main()
