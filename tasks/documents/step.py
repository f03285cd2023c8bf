"""What a document step is: signals, kept as columns, and decisions, thresholds on these columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, model_validator

from tasks.documents.edits import Edits
from tasks.kernels.scan import Scan, scan

S = TypeVar("S", bound="Settings")


class Settings(BaseModel):
    """Settings that a recipe holds: unknown keys are an error, values cannot be changed afterwards.

    Defaults are validated too, so that 0 and 0.0 for a float do not make two keys of one setting. `renamed`: keys of
    older versions, and what to write instead of each.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    renamed: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _of_this_version(cls, given: Any) -> Any:
        if isinstance(given, Mapping):
            for old, new in cls.renamed.items():
                if old in given:
                    raise ValueError(f"`{old}` is the name of an older version: write {new}")
        return given

    def part(self, kind: type[S]) -> S:
        """The fields of this record that `kind`, one of its base classes, declares."""
        return kind(**{name: getattr(self, name) for name in kind.model_fields})


@dataclass(frozen=True)
class Bound:
    """A document stays if `low <= signal <= high`; a missing end does not bind.

    `languages`: the (low, high) that hold instead for documents of a language, by the column `language`.
    """

    rule: str
    signal: str
    low: float | None = None
    high: float | None = None
    languages: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Member:
    """A document stays if the signal, a string, is one of `allowed`."""

    rule: str
    signal: str
    allowed: tuple[str, ...]


class Batch:
    """Documents on their way through the steps: columns `id`, `url`, `text` and the signals so far.

    `scanned` gives the scan of the texts, where there is a shorter way than to read them.
    """

    def __init__(self, table: pa.Table, scanned: Callable[[], Scan] | None = None):
        self.table = table
        self._scanned = scanned

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        return self.table[column]

    def __len__(self) -> int:
        return len(self.table)

    def add(self, signals: pa.Schema, columns: Mapping[str, pa.Array]) -> None:
        """Put a step's signals behind the columns."""
        schema = pa.schema([*self.table.schema, *signals], self.table.schema.metadata)
        added = [columns[name] for name in signals.names]
        self.table = pa.Table.from_arrays([*self.table.columns, *added], schema=schema)

    @cached_property
    def scan(self) -> Scan:
        """The words, lines, ... of the texts: found once, read by all rules."""
        return self._scanned() if self._scanned else scan(self.table["text"])


class DocumentStep(Settings):
    """A step that looks at one document at a time.

    `signals` declares the columns that `measure` adds, each field with metadata `unit` and `source`. The
    fields named in `signal_fields` change what is measured; all others are thresholds, which `decisions`
    turns into bounds and which can be replayed over stored signals. `reads` names the signals of earlier steps
    that `measure` needs.
    """

    step: str
    signals: ClassVar[pa.Schema]
    signal_fields: ClassVar[tuple[str, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return ()

    def pinned(self) -> Self:
        """The step tied to the content that the files it names have now, so that its key changes with them."""
        return self

    def measure(self, documents: Batch) -> dict[str, pa.Array]:
        """The columns of `signals` for a batch of documents, in its order."""
        raise NotImplementedError

    def decisions(self) -> list[Bound | Member]:
        """In the order in which they are tried; the first that fails is the reason of the drop."""
        raise NotImplementedError

    def signal_settings(self) -> dict[str, Any]:
        return {"step": self.step, **self.model_dump(mode="json", include=set(self.signal_fields))}


class EditStep(DocumentStep):
    """A step that changes the text: the steps behind it see what it leaves.

    Its fields in `signal_fields` decide what is cut. The signal `<step>_characters`, what is left, is measured by the
    pass; `decisions` end with `not_empty`. `keeps_removed`: whether the ledger of edits may hold what it removed, and
    what a step before it in the same pass did. `sought`: what a rule drops documents for, in either case, where that
    is a phrase.
    """

    keeps_removed: ClassVar[bool] = True
    sought: ClassVar[Mapping[str, str]] = {}

    def edit(self, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
        """What to cut out of the texts of a batch, and the other columns of `signals`."""
        raise NotImplementedError

    @property
    def left(self) -> str:
        """The name of the signal that counts the characters that the step leaves."""
        return f"{self.step}_characters"

    def not_empty(self) -> Bound:
        return Bound("empty_text", self.left, low=1)


def signal(name: str, kind: pa.DataType, unit: str, source: str) -> pa.Field:
    """A field of a `signals` schema, with its unit and the source of its definition."""
    return pa.field(name, kind, metadata={"unit": unit, "source": source})
