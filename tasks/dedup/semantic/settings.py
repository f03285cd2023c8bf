"""Semantic duplicates: documents whose vectors, as the step `embedding` has stored them, are near to each other."""

from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.dedup.order import Criterion, KeepOrder
from gristmill.tasks.documents.step import CorpusStep


class SemanticDedup(KeepOrder, CorpusStep):
    """Of documents with nearly the same vector one is kept (SemDeDup, Abbas et al. 2023, arXiv 2303.09540).

    Vectors are those of the step `embedding` before it. They are divided into clusters, and compared with all others of
    their cluster. In keep order, a document is dropped if its cosine with one that is kept before it is at least
    `similarity`: so each one that is dropped has a kept one as near as that. Documents without a vector are kept: those
    of sources that `embedding` has as reference, and those without a token.
    """

    work: ClassVar = "gristmill.tasks.dedup.semantic.semantic_work"

    step: Literal["semantic_dedup"] = "semantic_dedup"
    similarity: float = Field(
        0.95, gt=0, le=1, description="cosine from which on documents are duplicates; it depends on the embedder"
    )
    clusters: int | None = Field(
        None,
        ge=1,
        le=1 << 20,
        description="of vectors; null: of 4,096 documents each, from 17 million documents on as many as their root; "
        "fewer find more pairs, and take longer",
    )
    keep: tuple[Criterion, ...] = Field(("longest",), description=KeepOrder.model_fields["keep"].description)
