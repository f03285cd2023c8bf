"""Connected components by stars: the two operations of Kiveris, Lattanzi, Mirrokni, Rastogi and Vassilvitskii 2014,
"Connected Components in MapReduce and Beyond" (SoCC), on columns.

Each looks at one node and its neighbours alone and keeps every component connected. Done in turn they make each
component a star: all its other nodes tied to the smallest, and nothing else. A path of n nodes takes about log2(n)
turns, in whatever order its nodes are numbered.
"""

from dataclasses import dataclass

import numpy as np

from tasks.kernels.shingles import MIX_1, MIX_2

_UNMIX_1 = np.uint64(pow(int(MIX_1), -1, 1 << 64))
_UNMIX_2 = np.uint64(pow(int(MIX_2), -1, 1 << 64))


@dataclass(frozen=True)
class Neighbours:
    """`others[bounds[i]:bounds[i + 1]]` are the neighbours of `nodes[i]`, one at least; int64. They may repeat."""

    nodes: np.ndarray
    bounds: np.ndarray
    others: np.ndarray

    def least(self) -> np.ndarray:
        """The smallest of each node and its neighbours."""
        return np.minimum(self.nodes, self._reduced(np.minimum))

    def unsettled(self) -> int:
        """How many nodes are neither smaller than all their neighbours nor tied to one smaller node alone.

        If that is no node of a graph, its components are stars around their smallest nodes: the neighbour of a node
        that is tied to one smaller node has itself a larger neighbour, so it is smaller than all of its own.
        """
        smallest, largest = self._reduced(np.minimum), self._reduced(np.maximum)
        return int(np.count_nonzero((smallest < self.nodes) & (smallest != largest)))

    def each(self, values: np.ndarray) -> np.ndarray:
        """A value of each node, at all of its neighbours."""
        return np.repeat(values, np.diff(self.bounds))

    def _reduced(self, how: np.ufunc) -> np.ndarray:
        return how.reduceat(self.others, self.bounds[:-1]) if len(self.nodes) else self.nodes


def large_star(graph: Neighbours) -> tuple[np.ndarray, np.ndarray]:
    """Tie the neighbours that are larger than a node to the smallest of it and them: (larger, smaller) of each edge.

    `graph` has all neighbours of its nodes. Gives at most as many edges as it has.
    """
    larger = graph.others > graph.each(graph.nodes)
    return graph.others[larger], graph.each(graph.least())[larger]


def small_star(graph: Neighbours) -> tuple[np.ndarray, np.ndarray]:
    """Tie a node and its neighbours to the smallest of them: (larger, smaller) of each edge.

    `graph` has those neighbours alone that are smaller than the node. Gives at most as many edges as it has.
    """
    least = graph.least()
    tied, to = np.concatenate([graph.nodes, graph.others]), np.concatenate([least, graph.each(least)])
    return tied[tied != to], to[tied != to]


def mixed(nodes: np.ndarray) -> np.ndarray:
    """Hashes of nodes, uint64, of which any range holds its share: what `kernels.shingles.mix` gives."""
    x = nodes.view(np.uint64) ^ (nodes.view(np.uint64) >> np.uint64(30))
    x *= MIX_1
    x ^= x >> np.uint64(27)
    x *= MIX_2
    x ^= x >> np.uint64(31)
    return x


def unmixed(hashes: np.ndarray) -> np.ndarray:
    """The nodes, int64, that `mixed` made these hashes of: its steps undone, the last one first."""
    x = hashes ^ (hashes >> np.uint64(31)) ^ (hashes >> np.uint64(62))
    x *= _UNMIX_2
    x ^= (x >> np.uint64(27)) ^ (x >> np.uint64(54))
    x *= _UNMIX_1
    x ^= (x >> np.uint64(30)) ^ (x >> np.uint64(60))
    return x.view(np.int64)
