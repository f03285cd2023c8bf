"""What a language model is asked to write from a document, and the checks of what it wrote."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from pydantic import Field, model_validator

from gristmill.storage import files
from gristmill.storage.address import Address
from gristmill.tasks.documents.step import Problem, Settings
from gristmill.tasks.language_model import prompts
from gristmill.tasks.language_model.answers import Answer, Request
from gristmill.tasks.language_model.prompts import NamedPrompt, Prompt, PromptFile
from gristmill.tasks.language_model.questions import NO_ANSWER, ModelCall
from gristmill.tasks.language_model.sample import Sampling
from gristmill.tasks.models.language import Identification

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
    """What decides the rewrite of a text, besides the text."""

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
        found = [*self.prompt.problems((*key, "prompt"), deep)]
        yield from found
        if not found and (deep or files.is_local(self.prompt.file)) and (unused := self._unused()):
            yield (*key, "values"), unused


class SingleRequest:
    """A request and its answer, whatever that is.

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


def refused(asked: RewriteRecord, source: str, answer: Answer) -> Refused | None:
    """The first check that an answer fails; None if it is a rewrite. That of its language is another matter, since
    many texts are identified together.

    `source`: the text that the model was given.
    """
    checks, text = asked.checks, answer.content.strip()
    if answer.finish in NO_ANSWER:
        return Refused(answer.finish, detail=text[:200])
    if answer.finish == "length":
        return Refused("length", len(text), asked.settings.max_tokens)
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
        run = next((run for run in _runs(text, checks.prompt_words) if run in asked.prompt_runs), None)
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
    return (tuple(words[at : at + count]) for at in range(len(words) - count + 1))


def new_numbers(source: str, text: str) -> int:
    """How many numbers, in digits, a rewrite has more than its source: each counts as often as it is missing there."""
    return (Counter(_NUMBER.findall(text)) - Counter(_NUMBER.findall(source))).total()


def new_names(source: str, text: str) -> int:
    """How many different words with a capital letter, which do not begin a sentence, a rewrite has that are nowhere in
    its source, in any case of letters. Scripts without capital letters have none, and German has one per noun."""
    there = set(_WORD.findall(source.casefold()))
    return len({name.casefold() for name in _NAME.findall(text)} - there)
