"""Unique text lost by a step of deduplication, estimated, as phases; docs/explanation/deduplication.md defines it.

    measure    every shard   characters of the documents that were dropped as duplicates
    draw       every shard   drawn/     sentences that drawn characters are in, and those of documents to show
    together   once          drawn.parquet, so that a job reads one file of them
    seek       every shard   found/     which of these some kept documents hold
    estimate   once          shown.parquet

A character is drawn with the same probability wherever it is, and is in a lost sentence or not: so that `binomial`
holds without an assumption about how unlike documents are.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, parquet
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.duplicates import chains, mark_found
from gristmill.tasks.kernels.ngrams import word_hashes
from gristmill.tasks.kernels.scan import scan

# Of a document that is shown, the sentences that begin in this many of its first bytes.
SHOWN_BYTES = 20_000

DRAWN = pa.schema(
    [
        pa.field("id", pa.string(), metadata={"what": "of the dropped document"}),
        pa.field("representative", pa.string(), metadata={"what": "of the kept one, where the ledger names it"}),
        pa.field("sentence", pa.int64(), metadata={"what": "its number in the document"}),
        pa.field("text", pa.large_string()),
        pa.field("words", pa.large_binary(), metadata={"what": "hashes of its words, uint64, little-endian"}),
        pa.field("draws", pa.int64(), metadata={"what": "characters that were drawn of it"}),
        pa.field("shown", pa.bool_(), metadata={"what": "whether all sentences of the document are here"}),
    ]
)
SHOWN = pa.schema([*(DRAWN.field(name) for name in ("id", "representative", "sentence", "text"))]).append(
    pa.field("lost", pa.bool_())
)


def measure_shard(folder: str, shard: int, arriving: str, ledger: str) -> dict:
    """Count what reached the step, a selection, and what its ledger says was dropped as a duplicate."""
    sizes = parquet.read_table(arriving, ["id", "characters"])
    gone = sizes.filter(pc.is_in(sizes["id"], _duplicates(ledger)["id"].combine_chunks()))
    return {
        "arriving_characters": pc.sum(sizes["characters"]).as_py() or 0,
        "documents": len(gone),
        "characters": pc.sum(gone["characters"]).as_py() or 0,
    }


def draw_shard(
    folder: str, shard: int, documents: str, arriving: str, ledger: str, draws: int, shown: int, seed: int
) -> dict:
    """Draw characters of a shard's dropped documents, with replacement, and write the sentences that they are
    in; of the documents of the first `shown` draws all sentences.

    Held: the ids of the shard, the texts of the documents that are drawn.
    """
    duplicates = _duplicates(ledger)
    sizes = parquet.read_table(arriving, ["id", "characters"])
    sizes = sizes.filter(pc.is_in(sizes["id"], duplicates["id"].combine_chunks()))
    ends = np.cumsum(sizes["characters"].to_numpy())
    characters = np.random.default_rng([seed, shard]).integers(0, ends[-1], draws)
    row = np.searchsorted(ends, characters, side="right")
    place = characters - (ends - sizes["characters"].to_numpy())[row]
    rows, owner = np.unique(row, return_inverse=True)
    table = sizes.take(pa.array(rows))
    texts = _texts(documents, arriving, table["id"].combine_chunks())
    to = pc.index_in(table["id"], duplicates["id"].combine_chunks())
    representatives = duplicates["representative"].take(to).to_pylist()
    whole = set(owner[:shown].tolist())
    tables = [DRAWN.empty_table()]
    for number, (name, text) in enumerate(zip(table["id"].to_pylist(), texts, strict=True)):
        sentences = _sentences(text, place[owner == number], number in whole)
        owner_columns = {
            "id": pa.repeat(name, len(sentences)),
            "representative": [representatives[number]] * len(sentences),
        }
        tables.append(pa.table({**owner_columns, **{n: sentences[n] for n in sentences.column_names}}).cast(DRAWN))
    parquet.write_table(_draws_file(folder, shard), pa.concat_tables(tables))
    return {"draws": draws}


def put_together(folder: str, job: int) -> dict:
    """Write the sentences of all shards as one file. Holds them: of at most as many documents as were drawn."""
    there = files.join(folder, "drawn")
    tables = [parquet.read_table(files.join(there, name), DRAWN.names) for name in files.names(there)]
    parquet.write_table(files.join(folder, "drawn.parquet"), pa.concat_tables(tables))
    return {"sentences": sum(map(len, tables))}


def seek_shard(folder: str, job: int, documents: str, kept: str) -> dict:
    """Which different sentences of the draw are in the documents that the shard `kept` names.

    Held: the sentences of the draw, the texts of a row group and 8 bytes for each of its words.
    """
    values, bounds = _unlike(_all_drawn(folder))
    head, following = chains(values, bounds)
    is_found = np.zeros(len(bounds) - 1, np.bool_)
    for group in select_groups(documents, kept, ["text"]):
        words, ends = word_hashes(*utf8(group["text"]))
        mark_found(words, ends, values, bounds, head, following, is_found)
    parquet.write_table(_matches_file(folder, job), pa.table({"number": np.flatnonzero(is_found)}))
    return {"found": int(is_found.sum())}


def estimate(folder: str, job: int, sought: int) -> dict:
    """How many of the drawn characters are in sentences that none of the `sought` jobs has found, and which sentences
    of documents to show these are."""
    draws = _all_drawn(folder)
    coded = draws["words"].combine_chunks().dictionary_encode()
    is_present = np.zeros(len(coded.dictionary), np.bool_)
    for number in range(sought):
        is_present[parquet.read_table(_matches_file(folder, number), ["number"])["number"].to_numpy()] = True
    worded = pc.greater(pc.binary_length(draws["words"]), 0).to_numpy()
    lost = worded & ~is_present[coded.indices.to_numpy()]
    examples = draws.append_column("lost", pa.array(lost)).filter(draws["shown"]).select(SHOWN.names)
    parquet.write_table(shown_file(folder), examples.sort_by([("id", "ascending"), ("sentence", "ascending")]))
    return {"lost": int(draws["draws"].to_numpy()[lost].sum())}


def shown_file(folder: str) -> str:
    return files.join(folder, "shown.parquet")


def drawn_shards(characters: np.ndarray, draws: int, shown: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """For each shard, by its dropped characters: the draws, and how many of the first `shown` these are; int64."""
    shard = np.random.default_rng(seed).choice(len(characters), draws, p=characters / characters.sum())
    return np.bincount(shard, minlength=len(characters)), np.bincount(shard[:shown], minlength=len(characters))


def _duplicates(ledger: str) -> pa.Table:
    rows = parquet.read_table(ledger, ["id", "rule", "representative"])
    return rows.filter(pc.not_equal(rows["rule"], "takedown"))


def _texts(documents: str, arriving: str, ids: pa.Array) -> list[str]:
    """The texts of documents, in the order of their ids."""
    groups = [group.filter(pc.is_in(group["id"], ids)) for group in select_groups(documents, arriving, ["text"])]
    table = pa.concat_tables(groups)
    return table["text"].take(pc.index_in(ids, table["id"].combine_chunks())).to_pylist()


def _sentences(text: str, places: np.ndarray, whole: bool) -> pa.Table:
    """The sentences of a text that characters, by their places, are in; or all that are to be shown."""
    scanned = scan(pa.array([text], pa.large_string()))
    start, stop = scanned.spans("sentences")
    data = text.encode()
    offsets = [len(text[:place].encode()) for place in places.tolist()]
    # white space counts with the sentence before it, at the beginning with the first
    hit = np.maximum(np.searchsorted(start, offsets, side="right") - 1, 0) if len(start) else np.empty(0, np.int64)
    draws = np.bincount(hit, minlength=len(start))
    selection = np.flatnonzero((draws > 0) | (whole & (start < SHOWN_BYTES)))
    spans = zip(start[selection].tolist(), stop[selection].tolist(), strict=True)
    texts = pa.array([data[low:high].decode() for low, high in spans], pa.large_string())
    words, ends = word_hashes(*utf8(texts))
    buffers = [None, pa.py_buffer(8 * ends), pa.py_buffer(words.astype("<u8", copy=False))]
    packed = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(texts), buffers)
    columns = {"sentence": selection, "text": texts, "words": packed, "draws": draws[selection]}
    return pa.table({**columns, "shown": np.full(len(selection), whole)})


def _unlike(draws: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The words of all unlike sentences, uint64, and their n+1 bounds."""
    unlike = draws["words"].combine_chunks().dictionary_encode().dictionary
    sizes = pc.binary_length(unlike).to_numpy() // 8
    return np.frombuffer(b"".join(unlike.to_pylist()), "<u8"), np.append(0, np.cumsum(sizes))


def _all_drawn(folder: str) -> pa.Table:
    return parquet.read_table(files.join(folder, "drawn.parquet"), DRAWN.names)


def _draws_file(folder: str, shard: int) -> str:
    return files.join(folder, "drawn", f"{shard:05d}.parquet")


def _matches_file(folder: str, job: int) -> str:
    return files.join(folder, "found", f"{job:05d}.parquet")
