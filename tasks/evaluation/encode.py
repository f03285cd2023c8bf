"""Evaluation documents to token shards, one for each set."""

import pyarrow.compute as pc

from gristmill.storage import parquet
from gristmill.storage.recorded_file import RecordedFile
from gristmill.storage.token_shards import bin_path, write_tokens
from gristmill.tasks.tokens.encoding import encoder


def encode_set(folder: str, number: int, evaluation: str, name: str, tokenizer: RecordedFile) -> dict:
    """Encode the evaluation documents of a set, in their order. Holds their texts and tokens."""
    documents = parquet.read_table(evaluation, ["id", "set", "text"])
    documents = documents.filter(pc.equal(documents["set"], name))
    texts = documents["text"].to_pylist()
    encode = encoder(tokenizer, texts)
    encoded = [encode.document(text) for text in texts]
    written = write_tokens(bin_path(folder, "heldout", number), documents["id"].to_pylist(), encoded, encode.dtype)
    return {"set": name, "heldout": {"tokens": written.tokens, "documents": written.documents}}
