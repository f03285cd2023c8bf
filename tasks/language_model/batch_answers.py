"""The answers in the files of a batch, which are kept under the digests of their requests.

Each line of the output file and of the error file of a batch has the `custom_id` of a request, and a response with its
status, or an error. Lines come in any order (OpenAI's API reference, the request output object).
"""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import IO, Any

import orjson
from pydantic import BaseModel, ValidationError

from gristmill.tasks.language_model.answers import Answer, AnswerStore
from gristmill.tasks.language_model.client import Malformed, is_transient, read_completion, redact

_LINES = 1024  # of a file with answers that are in memory
_THREADS = 16  # that write answers


class Problem(BaseModel):
    """Why a request, or a whole batch, was not answered."""

    code: str | None = None
    message: str | None = None


class _Response(BaseModel):
    status_code: int
    body: Any = None


class _Line(BaseModel):
    """A line of an output or error file."""

    custom_id: str
    response: _Response | None = None
    error: Problem | None = None


class BatchAnswers:
    """Keeps the answers in the files of a batch.

    Attributes:
        left: Digests of requests that no line has had.
        answers: How many were kept, errors that other attempts would have too included.
        unreadable: Requests with status 200 and no chat completion.
        reason: Why the last request without an answer has none.
    """

    def __init__(
        self, digests: Iterable[str], model: str, store: AnswerStore, on_answer: Callable[[str, Answer], None]
    ) -> None:
        self._model, self._store, self._on_answer = model, store, on_answer
        self.left = set(digests)
        self.answers = self.unreadable = 0
        self.reason = ""

    def take(self, file: IO[bytes]) -> None:
        """Keep the answers of a file, of each request the first one. Lines of no request of the batch are passed over.
        Raises Malformed for a line that is not JSON, after all others are kept: the download was cut."""
        broken = b""
        with ThreadPoolExecutor(_THREADS) as pool:
            while some := list(islice(file, _LINES)):
                answers: dict[str, Answer] = {}
                for line in filter(None, map(bytes.strip, some)):
                    try:
                        self._read(orjson.loads(line), answers)
                    except orjson.JSONDecodeError:
                        broken = line
                kept = pool.map(self._kept, answers.keys(), answers.values())
                for digest, answer in zip(answers, kept, strict=True):
                    self._on_answer(digest, answer)
                self.answers += len(answers)
        if broken:
            raise Malformed(f"a line of the answers is cut: {broken[-100:]!r}")

    def _read(self, value: Any, answers: dict[str, Answer]) -> None:
        """Add the answer of a line, if it has one."""
        try:
            line = _Line.model_validate(value)
        except ValidationError:
            return
        if line.custom_id not in self.left:
            return
        self.left.remove(line.custom_id)
        if line.response is None:
            self.reason = _message(line.error)
        elif line.response.status_code == 200:
            try:
                answers[line.custom_id] = read_completion(json.dumps(line.response.body))
            except Malformed as error:
                self.unreadable += 1
                self.reason = str(error)
        else:
            self.reason = f"status {line.response.status_code}: {_message(line.response.body)}"
            if not is_transient(line.response.status_code):
                answers[line.custom_id] = Answer(_message(line.response.body), self._model, "error", 0, 0)

    def _kept(self, digest: str, answer: Answer) -> Answer:
        known = self._store.find(digest)
        return self._store.keep(digest, answer) if known is None or known.finish == "error" else known


def _message(value: Any) -> str:
    """The message of an error, in one line of at most 300 characters."""
    if isinstance(value, Problem):
        value = value.message or value.code
    elif isinstance(value, dict):
        error = value.get("error", value)
        value = error.get("message") if isinstance(error, dict) else error
    return redact(" ".join(str(value).split()))[:300]
