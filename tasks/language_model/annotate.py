"""Ask a language model about documents, and keep its answers as columns.

After FineWeb-Edu (Penedo et al. 2024, arXiv 2406.17557, section 4): a large model grades a sample, from which a small
model learns to grade all documents.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from gristmill.storage import layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.selection import gather, null_columns_shard
from gristmill.tasks.documents.step import Clause, CorpusStep, Decision, Problem, Settings, Signal
from gristmill.tasks.language_model import prompts
from gristmill.tasks.language_model.answers import Answer, AnswerStore, Request
from gristmill.tasks.language_model.ask import NO_ANSWER, Conversation, ModelCall, replay, sampled_documents
from gristmill.tasks.language_model.prompts import NamedPrompt, Prompt, PromptFile
from gristmill.tasks.language_model.sample import Sampling, thresholds_of, weights_of

_NAME = r"^annotate(_[a-z0-9]+)*$"
COMPLAINT = "This answer is not valid: {problem}. Answer again, with only a JSON object that fits the schema."
OWN_COLUMNS = ("problem", "answer")  # of the step, beside the values
WEIGHT = "weight"  # another one, if the sample is stratified


class AnnotationSettings(ModelCall):
    """What decides the annotations of a text, besides the text."""

    prompt: NamedPrompt = Field(description="Name of a prompt that ships, or the templates, or a file; and the answer.")
    structured: bool = Field(True, description="Send the schema of the answer to the server, to constrain the model.")
    repairs: int = Field(2, ge=0, le=10, description="Maximum times that an invalid answer is returned to the model.")
    characters: int = Field(20_000, gt=0, description="Maximum characters of a window of a text.")
    windows: int = Field(
        1,
        ge=1,
        le=20,
        description="Windows of a text that are annotated, evenly spread: numbers are averaged, and other values are "
        "the most frequent ones.",
    )

    @property
    def full_prompt(self) -> Prompt:
        """The prompt with its templates. Raises as `prompts.full`."""
        return prompts.full(self.prompt)

    @property
    def declared(self) -> Prompt | PromptFile:
        """The prompt with its `answer`, without its file."""
        return self.prompt if isinstance(self.prompt, PromptFile) else self.full_prompt

    def texts(self, text: str) -> list[str]:
        """The windows of a text: the whole of it if it is short enough, else the first and others up to the end."""
        count = min(self.windows, -(-len(text) // self.characters)) if text else 1
        if count <= 1:
            return [text[: self.characters]]
        last = len(text) - self.characters
        begins = [round(last * number / (count - 1)) for number in range(count)]
        return [text[begin : begin + self.characters] for begin in begins]

    def conversations(self, text: str, values: Mapping[str, Any]) -> list["AnnotationConversation"]:
        """What the model is asked about a text, window by window."""
        return [AnnotationConversation(self, self.full_prompt, window, values) for window in self.texts(text)]


class AnnotationConversation:
    """The requests about a window of a text: the first, and the repairs of invalid answers.

    Attributes:
        values: The values of the last answer, once it is valid.
        problem: What is wrong with the last answer.
        request: What to ask next, None at the end.
        digests: The digests of the requests that they answer.
    """

    def __init__(self, settings: AnnotationSettings, prompt: Prompt, text: str, values: Mapping[str, Any]) -> None:
        self._prompt, self._left, self._max_tokens = prompt, settings.repairs, settings.max_tokens
        self.values: dict[str, Any] | None = None
        self.problem = ""
        self.digests: list[str] = []
        self.request: Request | None = settings.request(prompt.messages(text, values), prompt, settings.structured)

    def take(self, answer: Answer) -> None:
        """Continue with the answer to `request`."""
        request = self.request
        assert request is not None, "the conversation has ended"
        self.digests.append(request.digest)
        self.request = None
        if answer.finish in NO_ANSWER:
            self.problem = f"{answer.finish}: {answer.content[:200]}"
            return
        try:
            self.values, self.problem = self._prompt.read(answer.content), ""
        except ValueError as error:
            self.problem = f"invalid: {error}"
            if answer.finish == "length":
                self.problem = f"length: the answer was cut at `max_tokens: {self._max_tokens}`; raise it"
            if self._left:
                self._left -= 1
                self.request = request.after(answer.content, COMPLAINT.format(problem=error))


class Annotate(AnnotationSettings, Sampling, CorpusStep):
    """Ask a language model about documents, and store the values of its answers as columns.

    The columns are `<step>_<value>`, with nulls for documents that are not in the sample. A recipe may have the step
    several times, each with its own name: `step: annotate`, `step: annotate_topic`. The server is a setting of the
    machine (`GRISTMILL_LM__BASE_URL`), so it may change between runs. Answers are kept in the home, and what is kept is
    not asked again.
    """

    has_unknown_speed: ClassVar = True
    reads_documents: ClassVar = True
    packages: ClassVar = ("aiohttp", "openai")
    modules: ClassVar = (
        "gristmill.tasks.language_model.ask",
        "gristmill.tasks.language_model.prompts",
        "gristmill.tasks.language_model.ask",
        "gristmill.tasks.language_model.sample",
    )

    step: str = Field("annotate", pattern=_NAME, max_length=100)
    failed: Literal["null", "drop"] = Field(
        "null", description="What to do with a document without a valid answer: leave its columns null, or drop it."
    )

    @model_validator(mode="after")
    def _has_values(self) -> Self:
        if isinstance(self.prompt, str) and not self.declared.answer:
            names = [name for name in prompts.shipped() if prompts.load_shipped(name).answer]
            raise ValueError(f"has the prompt {self.prompt}, which is for rewrites; use one of {', '.join(names)}")
        if not self.declared.answer:
            raise ValueError("has a prompt without `answer`; add the values that the model is asked for")
        own = (*OWN_COLUMNS, *([WEIGHT] if self.by else []))
        if taken := [name for name in own if name in self.declared.answer]:
            raise ValueError(f"has a value {taken[0]} in the prompt's `answer`, which the step itself has; rename it")
        if self.by and self.of is None:
            raise ValueError("has `by` without `of`; add the number of documents to annotate")
        return self

    def column(self, value: str) -> str:
        """The column of a value of the answers."""
        return f"{self.step}_{value}"

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(sorted({*prompts.columns_of(self.prompt), *self.by}))

    @property
    def pins_files(self) -> bool:  # type: ignore[override]  # only with a file
        return isinstance(self.prompt, PromptFile)

    def problems(self, deep: bool) -> Iterator[Problem]:
        if isinstance(self.prompt, PromptFile):
            yield from self.prompt.problems(("prompt",), deep)

    @property
    def signals(self) -> tuple[Signal, ...]:  # type: ignore[override]  # they depend on the settings
        prompt = self.declared
        source = prompt.source or "the answer of the language model"
        values = [
            Signal(self.column(name), each.kind, "", source, each.description or f"The value {name} of the answer.")
            for name, each in prompt.answer.items()
        ]
        ours = "gristmill"
        if self.by:
            what = "Documents of its stratum for each in the sample, the inverse of its probability to be in it."
            values.append(Signal(f"{self.step}_{WEIGHT}", "float64", "documents", ours, what))
        return (
            *values,
            Signal(f"{self.step}_problem", "string", "", ours, "Why a document has no valid answer."),
            Signal(
                f"{self.step}_answer",
                "string",
                "",
                ours,
                "Digests of the requests, separated by commas, which name the answers.",
            ),
        )

    def decisions(self) -> tuple[Decision, ...]:
        """The rules of the step."""
        return (Clause("failed", f"{self.step}_problem is not null", "true"),) if self.failed == "drop" else ()


def pinned(step: Annotate) -> Annotate:
    """The step with the template that the file of its prompt has now."""
    return step.model_copy(update={"prompt": step.full_prompt})


# The work: one phase asks, so that all answers are in the home, and one reads them, shard by shard.


class AnnotationRecord(Settings):
    """What decides the annotations of a corpus, besides its documents and which are in the sample."""

    step: str
    settings: AnnotationSettings
    by: tuple[str, ...]
    bounds: dict[str, tuple[float, ...]] = Field({}, exclude_if=lambda bounds: not bounds)
    seed: int

    @property
    def reads(self) -> tuple[str, ...]:
        return self.settings.full_prompt.columns

    @property
    def template(self) -> Request:
        return self.settings.template_of(self.settings.full_prompt, self.settings.structured)

    def arrow(self) -> dict[str, pa.DataType]:
        """The types of the columns of the step, by their names without it."""
        own = {name: pa.string() for name in OWN_COLUMNS}
        return {**self.settings.full_prompt.arrow(), **own, **({WEIGHT: pa.float64()} if self.by else {})}

    def conversations(self, text: str, values: Mapping[str, Any]) -> Sequence[Conversation]:
        return self.settings.conversations(text, values)


def annotate_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    signals: tuple[str, ...],
    home: str,
    annotation: AnnotationRecord,
    sample: tuple[RecordedFile, ...],
) -> dict:
    """Write `id` and the columns of the step for a shard, from the answers in the home. Returns counts."""
    settings, step, store = annotation.settings, annotation.step, AnswerStore(home)
    prompt = settings.full_prompt
    ids: list[str] = []
    types = annotation.arrow()
    columns: dict[str, list[Any]] = {name: [] for name in types}
    weights: dict[str, float | None] = {}
    if annotation.by:
        table = gather((documents, kept, *signals), kept, list(annotation.by))
        weights = weights_of(table, annotation.by, annotation.bounds, sample)
    problems = Counter[str]()
    for each, text, values in sampled_documents(annotation, thresholds_of(sample), documents, kept, signals):
        ids.append(each)
        if text is None:
            answer_values, problem, digests = {}, None, None
        else:
            conversations = settings.conversations(text, values)
            for conversation in conversations:
                replay(store, conversation, folder)
            valid = [conversation.values for conversation in conversations if conversation.values is not None]
            answer_values = {
                name: _joined(prompt.answer[name].type, [one[name] for one in valid]) for name in prompt.answer if valid
            }
            problem = None if valid else conversations[0].problem
            digests = ",".join(digest for conversation in conversations for digest in conversation.digests)
            if problem is not None:
                problems[problem.partition(":")[0]] += 1
        row = {**answer_values, "problem": problem, "answer": digests}
        if text is not None and annotation.by:
            row[WEIGHT] = weights[each]
        for name in columns:
            columns[name].append(row.get(name))
    arrays = {f"{step}_{name}": pa.array(values, types[name]) for name, values in columns.items()}
    parquet.write_table(layout.part(folder, shard), pa.table({"id": pa.array(ids, pa.string()), **arrays}))
    annotated = len(ids) - columns["answer"].count(None)
    return {"rows": len(ids), "annotated": annotated, "problems": dict(sorted(problems.items()))}


def null_shard(folder: str, shard: int, kept: str, annotation: AnnotationRecord) -> dict:
    """Write the columns of the step for the documents of a source that it does not apply to: all null."""
    columns = {f"{annotation.step}_{name}": kind for name, kind in annotation.arrow().items()}
    return null_columns_shard(folder, shard, kept, columns)


def _joined(kind: str, values: Sequence[Any]) -> Any:
    """One value for several windows: the mean of numbers, rounded for integers; otherwise the most frequent value, the
    first of equally frequent ones."""
    if len(values) == 1:
        return values[0]
    if kind in ("integer", "number"):
        mean = sum(values) / len(values)
        return round(mean) if kind == "integer" else mean
    return Counter(values).most_common(1)[0][0]
