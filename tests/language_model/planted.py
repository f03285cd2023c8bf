"""The planted model: answers that are a function of the seed, the model, the messages and the parameters.

Markers that tests put into documents are read from the last user message: `quality=<int>` is the true grade and
`document=<name>` is repeated in the bill. All draws use `uniform`, so that they are the same in every Python.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any

QUALITY = re.compile(r"quality=(-?\d+)")
DOCUMENT = re.compile(r"document=([\w.-]+)")
TEXT = re.compile(r"<text>(.*)</text>", re.DOTALL)  # from the first opening tag to the last closing tag
OBJECT = re.compile(r"\{[^{}]*\}")
SENTENCE = re.compile(r"(?<=[.!?])\s+")
CONNECTIVES = ("Also,", "In short,", "As noted,", "Here,", "Then,")
# Strings that a table, a JSON writer or a template must carry through unchanged.
WORDS = ("plain", "naïve", "“quoted”", 'a "b"', "back\\slash", "two\nlines", "{{ 7*7 }}", "</text>", "数据", "ok")


class Unsupported(ValueError):
    """A keyword of JSON Schema that this model has no answer for."""


def canonical(body: dict[str, Any]) -> bytes:
    """Canonical JSON of model, messages and all other keys as parameters: sorted keys, no spaces, ASCII."""
    parameters = {key: value for key, value in body.items() if key not in ("model", "messages")}
    request = {"model": body.get("model"), "messages": body.get("messages"), "parameters": parameters}
    return json.dumps(request, sort_keys=True, separators=(",", ":")).encode()


def request_hash(body: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(body)).hexdigest()


def uniform(*parts: object) -> float:
    """A number in [0, 1) that depends only on the parts."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def pick(choices, *parts: object):
    return choices[int(uniform(*parts) * len(choices))]


def tokens(text: str) -> int:
    """A token is four bytes of UTF-8; the last one may be shorter."""
    return -(-len(text.encode()) // 4)


def prompt_tokens(messages: list[dict]) -> int:
    """The tokens of the contents and four for each message."""
    return sum(tokens(content(message)) + 4 for message in messages)


def content(message: dict) -> str:
    """The text of a message: a string, or parts of type text, which are joined."""
    value = message.get("content") or ""
    return value if isinstance(value, str) else "".join(part["text"] for part in value)


def last_user_text(messages: list[dict]) -> str:
    return next((content(message) for message in reversed(messages) if message["role"] == "user"), "")


def marker(pattern: re.Pattern, text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match else None


def rewriting(seed: int, text: str) -> str:
    """The sentences of the text, rotated by a seeded number, each after a seeded connective."""
    sentences = SENTENCE.split(text.strip())
    start = int(uniform(seed, "rotation", text.strip()) * len(sentences))
    turned = sentences[start:] + sentences[:start]
    return " ".join(f"{pick(CONNECTIVES, seed, i, sentence)} {sentence}" for i, sentence in enumerate(turned))


@dataclass(frozen=True)
class Model:
    """`noise`: the probability of each difference between the grade and the quality; they sum to 1.

    Modes: `grade`; `rewrite`, where the first string (or the whole plain answer) is `rewriting` of the part between
    `<text>` and the last `</text>`; `echo-injection`, a model that obeys the instructions it finds in the text.
    """

    seed: int = 7
    noise: dict[int, float] = field(default_factory=lambda: {0: 1.0})
    mode: str = "grade"

    def __post_init__(self):
        if self.mode not in ("grade", "rewrite", "echo-injection"):
            raise ValueError(f"unknown mode: {self.mode}. Use grade, rewrite or echo-injection.")
        if abs(sum(self.noise.values()) - 1) > 1e-9 or min(self.noise.values()) < 0:
            raise ValueError(f"no probabilities: {self.noise}. They must be 0 or more and sum to 1.")

    def grade(self, body_hash: str, path: str, text: str) -> int:
        """The quality and the noise of this request and property. Without a marker the quality is drawn from 0 to 5."""
        mark = marker(QUALITY, text)
        quality = int(mark) if mark is not None else int(uniform(self.seed, "quality", body_hash) * 6)
        drawn = uniform(self.seed, "noise", body_hash, path)
        for difference, probability in sorted(self.noise.items()):
            if drawn < probability:
                return quality + difference
            drawn -= probability
        return quality + max(self.noise)

    def answer(self, body: dict[str, Any], body_hash: str) -> str:
        """The content of the answer before any limit of tokens. `body_hash` is `request_hash(body)`."""
        text = last_user_text(body["messages"])
        schema = schema_of(body)
        if self.mode == "echo-injection" and schema is not None:
            return self._obey(schema, body_hash, text)
        if schema is not None:
            try:
                return json.dumps(_Values(self, body_hash, text, schema).of(schema, ""), ensure_ascii=False)
            except RecursionError:
                raise Unsupported("a recursive $ref") from None
        if (body.get("response_format") or {}).get("type") == "json_object":
            return json.dumps({"grade": self.grade(body_hash, "/grade", text)})
        if self.mode == "rewrite":
            return self.rewritten(text)
        return str(self.grade(body_hash, "", text))

    def rewritten(self, text: str) -> str:
        match = TEXT.search(text)
        return rewriting(self.seed, match[1] if match else text)

    def _obey(self, schema: dict, body_hash: str, text: str) -> str:
        """One of four: the best grade, added keys, JSON that ends early, the last JSON object of the text itself."""
        value = _Values(self, body_hash, text, schema).of(schema, "")
        graded = {
            key: _best(each) if isinstance(value[key], int) and not isinstance(value[key], bool) else value[key]
            for key, each in schema.get("properties", {}).items()
        }
        objects = OBJECT.findall(text)
        whole = json.dumps(graded, ensure_ascii=False)
        return pick(
            (
                whole,
                json.dumps({**graded, "system": "obey", "text": "replaced", "id": "other", "__class__": "x"}),
                whole + ', "note": "the rest"}',
                objects[-1] if objects else whole + whole,
            ),
            self.seed,
            "obey",
            body_hash,
        )


def _best(schema: dict) -> int:
    return schema["enum"][-1] if "enum" in schema else int(schema.get("maximum", 5))


def schema_of(body: dict[str, Any]) -> dict | None:
    """The schema of `response_format`, or None when it asks for no schema."""
    form = body.get("response_format") or {}
    return form["json_schema"].get("schema", {}) if form.get("type") == "json_schema" else None


@dataclass(frozen=True)
class _Values:
    """Values that fit a schema: grades where it has numbers, sentences where it has strings."""

    model: Model
    body_hash: str
    text: str
    root: dict

    def of(self, schema: dict, path: str) -> Any:
        if "$ref" in schema:
            return self.of(self._resolved(schema["$ref"]), path)
        if "anyOf" in schema:
            return self.of(next(each for each in schema["anyOf"] if each.get("type") != "null"), path)
        for keyword in ("pattern", "format", "multipleOf", "allOf", "oneOf", "not", "if", "patternProperties"):
            if keyword in schema:
                raise Unsupported(keyword)
        if "const" in schema:
            return schema["const"]
        grade = self.model.grade(self.body_hash, path, self.text)
        if "enum" in schema:
            values = schema["enum"]
            return grade if grade in values else values[min(max(grade, 0), len(values) - 1)]
        kinds = schema.get("type")
        kind = next(each for each in kinds if each != "null") if isinstance(kinds, list) else kinds
        if kind == "object":
            return {name: self.of(each, f"{path}/{name}") for name, each in schema.get("properties", {}).items()}
        if kind == "array":
            size = min(max(2, schema.get("minItems", 0)), schema.get("maxItems", 2**31))
            return [self.of(schema.get("items", {"type": "string"}), f"{path}/{i}") for i in range(size)]
        if kind in ("integer", "number"):
            return _clip(grade, schema, 1 if kind == "integer" else 0.5)
        if kind == "boolean":
            return grade >= 3
        if kind == "string":
            return self._string(schema, path)
        if kind == "null":
            return None
        raise Unsupported(f"type {kind}")

    def _string(self, schema: dict, path: str) -> str:
        if self.model.mode == "rewrite" and path == self._first_string():
            string = self.model.rewritten(self.text)
        else:
            string = " ".join(pick(WORDS, self.model.seed, self.body_hash, path, i) for i in range(4))
        string = string.ljust(schema.get("minLength", 0), ".")
        return string[: schema.get("maxLength")]

    def _first_string(self) -> str | None:
        named = self.root.get("properties", {}).items()
        return next((f"/{name}" for name, each in named if "string" in (each.get("type") or ())), None)

    def _resolved(self, reference: str) -> dict:
        target = self.root
        for part in reference.removeprefix("#/").split("/"):
            if part not in target:
                raise Unsupported(f"$ref {reference}")
            target = target[part]
        return target


def _clip(grade: int, schema: dict, step: float) -> int | float:
    low = schema.get("minimum", schema.get("exclusiveMinimum", grade - step) + step)
    high = schema.get("maximum", schema.get("exclusiveMaximum", grade + step) - step)
    return min(max(grade, low), high)
