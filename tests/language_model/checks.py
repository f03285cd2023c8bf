"""What the server accepts: the checks of OpenAI's API reference for a request of chat completions.

vLLM ignores unknown parameters, OpenAI refuses them; the dialect decides.
"""

import json
import re
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from tests.language_model import planted
from tests.language_model.faults import Error

PARAMETERS = {
    *("model", "messages", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "max_tokens"),
    *("max_completion_tokens", "metadata", "modalities", "n", "parallel_tool_calls", "prediction", "presence_penalty"),
    *("prompt_cache_key", "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "stop"),
    *("store", "stream", "stream_options", "temperature", "tool_choice", "tools", "top_p", "user", "verbosity"),
}
# Parameters that would change the answer in a way that this model does not have.
UNSERVED = ("logit_bias", "logprobs", "stop", "tools", "stream")
ROLES = ("system", "developer", "user", "assistant", "tool")
RANGES = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Refused(Exception):
    def __init__(self, error: Error):
        super().__init__(error.message)
        self.error = error


def _refuse(message: str, param: str | None = None, code: str | None = None, status: int = 400) -> Refused:
    return Refused(Error(status, message, code=code, param=param))


def parse(data: bytes) -> dict[str, Any]:
    """The body as a JSON object; NaN, lone surrogates and other things that JSON does not have are refused."""
    try:
        body = json.loads(data, parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise _refuse("We could not parse the JSON body of your request.")
    return body


def _no_constant(name: str) -> float:
    raise ValueError(name)


def check(body: dict[str, Any], models: tuple[str, ...], context: int, dialect: str) -> None:
    """Raise Refused for a request that the interface refuses. `context`: tokens of prompt and answer."""
    if not isinstance(body.get("model"), str):
        raise _refuse("you must provide a model parameter")
    if body["model"] not in models:
        message = f"The model `{body['model']}` does not exist or you do not have access to it."
        raise _refuse(message, code="model_not_found", status=404)
    if dialect == "openai" and (unknown := sorted(set(body) - PARAMETERS)):
        raise _refuse(f"Unrecognized request argument supplied: {unknown[0]}")
    for name in UNSERVED:
        if body.get(name):
            raise _refuse(f"This test server does not support {name}.", name, "unsupported_parameter")
    if body.get("n") not in (None, 1):
        raise _refuse("This test server gives one choice.", "n", "unsupported_value")
    for name, (low, high) in RANGES.items():
        value = body.get(name)
        if value is not None and not (_is_number(value) and low <= value <= high):
            raise _refuse(f"Invalid '{name}': {value!r} is not a number from {low} to {high}.", name)
    for name in ("max_tokens", "max_completion_tokens", "seed"):
        value = body.get(name)
        if value is not None and (type(value) is not int or (name != "seed" and value < 1)):
            raise _refuse(f"Invalid '{name}': {value!r}.", name, "invalid_type")
    if None not in (body.get("max_tokens"), body.get("max_completion_tokens")):
        raise _refuse("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    _check_messages(body.get("messages"))
    _check_format(body)
    size = planted.prompt_tokens(body["messages"])
    if size + (limit_of(body) or 0) > context:
        raise _refuse(
            f"This model's maximum context length is {context} tokens. However, your messages resulted in {size} "
            "tokens. Please reduce the length of the messages.",
            "messages",
            "context_length_exceeded",
        )


def limit_of(body: dict[str, Any]) -> int | None:
    """The most tokens of the answer."""
    return body.get("max_completion_tokens") or body.get("max_tokens")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise _refuse("[] is too short - 'messages'", "messages")
    for i, message in enumerate(messages):
        at = f"messages[{i}]"
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise _refuse(f"Invalid value for '{at}.role'. Supported values are: {', '.join(ROLES)}.", f"{at}.role")
        if unknown := sorted(set(message) - {"role", "content", "name", "refusal", "tool_calls", "tool_call_id"}):
            raise _refuse(f"Additional properties are not allowed ('{unknown[0]}' was unexpected) - '{at}'", at)
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        if not all(isinstance(each, dict) and each.get("type") == "text" for each in parts) or not all(
            isinstance(each.get("text"), str) for each in parts
        ):
            raise _refuse(f"Invalid type for '{at}.content': this test server takes text.", f"{at}.content")


def _check_format(body: dict[str, Any]) -> None:
    form = body.get("response_format")
    if form is None:
        return
    kind = form.get("type") if isinstance(form, dict) else None
    if kind not in ("text", "json_object", "json_schema"):
        raise _refuse(f"Invalid value for 'response_format.type': {kind!r}.", "response_format.type")
    if kind == "json_object" and "json" not in " ".join(map(planted.content, body["messages"])).lower():
        message = "'messages' must contain the word 'json' in some form, to use the format json_object."
        raise _refuse(message, "messages")
    if kind != "json_schema":
        return
    asked = form.get("json_schema")
    if not isinstance(asked, dict) or not NAME.fullmatch(str(asked.get("name", ""))):
        raise _refuse("Missing or invalid 'response_format.json_schema.name'.", "response_format.json_schema.name")
    if not isinstance(asked.get("schema"), dict):
        raise _refuse("Missing required parameter: 'response_format.json_schema.schema'.", "response_format")
    schema = asked["schema"]
    name = asked["name"]
    if schema.get("type") != "object":
        message = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'."
        raise _refuse(f"Invalid schema for response_format '{name}': {message}", "response_format")
    if (problem := _problem(json.dumps(schema))) is not None:
        raise _refuse(f"Invalid schema for response_format '{name}': {problem}", "response_format")
    if asked.get("strict") is True:
        _check_strict(schema, name, ())


@lru_cache(64)
def _problem(schema: str) -> str | None:
    try:
        Draft202012Validator.check_schema(json.loads(schema))
    except SchemaError as error:
        return error.message
    return None


def _check_strict(schema: Any, name: str, context: tuple) -> None:
    """Objects of strict schemas name all their properties as required and forbid others."""
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object":
        at = f"Invalid schema for response_format '{name}': In context={context}, "
        if schema.get("additionalProperties") is not False:
            message = "'additionalProperties' is required to be supplied and to be false."
            raise _refuse(at + message, "response_format")
        properties = schema.get("properties", {})
        if set(schema.get("required", ())) != set(properties):
            message = "'required' is required to be supplied and to be an array including every key in properties."
            raise _refuse(at + message, "response_format")
        for key, each in properties.items():
            _check_strict(each, name, (*context, "properties", key))
    _check_strict(schema.get("items"), name, (*context, "items"))
    for i, each in enumerate(schema.get("anyOf", ())):
        _check_strict(each, name, (*context, "anyOf", str(i)))
    for key, each in schema.get("$defs", {}).items():
        _check_strict(each, name, ("$defs", key))
