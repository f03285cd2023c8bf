"""Settings of the tokenizer: SentencePiece BPE with byte fallback, trained on a sample that follows the mixture."""

from pydantic import Field

from tasks.documents.step import Settings

LARGEST_VOCABULARY = 1 << 16  # tokens are stored as uint16: `storage.token_shards.DTYPE`


class Tokenizer(Settings):
    """Lossless: no normalisation, spaces and line breaks kept, digits split, unknown characters as bytes."""

    vocab_size: int = Field(32_000, gt=300, le=LARGEST_VOCABULARY, description="tokens are stored as uint16")
    sample_bytes: int = Field(100_000_000, gt=0, description="of text to train on, over all sources")
    character_coverage: float = Field(0.9995, gt=0, le=1, description="of characters; the rest fall back to bytes")
