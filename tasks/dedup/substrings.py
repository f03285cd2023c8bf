"""Duplicated spans of at least n words or bytes, found over the whole corpus (Lee et al. 2022, arXiv 2107.06499)."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from gristmill.tasks.documents.step import CorpusStep, Settings


class SpanSearch(Settings):
    """Which spans are duplicated, and the files in which they are exchanged."""

    unit: Literal["words", "bytes"] = Field("words", description="what a span is counted in")
    min_length: int = Field(50, ge=2, le=1 << 20, description="least words or bytes of a duplicated span")
    keep: Literal["first", "none"] = Field(
        "first",
        description="first: a span stays where it stands first, in the document of the smallest id; none: nowhere",
    )
    block_bytes: int = Field(
        64 << 20,
        ge=1 << 10,
        description="text of a suffix array, for which a worker holds some 20 times as much; no result depends on it",
    )


class SpanCutting(Settings):
    """What becomes of documents with duplicated spans."""

    step: Literal["substring_dedup"] = "substring_dedup"
    unit: Literal["words", "bytes"] = Field("words", description="what a span is counted in")
    policy: Literal["cut", "drop"] = Field("cut", description="cut out the spans, or drop documents that hold many")
    min_characters: int = Field(
        20, ge=1, description="cut: a document goes if spans were cut out of it and fewer characters are left"
    )
    max_share: float = Field(
        0.2, ge=0, lt=1, description="drop: a document goes if more of its characters are in duplicated spans"
    )


class SubstringDedup(SpanSearch, SpanCutting, CorpusStep):
    """Removal of spans that stand in the corpus more than once, or of the documents that consist of them.

    All windows of `min_length` words (or bytes) of all documents are compared with each other. Words are those of the
    rules, so that punctuation counts and white space does not; a token of Lee et al. is somewhat shorter than a word.
    Lee et al. and RefinedWeb remove all copies of a span, Dolma 3 leaves one. What stays because it stands first stays
    there even if the document is then dropped. Cutting can bring together what was apart, and so make new duplicates:
    Lee et al. ran twice for that.
    """

    step: Literal["substring_dedup"] = "substring_dedup"

    def job_memory(self, documents: int, text_bytes: int) -> Iterator[tuple[int, str]]:
        yield self.block_bytes, "texts of a block"
