"""Prompts: what a language model is sent about a document, and the form of its answer.

A prompt has Jinja templates over the document's columns, and the properties of the answer if a step needs values.
The text of a document is only ever a value of a template, so it is never read as a template. `{{ document }}` is the
text between marks whose names depend on the text, so a text cannot contain its own end mark.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import jinja2
import jinja2.sandbox
import pyarrow as pa
import xxhash
import yaml
from jinja2 import meta
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, create_model, model_validator

from gristmill.storage import files
from gristmill.storage.settings import Address
from gristmill.tasks.documents.file_problems import file_problems
from gristmill.tasks.documents.step import FORM, Problem, Settings

DOCUMENT = "document"  # the text between marks, in templates
TEXT = "text"
_NAME = r"[a-z][a-z0-9_]*"
_MAX_STRING = 2_000  # characters of a string in an answer
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**63 - 1  # that a column holds
_TYPES: Mapping[str, tuple[type, str]] = {
    "integer": (int, "int64"),
    "number": (float, "float64"),
    "boolean": (bool, "bool"),
    "string": (str, "string"),
}


class Property(Settings):
    """A value of an answer, as in JSON Schema."""

    type: Literal["integer", "number", "boolean", "string"] = Field(description="Type of the value.")
    minimum: float | None = Field(None, description="Lowest valid number.")
    maximum: float | None = Field(None, description="Highest valid number.")
    enum: tuple[str, ...] | None = Field(None, min_length=1, description="Valid strings.")
    max_length: int | None = Field(None, gt=0, le=_MAX_STRING, description="Maximum characters of a string.")
    description: str = Field("", description="Meaning of the value, which is sent to the model.")

    @model_validator(mode="after")
    def _of_its_type(self) -> Self:
        numbers = self.type in ("integer", "number")
        valid = {"string": ("enum", "max_length"), "boolean": ()}.get(self.type, ("minimum", "maximum"))
        for name in ("minimum", "maximum", "enum", "max_length"):
            if getattr(self, name) is not None and name not in valid:
                raise ValueError(f"has {name} for a {self.type}; remove it")
        if numbers and self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ValueError(f"has a minimum {self.minimum:g} above the maximum {self.maximum:g}")
        return self

    @property
    def kind(self) -> Any:
        """The type of its column."""
        return _TYPES[self.type][1]

    def schema_(self) -> dict[str, Any]:
        """JSON Schema of the value."""
        values: dict[str, Any] = {
            "type": self.type,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "enum": self.enum,
        }
        values |= {"maxLength": self.max_length, "description": self.description or None}
        if self.type == "integer":  # as 5, since some servers compile a grammar from it
            for name in ("minimum", "maximum"):
                values[name] = int(v) if (v := values[name]) is not None and v == int(v) else v
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items() if v is not None}


class Prompt(Settings):
    """Templates of the messages, and the properties of the answer."""

    system: str = Field("", description="Jinja template of the system message. Empty: no system message.")
    user: str = Field(description="Jinja template of the user message. `{{ document }}` is the marked text.")
    answer: dict[str, Property] = Field({}, description="Values of the answer, by name. Empty: plain text.")
    source: str = Field("", description="Paper or code that the prompt comes from.")

    @model_validator(mode="after")
    def _readable(self) -> Self:
        for key in ("system", "user"):
            try:
                _environment().compile(getattr(self, key))  # filters, too, which `parse` does not look up
            except jinja2.TemplateSyntaxError as error:
                raise ValueError(f"`{key}` is not a Jinja template: line {error.lineno}: {error.message}") from error
        if not {DOCUMENT, TEXT} & {*_names(self.user), *_names(self.system)}:
            raise ValueError("`user` does not contain the document; add {{ document }}")
        _check_names(self.answer)
        return self

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns of the document that the templates read, besides its text."""
        return tuple(sorted({*_names(self.user), *_names(self.system)} - {DOCUMENT, TEXT}))

    def messages(self, text: str, values: Mapping[str, Any]) -> list[dict[str, str]]:
        """The messages about a text. `values`: of `columns`. Raises ValueError for a template that fails."""
        variables = {**values, TEXT: text, DOCUMENT: marked(text)}
        result = []
        for role, template in (("system", self.system), ("user", self.user)):
            if template:
                try:
                    content = _template(template).render(variables)
                except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError) as error:
                    raise ValueError(f"`{role}` of the prompt fails for a document: {error}. Correct it") from error
                result.append({"role": role, "content": content})
        return result

    @property
    def schema_(self) -> dict[str, Any]:
        """JSON Schema of the answer, an object with these properties and no others."""
        return {
            "type": "object",
            "properties": {name: each.schema_() for name, each in self.answer.items()},
            "required": list(self.answer),
            "additionalProperties": False,
        }

    def read(self, content: str) -> dict[str, Any]:
        """The values of the one JSON object in an answer. Raises ValueError that names what is wrong."""
        try:
            return _model(self).model_validate_json(_object(content)).model_dump()
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error

    def arrow(self) -> dict[str, pa.DataType]:
        """The types of the columns of the answer."""
        return {name: pa.type_for_alias(each.kind) for name, each in self.answer.items()}


class PromptFile(Settings):
    """A prompt whose template of the user message is in a file."""

    file: Address = Field(description="Address of a file with the Jinja template of the user message.")
    system: str = Field("", description="Jinja template of the system message. Empty: no system message.")
    answer: dict[str, Property] = Field({}, description="Values of the answer, by name. Empty: plain text.")
    source: str = Field("", description="Paper or code that the prompt comes from.")

    @model_validator(mode="after")
    def _named(self) -> Self:
        _check_names(self.answer)
        return self

    def load(self) -> Prompt:
        """The prompt with the template that the file has now. Raises OSError, and ValueError for a file that has
        none."""
        try:
            user = files.read_bytes(self.file).decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"the prompt {self.file} is not UTF-8; save it as UTF-8") from error
        try:
            return Prompt(user=user, system=self.system, answer=self.answer, source=self.source)
        except ValidationError as error:
            reason = error.errors()[0]["ctx"]["error"]
            raise ValueError(f"the prompt {self.file} is not valid: {reason}") from error

    def problems(self, key: tuple[str | int, ...], deep: bool) -> Iterator[Problem]:
        """The error of a file without a template. `key`: of the prompt in its settings."""
        yield from file_problems(self.file, (*key, "file"), deep, self.load)


def _check_names(answer: Mapping[str, Property]) -> None:
    if wrong := [name for name in answer if re.fullmatch(_NAME, name) is None]:
        raise ValueError(f"`answer` has {wrong[0]!r}; use lowercase letters, digits and underscores")


def _form(prompt: Any) -> str:
    if isinstance(prompt, str):
        return f"{FORM}name"
    is_file = isinstance(prompt, PromptFile) or (isinstance(prompt, Mapping) and "file" in prompt)
    return f"{FORM}file" if is_file else f"{FORM}templates"


# By its form: else a wrong template would also be reported as not being a name.
NamedPrompt = Annotated[
    Annotated[Prompt, Tag(f"{FORM}templates")]
    | Annotated[PromptFile, Tag(f"{FORM}file")]
    | Annotated[str, Tag(f"{FORM}name")],
    Discriminator(_form),
]


def full(prompt: Prompt | PromptFile | str) -> Prompt:
    """A prompt with its templates. Raises ValueError for a name that no prompt has, and as `PromptFile.load`."""
    if isinstance(prompt, PromptFile):
        return prompt.load()
    return load_shipped(prompt) if isinstance(prompt, str) else prompt


def columns_of(prompt: Prompt | PromptFile | str) -> tuple[str, ...]:
    """The columns of the document that a prompt reads. Of a file that cannot be read those of `system`: a finished run
    is read without it, and before a run `problems` has the error."""
    try:
        return full(prompt).columns
    except (OSError, ValueError):
        if not isinstance(prompt, PromptFile):
            raise
        return tuple(sorted({*_names(prompt.system)} - {DOCUMENT, TEXT}))


def marked(text: str) -> str:
    """A text between marks that it cannot contain, since they have its digest."""
    mark = f"document-{xxhash.xxh3_64_hexdigest(text.encode(errors='replace'))}"
    return f"<{mark}>\n{text}\n</{mark}>"


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    """Without files, and without attributes of Python objects, since a prompt may be a stranger's."""
    return jinja2.sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: "" if value is None else value,  # a null of a column
        keep_trailing_newline=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@lru_cache(maxsize=64)
def _template(template: str) -> jinja2.Template:
    return _environment().from_string(template)


@lru_cache(maxsize=64)
def _names(template: str) -> tuple[str, ...]:
    return tuple(sorted(meta.find_undeclared_variables(_environment().parse(template))))


@lru_cache(maxsize=64)
def _model_of(key: str) -> type[BaseModel]:
    prompt = Prompt.model_validate_json(key)
    fields: dict[str, Any] = {}
    for name, each in prompt.answer.items():
        kind: Any = Literal[each.enum] if each.enum else _TYPES[each.type][0]
        limits: dict[str, Any] = {"ge": each.minimum, "le": each.maximum, "max_length": each.max_length}
        if each.type == "integer":
            limits["ge"] = _MIN_INTEGER if each.minimum is None else max(_MIN_INTEGER, each.minimum)
            limits["le"] = _MAX_INTEGER if each.maximum is None else min(_MAX_INTEGER, each.maximum)
        if each.type == "string" and not each.enum and each.max_length is None:
            limits["max_length"] = _MAX_STRING
        if each.type == "number":
            limits["allow_inf_nan"] = False
        fields[name] = (kind, Field(**{limit: value for limit, value in limits.items() if value is not None}))
    return create_model("Answer", __config__=ConfigDict(strict=True, extra="forbid"), **fields)


def _model(prompt: Prompt) -> type[BaseModel]:
    return _model_of(prompt.model_dump_json())


def _object(content: str) -> str:
    """The JSON object of an answer, without a Markdown fence or words around it."""
    begin, end = content.find("{"), content.rfind("}")
    if begin < 0 or end < begin:
        raise ValueError("the answer has no JSON object")
    return content[begin : end + 1]


_SHIPPED = Path(__file__).parent / "prompts"


def shipped() -> Sequence[str]:
    """The names of the prompts that ship."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


@lru_cache(maxsize=16)
def load_shipped(name: str) -> Prompt:
    """A prompt that ships. Raises ValueError for a name that none has."""
    if name not in shipped():
        raise ValueError(f"there is no prompt {name!r}; use one of {', '.join(shipped())}, or write one in the recipe")
    return Prompt.model_validate(yaml.safe_load((_SHIPPED / f"{name}.yaml").read_text()))
