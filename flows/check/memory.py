"""Memory of the largest job of a run, by how many documents there are and how the steps divide them.

The phases of deduplication alone hold more, the more documents there are: a job has one partition, and one job has the
labels of all near-duplicates. All others hold a shard, or a sample.
"""

from dataclasses import dataclass

from gristmill.flows.recipe.recipe import Recipe

# Bytes that a worker holds before its first job, and more with a shard: .7 GB at 10 million documents in 160 files.
WORKER, SHARD = 300 << 20, 400 << 20
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
        held += [(size, f"{step.step}, {what}") for size, what in step.job_memory(documents, text_bytes)]
    if recipe.mixture is not None and recipe.tokenizer.path is None:
        held.append((SAMPLE * min(recipe.tokenizer.sample_bytes, text_bytes), "the tokenizer's sample"))
    size, work = max(held)
    return LargestJob(WORKER + size, work)
