"""The index of a shard: where every phrase of its texts is.

    train-00000.order        the suffixes of the shard's tokens (`gristmill.tasks.kernels.suffixes`), one block of
                             documents after the other
    dropped-00000.bin        the tokens of documents that became no part of the training data, as token shards have them
    dropped-00000.parquet    of each of these documents `id`, `offset` and `length` in tokens, `step`, `rule`
    dropped-00000.order

The text of a token shard is nowhere but in its tokens. Documents of takedown lists are in no index. An index is four
bytes a token, and the tokens of what was dropped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.token_shards import INDEX, SPLIT, bin_path, index_path, tokens_of
from gristmill.storage.training_manifest import token_dtype
from gristmill.tasks.dedup.takedowns import allowed
from gristmill.tasks.tokens.encoding import encoder
from gristmill.tasks.tokens.tokenizer import load
from gristmill.tasks.url.step import Url

# A token for each byte, and one that ends a document: what `train_byte_bpe` gives for no text.
BYTE_TOKENIZER = Path(__file__).with_name("bytes.tokenizer.json")
END = b"\xff"  # represents the token that ends a document: not a byte of UTF-8


@dataclass(frozen=True)
class SortedBytes:
    """Strings of bytes in their order: the i-th is data[bounds[i]:bounds[i + 1]]."""

    bounds: np.ndarray
    data: np.ndarray

    @classmethod
    def of(cls, strings: list[bytes]) -> "SortedBytes":
        """`strings`: sorted."""
        return cls(np.cumsum([0, *map(len, strings)]), np.frombuffer(b"".join(strings), np.uint8))


@dataclass(frozen=True)
class Pieces:
    """The bytes of tokens, by id; empty for tokens without text."""

    each: tuple[bytes, ...]

    @cached_property
    def bounds(self) -> np.ndarray:
        """Token i is data[bounds[i]:bounds[i + 1]]: int64."""
        return np.cumsum([0, *map(len, self.each)])

    @cached_property
    def _bytes(self) -> bytes:
        return b"".join(self.each)

    @cached_property
    def data(self) -> np.ndarray:
        return np.frombuffer(self._bytes, np.uint8)

    @cached_property
    def longest(self) -> int:
        return max(map(len, self.each))

    @cached_property
    def _in_order(self) -> list[tuple[bytes, int]]:
        return sorted((piece, token) for token, piece in enumerate(self.each))

    @cached_property
    def ranks(self) -> np.ndarray:
        """The place of each token in the order of their bytes: int32."""
        ranks = np.empty(len(self.each), np.int32)
        ranks[[token for _, token in self._in_order]] = np.arange(len(self.each))
        return ranks

    @cached_property
    def forwards(self) -> SortedBytes:
        """The bytes of all tokens, by rank."""
        return SortedBytes.of([piece for piece, _ in self._in_order])

    @cached_property
    def backwards(self) -> SortedBytes:
        """The bytes of all tokens from their last byte to their first, sorted."""
        return SortedBytes.of(sorted(piece[::-1] for piece in self.each))

    def within(self, phrase: bytes) -> Iterator[tuple[int, int]]:
        """(token, place) for each place after its first byte at which a token has the whole phrase."""
        position = self._bytes.find(phrase) if len(phrase) < self.longest else -1
        while position >= 0:
            token = int(np.searchsorted(self.bounds, position, side="right")) - 1
            begin, end = self.bounds[token], self.bounds[token + 1]
            if begin < position and position + len(phrase) <= end:
                yield token, int(position - begin)
            position = self._bytes.find(phrase, position + 1)

    def text(self, tokens: np.ndarray) -> bytes:
        """The bytes of some tokens, without the ends of documents."""
        return b"".join(self.each[token] for token in tokens.tolist()).replace(END, b"")


PHASE = "index"
DROPPED = "dropped"
# Tokens whose suffixes are sorted together; a sort holds some twenty bytes for each.
BLOCK_TOKENS = 32 << 20
_GROUP = 2_000  # documents that are encoded before their tokens are written
_DROPPED_DOCUMENTS = pa.schema(
    [*INDEX, pa.field("step", pa.string(), nullable=False), pa.field("rule", pa.string(), nullable=False)]
)


def order_path(folder: str, split: str, shard: int) -> str:
    return files.join(folder, f"{split}-{shard:05d}.order")


def documents_path(folder: str, split: str, shard: int) -> str:
    """The Parquet file with the documents of a shard's tokens."""
    return bin_path(folder, split, shard).removesuffix(".bin") + ".parquet"


@cache
def pieces(tokenizer: RecordedFile) -> Pieces:
    """The bytes of the tokens of a tokenizer."""
    tokens = load(tokenizer)
    each = tokens.pieces()
    each[tokens.end_of_text] = END
    return Pieces(tuple(each))


def index_shard(
    folder: str,
    shard: int,
    tokens: str,
    documents: str,
    kept: str,
    deciding: Sequence[str],
    takedowns: Url,
    tokenizer: RecordedFile,
    block_tokens: int = BLOCK_TOKENS,
) -> dict:
    """Write the index of a shard.

    `tokens`: the folder of the stage with the token shards; `documents`: the part with the texts as they were
    extracted; `kept`: the part that names those that are trained on; `deciding`: the folders of the stages that dropped
    documents. Returns of both splits the documents, the tokens, and the numbers of the tokens with which blocks end.
    Holds the tokens of the shard, twenty bytes for each token of a block, and of what was dropped the texts of a row
    group.
    """
    gone = dropped_documents(documents, kept, ["id", "url", "text"], shard, deciding, takedowns)
    dropped_tokens = _write_dropped(folder, shard, gone, tokenizer)
    counts: dict[str, dict] = {}
    for split, data, index in (
        (SPLIT, tokens_of(tokens, shard).read(), index_path(tokens, shard)),
        (DROPPED, dropped_tokens, documents_path(folder, DROPPED, shard)),
    ):
        lengths = parquet.read_table(index, ["length"])["length"].to_numpy()
        ids = np.frombuffer(data, token_dtype(len(pieces(tokenizer).each)))
        ends = _write_order(order_path(folder, split, shard), ids, lengths, tokenizer, block_tokens)
        counts[split] = {"documents": len(lengths), "tokens": len(ids), "blocks": ends}
    return {"rows_in": sum(each["documents"] for each in counts.values()), **counts}


def _write_order(
    path: str, tokens: np.ndarray, lengths: np.ndarray, tokenizer: RecordedFile, block_tokens: int
) -> list[int]:
    """Sort the suffixes of a shard, block by block; returns where blocks end."""
    if len(tokens) >= 1 << 32:
        raise OverflowError(
            f"{path}: a shard of {len(tokens):,} tokens, and an index counts 2**32: make smaller shards"
        )
    # big-endian, so that ranks are in the order of their bytes
    ranks = pieces(tokenizer).ranks.astype(">u2" if token_dtype(len(pieces(tokenizer).each)) == "<u2" else ">u4")
    ends = _blocks(np.cumsum(lengths, dtype=np.int64), block_tokens)
    with files.create(path) as f:
        for begin, end in zip([0, *ends], ends, strict=False):
            order = _sorted(ranks[tokens[begin:end]])
            order += np.uint32(begin)
            f.write(order.astype("<u4", copy=False).tobytes())
    return ends


def _blocks(document_ends: np.ndarray, block_tokens: int) -> list[int]:
    """The numbers of the tokens with which blocks of whole documents end, each of `block_tokens` or one document."""
    ends: list[int] = []
    begin = 0
    for before, end in pairwise([0, *document_ends.tolist()]):
        if before > begin and end - begin > block_tokens:
            ends.append(before)
            begin = before
    return [*ends, int(document_ends[-1])] if len(document_ends) else []


def _sorted(ranks: np.ndarray) -> np.ndarray:
    """The numbers of tokens, given by their ranks, in the order of the suffixes that begin with them: uint32.

    The suffixes of the ranks' big-endian bytes are sorted; suffixes that begin within a rank are left out.
    """
    # imported here: it brings the libraries of OpenMP, and most processes sort nothing
    from pydivsufsort import divsufsort

    width = ranks.itemsize
    rank_bytes = ranks.view(np.uint8)
    if width == 4:  # a vocabulary has fewer than 2**24 tokens, and the highest byte of all is 0
        width, rank_bytes = 3, np.ascontiguousarray(rank_bytes.reshape(-1, 4)[:, 1:]).reshape(-1)
    order = divsufsort(rank_bytes)
    whole = order[order & 1 == 0] >> 1 if width == 2 else order[order % width == 0] // width
    return whole.astype(np.uint32)


def _write_dropped(folder: str, shard: int, dropped: Iterator[pa.Table], tokenizer: RecordedFile) -> bytes:
    """Write documents of a shard that are not trained on as tokens; returns these."""
    rows, data, end = [_DROPPED_DOCUMENTS.empty_table()], [], 0
    slices = (group.slice(begin, _GROUP) for group in dropped for begin in range(0, len(group), _GROUP))
    for group in slices:
        texts = group["text"].to_pylist()
        encode = encoder(tokenizer, texts)
        encoded = [encode.document(text) for text in texts]
        data += [ids.tobytes() for ids in encoded]
        lengths = np.array([len(ids) for ids in encoded], np.int64)
        offsets = end + np.cumsum(lengths) - lengths
        end += int(lengths.sum())
        columns = [group["id"], offsets, lengths.astype(np.int32), group["step"], group["rule"]]
        rows.append(pa.table(columns, schema=_DROPPED_DOCUMENTS))
    tokens = b"".join(data)
    files.write_bytes(bin_path(folder, DROPPED, shard), tokens)
    dtype = token_dtype(len(pieces(tokenizer).each))
    table = pa.concat_tables(rows).replace_schema_metadata({"dtype": dtype})
    parquet.write_table(documents_path(folder, DROPPED, shard), table)
    return tokens


def dropped_documents(
    documents: str, kept: str, columns: Sequence[str], shard: int, deciding: Sequence[str], takedowns: Url
) -> Iterator[pa.Table]:
    """The documents of a shard that are not kept, and that no takedown list names, a row group at a time.

    They have `columns`, among them `id` and `url`, and the `step` and `rule` that dropped them, which are empty for a
    document in no ledger. `deciding`: the folders of the stages that dropped documents.
    """
    ledgers = [parquet.read_table(layout.ledger_part(stage, shard), ["id", "step", "rule"]) for stage in deciding]
    drops = pa.concat_tables(ledgers)
    dropped_ids = drops["id"].combine_chunks()
    kept_ids = parquet.read_table(kept, ["id"])["id"].combine_chunks()
    for group in parquet.groups(documents, [*columns]):
        group = allowed(group.filter(pc.invert(pc.is_in(group["id"], kept_ids))), takedowns)
        drop = pc.index_in(group["id"], dropped_ids)
        for name in ("step", "rule"):
            group = group.append_column(name, pc.coalesce(drops[name].take(drop), ""))
        yield group
