"""Answers of language models, kept in the home under the digest of what was asked.

An answer is one file, written whole and on the disk before it counts. The digest covers the model, the messages and the
parameters, so a stage that asks the same again finds the answer, whichever recipe or process asked first, and nothing
is paid twice. That a server may answer otherwise tomorrow does not matter: the first answer is the answer.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import orjson
import xxhash

from gristmill.storage import files
from gristmill.storage.damage import DamagedFileError

FOLDER = "answers"  # in the home


@dataclass(frozen=True)
class Request:
    """What a model is asked. `parameters`: the API's, besides model and messages, such as max_tokens."""

    model: str
    messages: tuple[Mapping[str, str], ...]
    parameters: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all of it, as 64 hexadecimal digits."""
        value = {"model": self.model, "messages": list(self.messages), "parameters": self.parameters}
        return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @property
    def body(self) -> dict[str, Any]:
        """The body of the call of chat completions."""
        return {"model": self.model, "messages": list(self.messages), **self.parameters}

    def after(self, content: str, complaint: str) -> "Request":
        """The same conversation with an answer and what is wrong with it."""
        more = ({"role": "assistant", "content": content}, {"role": "user", "content": complaint})
        return Request(self.model, (*self.messages, *more), self.parameters)


@dataclass(frozen=True)
class Answer:
    """What a server answered.

    Attributes:
        content: The text of the answer.
        model: The model that answered, as the server names it.
        finish: Why the answer ended: `stop`, `length`, `content_filter`; `refusal`; or `error` if the server will not
            answer this request, whose `content` then is its message.
        prompt_tokens: Tokens of the request that the server counts, None if it does not report them.
        completion_tokens: The same of the answer.
    """

    content: str
    model: str
    finish: str
    prompt_tokens: int | None
    completion_tokens: int | None


class AnswerStore:
    """The answers in a home."""

    def __init__(self, home: str) -> None:
        self._folder = files.join(home, FOLDER)

    def path(self, digest: str) -> str:
        return files.join(self._folder, digest[:2], f"{digest}.json")

    def find(self, digest: str) -> Answer | None:
        """The answer to a request; None if there is none. Raises DamagedFileError."""
        path = self.path(digest)
        try:
            check, _, body = files.read_bytes(path).partition(b"\n")
        except FileNotFoundError:
            return None
        if check.decode(errors="replace") != xxhash.xxh3_128_hexdigest(body):
            raise DamagedFileError(f"{path} is damaged. Delete it to ask again")
        return Answer(**orjson.loads(body))

    def keep(self, digest: str, answer: Answer) -> Answer:
        """Write an answer durably and return it."""
        body = orjson.dumps(asdict(answer), option=orjson.OPT_SORT_KEYS)
        files.write_bytes(self.path(digest), xxhash.xxh3_128_hexdigest(body).encode() + b"\n" + body)
        return answer

    def remove(self, digests: Sequence[str]) -> int:
        """Delete answers, and return how many there were."""
        paths = [path for path in map(self.path, digests) if files.exists(path)]
        for path in paths:
            files.remove(path)
        return len(paths)
