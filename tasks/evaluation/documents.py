"""Documents that models are evaluated on: of each source the first of as many hosts as there are, by keyed hashes.

    evaluation.parquet   EVALUATION, by set and then by id

Neither the recipe's steps nor its tokenizer decide which these are, nor which part of a text is evaluated.

Documents of one site are alike, so that a set of few sites says little of others. Each document has a number within its
host, by the keyed hashes of ids. Taken are first the documents with the number 0, by their hashes, then those with the
number 1, and so on: a set of n documents is of n hosts where there are so many. The order is that of all shards
together. A shard needs to hold no more of its documents than a set takes: in it no document comes later than in all
(where none has the text of another shard's).

A document counts if the part of its text that is evaluated has a word. Of those whose such parts are alike, the first
is taken: copies would count as so many independent documents, and make a difference look surer than it is.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from gristmill.storage import files, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.schema import DOCUMENTS
from gristmill.storage.token_shards import bin_path, write_tokens
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.dedup.takedowns import allowed
from gristmill.tasks.documents.selection import Heldout, read_rows, uniform
from gristmill.tasks.evaluation.similar import index_of, overlaps
from gristmill.tasks.tokens.encoding import encoder
from gristmill.tasks.url.canonical import host_columns, hosts
from gristmill.tasks.url.step import Url


def encode_set(folder: str, number: int, evaluation: str, name: str, tokenizer: RecordedFile) -> dict:
    """Encode the evaluation documents of a set, in their order. Holds their texts and tokens."""
    documents = parquet.read_table(evaluation, ["id", "set", "text"])
    documents = documents.filter(pc.equal(documents["set"], name))
    texts = documents["text"].to_pylist()
    encode = encoder(tokenizer, texts)
    encoded = [encode.document(text) for text in texts]
    result = write_tokens(bin_path(folder, "heldout", number), documents["id"].to_pylist(), encoded, encode.dtype)
    return {"set": name, "heldout": {"tokens": result.tokens, "documents": result.documents}}


EVALUATION = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("set", pa.string(), nullable=False, metadata={"what": "of the documents that are judged together"}),
        pa.field("bytes", pa.int64(), nullable=False, metadata={"what": "of `text`, in UTF-8"}),
        pa.field("text", pa.large_string(), nullable=False, metadata={"what": "what is evaluated"}),
        pa.field("whole", pa.large_string(), nullable=False, metadata={"what": "the text before it was cut"}),
        pa.field("record", pa.string(), nullable=False, metadata={"what": "where it was read, see `records`"}),
        pa.field("host", pa.string(), nullable=False, metadata={"what": "see `gristmill.tasks.url.canonical`"}),
    ]
)
# Columns that say where a document was read: its id holds them too, but with the name that a recipe gives its source.
PLACE = ["file", "offset", "record_id"]
_SAMPLED = pa.schema(
    [
        DOCUMENTS.field("id"),
        pa.field("rank", pa.float64(), metadata={"what": "keyed hash of the id, in [0, 1)"}),
        DOCUMENTS.field("text"),
        EVALUATION.field("record"),
        EVALUATION.field("host"),
        pa.field("content", pa.string(), metadata={"what": "xxh3-128 of what would be evaluated"}),
        pa.field("kept", pa.bool_(), metadata={"what": "whether the recipe keeps it"}),
    ]
)
_WORD = r"[\p{L}\p{N}]"


def evaluation_file(folder: str) -> str:
    return files.join(folder, "evaluation.parquet")


def sampled_folder(folder: str) -> str:
    return files.join(folder, "sampled")


def _sampled_file(folder: str, shard: int) -> str:
    return files.join(sampled_folder(folder), f"{shard:05d}.parquet")


def _sampled_shard(path: str) -> int:
    return int(path.rpartition("/")[2].partition(".")[0])


def sample_shard(
    folder: str,
    shard: int,
    documents: str,
    most: int,
    characters: int,
    seed: int,
    heldout: Heldout | None = None,
    takedowns: Url | None = None,
    kept: str = "",
    apart: bool = False,
    below: float = 1.0,
) -> dict:
    """Write the first `most` documents of a shard, each with another text, in the order of the module's docstring, and
    count all with a word; no file if none is written.

    `below`: documents are looked at whose keyed hash is below this, so of a large source a sample, and the hosts that
    are in it; `characters`: code points of a text that are evaluated; `heldout`: only these documents;
    `takedowns`: lists of documents that are not candidates; `kept`: a part with the documents that the recipe keeps;
    `apart`: these are not documents of a recipe's sources, whatever their files are called. Holds the texts of a row
    group and those that are written, and the ids of that part.
    """
    sample = _SAMPLED.empty_table()
    n_documents = 0
    survivors = pa.array([], pa.string()) if not kept else parquet.read_table(kept, ["id"])["id"].combine_chunks()
    columns = dict.fromkeys(["id", "source", "text", "url", *PLACE, *host_columns(documents)])
    for group in parquet.groups(documents, [*columns]):
        if heldout is not None:
            group = heldout.chosen(group)
        if takedowns is not None:
            group = allowed(group, takedowns)
        cut = evaluated_part(group["text"], characters)
        has_word = pc.match_substring_regex(cut, _WORD)
        worded, cut = group.filter(has_word), cut.filter(has_word)
        n_documents += len(worded)
        rank = pa.array(uniform(worded["id"], seed, "evaluation"))
        low = pc.less(rank, below)
        worded, cut, rank = worded.filter(low), cut.filter(low), rank.filter(low)
        content = pa.array([xxhash.xxh3_128_hexdigest(text.encode()) for text in cut.to_pylist()], pa.string())
        survives = pc.is_in(worded["id"], survivors)
        place = pa.repeat("", len(worded)) if apart else records(worded)
        sampled = [worded["id"], rank, worded["text"], place, hosts(worded), content, survives]
        sample = pa.concat_tables([sample, pa.table(sampled, schema=_SAMPLED)])
        sample = sample.take(_by_host(sample)[:most])
    if len(sample):
        parquet.write_table(_sampled_file(folder, shard), sample)
    return {"documents": n_documents, "sampled": len(sample)}


def choose_documents(
    folder: str,
    number: int,
    sets: dict[str, tuple[int, tuple[int, int]]],
    characters: int,
    shingling: Shingling,
    threshold: float,
    least: int,
    most_bytes: int | None = None,
    survivors: dict[str, str] | None = None,
) -> dict:
    """Write the evaluation documents. `sets`: for each how many are taken at most, and its first shard and the one
    after its last.

    No two of a set have a Jaccard similarity of `threshold`. A set of fewer than `least` is left out. `most_bytes`: of
    the texts of a set, which has one document at least; `survivors`: by set the name of another one, of those of its
    documents that the recipe keeps, if there are any. Holds the ids of all samples of a set, the texts that are taken
    and as many others. The record has documents, bytes and digest by set: the digest is that of ids and texts.
    """
    parts: dict[str, pa.Table] = {}
    survivors = survivors or {}
    sampled = parquet.paths_in(sampled_folder(folder))
    for name, (count, (first, stop)) in sets.items():
        samples = [path for path in sampled if first <= _sampled_shard(path) < stop]
        selection = _choose(count, samples, characters, shingling, threshold, most_bytes)
        parts[name] = _evaluated(selection, name, characters)
        if name in survivors:
            parts[survivors[name]] = _evaluated(selection.filter(selection["kept"]), survivors[name], characters)
    parts = {name: part for name, part in sorted(parts.items()) if len(part) >= least}
    parquet.write_table(evaluation_file(folder), pa.concat_tables([EVALUATION.empty_table(), *parts.values()]))
    return {
        name: {"documents": len(part), "bytes": pc.sum(part["bytes"]).as_py(), "digest": _digest(part)}
        for name, part in parts.items()
    }


def _digest(part: pa.Table) -> str:
    """xxh3-128 of the ids and texts of a set."""
    digest = xxhash.xxh3_128()
    for document, text in zip(part["id"].to_pylist(), part["text"].to_pylist(), strict=True):
        digest.update(f"{document} {xxhash.xxh3_128_hexdigest(text.encode())}\n".encode())
    return digest.hexdigest()


def _evaluated(sampled: pa.Table, name: str, characters: int) -> pa.Table:
    """Documents as documents of a set, by id."""
    table = sampled.sort_by("id")
    text = evaluated_part(table["text"], characters)
    columns = {"id": table["id"], "set": pa.repeat(name, len(table)), "bytes": pc.binary_length(text).cast(pa.int64())}
    columns |= {"text": text, "whole": table["text"], "record": table["record"], "host": table["host"]}
    return pa.table(columns).cast(EVALUATION)


def _choose(
    count: int,
    samples: list[str],
    characters: int,
    shingling: Shingling,
    threshold: float,
    most_bytes: int | None,
) -> pa.Table:
    """Up to `count` documents of the samples, unlike each other, in the order of `_by_host`."""
    table = _SAMPLED.empty_table()
    if not samples:
        return table
    ranks = parquet.read_tables(samples, ["id", "rank", "host", "content"])
    shard = np.repeat(np.arange(len(ranks)), [len(part) for part in ranks])
    row = np.concatenate([np.arange(len(part)) for part in ranks])
    order = _by_host(pa.concat_tables(ranks))
    for start in range(0, len(order), count):
        rows = order[start : start + count]
        arriving = _read(samples, shard[rows], row[rows])
        texts = pa.concat_tables([table.select(["text"]), arriving.select(["text"])])["text"]
        fresh = _unlike(evaluated_part(texts, characters), len(table), shingling, threshold)
        table = pa.concat_tables([table, arriving.take(fresh)]).slice(0, count)
        sizes = np.cumsum(pc.binary_length(evaluated_part(table["text"], characters)).to_numpy())
        if most_bytes is not None and len(table) and sizes[-1] > most_bytes:
            return table.slice(0, max(1, int(np.searchsorted(sizes, most_bytes, side="right"))))
        if len(table) == count:
            break
    return table


def _read(samples: list[str], shard: np.ndarray, row: np.ndarray) -> pa.Table:
    """Rows of the samples' shards, in the order in which they are asked for."""
    parts = []
    for number in np.unique(shard).tolist():
        parts.append(read_rows(samples[number], np.sort(row[shard == number]), _SAMPLED.names))
    order = np.lexsort((row, shard))  # the order of the parts
    return pa.concat_tables(parts).take(np.argsort(order)).cast(_SAMPLED)


def _unlike(texts: pa.ChunkedArray, before: int, shingling: Shingling, threshold: float) -> list[int]:
    """Of the texts from the `before`-th on, counted from there, those that are like none of those that were taken: the
    first `before`, and of the others those in front that are taken themselves."""
    pairs = overlaps(index_of(texts, shingling), texts.slice(before), threshold)
    alike: dict[int, set[int]] = {}
    near = pairs.jaccard >= threshold
    for text, other in zip(pairs.text[near].tolist(), pairs.reference[near].tolist(), strict=True):
        alike.setdefault(text, set()).add(other)
    selection = set(range(before))
    for text in range(len(texts) - before):
        if not alike.get(text, set()) & selection:
            selection.add(before + text)
    return [index - before for index in sorted(selection) if index >= before]


def records(documents: pa.Table) -> pa.ChunkedArray:
    """Where each document was read, from the columns PLACE: the same for every recipe that reads its file."""
    place = [pc.coalesce(documents[name].cast(pa.string()), "") for name in PLACE]
    return pc.binary_join_element_wise(*place, "\n")


def _by_host(sampled: pa.Table) -> np.ndarray:
    """The rows, of each content only the first: by their number within their host, then by rank and id."""
    order = pc.sort_indices(sampled, sort_keys=[("rank", "ascending"), ("id", "ascending")]).to_numpy()
    _, first = np.unique(sampled["content"].take(order).to_numpy().astype(str), return_index=True)
    order = order[np.sort(first)]
    of_hosts = pa.table({"host": sampled["host"].take(order), "place": np.arange(len(order))})
    by_host = pc.sort_indices(of_hosts, sort_keys=[("host", "ascending"), ("place", "ascending")]).to_numpy()
    names = of_hosts["host"].take(by_host).to_numpy().astype(str)
    begins = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]])) if len(names) else np.empty(0, int)
    number = np.empty(len(order), np.int64)
    number[by_host] = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    return order[np.argsort(number, kind="stable")]


def evaluated_part(texts: pa.ChunkedArray, characters: int) -> pa.ChunkedArray:
    """The first code points of each text."""
    return pc.utf8_slice_codeunits(texts, 0, characters)
