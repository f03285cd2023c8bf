"""Speed and memory of the removal of duplicated spans, in MB of text per second of one core, phase by phase.

Prints, asserts nothing about time. The documents are generated, a tenth of them near-duplicates of others and as many
copies of a template; what is found must be what a sort of all windows' hashes finds.
"""

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pyarrow.compute as pc
import pytest

from gristmill.storage import parquet
from gristmill.storage.schema import SELECTION
from gristmill.tasks.dedup import substring_cuts, substrings
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, collect_shards
from gristmill.tasks.dedup.substrings import SubstringDedup
from tests.benchmarks.near_corpus import Planted

SHARDS, PARTITIONS, DOCUMENTS = 2, 2, 36_000

pytestmark = pytest.mark.bench


def measured(work, *arguments) -> tuple[dict, float, float]:
    """(record, seconds, peak memory in MB) of a piece of work in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, work, arguments).result()


def _measured(work, arguments) -> tuple[dict, float, float]:
    work(*arguments)  # compiles the kernels
    started = time.process_time()
    record = work(*arguments)
    return record, time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> tuple[str, list[tuple[str, str]], float]:
    """A folder, the documents and selections of the shards, and their megabytes of text."""
    folder = str(tmp_path_factory.mktemp("substrings"))
    planted, size, parts = Planted(DOCUMENTS, copies=0.1, template=DOCUMENTS // 10), 0, []
    for s in range(SHARDS):
        parts.append((f"{folder}/documents-{s}.parquet", f"{folder}/kept-{s}.parquet"))
        planted.write(parts[-1][0], s * DOCUMENTS // SHARDS, (s + 1) * DOCUMENTS // SHARDS)
        table = parquet.read_table(parts[-1][0])
        parquet.write_table(parts[-1][1], table.select(SELECTION.names))
        size += pc.sum(pc.binary_length(table["text"])).as_py()
    return folder, parts, size / 1e6


def all_windows(texts: list[list[str]], n: int) -> np.ndarray:
    """Which words are in a window of n that stood before, texts one after the other: bool."""
    words = [word for text in texts for word in text]
    _, number = np.unique(np.array(words), return_inverse=True)
    factors = np.random.default_rng(8).integers(0, 2**63, (2, max(number.max() + 1, n)), np.uint64)
    drawn = factors[0][number]
    windows = sum(drawn[j : len(words) - n + 1 + j] * (2 * factors[1][j] + 1) for j in range(n))
    ends = np.cumsum([len(text) for text in texts])
    within = np.repeat(ends, [len(text) for text in texts])[: len(windows)] >= np.arange(len(windows)) + n
    place = np.flatnonzero(within)
    order = place[np.argsort(windows[place], kind="stable")]
    later = order[1:][windows[order][1:] == windows[order][:-1]]
    change = np.bincount(later, minlength=len(words)) - np.bincount(later + n, minlength=len(words) + 1)[:-1]
    return np.cumsum(change) > 0


def test_speed_and_that_all_is_found(corpus):
    folder, parts, size = corpus
    step = SubstringDedup(block_bytes=16 << 20)
    total = 0.0

    def told(name: str, done: list[tuple[dict, float, float]]) -> list[dict]:
        nonlocal total
        records, seconds, peak = zip(*done, strict=True)
        total += sum(seconds)
        print(f"{name:8} {sum(seconds):6.1f} s  {size / sum(seconds):6.1f} MB/s  peak {max(peak):6.0f} MB")
        return list(records)

    print(f"\n{size:.0f} MB of text, {DOCUMENTS} documents")
    ranges, shards = KeyRanges(PARTITIONS), KeyRanges(1, SHARDS, each=substrings.NODES)
    told("key", [measured(substrings.key_shard, folder, s, *part, step, ranges) for s, part in enumerate(parts)])
    jobs = [(folder, p, ranges, substrings.exchanged(folder, "keys", SHARDS), shards) for p in range(PARTITIONS)]
    hot = told("match", [measured(substrings.match_partition, *job) for job in jobs])
    collect_shards(folder, 0, substrings.exchanged(folder, "hot", PARTITIONS), "runs", shards, "node")
    runs = CollectedShards(f"{folder}/runs", shards)
    blocks = substrings.blocks(sum(record["bytes"] for record in hot), step)
    ranges = KeyRanges(blocks)
    jobs = [(folder, s, *part, step, runs, ranges) for s, part in enumerate(parts)]
    told("gather", [measured(substrings.gather_shard, *job) for job in jobs])
    jobs = [(folder, b, step, ranges, substrings.exchanged(folder, "texts", SHARDS), shards) for b in range(blocks)]
    found = told("find", [measured(substrings.find_block, *job) for job in jobs])
    collect_shards(folder, 0, substrings.exchanged(folder, "found", blocks), "spans", shards, "node")
    spans = CollectedShards(f"{folder}/spans", shards)
    print(f"{sum(record['bytes'] for record in found) / 1e6:.0f} MB sorted in {blocks} blocks")
    jobs = [(f"{folder}/cut", s, *part, spans, step) for s, part in enumerate(parts)]
    told("cut", [measured(substring_cuts.cut_shard, *job) for job in jobs])
    print(f"{'in all':8} {total:6.1f} s  {size / total:6.1f} MB/s of one core")

    documents = []
    for s, (path, _) in enumerate(parts):
        table = parquet.read_table(path, ["id", "text"])
        within = {row: set() for row in range(len(table))}
        for row, first, stop in zip(*substrings.spans_of(spans, s), strict=True):
            within[row].update(range(first, stop))
        # the words of a letter-only text with full stops and commas
        texts = (text.replace(",", " ,").replace(".", " .").split() for text in table["text"].to_pylist())
        documents += zip(table["id"].to_pylist(), texts, within.values(), strict=True)
    documents.sort(key=lambda document: document[0])
    gone = np.concatenate([np.isin(np.arange(len(text)), list(spans)) for _, text, spans in documents])
    expected = all_windows([text for _, text, _ in documents], step.min_length)
    assert expected.sum() > 100_000
    assert np.array_equal(gone, expected)
