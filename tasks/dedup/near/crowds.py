"""Crowds: components so large that one process should not decide on all their documents. On many it is decided at home.
Which they are `tasks.dedup.near.components` says.

The first document of a component, in survivor order, survives, whatever the others are. So whoever shares a band with
it and is like it is dropped for it, which can be said where the document lies, and its text need not travel: on a
template with a million copies all workers decide.

    dealt/first-NNNNN.parquet    the first of each crowd's documents in a shard: `label`, `node`, `id`, what orders
                                 them, their band hashes and their sets
    dealt/leaders.parquet        the first of all
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files, sorted_files
from tasks.dedup import order
from tasks.dedup.near.candidates import Place, bands_of, candidates_of, distinct, in_order, of_places
from tasks.dedup.near.settings import MinHash
from tasks.dedup.near.signatures import packed, shingle_sets, unpacked
from tasks.documents.rows import read_rows
from tasks.kernels.buffers import utf8
from tasks.kernels.likeness import likeness
from tasks.url.step import Url

# What a shingle of a leader takes in a process that decides: 8 bytes in the set, and up to 32 in the table of it.
_SHINGLE_BYTES = 40


def lead_shard(
    folder: str, number: int, place: Place, labels: list[str], crowds: list[int], takedowns: Url, settings: MinHash
) -> dict:
    """The first document of each crowd in a shard. Held: what `candidates_of` holds, and the sets of the first."""
    [label] = of_places([place], labels)
    label = label.filter(pc.is_in(label["label"], pa.array(crowds, pa.int64())))
    candidates = candidates_of(place, label, takedowns) if len(label) else label
    if len(candidates):
        first = sorted_files.sorted_by(_first_of_each(candidates, settings), "node")
        texts = read_rows(place.documents, first["at"].to_numpy(), ["text"])["text"]
        values, bounds = shingle_sets(texts, settings)
        columns = {name: first[name] for name in ("label", "node", "id", *order.order_names(settings.survivor))}
        columns["bands"] = packed(bands_of(place, first, settings))
        columns["set"] = pa.LargeListArray.from_arrays(bounds, values)
        sorted_files.write(_first_run(folder, number), pa.table(columns), "label")
    return {"candidates": len(candidates)}


def choose(folder: str, _: int, numbers: list[int], crowds: list[int], settings: MinHash) -> dict:
    """The first document of each crowd, of those that some shards have; of the largest crowds alone, where the sets of
    all would take a process more than `settings.memory`. Held: the first documents of two shards."""
    leaders = sorted_files.read(_first_run(folder, numbers[0]), *sorted_files.EVERYTHING)
    for number in numbers[1:]:
        both = pa.concat_tables([leaders, sorted_files.read(_first_run(folder, number), *sorted_files.EVERYTHING)])
        leaders = _first_of_each(both, settings)
    leaders = leaders.take(np.argsort(pc.index_in(leaders["label"], pa.array(crowds, pa.int64()))))
    taken = np.cumsum(pc.list_value_length(leaders["set"]).to_numpy()) * _SHINGLE_BYTES
    leaders = leaders[: int(np.searchsorted(taken, settings.memory, side="right"))]
    sorted_files.write(leaders_run(folder), leaders, "label")
    return {"leaders": leaders["id"].to_pylist()}


def leaders_run(folder: str) -> str:
    return files.join(folder, "dealt", "leaders.parquet")


def led(candidates: pa.Table, place: Place, leaders: str, settings: MinHash) -> tuple[np.ndarray, np.ndarray]:
    """Of each candidate of a shard the leader that it is dropped for, int64, -1 where it is for none, and their Jaccard
    similarity, float64.

    Held: the leaders' sets and tables of them, `settings.memory` at most; the texts of the candidates that share a band
    with one; of each candidate of a crowd its signature, and 9 bytes a band.
    """
    known = sorted_files.read(leaders, *sorted_files.EVERYTHING)
    sets_known = known["set"].combine_chunks()
    label, labels = known["label"].to_numpy(), candidates["label"].to_numpy()
    of = np.searchsorted(label, labels).clip(max=len(label) - 1)
    node = known["node"].to_numpy()[of]
    [among] = np.nonzero((label[of] == labels) & (node != candidates["node"].to_numpy()))
    bands = bands_of(place, candidates.take(pa.array(among)), settings)
    asked = among[(unpacked(known["bands"], "<u8")[of[among]] == bands).any(axis=1)]
    first, numbers = distinct(candidates.take(pa.array(asked)))
    one = asked[first]
    texts = read_rows(place.documents, candidates["at"].to_numpy()[one], ["text"])["text"]
    values, offsets = sets_known.values.to_numpy(), sets_known.offsets.to_numpy()
    found, done = np.empty(len(one)), 0
    for chunk in texts.chunks:
        some = slice(done, done + len(chunk))
        found[some] = likeness(*utf8(chunk), settings.shingle, settings.unit, of[one[some]], values, offsets)
        done += len(chunk)
    similarity = np.full(len(candidates), np.nan)
    similarity[asked] = found[numbers]
    return np.where(similarity >= settings.threshold, node, -1), similarity


def _first_of_each(candidates: pa.Table, settings: MinHash) -> pa.Table:
    """The first document of each component, by survivor order."""
    candidates = in_order(candidates, settings)
    _, first = np.unique(candidates["label"].to_numpy(), return_index=True)
    return candidates.take(pa.array(first))


def _first_run(folder: str, number: int) -> str:
    return files.join(folder, "dealt", f"first-{number:05d}.parquet")
