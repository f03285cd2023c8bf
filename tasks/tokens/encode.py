"""Documents to token shards: for each shard one file of training tokens and one of held-out tokens."""

import pyarrow as pa

from storage.recorded_file import RecordedFile
from storage.token_shards import TokenShard, bin_path, write_tokens
from tasks.documents.sampling import Heldout
from tasks.documents.selection import select
from tasks.tokens.encoding import encoder

SPLITS = ("train", "heldout")


def encode_shard(folder: str, shard: int, documents: str, kept: str, tokenizer: RecordedFile, heldout: Heldout) -> dict:
    """Encode a selection's documents, those held out into a file of their own.

    Holds the texts and tokens of one shard. Raises RuntimeError if a document is in neither split.
    """
    table = select(documents, kept, ["text"])
    mask = heldout.mask(table)
    texts = table["text"]
    encode = encoder(tokenizer, (text.as_py() for text in texts))
    record: dict = {"rows_in": len(table)}
    for split, chosen in (("train", ~mask), ("heldout", mask)):
        rows = table.filter(pa.array(chosen))
        encoded = [encode.document(text) for text in rows["text"].to_pylist()]
        written = write_tokens(bin_path(folder, split, shard), rows["id"].to_pylist(), encoded, encode.dtype)
        record[split] = _record(written)
    if sum(record[split]["documents"] for split in SPLITS) != len(table):
        raise RuntimeError(f"{kept}: {len(table)} documents in, {record} in the token shards")
    return record


def _record(written: TokenShard) -> dict:
    return {"tokens": written.tokens, "documents": written.documents}
