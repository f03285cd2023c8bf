"""Which near-duplicates survive, as phases; what they mean is in `tasks.dedup.near.settings`.

    near_duplicates   every shard: what is known of its documents; of its survivors it is kept for later crawls
                      every shard: its candidates (`tasks.dedup.near.candidates`) by label; those of crowds
                      (`tasks.dedup.near.crowds`) are mostly decided on here
                      every partition of labels: which of them may be like another at all, by their bitmaps
                      every shard: the texts of these, by label
                      every partition of labels: `decided`, by exact Jaccard similarity of the sets
                      every shard: the selection and the ledger

What is held is said with each phase; nothing grows with the corpus but the candidates of one partition, fewer of them
the more there are.
"""

import os
import tempfile
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files, layout, ledger, parquet, sorted_files
from storage.schema import DOCUMENTS, SELECTION
from tasks.dedup import order
from tasks.dedup.near import crowds
from tasks.dedup.near.candidates import Place, candidates_of, distinct, in_order, of_places, shared_bands
from tasks.dedup.near.nodes import row_of, segment_of, shard_range
from tasks.dedup.near.settings import MinHash
from tasks.dedup.near.signatures import packed, shingle_sets, unpacked
from tasks.dedup.near.stars import mixed
from tasks.dedup.takedowns import taken_down
from tasks.documents.rows import read_each
from tasks.documents.selection import gather
from tasks.kernels.bitmaps import may_be_like
from tasks.kernels.shingles import set_hashes
from tasks.kernels.survivors import settle
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


_SCREENED = ("candidates", "largest_component", "sets", "compared")
_SETTLED = ("comparisons", "left_out", "clusters", "dropped", "largest_cluster")

_NAMED = pa.schema([SELECTION.field("id"), DOCUMENTS.field("url")])

# So many earlier shards are one job, at most.
_TOGETHER = 16
# In a bucket of more documents no pairs are ruled out, so that it costs no more than its size.
_BUCKET = 128


def known_run(folder: str, shard: int) -> str:
    """What is known of a shard's documents, until it is decided who survives."""
    return files.join(folder, "dealt", f"known-{shard:05d}.parquet")


def dealt_run(folder: str, number: int) -> str:
    return files.join(folder, "dealt", f"facts-{number:05d}.parquet")


def together(places: list[Place]) -> list[list[Place]]:
    """Shards of earlier crawls, of which few documents are met, as they are dealt: some in one job, and two jobs, four,
    six, ... (of a single shard one), so that an even number of workers ends them together."""
    jobs = 2 * -(-len(places) // (2 * _TOGETHER))
    parts = pairwise(len(places) * i // jobs for i in range(jobs + 1)) if jobs else []
    return [places[low:high] for low, high in parts if high > low]


def deal_shards(
    folder: str,
    number: int,
    places: list[Place],
    labels: list[str],
    members: list[str],
    leaders: str | None,
    takedowns: Url,
    settings: MinHash,
) -> dict:
    """What is known of the candidates of some shards, in the order of a hash of their labels.

    A document that is dropped for the leader of its crowd, where there are `leaders`, has that and their similarity.
    Held: of one shard what `candidates_of` and `crowds.led` hold; of all 1 kB a candidate, and 100 bytes for each band
    that it shares.
    """
    labelled = list(of_places(places, labels))
    for place, label in zip(places, labelled, strict=True):
        if len(label):
            files.readahead_all(place.known)
    known = [candidates_of(place, label, takedowns) for place, label in zip(places, labelled, strict=True)]
    rows = [row_of(candidates["node"].to_numpy()) for candidates in known]
    bitmaps = read_each(((place.signatures, some) for place, some in zip(places, rows, strict=True)), ["bitmap"])
    facts = zip(places, known, bitmaps, of_places(places, members), strict=True)
    dealt = pa.concat_tables([_facts(*of_one, leaders, settings) for of_one in facts])
    sorted_files.write(dealt_run(folder, number), dealt, "group", sorted_files.bounds(settings.partitions))
    return {"candidates": len(dealt), "led": len(dealt) - dealt["leader"].null_count}


def _facts(
    place: Place, candidates: pa.Table, signed: pa.Table, members: pa.Table, leaders: str | None, settings: MinHash
) -> pa.Table:
    bands = shared_bands(candidates, members)
    leader, jaccard = np.full(len(candidates), -1), np.full(len(candidates), np.nan)
    if leaders is not None:
        leader, jaccard = crowds.led(candidates, place, leaders, settings)
    led = leader >= 0
    undecided = pa.array(np.arange(len(candidates)), mask=led)
    columns = {
        "group": mixed(candidates["label"].to_numpy()),
        **{name: candidates[name] for name in ("node", "id", "at", "size", "content")},
        **{name: candidates[name] for name in order.order_names(settings.survivor)},
        "bitmap": signed["bitmap"].take(undecided),
        "bands": bands.take(undecided),
        "leader": pa.array(leader, mask=~led),
        "jaccard": pa.array(jaccard, mask=~led),
    }
    return pa.table(columns)


def screened_run(folder: str, partition: int) -> str:
    return files.join(folder, "dealt", f"screened-{partition:05d}.parquet")


def screen_partition(folder: str, partition: int, dealt: list[str], own: int, settings: MinHash) -> dict:
    """The candidates of a partition of the labels, by node: their `rank` in survivor order, the number of their `set`,
    and of the first of each set the `buckets` and whether it is to be `compared`. The others are known by their
    bitmaps to be unlike all with whom they share a band, so nobody needs their texts. Those that have a leader have
    nothing of all this.

    `own` is the number of this crawl's segment. Held: 1 kB a candidate and 70 bytes for each of its bands. All
    candidates of a component are in one partition, however large it is: the record has the largest.
    """
    everyone = sorted_files.read_all(dealt, *_ends(partition, settings))
    _check_ids(everyone)
    led = everyone.filter(pc.is_valid(everyone["leader"]))
    rest = in_order(everyone.filter(pc.is_null(everyone["leader"])), settings)
    first, of = distinct(rest)
    sets = rest.take(pa.array(first))
    bands = sets["bands"].combine_chunks()
    _, bucket, members = np.unique(bands.flatten().to_numpy(), return_inverse=True, return_counts=True)
    shared = members > 1
    bucket = np.where(shared, np.cumsum(shared) - 1, -1)[bucket].astype("<i4")
    count = bands.value_lengths().to_numpy()
    having = np.repeat(np.arange(len(first)), count)
    buckets = np.full((len(first), settings.bands), -1, "<i4")
    buckets[np.arange(settings.bands) < count[:, None]] = bucket
    entries = np.argsort(bucket, kind="stable")[(bucket < 0).sum() :]
    given = int((segment_of(sets["node"].to_numpy()) < own).sum())
    compared = may_be_like(
        unpacked(sets["bitmap"], "<u8"),
        sets["size"].to_numpy(),
        having[entries],
        np.cumsum(members[shared]),
        given,
        settings.threshold,
        _BUCKET,
    )
    holder = np.full(len(rest), -1)
    holder[first] = np.arange(len(first))
    holder = pa.array(holder, mask=holder < 0)
    added = {
        "rank": pa.array(np.arange(len(rest))),
        "set": pa.array(of),
        "buckets": packed(buckets).take(holder),
        "compared": pa.array(compared).take(holder),
    }
    facts = ["node", "group", "id", "at", "size", "content", "leader", "jaccard"]
    screened = rest.select(facts)
    for name, column in added.items():
        screened = screened.append_column(name, column)
    screened = pa.concat_tables([screened, led.select(facts)], promote_options="default")
    sorted_files.write(screened_run(folder, partition), screened, "node")
    counts = (len(everyone), _most(everyone["group"]), len(first), int(compared.sum()))
    return dict(zip(_SCREENED, counts, strict=True))


def texts_run(folder: str, number: int) -> str:
    return files.join(folder, "dealt", f"texts-{number:05d}.parquet")


def deal_texts(folder: str, number: int, places: list[Place], screened: list[str], settings: MinHash) -> dict:
    """The texts of the candidates of some shards that are compared, in the order of a hash of their labels. Holds them
    twice."""
    asked = [some.filter(some["compared"]) for some in of_places(places, screened, ["node", "group", "at", "compared"])]
    rows = ((place.documents, some["at"].to_numpy()) for place, some in zip(places, asked, strict=True))
    texts = zip(asked, read_each(rows, ["text"]), strict=True)
    dealt = pa.concat_tables(
        [some.select(["group", "node"]).append_column("text", text["text"]) for some, text in texts]
    )
    if len(dealt):
        sorted_files.write(texts_run(folder, number), dealt, "group", sorted_files.bounds(settings.partitions))
    return {"texts": len(dealt)}


def forget_dealt(folder: str) -> None:
    """Remove what is no longer needed when all is decided."""
    files.remove(files.join(folder, "dealt"))


def decided_run(folder: str, partition: int) -> str:
    return files.join(folder, "decided", f"group-{partition:05d}.parquet")


def settle_partition(folder: str, partition: int, screened: str, texts: list[str], own: int, settings: MinHash) -> dict:
    """Decide on the candidates of a partition of the labels; `own` is the number of this crawl's segment.

    Held: 700 bytes a candidate and 30 for each of its bands; the texts of one job's candidates; the sets of those
    that are compared, 8 bytes a shingle, in a temporary file where they are more than `settings.memory`.
    """
    everyone = sorted_files.read(screened, *sorted_files.EVERYTHING)
    led = everyone.filter(pc.is_valid(everyone["leader"]))
    facts = everyone.filter(pc.is_null(everyone["leader"]))
    facts = facts.take(np.argsort(facts["rank"].to_numpy()))
    of, holders = facts["set"].to_numpy(), np.flatnonzero(pc.is_valid(facts["buckets"]).to_numpy())
    sets = facts.take(pa.array(holders))
    values, offsets = _sets(texts, *_ends(partition, settings), sets, settings)
    buckets = unpacked(sets["buckets"], "<i4").astype(np.int64)
    given = int((segment_of(sets["node"].to_numpy()) < own).sum())
    survivor, similarity, comparisons, left_out = settle(
        values, offsets, buckets, int(buckets.max(initial=-1)) + 1, given, settings.threshold, settings.comparisons
    )
    leader = pc.index_in(led["leader"], facts["node"].combine_chunks())
    if leader.null_count:
        raise sorted_files.SortedFileError(
            f"a leader is not in {screened}; remove the stage's folder to compute it again"
        )
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
    sorted_files.write(decided_run(folder, partition), decided, "node")
    stays = representative == np.arange(len(facts))
    counts = (
        comparisons,
        left_out,
        int((stays & (cluster > 1)).sum()),
        int((~stays).sum()),
        int(cluster.max(initial=0)),
    )
    return dict(zip(_SETTLED, counts, strict=True))


def survivors_run(folder: str, shard: int) -> str:
    """What is known of a shard's survivors, for later crawls."""
    return files.join(folder, "survivors", f"shard-{shard:05d}.parquet")


def split_shard(
    folder: str, shard: int, place: Place, kept: str, decided: list[str], takedowns: Url, settings: MinHash
) -> dict:
    """Write the survivors of a shard with their `cluster_size`, and what is known of them; the ledger names the
    representative of each duplicate.

    Held: the selection, what is known of its documents, and ids and URLs where there are takedowns.
    """
    verdicts = sorted_files.read_all(decided, *shard_range(place.segment, shard))
    arriving = parquet.read_table(kept, SELECTION.names)
    dropped = verdicts.filter(pc.not_equal(verdicts["node"], verdicts["survivor"]))
    known = sorted_files.read(place.known, *sorted_files.EVERYTHING)
    left = known.filter(pc.invert(pc.is_in(known["node"], dropped["node"].combine_chunks())))
    sorted_files.write(survivors_run(folder, shard), left, "node")
    like = {
        "id": dropped["id"],
        "value": dropped["jaccard"],
        "threshold": pa.repeat(settings.threshold, len(dropped)),
        "detail": pc.binary_join_element_wise("cluster of", dropped["cluster_size"].cast(pa.string()), " "),
        "representative": dropped["representative"],
    }
    named = (
        gather((place.documents,), kept, ["url"]) if takedowns.takedowns else pa.table({"id": [], "url": []}, _NAMED)
    )
    named = named.append_column("detail", taken_down(named, takedowns))
    named = named.filter(pc.is_valid(named["detail"]))
    losses = pa.concat_tables(
        [_losses("takedown", {"id": named["id"], "detail": named["detail"]}), _losses("near_duplicate", like)]
    )
    at = pc.index_in(arriving["id"], verdicts["id"].combine_chunks())
    sizes = pc.fill_null(verdicts["cluster_size"].take(at), 1)
    return layout.write_selection(folder, shard, arriving.append_column("cluster_size", sizes), [("minhash", losses)])


def _losses(rule: str, columns: dict) -> pa.Table:
    rows = len(columns["id"])
    return ledger.from_columns({"step": pa.repeat("minhash", rows), "rule": pa.repeat(rule, rows), **columns})


def _ends(partition: int, settings: MinHash) -> list[int]:
    return sorted_files.bounds(settings.partitions)[partition : partition + 2]


def _check_ids(candidates: pa.Table) -> None:
    """Raise ValueError where two candidates of one crawl have the same id."""
    segment = pa.array(segment_of(candidates["node"].to_numpy()))
    named = candidates.append_column("segment", segment).group_by(["segment", "id"]).aggregate([([], "count_all")])
    twice = named.filter(pc.greater(named["count_all"], 1))["id"]
    if len(twice):
        raise ValueError(
            f"two documents of one crawl have the id {pc.min(twice).as_py()!r}: name their sources otherwise, or the "
            "column that tells their rows apart (`id_column`)"
        )


def _most(values: pa.ChunkedArray) -> int:
    """How often the value occurs that occurs most."""
    return pc.max(pc.value_counts(values).field("counts")).as_py() or 0


def _sets(texts: list[str], low: int, high: int, sets: pa.Table, settings: MinHash) -> tuple[np.ndarray, np.ndarray]:
    """The sets of those of `sets` that are `compared`, one after the other, and the n+1 offsets of all: made again from
    the texts. A set that is not compared has no values.

    Raises SortedFileError where a text is missing or is not that which was signed.
    """
    compared = sets["compared"].to_numpy()
    size, content, node = (sets[name].to_numpy() for name in ("size", "content", "node"))
    offsets = np.append(0, np.cumsum(np.where(compared, size, 0)))
    values = _room(int(offsets[-1]), settings.memory)
    by_node = np.argsort(node)
    missing = compared.copy()
    for path in texts:
        given = sorted_files.read(path, low, high, ["node", "text"])
        nodes = given["node"].to_numpy()
        numbers = by_node[np.searchsorted(node, nodes, sorter=by_node).clip(max=len(node) - 1)]
        found, ends = shingle_sets(given["text"], settings)
        unlike = (np.diff(ends) != size[numbers]) | (set_hashes(found, ends) != content[numbers])
        if (unlike | (node[numbers] != nodes)).any():
            raise sorted_files.SortedFileError(
                f"{path} has other texts than were signed; remove the stages with signatures and texts"
            )
        for number, begin, end in zip(numbers.tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            values[offsets[number] : offsets[number + 1]] = found[begin:end]
        missing[numbers] = False
    if missing.any():
        raise sorted_files.SortedFileError(
            f"no text of the document {sets['id'][int(missing.argmax())]} in {', '.join(texts)}"
        )
    return values, offsets


def _room(shingles: int, memory: int) -> np.ndarray:
    """An array of so many shingles: in memory, or, where that is not allowed, in a file that goes with it."""
    if shingles * 8 <= memory:
        return np.empty(shingles, np.uint64)
    with tempfile.TemporaryFile() as f:
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, not a signal later
            os.posix_fallocate(f.fileno(), 0, shingles * 8)
        return np.asarray(np.memmap(f, np.uint64, "w+", shape=shingles))
