"""Settings of an export: the curated documents as files for others to read."""

from typing import Literal

from pydantic import Field, field_validator

from gristmill.storage.address import Address
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.documents.where.syntax import parsed


class Export(Settings):
    """Where the curated documents are written, and how. It decides nothing of the corpus."""

    to: Address = Field(
        min_length=1, description="a folder or an address (s3://bucket/prefix), empty or with this very export in it"
    )
    format: Literal["parquet", "jsonl"] = Field("parquet", description="jsonl: lines of JSON, compressed by zstd")
    where: str | None = Field(
        None,
        description="those documents alone for which an expression is true, as that of the step `where`; null: all",
    )

    @field_validator("where")
    @classmethod
    def _readable(cls, where: str | None) -> str | None:
        if where is not None:
            parsed(where)
        return where
