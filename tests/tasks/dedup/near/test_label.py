"""Labels of documents that have edges: components against scipy and by hand, and the memory that they may take."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from gristmill.storage import layout, sorted_files
from gristmill.storage.damage import DamagedFileError
from gristmill.tasks.dedup.exchange import SortedFiles
from gristmill.tasks.dedup.near import label as label_module
from gristmill.tasks.dedup.near.documents import ROWS, SHARDS, document_ids, hash_ids, shard_range
from gristmill.tasks.dedup.near.label import label_documents, labels_file
from gristmill.tasks.kernels.duplicates import label, mark, ranks, unite
from gristmill.tasks.kernels.shingles import mix

GIGABYTE = 1 << 30


@dataclass(frozen=True)
class Crawls:
    """Planted stages `signatures` of two crawls. `rows`: by crawl."""

    rows: tuple[list[int], list[int]]

    @property
    def shards(self) -> list[tuple[int, int, int]]:
        """(crawl, shard, rows) in the order of ids."""
        return [(crawl, shard, n) for crawl, some in enumerate(self.rows) for shard, n in enumerate(some)]

    def write(self, folder: Path) -> tuple[str, ...]:
        """The folders of the stages."""
        folders = [str(folder / f"signatures-{crawl}") for crawl in range(len(self.rows))]
        for path, some in zip(folders, self.rows, strict=True):
            parts = [layout.Part("sign", shard, {"documents": n}, {}) for shard, n in enumerate(some)]
            layout.write_manifest(path, {}, parts)
        return tuple(folders)


def crawls(rows: list[int]) -> Crawls:
    return Crawls(([n for i, n in enumerate(rows) if i % 3 < 2], rows[2::3]))


def write(folder: Path, edges: np.ndarray, n: int) -> SortedFiles:
    """The edges, (n, 2), divided by chance among files, each with its smaller document first."""
    ends = np.sort(edges, axis=1)
    of = np.random.default_rng(len(edges)).integers(0, n, len(edges))
    written = SortedFiles(str(folder / "edges"), n)
    for p, path in enumerate(written.paths()):
        first, second = ends[of == p].T
        sorted_files.write(path, pa.table({"first": first, "second": second}), "first")
    return written


def labelled(folder: Path, edges: SortedFiles, shards: Crawls) -> tuple[dict, dict[int, int]]:
    """The record, and the label of each document; all files are sorted, and each shard finds its own in its file."""
    record = label_documents(str(folder), 0, edges, shards.write(folder), GIGABYTE)
    found: dict[int, int] = {}
    for number, (crawl, shard, _) in enumerate(shards.shards):
        table = sorted_files.read(labels_file(str(folder), number), *shard_range(crawl, shard))
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


def some_edges(shards: Crawls, count: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    docs = np.concatenate([document_ids(crawl, shard, np.arange(rows)) for crawl, shard, rows in shards.shards])
    edges = docs[draw.integers(0, len(docs), (count, 2))]
    return edges[edges[:, 0] != edges[:, 1]]


@pytest.mark.extended
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2, 63, 64, 65, 200]), min_size=1, max_size=7),
    st.integers(0, 60),
    st.integers(1, 9),
    st.integers(1, 3),
)
def test_the_components_are_those_of_scipy(tmp_path_factory, rows, count, of_a_file, n_files):
    folder = tmp_path_factory.mktemp("graph")
    shards = crawls([*rows, 3])
    edges = some_edges(shards, count, len(rows))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(label_module, "_SHARDS", of_a_file)
        record, found = labelled(folder, write(folder, edges, n_files), shards)
    assert found == (by_scipy(edges) if len(edges) else {})
    assert record["documents"] == len(found) and record["components"] == len(set(found.values()))


@pytest.mark.parametrize("n_files", [1, 5])
def test_a_large_graph_and_labels_that_do_not_depend_on_the_files(tmp_path, monkeypatch, n_files):
    monkeypatch.setattr(label_module, "_SHARDS", 3)
    shards = crawls([4_000] * 7)
    edges = some_edges(shards, 14_000, 5)
    _, found = labelled(tmp_path, write(tmp_path, edges, n_files), shards)
    assert found == by_scipy(edges) and 1_000 < len(set(found.values())) < 10_000


@pytest.mark.parametrize("order", ["rising", "drawn", "from the middle"])
def test_a_long_path_is_one_component(tmp_path, order):
    n = 100_000
    path = {
        "rising": np.arange(n),
        "drawn": np.random.default_rng(1).permutation(n),
        "from the middle": np.argsort(np.argsort(np.abs(np.arange(n) - n // 2), kind="stable")),
    }[order]
    record, found = labelled(tmp_path, write(tmp_path, np.stack([path[:-1], path[1:]], axis=1), 1), crawls([n]))
    assert set(found.values()) == {0} and record["documents"] == len(found) == n


def test_every_document_in_one_large_shard(tmp_path):
    """Numbers of documents that are far from each other."""
    rows = (1 << 24) + 5
    edges = np.array([[0, rows - 1], [63, 64], [64, 1 << 20]])
    _, found = labelled(tmp_path, write(tmp_path, edges, 1), crawls([rows]))
    assert found == {0: 0, 63: 1, 64: 1, 1 << 20: 1, rows - 1: 0}


def test_labels_that_need_more_than_the_memory_are_an_error_that_names_it(tmp_path):
    shards = crawls([6_400, 6_400])
    edges = some_edges(shards, 9_000, 1)
    documents = len(np.unique(edges))
    needed = 12_800 // 8 + (12_800 // 64 + 1) * 8 + 4 * documents
    paths, signatures = write(tmp_path, edges, 2), shards.write(tmp_path)
    with pytest.raises(
        ValueError, match=rf"need {needed:,} bytes, but `memory` allows {needed - 1:,}: set GRISTMILL_MEMORY"
    ):
        label_documents(str(tmp_path / "less"), 0, paths, signatures, needed - 1)
    assert not (tmp_path / "less").exists()
    assert label_documents(str(tmp_path / "more"), 0, paths, signatures, needed)["documents"] == documents


@pytest.mark.parametrize("wrong", [5, 1 << 32, SHARDS * ROWS, (SHARDS - 1) * ROWS, -3])
def test_an_edge_of_no_document_is_named(tmp_path, wrong):
    edges = np.sort(np.array([[0, 1], [2, wrong]]), axis=1)
    with pytest.raises(DamagedFileError, match=rf"00000.parquet has an edge of {wrong}, which"):
        labelled(tmp_path, write(tmp_path, edges, 1), crawls([5]))


def test_work_done_again_writes_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(label_module, "_SHARDS", 2)
    shards = crawls([500] * 4)
    paths = write(tmp_path, some_edges(shards, 900, 3), 2)
    found = []
    for _ in range(2):
        labelled(tmp_path, paths, shards)
        found.append({path.name: path.read_bytes() for path in (tmp_path / "labels").iterdir()})
    assert found[0] == found[1] and len(found[0]) == 2


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
