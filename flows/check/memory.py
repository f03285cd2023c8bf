"""What the largest job of a run will hold, by how many documents there are and how the steps divide them.

The phases of deduplication alone hold more, the more documents there are: a job has one partition, and one job has the
labels of all near-duplicates. All others hold a shard, or a sample.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gristmill.flows.recipe.recipe import Recipe
from gristmill.tasks.dedup.exact import DOCUMENT_BYTES, Exact
from gristmill.tasks.dedup.near.settings import HASH_BYTES, MinHash
from gristmill.tasks.dedup.passages import (
    PASSAGE_BYTES,
    PASSAGE_CHARACTERS,
    LineDedup,
    ParagraphDedup,
    SentenceDedup,
)
from gristmill.tasks.dedup.substrings import SubstringDedup

# Bytes that a worker holds before its first job, and more with a shard: .7 GB at 10 million documents in 160 files.
WORKER, SHARD = 300 << 20, 400 << 20
# Of a partition whose number is chosen by size: gristmill.tasks.dedup.exchange.JOB_BYTES, which imports more.
PARTITION = 1 << 29
# Of all documents, those that share a band with another one: 1 of 2.5 billion (gristmill.tasks.dedup.near.label).
CANDIDATES = 0.4
# Bytes that a byte of the tokenizer's sample takes in its job: 408 MB for 100 MB.
SAMPLE = 4


@dataclass(frozen=True)
class LargestJob:
    """`bytes` of a job with its worker; `work`: what it does."""

    bytes: int
    work: str


def largest_job(recipe: Recipe, documents: int, text_bytes: int) -> LargestJob:
    """The job that holds most. `documents`, `text_bytes`: of all sources.

    Each step counts all documents, as if those before it dropped none: a bound, but for the share of near-duplicates.
    A key that very many documents have, as a template in millions, is not in it.
    """
    held = [(SHARD, "documents of a shard")]
    for step in recipe.steps:
        held += [(size, f"{step.step}, {what}") for size, what in _held(step, documents, text_bytes)]
    if recipe.mixture is not None and recipe.tokenizer.path is None:
        held.append((SAMPLE * min(recipe.tokenizer.sample_bytes, text_bytes), "the tokenizer's sample"))
    size, work = max(held)
    return LargestJob(WORKER + size, work)


def _held(step: object, documents: int, text_bytes: int) -> Iterator[tuple[int, str]]:
    if isinstance(step, MinHash):
        yield _partition(documents * step.bands * HASH_BYTES, step.partitions), "band hashes of a partition"
        # 2 bits for each document and 4 bytes for each candidate
        yield round(documents * (1 / 4 + 4 * CANDIDATES)), "labels of all documents"
    elif isinstance(step, Exact):
        yield _partition(documents * DOCUMENT_BYTES, step.partitions), "documents of a partition"
    elif isinstance(step, LineDedup | ParagraphDedup | SentenceDedup):
        passages = text_bytes // PASSAGE_CHARACTERS
        yield _partition(passages * PASSAGE_BYTES, step.partitions), "passages of a partition"
    elif isinstance(step, SubstringDedup):
        yield step.block_bytes, "texts of a block"


def _partition(held: int, partitions: int | None) -> int:
    return min(held, PARTITION) if partitions is None else held // partitions
