"""Connected components against a search by hand and scipy, whatever the partitions; stars after every kill."""

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from storage import sorted_files
from tasks.dedup.near import components as module
from tasks.dedup.near.components import EDGE_BYTES, components, labels_run
from tasks.dedup.near.stars import Neighbours, large_star, mixed, small_star, unmixed
from tasks.engine.code_version import code_version
from tasks.engine.jobs import Job, do
from tasks.kernels.shingles import mix

STARS, WHOLE = 0, 1 << 40


class Killed(Exception):
    pass


class Flow:
    """Maps phases as a flow does: what is done stays done. `kill`: after so many steps, a job or a phase's return."""

    def __init__(self, folder: Path, kill: float = math.inf):
        self.folder, self.left = folder, kill
        self.code = code_version(module.__name__)
        self.phases: dict[str, dict[int, dict]] = {}

    def map(self, phase, work, arguments):
        records = {}
        for partition, given_ in arguments.items():
            self._step()
            records[partition], _ = do(Job(work, self.code, str(self.folder), phase, partition, given_))
            assert len(list((self.folder / "components").glob("*"))) <= 2
        self._step()
        self.phases[phase] = records
        return records

    def _step(self):
        if self.left == 0:
            raise Killed
        self.left -= 1

    def turns(self) -> int:
        return sum(name.startswith("stars-small") for name in self.phases)


def write(folder: Path, edges: np.ndarray, n_runs: int) -> list[str]:
    """The edges, (n, 2), dealt out to runs by chance, each with its smaller node first."""
    ends = np.sort(edges, axis=1)
    of = np.random.default_rng(len(edges)).integers(0, n_runs, len(edges))
    paths = [str(folder / "edges" / f"partition-{p:05d}.parquet") for p in range(n_runs)]
    for p, path in enumerate(paths):
        first, second = ends[of == p].T
        sorted_files.write(path, pa.table({"first": first, "second": second}), "first")
    return paths


def labels(paths: list[str]) -> dict[int, int]:
    """Labels by node; every node is in one run alone, and every run is sorted."""
    tables = [sorted_files.read(path, -(1 << 63), 1 << 63) for path in paths]
    assert all(table.schema.names == ["node", "label"] for table in tables)
    nodes = [node for table in tables for node in table["node"].to_pylist()]
    assert len(set(nodes)) == len(nodes)
    return dict(zip(nodes, (label for table in tables for label in table["label"].to_pylist()), strict=True))


def searched(edges: np.ndarray) -> dict[int, int]:
    """The smallest node that each node is connected with, by following edges from the smallest nodes on."""
    neighbours = defaultdict(list)
    for a, b in edges.tolist():
        neighbours[a].append(b)
        neighbours[b].append(a)
    found: dict[int, int] = {}
    for start in sorted(neighbours):
        waiting = [] if start in found else [start]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found[node] = start
                waiting += neighbours[node]
    return found


def by_scipy(edges: np.ndarray) -> dict[int, int]:
    nodes, place = np.unique(edges, return_inverse=True)
    one, other = place.reshape(-1, 2).T
    graph = coo_array((np.ones(len(edges)), (one, other)), shape=(len(nodes), len(nodes)))
    component = connected_components(graph, directed=False)[1]
    smallest = np.full(component.max() + 1, 1 << 63, np.uint64)
    np.minimum.at(smallest, component, nodes.astype(np.uint64))
    return dict(zip(nodes.tolist(), smallest[component].tolist(), strict=True))


def labelled(flow: Flow, partitions: int, edges: list[str], memory: int) -> list[str]:
    components(flow.map, str(flow.folder), partitions, edges, memory)
    return [labels_run(str(flow.folder), p) for p in range(partitions)]


def stars(folder: Path, edges: np.ndarray, partitions: int = 3) -> tuple[Flow, dict[int, int]]:
    flow = Flow(folder)
    return flow, labels(labelled(flow, partitions, write(folder, edges, partitions), STARS))


def bytes_of(paths: list[str]) -> list[bytes]:
    return [Path(path).read_bytes() for path in paths]


# nodes near 0, neighbours in one shard, and any others
NODES = st.one_of(st.integers(0, 12), st.integers(0, 12).map(lambda n: (3 << 52) + n), st.integers(0, (1 << 63) - 1))
EDGES = st.lists(st.tuples(NODES, NODES).filter(lambda edge: edge[0] != edge[1]), max_size=40).map(
    lambda edges: np.array(edges, np.int64).reshape(-1, 2)
)


@settings(max_examples=25, deadline=None)
@given(EDGES, st.integers(1, 4), st.integers(1, 4))
def test_both_ways_give_the_components_that_a_search_finds(tmp_path_factory, edges, partitions, n_runs):
    folder = tmp_path_factory.mktemp("graph")
    paths = write(folder, edges, n_runs)
    one, many = Flow(folder / "one"), Flow(folder / "many")
    whole = labelled(one, partitions, paths, WHOLE)
    dealt = labelled(many, partitions, paths, -1)
    assert list(one.phases) == ["components"] and not many.phases["components"][0]["fits"]
    assert labels(dealt) == searched(edges)
    assert bytes_of(dealt) == bytes_of(whole)
    assert sorted(path.name for path in many.folder.iterdir()) == ["done", "labels"]
    counted = [
        sum(r["nodes"] for r in flow.phases[last].values())
        for flow, last in ((one, "components"), (many, "stars-label"))
    ]
    assert counted == [len(np.unique(edges))] * 2


@pytest.mark.parametrize("partitions", [1, 7])
def test_a_large_graph_against_scipy(tmp_path, partitions):
    draw = np.random.default_rng(5)
    edges = draw.integers(0, 20_000, (14_000, 2)) * 977_777_777_777
    edges = edges[edges[:, 0] != edges[:, 1]]
    _, found = stars(tmp_path, edges, partitions)
    assert found == by_scipy(edges) and 1000 < len(set(found.values())) < 10_000


@pytest.mark.parametrize("partitions", [1, 3])
def test_large_components_are_named_whichever_way_they_are_found(tmp_path, monkeypatch, partitions):
    monkeypatch.setattr(module, "_LARGE", 60)
    sizes = np.array([12, 500, 40, 90, 90, 2, 2000])
    first = np.cumsum(sizes) - sizes + (5 << 32)
    edges = [
        np.stack([np.full(n - 1, node), node + np.arange(1, n)], axis=1) for node, n in zip(first, sizes, strict=True)
    ]
    paths = write(tmp_path, np.concatenate(edges), 2)
    for memory in (STARS, WHOLE):
        folder = tmp_path / str(memory)
        assert components(Flow(folder).map, str(folder), partitions, paths, memory) == first[[6, 1, 3, 4]].tolist()
    monkeypatch.setattr(module, "_NAMED", 3)
    assert (
        components(Flow(tmp_path / "few").map, str(tmp_path / "few"), partitions, paths, WHOLE)
        == first[[6, 1, 3]].tolist()
    )


@pytest.mark.parametrize("order", ["rising", "drawn", "from the middle"])
def test_a_long_path_takes_as_many_turns_as_the_logarithm_of_its_length(tmp_path, order):
    n = 10_000
    path = {
        "rising": np.arange(n),
        "drawn": np.random.default_rng(1).permutation(n),
        "from the middle": np.argsort(np.argsort(np.abs(np.arange(n) - n // 2), kind="stable")),
    }[order]
    flow, found = stars(tmp_path, np.stack([path[:-1], path[1:]], axis=1) + (1 << 40), 2)
    assert found == dict.fromkeys(range(1 << 40, (1 << 40) + n), 1 << 40)
    assert 2 < flow.turns() <= math.log2(n) + 1


def test_no_turn_has_more_edges_than_there_were_and_a_hub_is_one_turn(tmp_path):
    n = 100_000
    edges = np.stack([np.full(n, n // 2), np.append(np.arange(n // 2), np.arange(n // 2 + 1, n + 1))], axis=1)
    flow, found = stars(tmp_path, edges)
    assert found == dict.fromkeys(range(n + 1), 0)
    assert flow.turns() == 1
    for phase, records in flow.phases.items():
        if phase not in ("components", "stars-label", "stars-count"):
            assert sum(record["ends"] for record in records.values()) <= (n if "large" in phase else 2 * n)


def test_cliques_become_stars_in_one_turn_and_keep_no_edge_twice(tmp_path):
    size, count = 40, 30
    one, other = np.triu_indices(size, 1)
    clique = np.stack([one, other], axis=1)
    names = np.random.default_rng(2).permutation(size * count).reshape(count, size)
    edges = np.concatenate([nodes[clique] for nodes in names])
    flow, found = stars(tmp_path, np.concatenate([edges, edges]))
    assert found == {int(node): int(nodes.min()) for nodes in names for node in nodes}
    assert flow.turns() == 1
    ends = [sum(r["ends"] for r in flow.phases[phase].values()) for phase in ("stars-deal", "stars-large-01")]
    assert 2 * len(edges) <= ends[0] < 4 * len(edges) and ends[1] == (size - 1) * count


def test_most_partitions_may_be_empty(tmp_path):
    _, found = stars(tmp_path, np.array([[7, 9]]), 12)
    assert found == {7: 7, 9: 7}


def test_a_flow_killed_at_any_step_ends_with_the_same_bytes(tmp_path):
    edges = np.array([[1, 2], [2, 3], [3, 4], [8, 9]])
    paths = write(tmp_path, edges, 2)
    whole = Flow(tmp_path / "whole")
    expected = bytes_of(labelled(whole, 2, paths, STARS))
    steps = sum(len(records) + 1 for records in whole.phases.values())
    assert whole.turns() == 2
    for step in range(steps):
        folder = tmp_path / str(step)
        with pytest.raises(Killed):
            labelled(Flow(folder, kill=step), 2, paths, STARS)
        assert bytes_of(labelled(Flow(folder), 2, paths, STARS)) == expected
        assert sorted(path.name for path in folder.iterdir()) == ["done", "labels"]


def test_a_graph_that_no_longer_fits_ends_as_stars(tmp_path):
    paths = write(tmp_path, np.array([[1, 2], [2, 3], [3, 4], [8, 9]]), 2)
    expected = bytes_of(labelled(Flow(tmp_path / "whole"), 2, paths, WHOLE))
    folder = tmp_path / "begun"
    (folder / "labels").mkdir(parents=True)
    (folder / "labels" / "run-00000.parquet").write_bytes(b"what a killed process left")
    with pytest.raises(Killed):
        labelled(Flow(folder, kill=0), 2, paths, WHOLE)
    last = Flow(folder)
    assert bytes_of(labelled(last, 2, paths, STARS)) == expected and last.turns()


def test_stars_killed_again_with_other_memory_end_as_stars(tmp_path):
    paths = write(tmp_path, np.array([[1, 2], [2, 3], [3, 4], [8, 9]]), 2)
    whole = Flow(tmp_path / "whole")
    expected = bytes_of(labelled(whole, 2, paths, STARS))
    steps = sum(len(records) + 1 for records in whole.phases.values())
    for first in range(2, steps):  # later than the choice
        folder = tmp_path / str(first)
        with pytest.raises(Killed):
            labelled(Flow(folder, kill=first), 2, paths, STARS)
        with pytest.raises(Killed):
            labelled(Flow(folder, kill=steps - 1), 2, paths, WHOLE)
        last = Flow(folder)
        assert bytes_of(labelled(last, 2, paths, WHOLE)) == expected
        assert list(last.phases) == list(whole.phases)
        assert sorted(path.name for path in folder.iterdir()) == ["done", "labels"]


def test_work_done_again_writes_the_same_bytes(tmp_path):
    def twice(phase, work, arguments):
        records = {}
        for partition, given_ in arguments.items():
            records[partition] = work(str(tmp_path), partition, **given_)
            before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
            assert work(str(tmp_path), partition, **given_) == records[partition]
            assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == before
        return records

    edges = np.random.default_rng(3).integers(0, 300, (400, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    paths = write(tmp_path, edges, 2)
    for memory in (STARS, WHOLE):
        components(twice, str(tmp_path), 2, paths, memory)
        assert labels([labels_run(str(tmp_path), p) for p in range(2)]) == searched(edges)


def test_the_way_follows_from_the_number_of_edges(tmp_path):
    paths = write(tmp_path, np.array([[1, 2], [2, 3], [5, 9]]), 2)
    enough, short = Flow(tmp_path / "enough"), Flow(tmp_path / "short")
    labelled(enough, 2, paths, 3 * EDGE_BYTES)
    labelled(short, 2, paths, 3 * EDGE_BYTES - 1)
    assert list(enough.phases) == ["components"] and short.phases["stars-deal"]


@pytest.mark.parametrize("edge", [(4, 4), (5, 4), (-1, 4)])
@pytest.mark.parametrize("memory", [STARS, WHOLE])
def test_an_edge_that_is_none_is_named(tmp_path, edge, memory):
    path = str(tmp_path / "edges.parquet")
    sorted_files.write(path, pa.table({"first": [1, edge[0]], "second": [2, edge[1]]}), "first")
    with pytest.raises(ValueError, match=f"edges.parquet has an edge {edge[0]}, {edge[1]}"):
        components(Flow(tmp_path / "made").map, str(tmp_path / "made"), 2, [path], memory)


def test_an_exchange_that_was_damaged_is_found(tmp_path):
    def damaging(phase, work, arguments):
        if phase == "stars-small-00":
            path = next((tmp_path / "made" / "components" / "large-00").glob("*.parquet"))
            data = bytearray(path.read_bytes())
            data[len(data) // 3] ^= 1
            path.write_bytes(data)
        return Flow(tmp_path / "made").map(phase, work, arguments)

    line = np.stack([np.arange(5000), np.arange(1, 5001)], axis=1)
    with pytest.raises(sorted_files.SortedFileError, match="large-00"):
        components(damaging, str(tmp_path / "made"), 2, write(tmp_path, line, 2), STARS)


def neighbours(edges: np.ndarray) -> Neighbours:
    both = np.unique(np.concatenate([edges, edges[:, ::-1]]), axis=0)
    nodes, first = np.unique(both[:, 0], return_index=True)
    return Neighbours(nodes, np.append(first, len(both)), both[:, 1])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda e: e[0] != e[1]), max_size=9))
def test_no_node_is_unsettled_if_and_only_if_the_graph_is_stars(edges):
    found = searched(np.array(edges, np.int64).reshape(-1, 2))
    tied = {tuple(sorted(edge)) for edge in edges}
    is_stars = tied == {(label, node) for node, label in found.items() if node != label}
    assert (neighbours(np.array(edges, np.int64).reshape(-1, 2)).unsettled() == 0) == is_stars


@settings(max_examples=100, deadline=None)
@given(EDGES)
def test_a_large_and_a_small_star_say_what_the_paper_says(edges):
    around = defaultdict(set)
    for a, b in edges.tolist():
        around[a].add(b)
        around[b].add(a)
    large = {(v, min(around[u] | {u})) for u in around for v in around[u] if v > u}
    graph = neighbours(edges)
    assert set(zip(*map(np.ndarray.tolist, large_star(graph)), strict=True)) == large

    small = set()
    for u in around:
        if below := {v for v in around[u] if v < u}:
            small |= {(v, min(below)) for v in below | {u} if v != min(below)}
    down = graph.others < graph.each(graph.nodes)
    kept, first = np.unique(graph.each(graph.nodes)[down], return_index=True)
    given_ = Neighbours(kept, np.append(first, down.sum()), graph.others[down])
    assert set(zip(*map(np.ndarray.tolist, small_star(given_)), strict=True)) == small


@settings(deadline=None)
@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1))
def test_hashes_of_nodes_are_those_of_the_kernels_and_lead_back(nodes):
    hashes = mixed(np.array(nodes, np.int64))
    with np.errstate(over="ignore"):
        assert hashes.tolist() == [int(mix.py_func(np.uint64(node))) for node in nodes]
    assert unmixed(hashes).tolist() == nodes


def test_partitions_of_neighbouring_nodes_are_even(tmp_path):
    n = 40_000
    pairs = (np.arange(n).reshape(-1, 2) % (n // 4)) + (np.arange(n).reshape(-1, 2) // (n // 4) << 32)
    flow = Flow(tmp_path)
    paths = labelled(flow, 8, write(tmp_path, pairs, 1), STARS)
    rows = [pq.ParquetFile(path).metadata.num_rows for path in paths]
    assert sum(rows) == n and max(rows) < 1.1 * n / 8


def test_nodes_at_the_ends_of_partitions_have_the_same_place_both_ways(tmp_path):
    ends = unmixed(np.array(sorted_files.bounds(8)[1:-1], np.uint64))
    ends = ends[ends >= 0]
    assert len(ends) > 1
    paths = write(tmp_path, np.stack([np.full(len(ends), 5), ends], axis=1), 1)
    one, many = Flow(tmp_path / "one"), Flow(tmp_path / "many")
    whole = labelled(one, 8, paths, WHOLE)
    assert bytes_of(labelled(many, 8, paths, STARS)) == bytes_of(whole)
