"""What a step of a recipe is: its settings, the signals that it gives, and thresholds on them.

A step answers for itself: which of its files are missing or damaged, what its jobs hold, what it stores. Its work is in
the module of its class, unless `work` names another module.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import isfinite
from types import ModuleType
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import (
    ConfigDict,
    ValidatorFunctionWrapHandler,
    field_serializer,
    field_validator,
)

from gristmill.tasks.documents.scope import Scope
from gristmill.tasks.documents.scope import Settings as Settings
from gristmill.tasks.engine import extras, own_code

# The columns that documents have without any step: `gristmill.storage.schema.DOCUMENTS`.
DOCUMENT_COLUMNS = (
    *("id", "source", "url", "date", "ip", "status", "content_type", "charset", "charset_declared"),
    *(
        "truncated",
        "file",
        "note",
        "offset",
        "length",
        "record_id",
        "digest",
        "title",
        "canonical_url",
        "published",
        "engine",
        "characters",
        "text",
    ),
)
# The columns that a page states about itself; a table may give them as columns of its own.
PAGE_COLUMNS = ("title", "canonical_url", "published")
LANGUAGE = "language"  # the column that the step `language` gives
UNKNOWN = "unknown"  # in the column `language`: it cannot be told
# Steps that a recipe may have several times, each with a name of its own: `where`, `where_short`.
NAMED = ("where", "annotate")
_NAMED = re.compile(f"({'|'.join(NAMED)})(?:_[a-z0-9]+)*")
# The beginning of pydantic's tags of a value that has one of several forms: no part of its key in a recipe.
FORM = "form:"
_SUFFIXED = re.compile(r"[a-z][a-z0-9_]*-[a-z0-9_]+")
Kind = Literal["string", "bool", "int32", "int64", "float32", "float64"]
# A key within settings, and a sentence about its value that names what is wrong and the remedy.
Problem = tuple[tuple[str | int, ...], str]


@dataclass(frozen=True)
class Signal:
    """A column that a step measures, with one value for each document.

    Attributes:
        name: Name of the column, as expressions and SQL use it. By convention it begins with the name of the step.
        kind: Type of the values: `string`, `bool`, `int32`, `int64`, `float32` or `float64`. A `Bound` needs a number,
            a `Member` a string.
        unit: Unit of the values, such as `words`; empty if there is none.
        source: Paper or code that defines the values.
        description: One line about the values.
    """

    name: str
    kind: Kind
    unit: str
    source: str
    description: str

    def __post_init__(self) -> None:
        if not self.description.strip() or "\n" in self.description:
            raise ValueError(f"the signal {self.name} has the description {self.description!r}; write one line")
        if self.kind not in get_args(Kind):
            raise ValueError(
                f"the signal {self.name} has the kind {self.kind!r}; use one of {', '.join(get_args(Kind))}"
            )


@dataclass(frozen=True)
class Cut:
    """A rule by which an edit step cuts passages from texts.

    Attributes:
        rule: Name of the rule in the ledger of edits.
        settings: Names of the step's settings that the rule depends on.
        description: One line about what is cut.
    """

    rule: str
    settings: tuple[str, ...]
    description: str


@dataclass(frozen=True)
class Bound:
    """A rule that keeps a document if `low <= signal <= high`. Both ends are inclusive.

    Attributes:
        rule: Name of the rule in the ledger and the funnel, without the name of the step.
        signal: Name of the column of numbers that is compared.
        low: Lowest value of a kept document, or None for no lower end.
        high: Highest value of a kept document, or None for no upper end.
        languages: Other (low, high) pairs, by the value of the column `by`. They replace both ends.
        keeps_null: Whether a document with a null signal is kept. Otherwise it is an error.
        by: Name of the column of strings that selects the pair, by default the language.
    """

    rule: str
    signal: str
    low: float | None = None
    high: float | None = None
    languages: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    keeps_null: bool = False
    by: str = LANGUAGE

    def __post_init__(self) -> None:
        ends = [end for pair in ((self.low, self.high), *self.languages.values()) for end in pair if end is not None]
        if not all(map(isfinite, ends)):
            raise ValueError(f"{self.rule}: a bound of {self.signal} is not finite; omit that end instead")


@dataclass(frozen=True)
class Member:
    """A rule that keeps a document if a string signal is one of `allowed`, and not one of `excluded`.

    Attributes:
        rule: Name of the rule in the ledger and the funnel, without the name of the step.
        signal: Name of the column of strings.
        allowed: Values of kept documents, or None for any value.
        excluded: Values of dropped documents, or None for no value.
    """

    rule: str
    signal: str
    allowed: tuple[str, ...] | None
    excluded: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Clause:
    """A rule that drops a document if an expression over its columns has the value `drops`.

    Attributes:
        rule: Name of the rule in the ledger and the funnel, without the name of the step.
        expression: Condition, as the step `where` takes it.
        drops: Value that drops the document: `true`, `false` or `null`.
        is_error: Whether such a document ends the run with an error instead.
    """

    rule: str
    expression: str
    drops: Literal["true", "false", "null"]
    is_error: bool = False


Decision = Bound | Member | Clause


def named_kind(name: Any) -> str | None:
    """The kind of a step that recipes name, by its name: `where` of `where_short`. None for other names."""
    match = _NAMED.fullmatch(name) if isinstance(name, str) else None
    return match and match[1]


def base_name_of(name: str) -> str:
    """The name of a step without its suffix. A recipe gives suffixes to several steps of one kind: `pii-forum`."""
    return name.partition("-")[0]


def _describe_name(schema: dict[str, Any]) -> None:
    """Add a description to the name of a step, which is a literal type, for forms of recipes."""
    schema["properties"]["step"]["description"] = "the name of the step"


class Step(Scope):
    """A step of a recipe. A class that recipes name has one literal name as type and default of `step`.

    `work_version`: an integer that is raised, with a comment, when equal settings give other signals, texts or drops on
    some documents: it is in the keys of the stages that do the step's work. A user's step that declares none is known
    by the digest of its code. `work`: the module that does the work; "" means the module of the class. `libraries`: the
    distributions whose output is stored, so that another release may give another, a property where it depends on the
    settings; `packages`: further distributions that the work imports, whose releases decide nothing; either may be
    missing where an extra brings them (`gristmill.tasks.engine.extras`); `package_data`: files that distributions carry
    and that decide, as `package:path`; `modules`: further modules, besides the module of the class and `work`, that do
    the work. `signals`: the columns that documents have after the step. `pins_files`: whether the step's key needs the
    content of files that it names; its work module then has `pinned(step)`. `certainty`: where the first of the signals
    is the label that a model gives a document, the one that says how probable it is, in [0, 1].
    """

    model_config = ConfigDict(json_schema_extra=_describe_name)

    step: str
    work_version: ClassVar[int] = 1
    work: ClassVar[str] = ""
    libraries: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    package_data: ClassVar[tuple[str, ...]] = ()
    modules: ClassVar[tuple[str, ...]] = ()
    signals: ClassVar[tuple[Signal, ...]] = ()
    pins_files: ClassVar[bool] = False
    certainty: ClassVar[str] = ""
    has_unknown_speed: ClassVar[bool] = False  # it runs a model of any size, so no estimate includes its time

    @property
    def base_name(self) -> str:
        """The name of the step without the suffix that a recipe may give it: `gopher_quality` of
        `gopher_quality-legal`."""
        return base_name_of(self.step)

    def shortage(self) -> str:
        """The sentence that names distributions which the step needs and which are not installed; "" if none is
        missing."""
        return extras.shortage(f"step {self.step}", dict.fromkeys((*self.libraries, *self.packages)))

    def problems(self, deep: bool) -> Iterator[Problem]:
        """Problems with the files that the step names, before a run. `deep`: also check remote files, and import the
        user's functions that it names."""
        yield from ()

    def remarks(self) -> Iterator[str]:
        """Settings that are valid and probably not intended, a sentence each with the remedy."""
        yield from ()

    def job_memory(self, documents: int, text_bytes: int) -> Iterator[tuple[int, str]]:
        """Bytes that a job of the step holds, with a description, for each phase in which they grow with the corpus of
        so many documents and bytes of text."""
        yield from ()

    @property
    def part_versions(self) -> Mapping[str, int]:
        """The versions, by name, of parts of the work that only some settings use: when one is raised, the
        stages of recipes without it stay."""
        return {}

    @property
    def disk_bytes(self) -> int:
        """Bytes of the models that the step stores in the home."""
        return 0

    @property
    def fasttext_classifier(self) -> str | None:
        """The path or address of the fastText classifier that the step names."""
        return None

    @property
    def question(self) -> str:
        """What a person is asked about a document on the page of `gristmill explain audit`: yes means that it is to be
        kept. A step without a question has no page."""
        return ""

    def pinned(self) -> Self:
        """The step tied to the content that the files it names have now, so that its key changes with them."""
        if not self.pins_files:
            return self
        return own_code.call(f"step {self.step}", work_of(self).pinned, self, accept=self._checked_pin)

    def _checked_pin(self, step: Any) -> Self:
        if type(step) is not type(self):
            raise own_code.Unacceptable(f"returned {own_code.shown(step)}; return the step, a {type(self).__name__}")
        return step


class DocumentStep(Step):
    """A step that measures documents one by one, and drops them by thresholds.

    Its module has a function `measure(step, batch)`. It gets the step with all thresholds at their defaults and a
    `Batch`, and returns a mapping from the name of each signal to a `pyarrow.Array` with one value per document, in the
    order of the batch. A step without signals, which decides by the signals of other steps, has no such function.

    Attributes:
        step: Name of the step: a literal type with the same default, `step: Literal["profanity"] = "profanity"`.
        signals: The columns that `measure` returns.
        signal_fields: Names of the settings that change what is measured. All other fields are thresholds. They have
            defaults, and `decide whatif` can replay them.
    """

    signal_fields: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if unknown := [name for name in cls.signal_fields if name not in cls.model_fields]:
            raise TypeError(f"{cls.__name__}.signal_fields lists {', '.join(unknown)}, which are not fields")
        if cls.model_fields["step"].is_required():
            return
        thresholds = [name for name in cls.model_fields if name not in cls.signal_fields]
        if missing := [name for name in thresholds if cls.model_fields[name].is_required()]:
            raise TypeError(
                f"{cls.__name__}: the threshold {missing[0]} needs a default; if it changes what is "
                "measured, add it to signal_fields"
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the columns of earlier steps that `measure` reads."""
        return ()

    @property
    def considers(self) -> tuple[str, ...]:
        """Names of the columns of earlier steps that `measure` uses if the recipe has them."""
        return ()

    @field_validator("step", mode="wrap")
    @classmethod
    def _suffixed(cls, value: Any, read: ValidatorFunctionWrapHandler) -> str:
        if not isinstance(value, str) or "-" not in value:
            return read(value)
        if not _SUFFIXED.fullmatch(value):
            raise ValueError(f"is {value!r}; write the step's name, a hyphen, and lowercase letters, digits or _")
        read(base_name_of(value))
        return value

    @field_serializer("step")
    def _with_suffix(self, value: str) -> str:
        return value

    def measuring(self) -> Self:
        """The same step with every threshold at its default: all that a job which measures may read."""
        values = {name: getattr(self, name) for name in self.signal_fields}
        scope = {"only": self.only, "except": self.left_out, "step": self.step if self.step != self.base_name else None}
        return type(self).model_validate(values | {name: value for name, value in scope.items() if value is not None})

    def decisions(self) -> Sequence[Decision]:
        """Return the rules, in the order in which they are applied. A document is dropped by the first that fails."""
        raise NotImplementedError(f"{type(self).__name__} has no method `decisions`")


class EditStep(DocumentStep):
    """A step that cuts passages from texts. Later steps see the text that it leaves.

    Its module has a function `edit(step, batch)`. It returns a pair: the `Edits`, and a mapping with the columns of
    `signals`, except `<step>_characters`, which is computed for you. The settings in `signal_fields` decide what is
    cut. End `decisions` with `self.not_empty()`.

    Attributes:
        signals: The columns of the step. One must be `<step>_characters`, an int64: the characters that are left.
        cuts: The rules that cut, in the order in which they are applied to a piece of text.
        keeps_removed: Whether the ledger of edits may contain the removed text, also of earlier steps.
        sought: The phrase that a rule drops documents for, by rule, if it is a phrase.
    """

    cuts: ClassVar[tuple[Cut, ...]] = ()
    keeps_removed: ClassVar[bool] = True
    sought: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if cls.model_fields["step"].is_required():
            return
        signal_name = f"{cls.model_fields['step'].default}_characters"
        if signal_name not in [signal.name for signal in cls.signals]:
            raise TypeError(
                f"{cls.__name__}.signals needs {signal_name}, an int64: the characters that the step leaves"
            )

    @property
    def rewrites(self) -> tuple[str, ...]:
        """Names of other columns that `edit` returns with new values, together with the signals."""
        return ()

    @property
    def left(self) -> str:
        """Name of the signal that counts the remaining characters."""
        return f"{self.base_name}_characters"

    def not_empty(self) -> Bound:
        """Return the rule that drops a document without any text left."""
        return Bound("empty_text", self.left, low=1)


class CorpusStep(Step):
    """A step that looks at all documents.

    `decision_fields`: its thresholds on scores that a stage stores, which can be replayed over them.
    `reads_documents`: whether `reads` may also name columns of documents and of the sources' files.
    """

    decision_fields: ClassVar[tuple[str, ...]] = ()
    reads_documents: ClassVar[bool] = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns of earlier steps that the work needs."""
        return ()


class StepError(ValueError):
    """A step of a user's cannot be used: which, why, and what to do."""


def work_of(step: Step | type[Step]) -> ModuleType:
    """The module that does a step's work, imported."""
    kind = step if isinstance(step, type) else type(step)
    return import_module(kind.work or kind.__module__)


def function_at(address: str) -> Callable[..., Any]:
    """The user's engine or reader at an address `module:function`. Raises StepError if there is none."""
    module, _, name = address.partition(":")
    function = getattr(imported(module), name, None)
    if not callable(function):
        raise StepError(f"the module {module} has no function {name}")
    return function


def imported(module: str) -> ModuleType:
    """A user's module. Raises StepError if it is not installed, or cannot be imported."""
    try:
        return import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            remedy = "install its package, or set PYTHONPATH to its folder"
            raise StepError(f"no module {module}: {remedy}") from error
        raise StepError(f"{own_code.raised(f'the module {module} cannot be imported', module, error)}") from error
