"""What a look-up among 100,000 documents costs: filling the index and asking it, in memory and in a Redis.

With GRISTMILL_TEST_LOOKUP_DOCUMENTS among another number.
"""

import os
import time

import numpy as np
import psutil
import pyarrow as pa
import pytest

from gristmill.storage import parquet
from gristmill.tasks.dedup.near import lookup
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.dedup.near.sign import signed
from gristmill.tasks.documents.selection import read_rows
from tests.benchmarks.near_corpus import Planted

DOCUMENTS = int(os.environ.get("GRISTMILL_TEST_LOOKUP_DOCUMENTS", 100_000))
SHARD = 50_000
ASKED = 50


@pytest.fixture(scope="module")
def among(tmp_path_factory) -> lookup.Signed:
    folder = tmp_path_factory.mktemp("planted")
    planted = Planted(DOCUMENTS)
    documents, signatures = [], []
    for first in range(0, DOCUMENTS, SHARD):
        documents.append(str(folder / f"documents-{first}.parquet"))
        signatures.append(str(folder / f"signatures-{first}.parquet"))
        last = min(first + SHARD, DOCUMENTS)
        planted.write(documents[-1], first, last)
        table = parquet.read_table(documents[-1], ["id", "text"]).append_column("at", pa.array(range(last - first)))
        parquet.write_table(signatures[-1], signed(table, MinHash()))
    return lookup.Signed("signatures-planted", tuple(signatures), tuple(documents), MinHash())


def texts(among: lookup.Signed) -> list[str]:
    rows = np.linspace(0, SHARD - 1, ASKED).astype(int) % parquet.rows(among.documents[0])
    return read_rows(among.documents[0], np.unique(rows), ["text"])["text"].to_pylist()


def milliseconds(work, arguments: list) -> tuple[float, float]:
    """Median and largest."""
    took = []
    for one in arguments:
        started = time.perf_counter()
        work(one)
        took.append(1000 * (time.perf_counter() - started))
    return float(np.median(took)), max(took)


@pytest.mark.bench
def test_in_memory(among):
    signature = lookup.sought(texts(among)[0], among.settings).signature
    process = psutil.Process()
    held = [process.memory_info().rss]
    started = time.perf_counter()
    lookup.in_memory(among, signature, lambda *_: held.append(process.memory_info().rss))
    seconds = time.perf_counter() - started
    most = (max(held) - held[0]) / max(among.rows)
    print(f"\nin memory: {DOCUMENTS / seconds:,.0f} documents/s, {most:,.0f} bytes a document of the largest shard")


@pytest.mark.bench
def test_in_redis(among, redis_server):
    asked = [lookup.sought(text, among.settings) for text in texts(among)]
    before = redis_server.client.info("memory")["used_memory"]
    started = time.perf_counter()
    lookup.in_redis(among, asked[0].signature, redis_server.address, lambda *_: None)
    seconds = time.perf_counter() - started
    held = (redis_server.client.info("memory")["used_memory"] - before) / DOCUMENTS
    print(f"\nin a Redis: {DOCUMENTS / seconds:,.0f} documents/s, {held:,.0f} bytes a document")

    def find(one: lookup.Sought) -> np.ndarray:
        return lookup.in_redis(among, one.signature, redis_server.address, lambda *_: None)

    found = [(one, find(one)) for one in asked]
    assert all(len(nodes) for _, nodes in found)
    print("look-up: median {:.1f} ms, at most {:.1f} ms".format(*milliseconds(find, asked)))
    print(
        "exact similarities: median {:.1f} ms, at most {:.1f} ms".format(
            *milliseconds(lambda pair: lookup.alike(among, *pair, 0.5), found)
        )
    )
