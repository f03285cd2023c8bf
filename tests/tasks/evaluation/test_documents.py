"""Evaluation documents are drawn from as many hosts as there are, however the source is cut into shards."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from gristmill.storage import parquet
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.selection import uniform
from gristmill.tasks.evaluation.documents import choose_documents, evaluation_file, sample_shard
from tests.corpora import fresh

COLUMNS = {name: pa.string() for name in ("id", "source", "url", "file", "record_id", "text")} | {"offset": pa.int64()}


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    """Some hundred documents of 40 hosts, of very different sizes."""
    rng = np.random.default_rng(2)
    of_host = np.minimum(rng.geometric(0.06, 500) - 1, 39)
    return [
        {
            "id": f"{i:032x}",
            "source": "web",
            "url": f"https://h{host}.example/{i}",
            "file": "f",
            "record_id": f"{i}",
            "text": " ".join(fresh(rng, 12)),
            "offset": i,
        }
        for i, host in enumerate(of_host.tolist())
    ]


def chosen(folder, shards: list[list[dict]], count: int, most: int, groups: int = 1) -> list[str]:
    """Ids of a set of `count`; `groups`: row groups of a shard."""
    for number, rows in enumerate(shards):
        path = str(folder / f"documents-{number}.parquet")
        with parquet.create(path, pa.schema(COLUMNS)) as writer:
            for at in range(groups):
                writer.write_table(pa.Table.from_pylist(rows[at::groups], pa.schema(COLUMNS)))
                writer.flush()
        sample_shard(str(folder), number, path, most, 1000, 0)
    sets = {"web": (count, (0, len(shards)))}
    choose_documents(str(folder), 0, sets, 1000, Shingling(), 0.8, 1)
    return parquet.read_table(evaluation_file(str(folder)), ["id"])["id"].to_pylist()


def truth(rows: list[dict], count: int) -> list[str]:
    """By their number within their host, then by the keyed hash."""
    ranks = uniform(pa.chunked_array([[row["id"] for row in rows]]), 0, "evaluation").tolist()
    number, order = Counter[str](), []
    for rank, row in sorted(zip(ranks, rows, strict=True), key=lambda pair: pair[0]):
        host = row["url"].split("/")[2]
        order.append((number[host], rank, row["id"]))
        number[host] += 1
    return sorted(one for *_, one in sorted(order)[:count])


@pytest.mark.parametrize("count", [10, 40, 100])
@pytest.mark.parametrize("cut", [1, 3, 50])
def test_the_first_of_each_host_then_the_second_ones_whatever_the_shards(tmp_path, rows, count, cut):
    shards = [rows[i::cut] for i in range(cut)]
    found = chosen(tmp_path, shards, count, most=count, groups=2 if cut == 3 else 1)
    assert found == truth(rows, count)
    of = {row["id"]: row["url"].split("/")[2] for row in rows}
    there = len(set(of.values()))
    assert len({of[one] for one in found}) == min(count, there)
