"""What a document step is: signals, kept as columns, and decisions, thresholds on these columns."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Settings that a recipe holds: unknown keys are an error, values cannot be changed afterwards.

    Defaults are validated too, so that 0 and 0.0 for a float do not make two keys of one setting.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


@dataclass(frozen=True)
class Bound:
    """A document stays if `low <= signal <= high`; a missing end does not bind."""

    rule: str
    signal: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Member:
    """A document stays if the signal, a string, is one of `allowed`."""

    rule: str
    signal: str
    allowed: tuple[str, ...]


class DocumentStep(Settings):
    """A step that looks at one document at a time.

    `signals` declares the columns that `measure` adds, each field with metadata `unit` and `source`. The
    fields named in `signal_fields` change what is measured; all others are thresholds, which `decisions`
    turns into bounds and which can be replayed over stored signals.
    """

    step: str
    signals: ClassVar[pa.Schema]
    signal_fields: ClassVar[tuple[str, ...]] = ()

    def measure(self, documents: pa.Table) -> dict[str, pa.Array]:
        """The columns of `signals` for a batch of documents (columns `id`, `url`, `text`, ...), in its order."""
        raise NotImplementedError

    def decisions(self) -> list[Bound | Member]:
        """In the order in which they are tried; the first that fails is the reason of the drop."""
        raise NotImplementedError

    def signal_settings(self) -> dict[str, Any]:
        return {"step": self.step, **self.model_dump(mode="json", include=set(self.signal_fields))}


def signal(name: str, kind: pa.DataType, unit: str, source: str) -> pa.Field:
    """A field of a `signals` schema, with its unit and the source of its definition."""
    return pa.field(name, kind, metadata={"unit": unit, "source": source})
