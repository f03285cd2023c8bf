"""Connected components of a graph whose edges lie in sorted runs, each labelled by its smallest node.

The edges are runs of `first` and `second`, int64 nodes, not negative and not the same; in which run an edge is does
not matter. The labels are sorted runs, one a partition, of `node` and `label`: every node of an edge, once, in the
partition of its hash. A graph that fits goes through scipy in one process; a larger one becomes stars (`stars`) by
exchanges between partitions. Both give the same bytes.

    components/graph-RR/run-PPPPP.parquet    turn R of the stars: each edge, at the hashes of both of its ends
    components/large-RR/run-PPPPP.parquet    what a large star makes of it, at the hash of the larger end
    labels/run-PPPPP.parquet

A phase's input is removed when the phase is done in all partitions, so never more than two of these folders are there,
and in the end only the labels. Components of so many nodes that one process should not work on all of them are named.
"""

import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from storage import files, parquet, sorted_files
from tasks.dedup.near.stars import Neighbours, large_star, mixed, small_star, unmixed

log = logging.getLogger(__name__)

# What an edge takes in one process, measured where that is most: in a graph of edges that share no node.
EDGE_BYTES = 128
# scipy numbers nodes in 32 bits, and an edge can bring two.
_MOST_EDGES = 1 << 30
# So many nodes make a component large; so many of these are named at most, the largest.
_LARGE, _NAMED = 1_000, 1_000

MapPhase = Callable[[str, Callable[..., dict], dict[int, dict[str, Any]]], dict[int, dict]]


def components(map_phase: MapPhase, folder: str, partitions: int, edges: list[str], memory: int) -> list[int]:
    """Write the labels of the nodes of some runs of edges. Returns those of the large components, the largest first.

    `map_phase(name, work, {partition: arguments})` runs `work(folder, partition, **arguments)` for partitions that are
    not yet done and returns all their records. One process holds the graph if that takes at most `memory` bytes, else
    a partition of it: about 110 bytes for each end of an edge, and all ends at one node are in one partition. What was
    begun as stars is ended that way, whatever `memory` is then. Raises ValueError for an edge whose first node is not
    the smaller one.
    """
    given = {"edges": edges, "partitions": partitions, "memory": memory}
    found = map_phase("components", label_what_fits, {0: given})[0]
    if not found["fits"]:
        _by_stars(map_phase, folder, partitions, edges)
        found = map_phase("stars-count", find_large, {0: {"partitions": partitions}})[0]
    files.remove(files.join(folder, "components"))
    return found["large"]


def _by_stars(map_phase: MapPhase, folder: str, partitions: int, edges: list[str]) -> None:
    jobs = {p: {"edges": edges[p::partitions], "partitions": partitions} for p in range(partitions)}
    map_phase("stars-deal", deal_edges, jobs)
    for turn in itertools.count():
        jobs = dict.fromkeys(range(partitions), {"turn": turn, "partitions": partitions})
        done = map_phase(f"stars-large-{turn:02d}", large_stars, jobs)
        unsettled = sum(record["unsettled"] for record in done.values())
        log.info("turn %d of the stars: %d nodes are not yet at their place", turn, unsettled)
        if not unsettled:
            break
        files.remove(_turn(folder, "graph", turn))
        map_phase(f"stars-small-{turn:02d}", small_stars, jobs)
        files.remove(_turn(folder, "large", turn))
    map_phase("stars-label", label_partition, jobs)


def label_what_fits(folder: str, _: int, edges: list[str], partitions: int, memory: int) -> dict:
    """Label all nodes in one process, if it holds the graph: `EDGE_BYTES` for each edge, at most."""
    n_edges = sum(parquet.rows(path) for path in edges)
    if n_edges * EDGE_BYTES > memory or n_edges >= _MOST_EDGES:
        return {"edges": n_edges, "fits": False}
    # imported here: it takes a third of a second, and most processes label nothing
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first, second = _edges(edges)
    # a node has its edges one after the other in each run
    begin = np.flatnonzero(np.append(True, first[1:] != first[:-1])[: len(first)])
    nodes = _distinct(first[begin], second)
    number = np.searchsorted(nodes, first[begin]).astype(np.int32)
    ends = (np.repeat(number, np.diff(begin, append=len(first))), np.searchsorted(nodes, second).astype(np.int32))
    del first, second, begin, number
    # float64 is what scipy would make a copy in
    graph = coo_array((np.ones(len(ends[0])), ends), shape=(len(nodes), len(nodes)))
    _, component = connected_components(graph, directed=False)
    del graph, ends
    smallest = np.empty(len(nodes), np.int64)
    smallest[component[::-1]] = nodes[::-1]
    labels = smallest[component]
    del smallest, component
    of = np.searchsorted(np.array(sorted_files.bounds(partitions)[1:-1], np.uint64), mixed(nodes), side="right")
    for p in range(partitions):
        _write_labels(folder, p, nodes[of == p], labels[of == p])
    count = int(np.count_nonzero(nodes == labels))
    large = _large((labels[of == p] for p in range(partitions)), partitions)
    return {"edges": n_edges, "fits": True, "nodes": len(nodes), "components": count, "large": large}


def deal_edges(folder: str, partition: int, edges: list[str], partitions: int) -> dict:
    """Give some runs of edges to the partitions of their ends. Held: about 150 bytes an edge."""
    first, second = _edges(edges)
    path = _run(_turn(folder, "graph", 0), partition)
    return {"ends": _write_ends(path, np.append(first, second), np.append(second, first), partitions)}


def large_stars(folder: str, partition: int, turn: int, partitions: int) -> dict:
    graph = _neighbours(_turn(folder, "graph", turn), partition, partitions)
    larger, smaller = large_star(graph)
    path = _run(_turn(folder, "large", turn), partition)
    return {"unsettled": graph.unsettled(), "ends": _write_ends(path, larger, smaller, partitions)}


def small_stars(folder: str, partition: int, turn: int, partitions: int) -> dict:
    larger, smaller = small_star(_neighbours(_turn(folder, "large", turn), partition, partitions))
    path = _run(_turn(folder, "graph", turn + 1), partition)
    return {"ends": _write_ends(path, np.append(larger, smaller), np.append(smaller, larger), partitions)}


def label_partition(folder: str, partition: int, turn: int, partitions: int) -> dict:
    """Label the nodes of a partition, all of whose edges belong to stars around smallest nodes."""
    graph = _neighbours(_turn(folder, "graph", turn), partition, partitions)
    labels = graph.least()
    _write_labels(folder, partition, graph.nodes, labels)
    return {"nodes": len(labels), "components": int(np.count_nonzero(graph.nodes == labels))}


def find_large(folder: str, _: int, partitions: int) -> dict:
    """Find the large components. Holds the labels of one partition, and what `_large` holds."""
    labels = (sorted_files.read(labels_run(folder, p), *sorted_files.EVERYTHING, ["label"]) for p in range(partitions))
    return {"large": _large((label["label"].to_numpy() for label in labels), partitions)}


def _large(labels: Iterable[np.ndarray], partitions: int) -> list[int]:
    """The labels of large components, the largest first, by the labels of the nodes of each partition.

    Nodes are dealt out to partitions by their hashes, so a partition that has far less than its share of a component
    need not be counted. Holds a count for each component that has its share in one.
    """
    least = max(8, _LARGE // (2 * partitions))
    nodes: dict[int, int] = {}
    for label in labels:
        values, counts = np.unique(label, return_counts=True)
        many = counts >= least
        for value, count in zip(values[many].tolist(), counts[many].tolist(), strict=True):
            nodes[value] = nodes.get(value, 0) + count
    found = [value for value in nodes if nodes[value] >= _LARGE]
    return sorted(found, key=lambda value: (-nodes[value], value))[:_NAMED]


def _edges(paths: list[str]) -> tuple[np.ndarray, np.ndarray]:
    pieces = [np.empty((2, 0), np.int64)]
    for path in paths:
        table = sorted_files.read(path, *sorted_files.EVERYTHING)
        ends = np.stack([table["first"].to_numpy(), table["second"].to_numpy()])
        if (wrong := (ends[0] < 0) | (ends[0] >= ends[1])).any():
            first, second = ends[:, wrong.argmax()].tolist()
            raise ValueError(f"{path} has an edge {first}, {second}: write its smaller node first, none below 0")
        pieces.append(ends)
    first, second = np.concatenate(pieces, axis=1)
    return first, second


def _distinct(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """All nodes of some edges, in order."""
    nodes = np.append(first, second)
    nodes.sort()
    return nodes[np.append(True, nodes[1:] != nodes[:-1])[: len(nodes)]]


def _write_ends(path: str, nodes: np.ndarray, others: np.ndarray, partitions: int) -> int:
    """Write each node's hash with a neighbour, each such pair once; returns how many there are."""
    order = sorted_files.order(mixed(others))
    hashes, others = mixed(nodes[order]), others[order]
    order = sorted_files.order(hashes)
    hashes, others = hashes[order], others[order]
    fresh = np.append(True, (hashes[1:] != hashes[:-1]) | (others[1:] != others[:-1]))[: len(hashes)]
    ends = pa.table({"hash": hashes[fresh], "other": others[fresh]})
    sorted_files.write(path, ends, "hash", sorted_files.bounds(partitions))
    return len(ends)


def _neighbours(folder: str, partition: int, partitions: int) -> Neighbours:
    """The nodes of a partition, in the order of their hashes, with the neighbours that all runs of a folder give."""
    ends = sorted_files.bounds(partitions)
    table = sorted_files.read_all([_run(folder, p) for p in range(partitions)], ends[partition], ends[partition + 1])
    hashes, others = table["hash"].to_numpy(), table["other"].to_numpy()
    # where it finds rows in order it merges them, which is as good as linear
    order = np.argsort(hashes, kind="stable")
    hashes, others = hashes[order], others[order]
    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    return Neighbours(unmixed(hashes[first]), np.append(first, len(hashes)), others)


def _write_labels(folder: str, partition: int, nodes: np.ndarray, labels: np.ndarray) -> None:
    sorted_files.write(labels_run(folder, partition), pa.table({"node": nodes, "label": labels}), "node")


def labels_run(folder: str, partition: int) -> str:
    return _run(files.join(folder, "labels"), partition)


def _turn(folder: str, graph: str, turn: int) -> str:
    return files.join(folder, "components", f"{graph}-{turn:02d}")


def _run(folder: str, partition: int) -> str:
    return files.join(folder, f"run-{partition:05d}.parquet")
