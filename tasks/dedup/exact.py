"""Exact duplicates over the whole corpus: documents of the same words, or of the same URL."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.dedup.exchange import partition_bytes
from gristmill.tasks.dedup.order import Criterion, KeepOrder
from gristmill.tasks.documents.step import CorpusStep
from gristmill.tasks.url.canonical import PUBLIC_SUFFIXES, Canonical

# What a job that chooses holds for a document of its partition.
DOCUMENT_BYTES = 200


class Exact(KeepOrder, CorpusStep):
    """What `content_dedup` and `url_dedup` have in common.

    `column`: what documents are compared by; `rule`: the ledger's name for it.
    """

    step: str
    partitions: int | None = Field(
        None,
        ge=1,
        le=65536,
        description="pieces of the exchange, of which a worker holds one, about 200 bytes for each of its documents; "
        "null: by how many there are, so that it holds half a gigabyte; no result depends on it",
    )
    column: ClassVar[str]
    rule: ClassVar[str]

    def job_memory(self, documents: int, text_bytes: int) -> Iterator[tuple[int, str]]:
        yield partition_bytes(documents * DOCUMENT_BYTES, self.partitions), "documents of a partition"


class ContentDedup(Exact):
    """Of documents that consist of the same words, in the same order, one is kept.

    Words are runs of letters, marks and numbers (Unicode's L, M, N), lower-cased; punctuation, symbols, white space and
    lines do not count, and soft hyphens and zero-width marks leave no trace. The digest is that of the words, joined by
    single spaces, as UTF-8. Composed and decomposed forms of a character are unlike: the step `normalize` makes them
    one. A document without a word has nothing to be compared by, and is kept.
    """

    step: Literal["content_dedup"] = "content_dedup"
    column: ClassVar = "text"
    rule: ClassVar = "content"


class UrlDedup(Exact):
    """Of documents that have the same URL one is kept, as a rule the one that was crawled last.

    A document without a URL, or whose URL has no canonical form, is kept.

    The address that a page itself calls canonical (`rel=canonical`) does not count. RFC 6596 asks that the same
    content, or more, be found there, and search engines take it as a hint, to be checked against the content
    (Google, "5 common mistakes with rel=canonical", 2013). Of 36 pages of a sample of the web that name another address
    of their own site, nine name one of other content, as the home page. Copies under several addresses are found
    by their content.
    """

    package_data: ClassVar = (PUBLIC_SUFFIXES,)

    step: Literal["url_dedup"] = "url_dedup"
    keep: tuple[Criterion, ...] = Field(("newest",), description=KeepOrder.model_fields["keep"].description)
    canonical: Canonical | None = Field(
        None, description="the form in which URLs are compared; null: that of the recipe's step `url`, or its default"
    )
    column: ClassVar = "url"
    rule: ClassVar = "url"
