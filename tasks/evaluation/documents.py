"""The evaluation documents of a comparison: of each source those with the smallest keyed hash of their id.

    evaluation.parquet   EVALUATION, by set and then by id

A document counts if the part of its text that is evaluated has a word. Of those with the same such part, one is taken:
copies would count as so many independent documents, and make a difference look surer than it is.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from storage import files, parquet
from storage.schema import DOCUMENTS
from tasks.documents.rows import read_rows
from tasks.documents.sampling import uniform

EVALUATION = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("set", pa.string(), nullable=False, metadata={"what": "the source, or `clean`"}),
        pa.field("bytes", pa.int64(), nullable=False, metadata={"what": "of `text`, in UTF-8"}),
        pa.field("text", pa.large_string(), nullable=False, metadata={"what": "what is evaluated"}),
        pa.field("whole", pa.large_string(), nullable=False, metadata={"what": "the text before it was cut"}),
        pa.field("record", pa.string(), nullable=False, metadata={"what": "where it was read, see `records`"}),
    ]
)
# Columns that say where a document was read: its id holds them too, but with the name that a recipe gives its source.
PLACE = ["file", "offset", "record_id"]
_SAMPLED = pa.schema(
    [
        DOCUMENTS.field("id"),
        pa.field("rank", pa.float64()),
        DOCUMENTS.field("text"),
        EVALUATION.field("record"),
        pa.field("content", pa.string(), metadata={"what": "xxh3-128 of what would be evaluated"}),
    ]
)
_WORD = r"[\p{L}\p{N}]"


def evaluation_file(folder: str) -> str:
    return files.join(folder, "evaluation.parquet")


def sampled_folder(folder: str) -> str:
    return files.join(folder, "sampled")


def sampled_file(folder: str, shard: int) -> str:
    return files.join(sampled_folder(folder), f"{shard:05d}.parquet")


def sample_shard(folder: str, shard: int, documents: str, most: int, characters: int, seed: int) -> dict:
    """Write the `most` documents of a shard, each with another text, that have the smallest keyed hash, in that order,
    and count all with a word.

    `characters`: code points of a text that are evaluated. Holds the texts of a row group and those that are written.
    """
    found = _SAMPLED.empty_table()
    counted = 0
    for group in parquet.groups(documents, ["id", "text", *PLACE]):
        cut = _cut(group["text"], characters)
        has_word = pc.match_substring_regex(cut, _WORD)
        worded, cut = group.filter(has_word), cut.filter(has_word)
        counted += len(worded)
        rank = pa.array(uniform(worded["id"], seed, "evaluation"))
        content = pa.array([xxhash.xxh3_128_hexdigest(text.encode()) for text in cut.to_pylist()], pa.string())
        ranked = pa.table([worded["id"], rank, worded["text"], records(worded), content], schema=_SAMPLED)
        found = pa.concat_tables([found, ranked])
        found = found.take(_first_of_each(found)[:most])
    parquet.write_table(sampled_file(folder, shard), found)
    return {"documents": counted}


def choose_documents(folder: str, number: int, sets: dict[str, tuple[int, tuple[str, ...]]], characters: int) -> dict:
    """Write the evaluation documents. `sets`: for each how many are taken at most, and the samples of its shards.

    Holds the ids of all samples of a set, and the texts that are taken. The record counts documents and bytes by set.
    """
    chosen = [EVALUATION.empty_table()]
    for name, (count, samples) in sorted(sets.items()):
        chosen.append(_chosen(name, count, samples, characters))
    table = pa.concat_tables(chosen)
    parquet.write_table(evaluation_file(folder), table)
    parts = zip(sorted(sets), chosen[1:], strict=True)
    return {name: {"documents": len(part), "bytes": pc.sum(part["bytes"]).as_py()} for name, part in parts}


def _chosen(name: str, count: int, samples: tuple[str, ...], characters: int) -> pa.Table:
    ranks = [parquet.read_table(path, ["id", "rank", "content"]) for path in samples]
    shard = np.repeat(np.arange(len(ranks)), [len(part) for part in ranks])
    row = np.concatenate([np.arange(len(part)) for part in ranks])
    taken = _first_of_each(pa.concat_tables(ranks))[:count]
    parts = [
        read_rows(samples[number], np.sort(row[taken[shard[taken] == number]]), ["id", "text", "record"])
        for number in np.unique(shard[taken]).tolist()
    ]
    table = pa.concat_tables(parts).sort_by("id")
    text = _cut(table["text"], characters)
    columns = {"id": table["id"], "set": pa.repeat(name, len(table)), "bytes": pc.binary_length(text).cast(pa.int64())}
    columns |= {"text": text, "whole": table["text"], "record": table["record"]}
    return pa.table(columns).cast(EVALUATION)


def records(documents: pa.Table) -> pa.ChunkedArray:
    """Where each document was read, from the columns PLACE: the same for every recipe that reads its file."""
    place = [pc.coalesce(documents[name].cast(pa.string()), "") for name in PLACE]
    return pc.binary_join_element_wise(*place, "\n")


def _first_of_each(sampled: pa.Table) -> np.ndarray:
    """The rows by rank and id, of each content the first alone."""
    order = pc.sort_indices(sampled, sort_keys=[("rank", "ascending"), ("id", "ascending")]).to_numpy()
    _, first = np.unique(sampled["content"].take(order).to_numpy().astype(str), return_index=True)
    return order[np.sort(first)]


def _cut(texts: pa.ChunkedArray, characters: int) -> pa.ChunkedArray:
    return pc.utf8_slice_codeunits(texts, 0, characters)
