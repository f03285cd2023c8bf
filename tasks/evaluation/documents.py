"""The evaluation documents of a comparison: of each source those with the smallest keyed hash of their id.

    evaluation.parquet   EVALUATION, by set and then by id

A document counts if the part of its text that is evaluated has a word.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    ]
)
_SAMPLED = pa.schema([DOCUMENTS.field("id"), pa.field("rank", pa.float64()), DOCUMENTS.field("text")])
_WORD = r"[\p{L}\p{N}]"


def evaluation_file(folder: str) -> str:
    return files.join(folder, "evaluation.parquet")


def sampled_folder(folder: str) -> str:
    return files.join(folder, "sampled")


def sampled_file(folder: str, shard: int) -> str:
    return files.join(sampled_folder(folder), f"{shard:05d}.parquet")


def sample_shard(folder: str, shard: int, documents: str, most: int, characters: int, seed: int) -> dict:
    """Write the `most` documents of a shard with the smallest keyed hash, in that order, and count all with a word.

    `characters`: code points of a text that are evaluated. Holds the texts of a row group and those that are written.
    """
    found = _SAMPLED.empty_table()
    counted = 0
    for group in parquet.groups(documents, ["id", "text"]):
        worded = group.filter(pc.match_substring_regex(_cut(group["text"], characters), _WORD))
        counted += len(worded)
        ranked = worded.add_column(1, _SAMPLED.field("rank"), pa.array(uniform(worded["id"], seed, "evaluation")))
        found = pa.concat_tables([found, ranked.cast(_SAMPLED)])
        found = found.sort_by([("rank", "ascending"), ("id", "ascending")])[:most]
    parquet.write_table(sampled_file(folder, shard), found)
    return {"documents": counted}


def choose_documents(folder: str, number: int, sets: dict[str, tuple[int, tuple[str, ...]]], characters: int) -> dict:
    """Write the evaluation documents. `sets`: for each how many are taken, and the samples of its shards.

    Holds the ids of all samples of a set, and the texts that are taken. The record counts documents and bytes by set.
    """
    chosen = [EVALUATION.empty_table()]
    for name, (count, samples) in sorted(sets.items()):
        chosen.append(_chosen(name, count, samples, characters))
    table = pa.concat_tables(chosen)
    parquet.write_table(evaluation_file(folder), table)
    sizes = {name: pc.sum(part["bytes"]).as_py() for name, part in zip(sorted(sets), chosen[1:], strict=True)}
    return {name: {"documents": sets[name][0], "bytes": sizes[name]} for name in sorted(sets)}


def _chosen(name: str, count: int, samples: tuple[str, ...], characters: int) -> pa.Table:
    ranks = [parquet.read_table(path, ["id", "rank"]) for path in samples]
    shard = np.repeat(np.arange(len(ranks)), [len(part) for part in ranks])
    row = np.concatenate([np.arange(len(part)) for part in ranks])
    order = pc.sort_indices(pa.concat_tables(ranks), sort_keys=[("rank", "ascending"), ("id", "ascending")])
    taken = order.to_numpy()[:count]
    parts = [
        read_rows(samples[number], np.sort(row[taken[shard[taken] == number]]), ["id", "text"])
        for number in np.unique(shard[taken]).tolist()
    ]
    table = pa.concat_tables(parts).sort_by("id")
    text = _cut(table["text"], characters)
    columns = {"id": table["id"], "set": pa.repeat(name, len(table)), "bytes": pc.binary_length(text).cast(pa.int64())}
    return pa.table(columns | {"text": text, "whole": table["text"]}).cast(EVALUATION)


def _cut(texts: pa.ChunkedArray, characters: int) -> pa.ChunkedArray:
    return pc.utf8_slice_codeunits(texts, 0, characters)
