"""Rewrites of documents by a language model: the settings, the checks of an answer, and the job that writes a shard.

A rewrite has the file `<source>/<file>` and the offset of the document that it was written from.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from gristmill.storage import files, layout, ledger, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.schema import DOCUMENTS
from gristmill.storage.settings import Address
from gristmill.tasks.documents.step import UNKNOWN, Problem, Settings
from gristmill.tasks.language_model import prompts
from gristmill.tasks.language_model.answers import Answer, AnswerStore, Request
from gristmill.tasks.language_model.ask import NO_ANSWER, ModelCall, replay, sampled_documents
from gristmill.tasks.language_model.prompts import NamedPrompt, Prompt, PromptFile
from gristmill.tasks.language_model.sample import Sampling, thresholds_of
from gristmill.tasks.models.language import Identification, identified

STEP = "rewrite"
ANSWER = "answer"  # a column of the tables below `asked_folder`: the digest of the request
ASKED = pa.schema([pa.field("id", pa.string()), pa.field(ANSWER, pa.string())])
_OF_SOURCE = ("url", "date", "source", "file", "offset", "length", "record_id")  # columns of the document
# Columns that documents of a rewrite carry: where they come from, and what is measured of them.
CARRIED = pa.schema(
    [
        pa.field("derived_from", pa.string(), metadata={"what": "id of the document that this one was rewritten from"}),
        pa.field("derived_source", pa.string(), metadata={"what": "source of that document"}),
        pa.field("derived_record", pa.string(), metadata={"what": "id of its record"}),
        pa.field("rewrite_prompt", pa.string(), metadata={"what": "the prompt's name, or a digest of its templates"}),
        pa.field("rewrite_model", pa.string(), metadata={"what": "the model that answered, as the server names it"}),
        pa.field("rewrite_answer", pa.string(), metadata={"what": "digest of the request, which names the answer"}),
        pa.field("rewrite_ratio", pa.float64(), metadata={"what": "characters per character of the document"}),
        pa.field("rewrite_new_numbers", pa.int64(), metadata={"what": "numbers that the document does not have"}),
        pa.field("rewrite_new_names", pa.int64(), metadata={"what": "capitalized words that the document lacks"}),
    ]
)
# A part of the stage: `id` is the document's.
PART = pa.schema(
    [
        DOCUMENTS.field("id"),
        DOCUMENTS.field("text"),
        DOCUMENTS.field("characters"),
        *(DOCUMENTS.field(name) for name in ("url", "date", "file", "offset", "length")),
        *CARRIED,
    ]
)
# Columns of the documents of a corpus with rewrites; the last two are null for other documents.
DERIVED = ("file", "offset", "derived_source", "derived_record")

OF_SOURCE = "source"  # a value of `language`
_BEGINNING = 300  # characters of a rewrite in which a refusal is looked for
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
# A word with a capital letter that follows another word of the same sentence: at the beginning of one every word has
# a capital.
_NAME = re.compile(r"(?<=[^\W_][ \t\n,;])(?<![.!?:] )[A-ZÀ-ÖØ-ÞΑ-ΩЀ-Я][^\W\d_]+")
_TAG = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
REFUSALS = (
    "as an ai language model",
    "as an ai assistant",
    "as a language model",
    "i am unable to",
    "i'm unable to",
    "i can't assist",
    "i cannot assist",
    "i can't help with",
    "i cannot help with",
    "i can't provide",
    "i cannot provide",
    "i can't fulfill",
    "i cannot fulfill",
    "i'm sorry, but i can",
)


class RewriteSettings(ModelCall):
    """Everything that decides the rewrite of a text, except the text."""

    prompt: NamedPrompt = Field(description="Name of a prompt that ships, or the templates, or a file. No `answer`.")
    values: dict[str, str] = Field(
        {}, description="Values of names in the templates that are no columns, as `{target_language: German}`."
    )
    max_tokens: int = Field(2048, gt=0, description="Maximum tokens of a rewrite. One that is cut there is dropped.")
    characters: int = Field(20_000, gt=0, description="Maximum characters of a document that the model is given.")

    @property
    def full_prompt(self) -> Prompt:
        """The prompt with its templates. Raises as `prompts.full`."""
        return prompts.full(self.prompt)

    @property
    def name(self) -> str:
        """The name of the prompt; of one in the recipe `own-` and a digest of it."""
        if isinstance(self.prompt, str):
            return self.prompt
        return f"own-{files.digest(self.full_prompt.model_dump_json().encode())[:16]}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the document that the templates read, besides its text."""
        return tuple(name for name in prompts.columns_of(self.prompt) if name not in self.values)


class Checks(Settings):
    """Which rewrites are dropped."""

    min_characters: int = Field(50, ge=0, description="Minimum characters of a rewrite.")
    min_ratio: float = Field(0.02, ge=0, description="Minimum characters of a rewrite per character of its source.")
    max_ratio: float = Field(5.0, gt=0, description="Maximum characters of a rewrite per character of its source.")
    language: str | None = Field(
        OF_SOURCE,
        description="Language of rewrites: `source` for that of the document, if its recipe has the step `language`; "
        "or a code of that step, as `de`. null: any.",
    )
    prompt_words: int | None = Field(
        12, ge=4, description="Words in a row that a rewrite must not share with the templates. null: any number."
    )
    refusals: tuple[str, ...] = Field(
        REFUSALS,
        description=f"Phrases that drop a rewrite if they are in its first {_BEGINNING} characters and not in the "
        "document.",
    )


class Rewrite(RewriteSettings, Checks, Sampling):
    """Documents of another recipe, rewritten by a language model."""

    recipe: Address = Field(description="Recipe whose curated documents are rewritten.")

    @model_validator(mode="after")
    def _plain(self) -> Self:
        if (self.prompt if isinstance(self.prompt, PromptFile) else self.full_prompt).answer:
            raise ValueError("has a prompt with `answer`; remove it, since the whole answer is the text")
        if not isinstance(self.prompt, PromptFile) and (unused := self._unused()):
            raise ValueError(unused)
        if self.by and self.of is None:
            raise ValueError("has `by` without `of`; add the number of documents to rewrite")
        if self.min_ratio > self.max_ratio:
            raise ValueError(f"has min_ratio {self.min_ratio:g} above max_ratio {self.max_ratio:g}")
        return self

    def _unused(self) -> str:
        names = sorted(set(self.values) - set(self.full_prompt.columns))
        return f"has the value {names[0]}, which the prompt does not read; remove it" if names else ""

    def problems(self, key: tuple[str | int, ...], deep: bool) -> Iterator[Problem]:
        """What is wrong with the file of its prompt. `key`: of these settings."""
        if not isinstance(self.prompt, PromptFile):
            return
        prompt_problems = [*self.prompt.problems((*key, "prompt"), deep)]
        yield from prompt_problems
        if not prompt_problems and (deep or files.is_local(self.prompt.file)) and (unused := self._unused()):
            yield (*key, "values"), unused


class SingleRequest:
    """A request and its answer, good or not.

    Attributes:
        request: What to ask, None once it is answered.
        digest: The digest of the request.
        answer: The answer.
    """

    def __init__(self, request: Request) -> None:
        self.request: Request | None = request
        self.digest = request.digest
        self.answer: Answer | None = None

    def take(self, answer: Answer) -> None:
        """Keep the answer."""
        self.answer, self.request = answer, None


class RewriteRecord(Settings):
    """What decides the rewrites of a corpus, besides its documents and which are in the sample.

    `name`: of the prompt; `of_source`: whether a rewrite must have the value of the column `language`; `identify`: how
    the languages of rewrites are identified, None if they are not checked.
    """

    settings: RewriteSettings
    name: str
    checks: Checks
    by: tuple[str, ...]
    bounds: dict[str, tuple[float, ...]] = Field({}, exclude_if=lambda bounds: not bounds)
    seed: int
    of_source: bool
    identify: Identification | None

    @property
    def step(self) -> str:
        return "rewrites"

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.settings.columns, *(["language"] if self.of_source else []))))

    @property
    def template(self) -> Request:
        return self.settings.template_of(self.settings.full_prompt, False, self.settings.values)

    def conversations(self, text: str, values: Mapping[str, Any]) -> Sequence[SingleRequest]:
        """What the model is asked about a text: one request."""
        settings, prompt = self.settings, self.settings.full_prompt
        messages = prompt.messages(text[: settings.characters], {**values, **settings.values})
        return [SingleRequest(settings.request(messages, prompt, structured=False))]

    @cached_property
    def prompt_runs(self) -> frozenset[tuple[str, ...]]:
        """All runs of `prompt_words` words of the templates, without what Jinja fills in."""
        prompt, count = self.settings.full_prompt, self.checks.prompt_words
        if count is None:
            return frozenset()
        return frozenset(
            run
            for template in (prompt.system, prompt.user)
            for piece in _TAG.split(template)
            for run in _runs(piece, count)
        )


@dataclass(frozen=True)
class Refused:
    """Why a rewrite is dropped: a rule, with the signal and the bound or with a detail."""

    rule: str
    value: float | None = None
    threshold: float | None = None
    detail: str | None = None


def refused(record: RewriteRecord, source: str, answer: Answer) -> Refused | None:
    """The first check that an answer fails; None if it is a rewrite. That of its language is another matter, since
    many texts are identified together.

    `source`: the text that the model was given.
    """
    checks, text = record.checks, answer.content.strip()
    if answer.finish in NO_ANSWER:
        return Refused(answer.finish, detail=text[:200])
    if answer.finish == "length":
        return Refused("length", len(text), record.settings.max_tokens)
    if len(text) < checks.min_characters:
        return Refused("too_short", len(text), checks.min_characters)
    share = ratio(source, text)
    if share < checks.min_ratio:
        return Refused("too_short", share, checks.min_ratio)
    if share > checks.max_ratio:
        return Refused("too_long", share, checks.max_ratio)
    if (phrase := _refusal(checks.refusals, source, text)) is not None:
        return Refused("refusal_phrase", detail=phrase)
    if checks.prompt_words is not None:
        run = next((run for run in _runs(text, checks.prompt_words) if run in record.prompt_runs), None)
        if run is not None:
            return Refused("copies_prompt", detail=" ".join(run))
    return None


def ratio(source: str, text: str) -> float:
    """Characters of a rewrite per character of its source."""
    return len(text) / max(1, len(source))


def _refusal(phrases: Sequence[str], source: str, text: str) -> str | None:
    beginning, whole = _folded(text[:_BEGINNING]), _folded(source)
    return next((phrase for phrase in phrases if _folded(phrase) in beginning and _folded(phrase) not in whole), None)


def _folded(text: str) -> str:
    return " ".join(text.replace("\u2019", "'").casefold().split())


def _runs(text: str, count: int) -> Iterator[tuple[str, ...]]:
    words = _WORD.findall(text.casefold())
    return (tuple(words[begin : begin + count]) for begin in range(len(words) - count + 1))


def new_numbers(source: str, text: str) -> int:
    """How many numbers, in digits, a rewrite has more than its source: each counts as often as it is missing there."""
    return (Counter(_NUMBER.findall(text)) - Counter(_NUMBER.findall(source))).total()


def new_names(source: str, text: str) -> int:
    """How many different words with a capital letter, which do not begin a sentence, a rewrite has that are nowhere in
    its source, in any case of letters. Scripts without capital letters have none, and German has one per noun."""
    there = set(_WORD.findall(source.casefold()))
    return len({name.casefold() for name in _NAME.findall(text)} - there)


def asked_folder(folder: str) -> str:
    """The folder with a table for each shard: the ids of the documents that the model was asked about, and the digests
    of all requests, including those whose answers were refused."""
    return files.join(folder, "asked")


def _asked_part(folder: str, shard: int) -> str:
    return files.join(asked_folder(folder), f"asked-{shard:05d}.parquet")


def answer_about(home: str, folder: str, shard: int, document: str) -> Answer | None:
    """The model's answer about a document of a shard, also if it was refused. None if the home no longer has it.
    `folder`: of the stage."""
    requests = parquet.read_table(_asked_part(folder, shard))
    digests = requests.filter(pc.equal(requests["id"], document))[ANSWER].to_pylist()
    return AnswerStore(home).find(digests[0]) if digests else None


def rewrite_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    signals: tuple[str, ...],
    home: str,
    record: RewriteRecord,
    sample: tuple[RecordedFile, ...],
) -> dict:
    """Write the rewrites of a shard from the answers in the home, and the ledger of documents without one. Holds the
    rewrites, and the texts of a row group. Returns counts."""
    store = AnswerStore(home)
    asked_about: dict[str, str] = {}
    rows: dict[str, dict[str, Any]] = {}
    drops: list[dict[str, Any]] = []
    expected: dict[str, str | None] = {}
    for each, text, values in sampled_documents(record, thresholds_of(sample), documents, kept, signals):
        if text is None:
            continue
        source = text[: record.settings.characters]
        [conversation] = record.conversations(text, values)
        replay(store, conversation, folder)
        answer, asked_about[each] = _answer(conversation), conversation.digest
        if (why := refused(record, source, answer)) is not None:
            drops.append({"id": each, "step": STEP, **vars(why)})
            continue
        rows[each] = _row(source, answer, conversation.digest, record.name)
        expected[each] = values.get("language") if record.of_source else record.checks.language
    if record.identify is not None:
        for drop in _other_languages(record.identify, rows, expected):
            drops.append(drop)
            del rows[drop["id"]]
    table = parquet.read_table(documents, ["id", *_OF_SOURCE])
    table = table.filter(pc.is_in(table["id"], pa.array(list(rows), pa.string()))).rename_columns(
        ["id", "url", "date", "derived_source", "file", "offset", "length", "derived_record"]
    )
    rewrites = pa.Table.from_pylist(
        [{**row, "derived_from": row["id"], **rows[row["id"]]} for row in table.to_pylist()], schema=PART
    )
    parquet.write_table(layout.part(folder, shard), rewrites)
    digests = {
        "id": pa.array(list(asked_about), pa.string()),
        ANSWER: pa.array(list(asked_about.values()), pa.string()),
    }
    parquet.write_table(_asked_part(folder, shard), pa.table(digests))
    dropped = ledger.from_rows(drops)
    ledger.write_ledger(folder, shard, dropped)
    characters = pc.sum(rewrites["characters"]).as_py() or 0
    return {
        "rows_in": len(asked_about),
        "rows_out": len(rewrites),
        "steps": [ledger.count(STEP, len(asked_about), None, dropped, characters)],
    }


def _answer(conversation: SingleRequest) -> Answer:
    assert conversation.answer is not None, "it was replayed"
    return conversation.answer


def _row(source: str, answer: Answer, digest: str, prompt: str) -> dict[str, Any]:
    text = answer.content.strip()
    return {
        "text": text,
        "characters": len(text),
        "rewrite_prompt": prompt,
        "rewrite_model": answer.model,
        "rewrite_answer": digest,
        "rewrite_ratio": ratio(source, text),
        "rewrite_new_numbers": new_numbers(source, text),
        "rewrite_new_names": new_names(source, text),
    }


def _other_languages(
    identify: Identification, rows: dict[str, dict[str, Any]], expected: dict[str, str | None]
) -> list[dict[str, Any]]:
    """The ledger's rows of rewrites in another language than they must have. An unknown one is none."""
    ids = [each for each in rows if expected[each] not in (None, UNKNOWN)]
    labels, _ = identified(identify, pa.array([rows[each]["text"] for each in ids], pa.large_string()))
    return [
        {"id": each, "step": STEP, "rule": "language", "detail": f"{label}, not {expected[each]}"}
        for each, label in zip(ids, labels, strict=True)
        if label not in (expected[each], UNKNOWN)
    ]


def file_name(source: str, file: str) -> str:
    """The file of the rewrites of documents from a file of a source."""
    return f"{source}/{file}"


def source_records(documents: pa.Table) -> pa.ChunkedArray:
    """The record that each document was written from, named as in `gristmill.tasks.evaluation.documents.records`; null
    for a document that was not written from another. `documents`: the columns DERIVED."""
    named = [
        None
        if source is None
        else f"{file.removeprefix(file_name(source, ''))}\n{'' if offset is None else offset}\n{record}"
        for file, offset, source, record in zip(*(documents[name].to_pylist() for name in DERIVED), strict=True)
    ]
    return pa.chunked_array([pa.array(named, pa.string())])
