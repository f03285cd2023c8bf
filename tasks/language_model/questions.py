"""What a stage asks a language model about the documents of a corpus: the call of the model, the documents, and the job
that asks. `annotate` and `rewrite` differ in their conversations and in what they make of the answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import Field, field_validator

from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import gather, select_groups
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.language_model.answers import Request
from gristmill.tasks.language_model.ask import Conversation, ask_all, is_of_client
from gristmill.tasks.language_model.prompts import Prompt
from gristmill.tasks.language_model.sample import Thresholds, sampled, thresholds_of

NO_ANSWER = ("refusal", "content_filter", "error")  # ends of answers that another request would not mend


class ModelCall(Settings):
    """What decides the answers of a model about a text, besides the text."""

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
    the columns of documents that `conversations` is given; `template`: a request that differs where no request can be
    equal."""

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
