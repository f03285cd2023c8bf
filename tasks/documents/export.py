"""Settings of an export: the curated documents as files for others to read."""

from typing import Literal

from pydantic import Field

from gristmill.storage.address import Address
from gristmill.tasks.documents.step import Settings


class Export(Settings):
    """Where the curated documents are written, and how. It decides nothing of the corpus."""

    to: Address = Field(
        min_length=1, description="a folder or an address (s3://bucket/prefix), empty or with this very export in it"
    )
    format: Literal["parquet", "jsonl"] = Field("parquet", description="jsonl: lines of JSON, compressed by zstd")
