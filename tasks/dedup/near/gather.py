"""Fourth phase: the candidates of a shard, with their bands and sets of shingles, in the order of their labels.

    gathered/00000.parquet   by `group`, a hash of the label: doc, id, size, content, order_0, ..., bands, set

Candidates of one label come into one partition of the hashes, whichever shard they are of. Files are numbered through
the shards, of earlier crawls those that have candidates. A set is empty where another
candidate of the shard has the same. With `verify: containment` it is the words in order, see `word_sequences`.
"""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, parquet, sorted_files
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exchange import KeyRanges, SortedFiles
from gristmill.tasks.dedup.near.documents import EarlierShard, OwnShard, document_ids, hash_ids, row_of, shard_range
from gristmill.tasks.dedup.near.settings import Banding, Shingling
from gristmill.tasks.dedup.near.sign import band_hashes, packed, shingle_sets, unpacked
from gristmill.tasks.dedup.order import KeepOrder, columns, keyed, order_names
from gristmill.tasks.dedup.takedowns import taken_down
from gristmill.tasks.documents.selection import gather, read_groups, read_rows
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.duplicates import CHARACTERS, sequence_hashes
from gristmill.tasks.kernels.ngrams import word_hashes
from gristmill.tasks.kernels.shingles import STEP, set_hashes
from gristmill.tasks.url.step import Url


def with_words(candidates: pa.Table, shard: EarlierShard | OwnShard, shingling: Shingling) -> pa.Table:
    """The candidates with `set`, the hashes of their words in order, uint64, little-endian, as one binary; `key`, a
    hash of an under-tokenized text, else 0; `size`, their words; `content`, a hash of words and key.

    Held: the words of all, 8 bytes each; the texts of a row group. Raises RuntimeError where a text is not that which
    was signed.
    """
    positions = candidates["at"].to_numpy()
    by_place = np.argsort(positions)
    signed = candidates.select(["size", "content"]).take(pa.array(by_place))
    parts, done = [], 0
    for some in read_groups(shard.documents, positions[by_place], ["text"]):
        here = signed.slice(done, len(some))
        shingles, bounds = shingle_sets(some["text"], shingling)
        same = (np.diff(bounds) == here["size"].to_numpy()).all()
        if not (same and (set_hashes(shingles, bounds) == here["content"].to_numpy()).all()):
            raise RuntimeError(
                f"{shard.documents} has other texts than were signed; remove the stages with documents and signatures"
            )
        parts.append(_word_sets(some["text"]))
        done += len(some)
    empty = pa.table({"set": pa.array([], pa.large_binary()), **{n: np.empty(0, t) for n, t in _FACTS.items()}})
    rows = pa.concat_tables([empty, *parts]).take(pa.array(np.argsort(by_place)))
    return pa.table(
        {
            **{name: candidates[name] for name in candidates.column_names},
            **dict(zip(rows.column_names, rows.columns, strict=True)),
        }
    )


_FACTS = {"key": np.uint64, "size": np.int64, "content": np.uint64}


def _word_sets(texts: pa.ChunkedArray) -> pa.Table:
    words, ends = word_hashes(*utf8(texts))
    sizes = np.diff(ends)
    keys = np.zeros(len(texts), np.uint64)
    for row in np.flatnonzero(pc.utf8_length(texts).to_numpy() > CHARACTERS * sizes):
        keys[row] = _key(texts[int(row)].as_py())
    buffers = [None, pa.py_buffer(8 * ends), pa.py_buffer(words.astype("<u8", copy=False))]
    column = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(texts), buffers)
    return pa.table({"set": column, "key": keys, "size": sizes, "content": sequence_hashes(words, ends, keys)})


def _key(text: str) -> int:
    """A hash, not 0, of a text without regard to case and white space."""
    plain = " ".join(text.casefold().split())
    return int.from_bytes(hashlib.blake2b(plain.encode(), digest_size=8).digest(), "little") or 1


def gathered_files(folder: str, jobs: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "gathered"), jobs)


def gather_shard(
    folder: str,
    number: int,
    shard: EarlierShard | OwnShard,
    labels: str,
    ranges: KeyRanges | None,
    takedowns: Url,
    shingling: Shingling,
    banding: Banding,
    order: KeepOrder,
    in_order: bool,
    apart: bool = False,
) -> dict:
    """Write what is known of a shard's candidates that are not taken down. `labels`: the file that has theirs;
    `ranges`: see `exchange.write`; `in_order`: their words in order, instead of their sets of shingles; `apart`:
    whether they are compared only with documents of their source, so bands and contents of other sources are different.

    Held: 200 bytes for each document that is known, 300 and 8 a band for each candidate, their sets, 8 bytes a
    shingle; the texts and signatures of a row group. Raises RuntimeError where a text is not that which was signed.
    """
    candidates = _drop_taken_down(labelled(shard, labels, order), shard, takedowns)

    rows = row_of(candidates["doc"].to_numpy())
    hashes = [band_hashes(some["signature"], banding) for some in read_groups(shard.signatures, rows, ["signature"])]
    candidates = candidates.append_column("bands", packed(np.concatenate(hashes)))
    candidates = sorted_files.sorted_by(candidates, "group")
    if in_order:
        gathered = with_words(candidates, shard, shingling)
    else:
        gathered = candidates.append_column("set", _sets(candidates, shard, shingling))
    gathered = gathered.drop_columns(["at"])
    if apart:
        gathered = _of_source(gathered, shard)
    exchange.write(gathered_files(folder, number + 1).path(number), gathered, "group", ranges)
    return {"candidates": len(candidates)}


def _of_source(gathered: pa.Table, shard: EarlierShard | OwnShard) -> pa.Table:
    """The candidates with bands and contents that no candidate of another source has."""
    assert isinstance(shard, OwnShard), "documents of earlier crawls are compared with those of all sources"
    [salt] = hash_ids(np.array([shard.source + 1], np.int64))
    columns = {
        "content": pa.array(gathered["content"].to_numpy() ^ salt),
        "bands": packed(unpacked(gathered["bands"], "<u8") ^ salt),
    }
    for name, column in columns.items():
        gathered = gathered.set_column(gathered.column_names.index(name), name, column)
    return gathered


def labelled(shard: EarlierShard | OwnShard, labels: str, order: KeepOrder) -> pa.Table:
    """`known_documents` of a shard that have a label, with its hash, `group`. `labels`: the file that has theirs."""
    label = sorted_files.read(labels, *shard_range(shard.crawl, shard.shard))
    facts = known_documents(shard, order)
    indices = pc.index_in(label["doc"], facts["doc"].combine_chunks())
    groups = hash_ids(label["label"].filter(pc.is_valid(indices)).to_numpy())
    return facts.take(indices.drop_null()).append_column("group", pa.array(groups))


def known_documents(shard: EarlierShard | OwnShard, order: KeepOrder) -> pa.Table:
    """What is known of each document of a shard that has a word: `doc`, `id`, `at`, `size` and `content` as in
    `SIGNED`, and what `keyed` adds; of an earlier crawl only the kept documents."""
    if isinstance(shard, EarlierShard):
        return sorted_files.read(shard.kept, *sorted_files.EVERYTHING)
    facts = parquet.read_table(shard.signatures, ["id", "at", "size", "content"])
    facts = facts.append_column("doc", pa.array(document_ids(shard.crawl, shard.shard, np.arange(len(facts)))))
    facts = facts.filter(pc.greater(facts["size"], 0))
    parts = (*shard.signals, shard.documents, shard.selection)
    arriving = gather(parts, shard.selection, columns(order))
    indices = pc.index_in(facts["id"], arriving["id"].combine_chunks())
    if indices.null_count:
        raise LookupError(f"{shard.signatures} has {indices.null_count} documents that {shard.selection} does not name")
    ordered = keyed(arriving.take(indices), shard.source, order)
    for name in order_names(order):
        facts = facts.append_column(name, ordered[name])
    return facts


def _drop_taken_down(candidates: pa.Table, shard: EarlierShard | OwnShard, takedowns: Url) -> pa.Table:
    """The candidates that are not taken down."""
    if not takedowns.takedowns:
        return candidates
    documents = read_rows(shard.documents, candidates["at"].to_numpy(), ["id", "url"])
    if not documents["id"].equals(candidates["id"]):
        raise LookupError(f"{shard.documents} does not hold, row by row, the documents of {shard.signatures}")
    return candidates.filter(pc.is_null(taken_down(documents, takedowns)))


def _sets(candidates: pa.Table, shard: EarlierShard | OwnShard, shingling: Shingling) -> pa.Array:
    """The set of each candidate, made again from its text: sorted uint64 values, little-endian, as one binary; an empty
    one where a candidate before it has the same."""
    first, _ = distinct(candidates)
    sizes = np.zeros(len(candidates), np.int64)
    sizes[first] = candidates["size"].to_numpy()[first]
    offsets = np.append(0, np.cumsum(sizes))
    values = np.empty(offsets[-1], "<u8")
    positions = candidates["at"].to_numpy()
    unlike = first[np.argsort(positions[first])]
    contents = candidates["content"].to_numpy()
    offset = 0
    for some in read_groups(shard.documents, positions[unlike], ["text"]):
        hashes, ends = shingle_sets(some["text"], shingling)
        here = unlike[offset : offset + len(some)]
        if (np.diff(ends) != sizes[here]).any() or (set_hashes(hashes, ends) != contents[here]).any():
            raise RuntimeError(
                f"{shard.documents} has other texts than were signed; remove the stages with documents and signatures"
            )
        for begin, low, high in zip(offsets[here].tolist(), ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            values[begin : begin + high - low] = hashes[low:high]
        offset += len(some)
    buffers = [None, pa.py_buffer(8 * offsets), pa.py_buffer(values)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(candidates), buffers)


def distinct(candidates: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each set of shingles, ascending, and for each row the number of its set in these."""
    # as one number; unlike sets share it as seldom as the hash
    keys = candidates["content"].to_numpy() + candidates["size"].to_numpy().view(np.uint64) * STEP
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    by_row = np.argsort(first)
    position = np.empty(len(first), np.int64)
    position[by_row] = np.arange(len(first))
    return first[by_row], position[numbers]
