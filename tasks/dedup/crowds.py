"""Components so large that one process should not decide on all of them: of most documents it is decided at home.

The first document of a component, in survivor order, survives, whatever the others are. So whoever shares a band with
it and is like it is dropped for it, which can be said where the document lies, and its text need not travel: on a
template with a million copies all workers decide.

    dealt/leaders-NNNNN.parquet    the first of each crowd's documents in a shard: `label`, `node`, `id`, what orders
                                   them, their band hashes and their sets
    dealt/leaders.parquet          the first of all
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files, runs, shards
from tasks.dedup import order
from tasks.dedup.candidates import Place, bands_of, candidates_of, distinct, in_order
from tasks.dedup.minhash import MinHash
from tasks.dedup.signatures import packed, sets, unpacked
from tasks.kernels.buffers import utf8
from tasks.kernels.likeness import likeness
from tasks.rows import read_rows
from tasks.url.step import Url

# So many documents of a component are a crowd.
_FEWEST = 1_000
# So many crowds at most, the largest: every shard reads the sets of all leaders.
_MOST = 1_000


def find(folder: str, _: int, labels: list[str]) -> dict:
    """Which components are crowds, by their labels. Holds the labels of one partition.

    Nodes are dealt out to partitions by their hashes, so one that has far less than its share of a component says that
    it is none.
    """
    least = max(8, _FEWEST // (2 * len(labels)))
    members: dict[int, int] = {}
    for path in labels:
        label = runs.read(path, -(1 << 63), 1 << 63, ["label"])["label"].to_numpy()
        values, counts = np.unique(label, return_counts=True)
        many = counts >= least
        for value, count in zip(values[many].tolist(), counts[many].tolist(), strict=True):
            members[value] = members.get(value, 0) + count
    found = [value for value in members if members[value] >= _FEWEST]
    return {"crowds": sorted(sorted(found, key=lambda value: (-members[value], value))[:_MOST])}


def lead_shard(
    folder: str, number: int, place: Place, labels: list[str], crowds: list[int], takedowns: Url, settings: MinHash
) -> dict:
    """The first document of each crowd in a shard. Held: what `candidates_of` holds, and these documents."""
    candidates = candidates_of(place, labels, takedowns, settings)
    candidates = candidates.filter(pc.is_in(candidates["label"], pa.array(crowds, pa.int64())))
    first = runs.sorted_by(_first_of_each(candidates, settings), "node")
    if len(first):
        texts = read_rows(place.documents, first["at"].to_numpy(), ["text"])["text"]
        values, bounds = sets(texts, settings)
        columns = {name: first[name] for name in ("label", "node", "id", *order.order_names(settings.survivor))}
        columns["bands"] = packed(bands_of(place, first, settings))
        columns["set"] = pa.LargeListArray.from_arrays(bounds, values)
        shards.write_table(_leaders_run(folder, number), pa.table(columns))
    return {"crowds": len(first)}


def choose(folder: str, _: int, numbers: list[int], settings: MinHash) -> dict:
    """The first document of each crowd, of those that some shards have. Held: two shards' worth."""
    leaders = shards.read_table(_leaders_run(folder, numbers[0]))
    for number in numbers[1:]:
        both = pa.concat_tables([leaders, shards.read_table(_leaders_run(folder, number))])
        leaders = _first_of_each(both, settings)
    shards.write_table(leaders_run(folder), leaders.sort_by("label"))
    return {"leaders": leaders["id"].to_pylist()}


def leaders_run(folder: str) -> str:
    return files.join(folder, "dealt", "leaders.parquet")


def led(
    candidates: pa.Table, bands: np.ndarray, place: Place, leaders: str, settings: MinHash
) -> tuple[np.ndarray, np.ndarray]:
    """Of each candidate of a shard the leader that it is dropped for, int64, -1 where it is for none, and their Jaccard
    similarity, float64. `bands`: their band hashes.

    Held: the leaders; the texts of the candidates that share a band with one; 9 bytes a band of each candidate.
    """
    known = shards.read_table(leaders)
    sets_known = known["set"].combine_chunks()
    label, labels = known["label"].to_numpy(), candidates["label"].to_numpy()
    of = np.searchsorted(label, labels).clip(max=len(label) - 1)
    node = known["node"].to_numpy()[of]
    shared = unpacked(known["bands"], "<u8")[of] == bands
    [asked] = np.nonzero((label[of] == labels) & shared.any(axis=1) & (node != candidates["node"].to_numpy()))
    first, numbers = distinct(candidates.take(pa.array(asked)))
    one = asked[first]
    texts = read_rows(place.documents, candidates["at"].to_numpy()[one], ["text"])["text"]
    similarity = np.full(len(candidates), np.nan)
    values, offsets = sets_known.values.to_numpy(), sets_known.offsets.to_numpy()
    found = likeness(*utf8(texts), settings.shingle, settings.unit, of[one], values, offsets)
    similarity[asked] = found[numbers]
    return np.where(similarity >= settings.threshold, node, -1), similarity


def _first_of_each(candidates: pa.Table, settings: MinHash) -> pa.Table:
    """The first document of each component, by survivor order."""
    candidates = in_order(candidates, settings)
    _, first = np.unique(candidates["label"].to_numpy(), return_index=True)
    return candidates.take(pa.array(first))


def _leaders_run(folder: str, number: int) -> str:
    return files.join(folder, "dealt", f"leaders-{number:05d}.parquet")
