"""What is decided by vectors that the step `embedding` has stored: semantic duplicates, and the balance of clusters."""

from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.dedup.order import Criterion, KeepOrder
from gristmill.tasks.documents.step import CorpusStep


class Clustered(KeepOrder, CorpusStep):
    """A step that divides vectors into clusters, and decides within each."""

    work: ClassVar = "gristmill.tasks.dedup.semantic.semantic_work"

    clusters: int | None = Field(
        None,
        ge=1,
        le=1 << 20,
        description="of vectors; null: of 4,096 documents each, from 17 million documents on as many as their root; "
        "fewer are larger, and take longer",
    )


class SemanticDedup(Clustered):
    """Of documents with nearly the same vector one is kept (SemDeDup, Abbas et al. 2023, arXiv 2303.09540).

    Vectors are those of the step `embedding` before it. They are divided into clusters, and compared with all others of
    their cluster. In keep order, a document is dropped if its cosine with one that is kept before it is at least
    `similarity`: so each one that is dropped has a kept one as near as that. Documents without a vector are kept: those
    of sources that `embedding` has as reference, and those without a token.
    """

    step: Literal["semantic_dedup"] = "semantic_dedup"
    similarity: float = Field(
        0.95, gt=0, le=1, description="cosine from which on documents are duplicates; it depends on the embedder"
    )
    keep: tuple[Criterion, ...] = Field(("longest",), description=KeepOrder.model_fields["keep"].description)


class Diversify(Clustered):
    """Of a cluster of vectors at most so many documents are kept, so that what a crawl has most of is less of it.

    After the balanced sampling of Vo et al. 2024 (arXiv 2405.15613), with one level of k-means in place of several.
    Vectors are those of the step `embedding` before it. Which documents of a full cluster stay is decided by `keep`,
    at last by their ids, which are hashes: so by default they are drawn. Documents without a vector are kept: those of
    sources that `embedding` has as reference, and those without a token.
    """

    step: Literal["diversify"] = "diversify"
    most: float = Field(
        1.0, gt=0, description="documents that are kept of a cluster at most, in times of the mean size of a cluster"
    )
    keep: tuple[Criterion, ...] = Field(
        (), description="which documents of a full cluster stay, the first criterion first, at last the smallest id"
    )
