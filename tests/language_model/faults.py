"""What can go wrong with an answer, when it does, and the bodies of errors.

Sources: OpenAI's guides "Error codes", "Rate limits" and "Structured outputs" and its API reference of chat
completions; RFC 9110 for Retry-After; vLLM's `ErrorResponse`, whose `code` is a number.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from email.utils import formatdate
from functools import lru_cache
from time import time
from typing import Any

from jsonschema import Draft202012Validator

from tests.language_model.planted import pick, schema_of, uniform

# Not billed: the error is sent before a model answers, or nothing is sent at all.
ERRORS = (
    "rate_limit",  # 429 without Retry-After
    "rate_limit_seconds",
    "rate_limit_date",
    "rate_limit_milliseconds",  # retry-after-ms, which OpenAI's own clients prefer
    "rate_limit_nonsense",  # a Retry-After that is neither seconds nor a date
    "insufficient_quota",
    "server_error",
    "bad_gateway",
    "overloaded",
    "html_page",  # 200 with the page of a proxy
)
SILENCES = ("disconnect", "hang")
# Billed: the model has answered.
DELIVERIES = ("cut_body", "slow_body", "late", "lost_answer")
CONTENTS = (
    "not_json",
    "misses_schema",
    "empty_content",
    "length",
    "refusal",
    "content_filter",
    "no_usage",
    "other_model",
    "no_choices",
)
KINDS = (*ERRORS, *SILENCES, *DELIVERIES, *CONTENTS)
NEEDS_SCHEMA = ("not_json", "misses_schema")


@dataclass(frozen=True)
class Plan:
    """When which fault happens.

    `each_attempt`: its probability, drawn by (seed, request hash, attempt), for the first `faulty_attempts` attempts of
    a request. `always`: the share of requests that have it at every attempt. `from_request`: it has every request from
    this number on, counted from 0 over the life of the server. `retry_after`, `hang` and `late` are seconds.
    """

    each_attempt: dict[str, float] = field(default_factory=dict)
    always: dict[str, float] = field(default_factory=dict)
    from_request: dict[str, int] = field(default_factory=dict)
    faulty_attempts: int = 3
    retry_after: float = 1.0
    hang: float = 30.0
    late: float = 5.0
    bytes_per_second: float = 40.0

    def __post_init__(self):
        for table in (self.each_attempt, self.always, self.from_request):
            if unknown := sorted(set(table) - set(KINDS)):
                raise ValueError(f"unknown faults: {', '.join(unknown)}. Known: {', '.join(KINDS)}.")
        for table in (self.each_attempt, self.always):
            if sum(table.values()) > 1 + 1e-9 or min(table.values(), default=0) < 0:
                raise ValueError(f"no probabilities: {table}. They must be 0 or more and sum to at most 1.")

    @classmethod
    def read(cls, text: str) -> "Plan":
        """A plan from JSON. Unknown keys are an error."""
        values = json.loads(text)
        if unknown := sorted(set(values) - {each.name for each in fields(cls)}):
            raise ValueError(f"unknown keys of a plan: {', '.join(unknown)}.")
        return cls(**values)

    def text(self) -> str:
        return json.dumps(asdict(self))

    def draw(self, seed: int, body_hash: str, attempt: int, number: int) -> str | None:
        """The fault of this attempt. `number` counts all requests of the server."""
        for kind, first in self.from_request.items():
            if number >= first:
                return kind
        kind = _drawn(self.always, uniform(seed, "always", body_hash))
        if kind is None and attempt < self.faulty_attempts:
            kind = _drawn(self.each_attempt, uniform(seed, "attempt", body_hash, attempt))
        return kind


def _drawn(table: dict[str, float], drawn: float) -> str | None:
    for kind, probability in sorted(table.items()):
        if drawn < probability:
            return kind
        drawn -= probability
    return None


@dataclass(frozen=True)
class Error:
    """An error of the interface, in the words of either dialect."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def body(self, dialect: str) -> bytes:
        if dialect == "vllm":
            if self.status == 401:
                return b'{"error":"Unauthorized"}'
            names = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError"}
            kind = names.get(self.status, "InternalServerError")
            error = {"message": self.message, "type": kind, "param": self.param, "code": self.status}
        else:
            error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()


QUOTA = "You exceeded your current quota, please check your plan and billing details."
RATE = "Rate limit reached for planted on requests per min (RPM). Please try again later."
PAGE = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center></body>\r\n</html>\r\n"  # noqa: E501


def error_of(kind: str, plan: Plan, *seeds: object) -> Error | None:
    """The error of a fault, or None where it is not an error with a JSON body."""
    if kind.startswith("rate_limit"):
        wait = plan.retry_after
        headers = {
            "rate_limit": (),
            "rate_limit_seconds": (("Retry-After", f"{math.ceil(wait)}"),),
            # Dates have whole seconds, so the date is at least the wait from now.
            "rate_limit_date": (("Retry-After", formatdate(math.ceil(time() + wait), usegmt=True)),),
            "rate_limit_milliseconds": (("retry-after-ms", f"{round(wait * 1000)}"),),
            "rate_limit_nonsense": (("Retry-After", pick(("soon", "", "-5", "nan", "inf"), "odd", *seeds)),),
        }[kind]
        return Error(429, RATE, "requests", "rate_limit_exceeded", headers=headers)
    return {
        "insufficient_quota": Error(429, QUOTA, "insufficient_quota", "insufficient_quota"),
        "server_error": Error(500, "The server had an error while processing your request. Sorry!", "server_error"),
        "overloaded": Error(
            503, "The model is overloaded. Try again later.", "service_unavailable_error", "server_is_overloaded"
        ),
    }.get(kind)


@lru_cache(64)
def _validator(schema: str) -> Callable[[Any], bool]:
    return Draft202012Validator(json.loads(schema)).is_valid


def is_valid(content: str | None, schema: dict) -> bool:
    """Whether the content is JSON as RFC 8259 has it (no NaN, no overflow to infinity) and fits the schema."""
    try:
        value = json.loads(content or "", parse_constant=_no_constant, parse_float=_finite)
    except ValueError:
        return False
    return _validator(json.dumps(schema))(value)


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _finite(digits: str) -> float:
    if math.isinf(value := float(digits)):
        raise ValueError(digits)
    return value


def misses(content: str, schema: dict) -> list[str]:
    """Contents that are close to a valid one and do not fit the schema."""
    value = json.loads(content)
    contents: list[str] = [f"[{content}]", "null", json.dumps(content), json.dumps({**value, "extra": 1})]
    for name, each in schema.get("properties", {}).items():
        contents.append(json.dumps({key: other for key, other in value.items() if key != name}))
        for wrong in _wrong_values(value[name], each):
            contents.append(json.dumps({**value, name: wrong}))
        if isinstance(value[name], int):
            contents.append(json.dumps({**value, name: "@"}).replace('"@"', "1e999"))
            contents.append(json.dumps({**value, name: "@"}).replace('"@"', "NaN"))
    return [each for each in contents if not is_valid(each, schema)]


def _wrong_values(value: Any, schema: dict) -> list[Any]:
    if "enum" in schema:
        return ["none of these", None]
    if isinstance(value, bool):
        return ["true", 1, None]
    if isinstance(value, int):
        return [str(value), value + 0.5, True, None, schema.get("maximum", 5) + 1, schema.get("minimum", 0) - 1]
    return [7, None, ["x"]]


def choice_of(kind: str | None, content: str, finish: str, body: dict, *seeds: object) -> dict[str, Any]:
    """The choice of an answer: its content, as the fault has it."""
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    cut = content[: len(content) // 2]
    if kind == "not_json":
        prose = ("I would grade this text ", "Sure! Here is the JSON: {grade: ", "{'grade': ", "")
        message["content"] = pick(prose, *seeds) + cut
    elif kind == "misses_schema":
        message["content"] = pick(misses(content, schema_of(body) or {}), *seeds)
    elif kind == "empty_content":
        message["content"] = pick(("", None, " \n"), *seeds)
    elif kind == "length":
        message["content"], finish = cut, "length"
    elif kind == "content_filter":
        message["content"], finish = cut, "content_filter"
    elif kind == "refusal":
        message["content"], message["refusal"] = None, "I'm sorry, but I cannot help with that request."
    return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
