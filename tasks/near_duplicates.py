"""Which near-duplicates survive, as phases over shards and partitions; what they mean is in `tasks.dedup.minhash`.

    near_duplicates   every shard: `dealt`, its candidates (`tasks.dedup.candidates`) with their texts, by label; those
                      of crowds (`tasks.dedup.crowds`) are mostly decided on here
                      every partition of labels: `decided`, by exact Jaccard similarity of the sets
                      every shard: the selection and the ledger

What is held is said with each phase; nothing grows with the corpus but the candidates of one partition, fewer of them
the more there are.
"""

import os
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files, ledger, runs, shards, stages
from storage.schema import DOCUMENTS, SELECTION
from tasks.dedup import crowds, order
from tasks.dedup.candidates import Place, bands_of, candidates_of, distinct, in_order, labelled, set_keys
from tasks.dedup.minhash import MinHash
from tasks.dedup.nodes import segment_of, shard_range
from tasks.dedup.signatures import packed, sets, unpacked
from tasks.dedup.stars import mixed
from tasks.dedup.takedowns import taken_down
from tasks.kernels.survivors import settle
from tasks.rows import read_rows
from tasks.selection import gather
from tasks.url.step import Url

DECIDED = pa.schema(
    [
        pa.field("node", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("survivor", pa.int64(), metadata={"what": "node of its representative, its own if it survives"}),
        pa.field("representative", pa.string(), metadata={"what": "id of that"}),
        pa.field("jaccard", pa.float64(), metadata={"what": "exact similarity to the representative"}),
        pa.field("cluster_size", pa.int64(), metadata={"what": "the representative and all dropped for it"}),
    ]
)


_SETTLED = (
    "candidates",
    "largest_component",
    "sets",
    "comparisons",
    "left_out",
    "clusters",
    "dropped",
    "largest_cluster",
)

_NAMED = pa.schema([SELECTION.field("id"), DOCUMENTS.field("url")])


def dealt_run(folder: str, number: int) -> str:
    return files.join(folder, "dealt", f"run-{number:05d}.parquet")


def deal_shard(
    folder: str, number: int, place: Place, labels: list[str], leaders: str | None, takedowns: Url, settings: MinHash
) -> dict:
    """What decisions need of a shard's candidates, in the order of a hash of their labels.

    A document that is dropped for the leader of its crowd, where there are `leaders`, has that and their similarity. Of
    the others each has its text; of those with equal sets only the first. A shard without candidates has no run. Held:
    what `candidates_of` and `crowds.led` hold, 16 bytes a band of each candidate, the texts of the candidates twice.
    """
    label = labelled(place, labels)
    candidates = candidates_of(place, label, takedowns, settings) if len(label) else label
    if not len(candidates):
        return {"candidates": 0, "led": 0}
    bands = bands_of(place, candidates, settings)
    leader, jaccard = np.full(len(candidates), -1), np.full(len(candidates), np.nan)
    if leaders is not None:
        leader, jaccard = crowds.led(candidates, bands, place, leaders, settings)
    led = leader >= 0
    [rest] = np.nonzero(~led)
    first, _ = distinct(candidates.take(pa.array(rest)))
    there = np.zeros(len(candidates), bool)
    there[rest[first]] = True
    text = read_rows(place.documents, candidates["at"].to_numpy()[there], ["text"])["text"]
    text = text.take(pa.array(np.cumsum(there) - 1, mask=~there))
    columns = {
        "group": mixed(candidates["label"].to_numpy()),
        **{name: candidates[name] for name in ("node", "id", "size", "content")},
        **{name: candidates[name] for name in order.order_names(settings.survivor)},
        "bands": packed(bands),
        "leader": pa.array(leader, mask=~led),
        "jaccard": pa.array(jaccard, mask=~led),
        "text": text,
    }
    runs.write(dealt_run(folder, number), pa.table(columns), "group", runs.bounds(settings.partitions))
    return {"candidates": len(candidates), "led": int(led.sum())}


def forget_dealt(folder: str) -> None:
    """Remove what is no longer needed when all is decided."""
    files.remove(files.join(folder, "dealt"))


def decided_run(folder: str, partition: int) -> str:
    return files.join(folder, "decided", f"group-{partition:05d}.parquet")


def settle_partition(folder: str, partition: int, dealt: list[str], own: int, settings: MinHash) -> dict:
    """Decide on the candidates of a partition of the labels; `own` is the number of this crawl's segment.

    Held: 300 bytes a candidate and 60 for each of its bands; the texts of one shard's candidates; the sets of the
    candidates, 8 bytes a shingle, in a temporary file where they are more than `settings.memory`. All candidates of a
    component are in one partition, however large it is: the record has the largest.
    """
    if not dealt:
        runs.write(decided_run(folder, partition), DECIDED.empty_table(), "node")
        return dict.fromkeys(_SETTLED, 0)
    ends = runs.bounds(settings.partitions)
    low, high = ends[partition], ends[partition + 1]
    everyone = _candidates(dealt, low, high, settings)
    led = everyone.filter(pc.is_valid(everyone["leader"]))
    facts = everyone.filter(pc.is_null(everyone["leader"]))
    holders, of = distinct(facts)
    values, offsets = _sets(dealt, low, high, facts.take(pa.array(holders)), settings)
    hashes = unpacked(facts["bands"].take(pa.array(holders)), "<u8")
    _, buckets, shared = np.unique(hashes, return_inverse=True, return_counts=True)
    buckets = np.where(shared[buckets] > 1, buckets, -1).reshape(hashes.shape)
    given = int((segment_of(facts["node"].to_numpy()[holders]) < own).sum())
    survivor, similarity, comparisons, left_out = settle(
        values, offsets, buckets, len(shared), given, settings.threshold, settings.comparisons
    )
    leader = pc.index_in(led["leader"], facts["node"].combine_chunks())
    if leader.null_count:
        raise runs.RunError(f"a leader of {', '.join(dealt)} is in none of them; remove the stage's folder")
    representative = np.append(holders[survivor[of]], leader.to_numpy())
    facts = pa.concat_tables([facts, led])
    cluster = np.bincount(representative, minlength=len(facts))[representative]
    decided = pa.table(
        {
            "node": facts["node"],
            "id": facts["id"],
            "survivor": facts["node"].take(pa.array(representative)),
            "representative": facts["id"].take(pa.array(representative)),
            "jaccard": np.append(np.where(survivor[of] == of, 1.0, similarity[of]), led["jaccard"].to_numpy()),
            "cluster_size": cluster,
        },
        DECIDED,
    ).filter(pa.array(cluster > 1))
    runs.write(decided_run(folder, partition), decided, "node")
    stays = representative == np.arange(len(facts))
    counts = (
        len(facts),
        _most(facts["group"]),
        len(holders),
        comparisons,
        left_out,
        int((stays & (cluster > 1)).sum()),
        int((~stays).sum()),
        int(cluster.max(initial=0)),
    )
    return dict(zip(_SETTLED, counts, strict=True))


def split_shard(
    folder: str, shard: int, kept: str, documents: str, own: int, decided: list[str], takedowns: Url, settings: MinHash
) -> dict:
    """Write the survivors of a shard with their `cluster_size`; the ledger names the representative of each duplicate.

    Held: the selection, and ids and URLs where there are takedowns.
    """
    verdicts = runs.read_all(decided, *shard_range(own, shard))
    arriving = shards.read_table(kept, SELECTION.names)
    dropped = verdicts.filter(pc.not_equal(verdicts["node"], verdicts["survivor"]))
    like = {
        "id": dropped["id"],
        "value": dropped["jaccard"],
        "threshold": pa.repeat(settings.threshold, len(dropped)),
        "detail": pc.binary_join_element_wise("cluster of", dropped["cluster_size"].cast(pa.string()), " "),
        "representative": dropped["representative"],
    }
    named = gather((documents,), kept, ["url"]) if takedowns.takedowns else pa.table({"id": [], "url": []}, _NAMED)
    named = named.append_column("detail", taken_down(named, takedowns))
    named = named.filter(pc.is_valid(named["detail"]))
    losses = pa.concat_tables(
        [_losses("takedown", {"id": named["id"], "detail": named["detail"]}), _losses("near_duplicate", like)]
    )
    at = pc.index_in(arriving["id"], verdicts["id"].combine_chunks())
    sizes = pc.fill_null(verdicts["cluster_size"].take(at), 1)
    return stages.write_selection(folder, shard, arriving.append_column("cluster_size", sizes), [("minhash", losses)])


def _losses(rule: str, columns: dict) -> pa.Table:
    rows = len(columns["id"])
    return ledger.from_columns({"step": pa.repeat("minhash", rows), "rule": pa.repeat(rule, rows), **columns})


def _candidates(dealt: list[str], low: int, high: int, settings: MinHash) -> pa.Table:
    """The candidates of a range of groups, in survivor order, without their texts."""
    facts = ["group", "node", "id", "size", "content", "bands", "leader", "jaccard"]
    facts = in_order(runs.read_all(dealt, low, high, [*facts, *order.order_names(settings.survivor)]), settings)
    segment = pa.array(segment_of(facts["node"].to_numpy()))
    named = facts.append_column("segment", segment).group_by(["segment", "id"]).aggregate([([], "count_all")])
    twice = named.filter(pc.greater(named["count_all"], 1))["id"]
    if len(twice):
        raise ValueError(
            f"two documents of one crawl have the id {pc.min(twice).as_py()!r}: name their sources otherwise, or the "
            "column that tells their rows apart (`id_column`)"
        )
    return facts


def _most(values: pa.ChunkedArray) -> int:
    """How often the value occurs that occurs most."""
    return pc.max(pc.value_counts(values).field("counts")).as_py() or 0


def _sets(dealt: list[str], low: int, high: int, holders: pa.Table, settings: MinHash) -> tuple[np.ndarray, np.ndarray]:
    """The sets of `holders`, one after the other, and their n+1 offsets: made again from the texts."""
    offsets = np.append(0, np.cumsum(holders["size"].to_numpy()))
    values = _room(int(offsets[-1]), settings.memory)
    keys = set_keys(holders)
    by_key = np.argsort(keys)
    keys = keys[by_key]
    missing = np.ones(len(holders), bool)
    for path in dealt:
        given = runs.read(path, low, high, ["size", "content", "text"])
        given = given.filter(pc.is_valid(given["text"]))
        wanted = set_keys(given)
        at = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
        rows = np.flatnonzero(keys[at] == wanted) if len(keys) else at[:0]
        rows = rows[missing[by_key[at[rows]]]]
        numbers = by_key[at[rows]]
        found, ends = sets(given["text"].take(pa.array(rows)), settings)
        for number, begin, end in zip(numbers.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            values[offsets[number] : offsets[number + 1]] = found[begin:end]
        missing[numbers] = False
    if missing.any():
        raise runs.RunError(f"no text of the document {holders['id'][int(missing.argmax())]} in {', '.join(dealt)}")
    return values, offsets


def _room(shingles: int, memory: int) -> np.ndarray:
    """An array of so many shingles: in memory, or, where that is not allowed, in a file that goes with it."""
    if shingles * 8 <= memory:
        return np.empty(shingles, np.uint64)
    with tempfile.TemporaryFile() as f:
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, not a signal later
            os.posix_fallocate(f.fileno(), 0, shingles * 8)
        return np.asarray(np.memmap(f, np.uint64, "w+", shape=shingles))
