"""The Files and Batch interfaces of the test server, after OpenAI's API reference, with planted faults.

`POST /v1/files` (multipart, purpose `batch`), `GET /v1/files/{id}/content`, `POST /v1/batches`, `GET /v1/batches/{id}`,
`GET /v1/batches` (newest first, pages of `limit` with `after`), `POST /v1/batches/{id}/cancel`.

A batch goes on when it is looked at, so nothing depends on time: `validating`, then `failed` or `in_progress`, where it
stays for `polls` looks, `finalizing`, and its end. Its requests are answered, and billed, when it becomes `finalizing`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from email import message_from_bytes
from time import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.language_model import checks
from tests.language_model.faults import Error
from tests.language_model.planted import uniform

MAX_REQUESTS, MAX_BYTES = 50_000, 200_000_000
ENDPOINT = "/v1/chat/completions"
# What happens to one call. In `lost_answer` and `late` the server does what it was asked for.
CALL_FAULTS = (
    "server_error",
    "rate_limit",
    "bad_gateway",
    "html_page",
    "disconnect",
    "lost_answer",
    "cut_body",
    "late",
)
BATCH_FAULTS = (
    "token_limit",  # it fails its validation since too many tokens wait already
    "invalid",  # it fails its validation for another reason
    "expired",  # half of its requests are answered, the others are in the error file
    "cancelled",
    "all_errors",  # every request ends with status 500
    "missing",  # a third of the requests is in no file and not in the counts
    "duplicate",  # a third of the answers is in the output file twice, the second time with other words
    "strange",  # lines that belong to no request, and lines that are not objects
    "cut_output",  # the first two downloads of the output end within a line
    "short_output",  # the first two downloads of the output end after a line
)


@dataclass(frozen=True)
class BatchPlan:
    """`calls`: by endpoint (upload, create, retrieve, list, content) the faults of its first calls, None for none;
    `any_call`: probability of a fault of CALL_FAULTS at each call, at most twice in a row by endpoint; `batches`: the
    faults of the first batches; `polls`: looks while a batch is in progress; `page`: the most batches of a list."""

    calls: dict[str, list[str | None]] = field(default_factory=dict)
    any_call: float = 0.0
    batches: list[str | None] = field(default_factory=list)
    polls: int = 1
    page: int = 100

    def text(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Batch:
    id: str
    input_file_id: str
    fault: str | None
    metadata: dict[str, str] | None
    created_at: int
    status: str = "validating"
    looks: int = 0
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0
    completed: int = 0
    failed: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": ENDPOINT,
            "errors": {"object": "list", "data": self.errors} if self.errors else None,
            "input_file_id": self.input_file_id,
            "completion_window": "24h",
            "status": self.status,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": self.created_at,
            "expires_at": self.created_at + 86_400,
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "metadata": self.metadata,
        }


class BatchApi:
    """`answer` answers the body of a request: its status, and the body of the response."""

    def __init__(self, plan: BatchPlan, seed: int, answer: Callable[[dict, str], tuple[int, dict]]):
        self.plan, self.seed, self.answer = plan, seed, answer
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, Batch] = {}
        self.calls: Counter[str] = Counter()
        self.in_a_row: Counter[str] = Counter()
        self.downloads: Counter[str] = Counter()

    def stats(self) -> dict[str, Any]:
        return {
            "files": len(self.files),
            "calls": dict(self.calls),
            "batches": [
                {"id": each.id, "status": each.status, "total": each.total, "input_file_id": each.input_file_id}
                for each in self.batches.values()
            ],
        }

    def endpoint(self, method: str, path: str) -> str | None:
        """The name of what a call asks for; None if it is none of these interfaces."""
        parts = urlsplit(path).path.removeprefix("/v1/").split("/")
        return {
            ("POST", "files", 1): "upload",
            ("GET", "files", 3): "content",
            ("POST", "batches", 1): "create",
            ("GET", "batches", 1): "list",
            ("GET", "batches", 2): "retrieve",
            ("POST", "batches", 3): "cancel",
        }.get((method, parts[0], len(parts)))

    def fault(self, endpoint: str) -> str | None:
        """The fault of the next call of an endpoint."""
        number = self.calls[endpoint]
        self.calls[endpoint] += 1
        planned = self.plan.calls.get(endpoint, [])
        if number < len(planned):
            return planned[number]
        drawn = uniform(self.seed, "call", endpoint, number)
        if drawn < self.plan.any_call and self.in_a_row[endpoint] < 2:
            self.in_a_row[endpoint] += 1
            return CALL_FAULTS[int(drawn / self.plan.any_call * len(CALL_FAULTS))]
        self.in_a_row[endpoint] = 0
        return None

    def respond(self, endpoint: str, path: str, headers: dict[str, str], body: bytes) -> bytes | dict[str, Any]:
        """What a call returns: the bytes of a file, or JSON. Raises checks.Refused."""
        parts = urlsplit(path).path.removeprefix("/v1/").split("/")
        if endpoint == "upload":
            return self._upload(headers, body)
        if endpoint == "content":
            return self._content(parts[1])
        if endpoint == "create":
            return self._create(checks.parse(body))
        if endpoint == "list":
            return self._list(dict(parse_qsl(urlsplit(path).query)))
        if (batch := self.batches.get(parts[1])) is None:
            raise checks.Refused(Error(404, f"No batch found with id '{parts[1]}'."))
        if endpoint == "cancel":
            batch.fault = "cancelled"
        else:
            self._look(batch)
        return batch.as_json()

    def _upload(self, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        whole = message_from_bytes(f"Content-Type: {headers.get('content-type', '')}\r\n\r\n".encode() + body)
        if not whole.is_multipart():
            raise checks.Refused(Error(400, "'file' is a required property"))
        fields = {part.get_param("name", header="content-disposition"): part for part in whole.get_payload()}
        if "file" not in fields or not fields["file"].get_filename():
            raise checks.Refused(Error(400, "'file' is a required property"))
        purpose = fields["purpose"].get_payload() if "purpose" in fields else None
        if purpose != "batch":
            raise checks.Refused(Error(400, f"'{purpose}' is not one of ['batch'] - 'purpose'"))
        data = fields["file"].get_payload(decode=True)
        if len(data) > MAX_BYTES:
            raise checks.Refused(Error(413, "The file is too large."))
        return self._stored(data, "batch", fields["file"].get_filename())

    def _stored(self, data: bytes, purpose: str, name: str) -> dict[str, Any]:
        identity = f"file-{len(self.files):04}"
        self.files[identity] = data
        return {
            "id": identity,
            "object": "file",
            "bytes": len(data),
            "created_at": int(time()),
            "filename": name,
            "purpose": purpose,
        }

    def _content(self, identity: str) -> bytes:
        if (data := self.files.get(identity)) is None:
            raise checks.Refused(Error(404, f"No such File object: {identity}"))
        self.downloads[identity] += 1
        fault = next((each.fault for each in self.batches.values() if each.output_file_id == identity), None)
        if self.downloads[identity] > 2 or fault not in ("cut_output", "short_output"):
            return data
        if fault == "cut_output":
            return data[: len(data) * 2 // 3]
        lines = data.splitlines(keepends=True)
        return b"".join(lines[: len(lines) // 2])

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("endpoint") != ENDPOINT or body.get("completion_window") != "24h":
            raise checks.Refused(Error(400, f"Invalid 'endpoint' or 'completion_window' in {body}"))
        if body.get("input_file_id") not in self.files:
            raise checks.Refused(Error(400, f"No such File object: {body.get('input_file_id')}", param="input_file_id"))
        number = len(self.batches)
        fault = self.plan.batches[number] if number < len(self.plan.batches) else None
        batch = Batch(f"batch_{number:04}", body["input_file_id"], fault, body.get("metadata"), int(time()))
        self.batches[batch.id] = batch
        return batch.as_json()

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        newest = list(reversed(self.batches.values()))
        if "after" in query:
            ids = [each.id for each in newest]
            newest = newest[ids.index(query["after"]) + 1 :]
        limit = min(int(query.get("limit", "20")), 100, self.plan.page)
        data = [each.as_json() for each in newest[:limit]]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
        return {"object": "list", "data": data, **ends, "has_more": len(newest) > limit}

    def _look(self, batch: Batch) -> None:
        if batch.status == "validating":
            batch.errors = self._problems(batch)
            batch.status = "failed" if batch.errors else "in_progress"
        elif batch.status == "in_progress":
            batch.looks += 1
            if batch.looks >= self.plan.polls:
                self._run(batch)
                batch.status = "finalizing"
        elif batch.status == "finalizing":
            ends = ("expired", "cancelled")
            batch.status = batch.fault if batch.fault in ends else "completed"

    def _problems(self, batch: Batch) -> list[dict[str, Any]]:
        if batch.fault == "token_limit":
            message = "Enqueued token limit reached for planted. Limit: 2,000,000 enqueued tokens."
            return [{"code": "token_limit_exceeded", "message": message, "param": None, "line": None}]
        if batch.fault == "invalid":
            return [{"code": "billing_hard_limit_reached", "message": "Billing hard limit has been reached."}]
        ids: set[str] = set()
        models: set[str] = set()
        data = self.files[batch.input_file_id]
        found = []
        for number, line in enumerate(data.splitlines()):
            code = ""
            try:
                value = json.loads(line)
            except ValueError:
                found.append({"code": "invalid_json_line", "message": "This line is not parseable.", "line": number})
                continue
            if set(value) != {"custom_id", "method", "url", "body"}:
                code = "missing_required_parameter"
            elif value["method"] != "POST" or value["url"] != ENDPOINT:
                code = "invalid_url"
            elif value["custom_id"] in ids or len(value["custom_id"]) > 64:
                code = "duplicate_custom_id"
            if code:
                found.append({"code": code, "message": f"This line has {code}.", "line": number})
            else:
                ids.add(value["custom_id"])
                models.add(value["body"].get("model"))
        if len(models) > 1:
            found.append({"code": "mismatched_model", "message": "A batch has one model.", "line": None})
        if not data or len(data.splitlines()) > MAX_REQUESTS:
            found.append({"code": "invalid_file", "message": "The file is empty or has too many lines.", "line": None})
        batch.total = len(ids)
        return found

    def _run(self, batch: Batch) -> None:
        """Answer the requests, in another order than that of the input, and write the files."""
        lines = [json.loads(line) for line in self.files[batch.input_file_id].splitlines()]
        output, errors = [], []
        for number, line in enumerate(sorted(lines, key=lambda line: uniform(self.seed, line["custom_id"]))):
            key, draw = line["custom_id"], uniform(self.seed, batch.id, line["custom_id"])
            identity = {"id": f"batch_req_{batch.id}_{number}", "custom_id": key}
            if batch.fault == "missing" and draw < 1 / 3:
                continue
            if batch.fault in ("expired", "cancelled") and draw < 1 / 2:
                message = "This request could not be executed before the completion window expired."
                code = f"batch_{batch.fault}"
                errors.append({**identity, "response": None, "error": {"code": code, "message": message}})
                continue
            status, body = 500, {"error": {"message": "The server had an error.", "type": "server_error"}}
            if batch.fault != "all_errors":
                status, body = self.answer(line["body"], key)
            response = {"status_code": status, "request_id": f"req_{number}", "body": body}
            (output if status == 200 else errors).append({**identity, "response": response, "error": None})
            if status == 200 and batch.fault == "duplicate" and draw < 1 / 3:
                other = json.loads(json.dumps(response))
                other["body"]["choices"][:] = [{"index": 0, "message": {"content": "other"}, "finish_reason": "stop"}]
                output.append({**identity, "response": other, "error": None})
        batch.completed, batch.failed = len({line["custom_id"] for line in output}), len(errors)
        written = [*map(json.dumps, output), *(_strange() if batch.fault == "strange" else ())]
        if written:
            batch.output_file_id = self._stored("\n".join(written).encode() + b"\n", "batch_output", "output")["id"]
        if errors:
            data = "\n".join(map(json.dumps, errors)).encode() + b"\n"
            batch.error_file_id = self._stored(data, "batch_output", "error")["id"]


def _strange() -> Iterator[str]:
    body = {"choices": [{"message": {"content": "not asked for"}}], "usage": None}
    yield json.dumps({"custom_id": "0" * 64, "response": {"status_code": 200, "body": body}, "error": None})
    yield json.dumps({"custom_id": "../../etc/passwd", "response": {"status_code": 200, "body": body}, "error": None})
    yield json.dumps({"custom_id": None, "response": None, "error": None})
    yield "[]"
    yield ""
