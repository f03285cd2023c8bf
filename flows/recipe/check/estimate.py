"""What a run may take: time and space, as ranges, from the sizes of its files and from measured rates.

Measured with the demo (9.9 MB of WARC files, 3,573 pages, two cores of a cloud machine, kernels compiled), and by the
benchmarks (docs/benchmarks.md) where that is said. Another crawl or another machine may differ by a factor of two,
hence the ranges.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.given_files import check_tokenizer_file
from gristmill.flows.recipe.recipe import Recipe
from gristmill.tasks.documents.step import CorpusStep
from gristmill.tasks.reading.formats.source import Inspection

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


# Bytes of a page in a WARC file, packed: 2,490 pages of a crawl in 38 MB.
PAGE_BYTES = 15_300
# Bytes of packed WARC files that one core reads and extracts a second: 2,490 pages in 7.3 s (docs/benchmarks.md).
ARCHIVE_RATE = 5_200_000
# Bytes of text for each byte of a packed WARC file, and of other packed files.
ARCHIVE_TEXT, PACKED_TEXT = 2.05, 3.0
# Bytes of a document that is text already.
DOCUMENT_BYTES = 4_000
# Bytes of text a second and core: all rules (26 to 34 MB/s) and near-duplicates (600 MB in 9 s on two cores).
TEXT_RATE = 30_000_000
# Seconds to start the workers, and for each stage.
START, STAGE = 15.0, 2.0
# Bytes of the home for each byte of text: 12.3 MB of 20.3 MB.
HOME_TEXT = 0.6
# Floating point operations a second and core in training: 491,520 tokens of 1.33 million parameters in 118 s.
TRAINING_RATE = 17e9
UNCERTAINTY = 2.0


@dataclass(frozen=True)
class Estimate:
    """`seconds`, `bytes`: from, to. `documents`, `text_bytes`: of all sources, about. `unknown`: what is not in it:
    sources whose size is not known, steps whose speed is not, since it is that of a model. `largest_job`: None where it
    was not asked for."""

    input_bytes: int
    documents: int
    text_bytes: int
    seconds: tuple[float, float]
    bytes: tuple[int, int]
    unknown: tuple[str, ...]
    largest_job: LargestJob | None = None

    @property
    def sentence(self) -> str:
        low, high = self.seconds
        least, most = self.bytes
        without = f", without {', '.join(self.unknown)}, whose size or speed is not known" if self.unknown else ""
        job = self.largest_job
        holds = f"; the largest job holds {_size(job.bytes)} ({job.work})" if job else ""
        space = f"{_size(least)} to {_size(most)} in the home{holds}"
        return f"estimate: {_duration(low)} to {_duration(high)}, {space}{without}"


def estimate(recipe: Recipe, inspections: Sequence[Inspection], settings: MachineSettings) -> Estimate:
    """What all of the recipe takes if nothing is reused."""
    cores = settings.workers or os.cpu_count() or 1
    packed = text = documents = 0.0
    unknown = []
    for each in inspections:
        known = _known_bytes(each.bytes, recipe.limit)
        if known is None:
            unknown.append(each.source.name)
        elif each.source.is_crawl:
            packed += known
            text += known * ARCHIVE_TEXT
            documents += known / PAGE_BYTES
        else:
            written = known * (PACKED_TEXT if each.is_packed else 1)
            text += written
            documents += written / DOCUMENT_BYTES
    passes = 1 + sum(isinstance(step, CorpusStep) for step in recipe.steps)
    seconds = START + STAGE * (len(recipe.steps) + 4) + (packed / ARCHIVE_RATE + passes * text / TEXT_RATE) / cores
    space = HOME_TEXT * text + sum(step.disk_bytes for step in recipe.steps)
    unknown += [step.step for step in recipe.steps if step.has_unknown_speed]
    if recipe.mixture is not None:
        model, training = recipe.model, recipe.training
        parameters = _parameters(recipe, _vocab_size(recipe, settings))
        seconds += 6 * parameters * training.token_budget(model.seq_len) / TRAINING_RATE / cores
        # weights and two moments of four bytes, in the checkpoints that are kept and the middle one
        space += parameters * 4 * (1 + 3 * (training.keep_checkpoints + 1))
    return Estimate(
        round(packed + text),
        round(documents),
        round(text),
        (seconds / UNCERTAINTY, seconds * UNCERTAINTY),
        (round(space / UNCERTAINTY), round(space * UNCERTAINTY)),
        tuple(unknown),
    )


def _known_bytes(known: int | None, limit: int | None) -> int | None:
    """Bytes that are read of a source. `known`: of all its files."""
    if limit is None:
        return known
    return limit * PAGE_BYTES if known is None else min(known, limit * PAGE_BYTES)


def _parameters(recipe: Recipe, vocab_size: int) -> int:
    """Of the model that is trained, norms left out."""
    model = recipe.model
    attention = 2 * model.dim * model.head_dim * (model.heads + model.kv_head_count)
    embeddings = vocab_size * model.dim * (1 if model.tie_embeddings else 2)
    return embeddings + model.layers * (attention + 3 * model.dim * model.ffn_dim)


def _vocab_size(recipe: Recipe, settings: MachineSettings) -> int:
    with suppress(OSError, ValueError):  # what is wrong with the file is a finding of its own
        if (size := check_tokenizer_file(settings, recipe)) is not None:
            return size
    return recipe.tokenizer.vocab_size


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _size(size: float) -> str:
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= length:
            return f"{size / length:.1f} {unit}"
    return f"{size / 1e3:.0f} kB"
