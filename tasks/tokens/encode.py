"""Documents to token shards: for each shard one file of training tokens and one of held-out tokens."""

import logging

import pyarrow.compute as pc

from gristmill.storage import files, parquet
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.recorded_file import RecordedFile
from gristmill.storage.token_shards import bin_path, write_tokens
from gristmill.tasks.documents.selection import select
from gristmill.tasks.tokens.encoding import encoder

log = logging.getLogger(__name__)

SPLITS = ("train", "heldout")

Encoded = tuple[RecordedFile, ...]  # the files of a shard, as a stage of tokens has recorded them


def encode_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: dict[str, str],
    tokenizer: RecordedFile,
    earlier: tuple[Encoded, ...] = (),
) -> dict:
    """Encode a shard's documents, those of each split into files of their own.

    `kept`: by split the part that names its documents; a split without one has none. `earlier`: the shard in stages
    that had the same texts, tokenizer and code: where one has the same documents, too, its files are taken as they are.
    Holds the texts and tokens of a split. Raises RuntimeError for a document in both splits.
    """
    ids = {split: select(documents, kept[split], ["id"])["id"].to_pylist() if split in kept else [] for split in SPLITS}
    if both := set(ids["train"]) & set(ids["heldout"]):
        raise RuntimeError(f"{len(both)} documents of {documents} are trained on and held out, {min(both)} first")
    if not any(_taken(folder, shard, found, ids) for found in earlier):
        for split in SPLITS:
            texts = select(documents, kept[split], ["text"])["text"].to_pylist() if split in kept else []
            encode = encoder(tokenizer, texts)
            encoded = [encode.document(text) for text in texts]
            write_tokens(bin_path(folder, split, shard), ids[split], encoded, encode.dtype)
    return {"rows_in": sum(map(len, ids.values())), **{split: _counts(folder, split, shard) for split in SPLITS}}


def _taken(folder: str, shard: int, found: Encoded, ids: dict[str, list[str]]) -> bool:
    """Take over the files of a shard, if they are those of these documents."""
    try:
        for split in SPLITS:
            [index] = [file.path for file in found if file.path.endswith(f"/{split}-{shard:05d}.parquet")]
            if parquet.read_table(index, ["id"])["id"].to_pylist() != ids[split]:
                return False
        for file in found:
            files.write_bytes(files.join(folder, file.path.rpartition("/")[2]), file.read())
    except (FileNotFoundError, DamagedFileError) as error:
        log.warning("shard %d is encoded again, since an earlier stage cannot be read: %s", shard, error)
        return False
    return True


def _counts(folder: str, split: str, shard: int) -> dict[str, int]:
    lengths = parquet.read_table(bin_path(folder, split, shard).removesuffix(".bin") + ".parquet", ["length"])["length"]
    return {"tokens": pc.sum(lengths).as_py() or 0, "documents": len(lengths)}
