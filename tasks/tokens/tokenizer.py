"""Settings of the tokenizer: SentencePiece BPE with byte fallback, trained on a sample that follows the mixture."""

from typing import Self

from pydantic import Field, model_validator

from tasks.documents.step import Settings

END_OF_TEXT = 2  # id of the token that ends each document
LARGEST_VOCABULARY = 1 << 16  # tokens are stored as uint16: `storage.token_shards.DTYPE`


class Tokenizer(Settings):
    """Lossless: no normalisation, spaces and line breaks kept, digits split, unknown characters as bytes."""

    vocab_size: int = Field(
        32_000,
        gt=300,
        le=LARGEST_VOCABULARY,
        description="256 are bytes and 3 control tokens, the others are learned; they are stored as uint16",
    )
    sample_bytes: int = Field(100_000_000, gt=0, description="of text to train on, over all sources")
    character_coverage: float = Field(0.9995, gt=0, le=1, description="of characters; the rest fall back to bytes")

    @model_validator(mode="after")
    def _enough_text(self) -> Self:
        # a learned token stands for at least two bytes that occur together
        if self.sample_bytes < 2 * self.vocab_size:
            raise ValueError(
                f"sample_bytes {self.sample_bytes} cannot give a vocabulary of vocab_size {self.vocab_size}; give "
                f"sample_bytes of at least {2 * self.vocab_size}, better a thousand times the vocabulary"
            )
        return self
