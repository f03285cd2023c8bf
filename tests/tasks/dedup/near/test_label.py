"""Labels of documents that have edges: components against scipy and by hand, and the memory that they may take."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gristmill.storage import sorted_files
from gristmill.storage.damage import DamagedFileError
from gristmill.tasks.dedup.near.documents import ROWS, SHARDS, Location, document_ids, hash_ids
from gristmill.tasks.dedup.near.label import label_documents, labels_file
from gristmill.tasks.kernels.shingles import mix
from gristmill.tasks.kernels.union_find import label, mark, ranks, unite

GIGABYTE = 1 << 30


def locations(rows: list[int]) -> list[Location]:
    """Shards of two crawls."""
    return [Location(number % 3 // 2, number, count, "", "") for number, count in sorted(enumerate(rows), key=by_crawl)]


def by_crawl(numbered: tuple[int, int]) -> tuple[int, int]:
    return numbered[0] % 3 // 2, numbered[0]


def write(folder: Path, edges: np.ndarray, n: int) -> list[str]:
    """The edges, (n, 2), divided by chance among files, each with its smaller document first."""
    ends = np.sort(edges, axis=1)
    of = np.random.default_rng(len(edges)).integers(0, n, len(edges))
    paths = [str(folder / "edges" / f"{p:05d}.parquet") for p in range(n)]
    for p, path in enumerate(paths):
        first, second = ends[of == p].T
        sorted_files.write(path, pa.table({"first": first, "second": second}), "first")
    return paths


def labelled(folder: Path, edges: list[str], shards: list[Location], partitions: int) -> tuple[dict, dict[int, int]]:
    """The record, and the label of each document; all files are sorted, and each shard finds its own in its file."""
    record = label_documents(str(folder), 0, edges, shards, partitions, GIGABYTE)
    found: dict[int, int] = {}
    for number, shard in enumerate(shards):
        low = int(document_ids(shard.crawl, shard.shard, np.zeros(1, np.int64))[0])
        path = labels_file(str(folder), number, len(shards), partitions)
        table = sorted_files.read(path, low, low + ROWS)
        assert len(table) == record["shards"][number]
        found |= dict(zip(table["doc"].to_pylist(), table["label"].to_pylist(), strict=True))
    return record, found


def by_scipy(edges: np.ndarray) -> dict[int, int]:
    """Components, numbered by their smallest document."""
    docs, position = np.unique(edges, return_inverse=True)
    one, other = position.reshape(-1, 2).T
    graph = coo_array((np.ones(len(edges)), (one, other)), shape=(len(docs), len(docs)))
    component = connected_components(graph, directed=False)[1]
    numbers: dict[int, int] = {}
    return {doc: numbers.setdefault(c, len(numbers)) for doc, c in zip(docs.tolist(), component.tolist(), strict=True)}


def some_edges(shards: list[Location], count: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    docs = np.concatenate([document_ids(s.crawl, s.shard, np.arange(s.rows)) for s in shards])
    edges = docs[draw.integers(0, len(docs), (count, 2))]
    return edges[edges[:, 0] != edges[:, 1]]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2, 63, 64, 65, 200]), min_size=1, max_size=7),
    st.integers(0, 60),
    st.integers(1, 9),
    st.integers(1, 3),
)
def test_the_components_are_those_of_scipy(tmp_path_factory, rows, count, partitions, n_files):
    folder = tmp_path_factory.mktemp("graph")
    shards = locations([*rows, 3])
    edges = some_edges(shards, count, len(rows))
    record, found = labelled(folder, write(folder, edges, n_files), shards, partitions)
    assert found == (by_scipy(edges) if len(edges) else {})
    assert record["documents"] == len(found) and record["components"] == len(set(found.values()))


@pytest.mark.parametrize("n_files", [1, 5])
def test_a_large_graph_and_labels_that_do_not_depend_on_the_files(tmp_path, n_files):
    shards = locations([4_000] * 7)
    edges = some_edges(shards, 14_000, 5)
    _, found = labelled(tmp_path, write(tmp_path, edges, n_files), shards, 4)
    assert found == by_scipy(edges) and 1_000 < len(set(found.values())) < 10_000


@pytest.mark.parametrize("order", ["rising", "drawn", "from the middle"])
def test_a_long_path_is_one_component(tmp_path, order):
    n = 100_000
    path = {
        "rising": np.arange(n),
        "drawn": np.random.default_rng(1).permutation(n),
        "from the middle": np.argsort(np.argsort(np.abs(np.arange(n) - n // 2), kind="stable")),
    }[order]
    record, found = labelled(tmp_path, write(tmp_path, np.stack([path[:-1], path[1:]], axis=1), 1), locations([n]), 2)
    assert set(found.values()) == {0} and record["documents"] == len(found) == n


def test_every_document_in_one_large_shard(tmp_path):
    """Numbers of documents that are far from each other."""
    rows = (1 << 24) + 5
    edges = np.array([[0, rows - 1], [63, 64], [64, 1 << 20]])
    _, found = labelled(tmp_path, write(tmp_path, edges, 1), locations([rows]), 3)
    assert found == {0: 0, 63: 1, 64: 1, 1 << 20: 1, rows - 1: 0}


def test_labels_that_need_more_than_the_memory_are_an_error_that_names_it(tmp_path):
    shards = locations([6_400, 6_400])
    edges = some_edges(shards, 9_000, 1)
    documents = len(np.unique(edges))
    needed = 12_800 // 8 + (12_800 // 64 + 1) * 8 + 4 * documents
    paths = write(tmp_path, edges, 2)
    with pytest.raises(
        ValueError, match=rf"need {needed:,} bytes, `memory` allows {needed - 1:,}: set GRISTMILL_MEMORY"
    ):
        label_documents(str(tmp_path / "less"), 0, paths, shards, 2, needed - 1)
    assert not (tmp_path / "less").exists()
    assert label_documents(str(tmp_path / "more"), 0, paths, shards, 2, needed)["documents"] == documents


@pytest.mark.parametrize("wrong", [5, 1 << 32, SHARDS * ROWS, (SHARDS - 1) * ROWS, -3])
def test_an_edge_of_no_document_is_named(tmp_path, wrong):
    edges = np.sort(np.array([[0, 1], [2, wrong]]), axis=1)
    with pytest.raises(DamagedFileError, match=rf"00000.parquet has an edge of {wrong}, which"):
        label_documents(str(tmp_path), 0, write(tmp_path, edges, 1), locations([5]), 2, GIGABYTE)


def test_work_done_again_writes_the_same_bytes(tmp_path):
    shards = locations([500] * 4)
    paths = write(tmp_path, some_edges(shards, 900, 3), 2)
    found = []
    for _ in range(2):
        labelled(tmp_path, paths, shards, 3)
        found.append({path.name: path.read_bytes() for path in (tmp_path / "labels").iterdir()})
    assert found[0] == found[1] and len(found[0]) == 3


@settings(deadline=None)
@given(st.sets(st.integers(0, 700)), st.data())
def test_numbers_of_positions_are_their_ranks(positions, data):
    bits = np.zeros(11, np.uint64)
    ordered = np.array(sorted(positions), np.int64)
    mark(bits, ordered)
    before = ranks(bits)
    assert before.tolist() == [int((ordered < 64 * w).sum()) for w in range(12)]
    if len(positions) > 1:
        one, other = data.draw(st.lists(st.sampled_from(sorted(positions)), min_size=2, max_size=2, unique=True))
        parent = np.arange(len(positions), dtype=np.uint32)
        unite(parent, bits, before, np.array([one]), np.array([other]))
        low, high = sorted(np.searchsorted(ordered, [one, other]).tolist())
        assert [i for i in range(len(parent)) if parent[i] != i] == [high] and parent[high] == low
        assert label(parent) == len(positions) - 1 and parent[high] == parent[low]


@settings(deadline=None)
@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1))
def test_hashes_of_ids_are_those_of_the_kernels(ids):
    with np.errstate(over="ignore"):
        assert hash_ids(np.array(ids, np.int64)).tolist() == [int(mix.py_func(np.uint64(one))) for one in ids]


def test_an_id_names_the_crawl_the_shard_and_the_row():
    assert document_ids(2, 3, np.array([7])).tolist() == [(2 * SHARDS + 3) * ROWS + 7]
    for crawl, shard in ((1 << 11, 0), (0, 1 << 20), (-1, 0)):
        with pytest.raises(ValueError, match="a document id names 2048 crawls of 1,048,576 shards"):
            document_ids(crawl, shard, np.zeros(1, np.int64))
