"""Settings of the tokenizer: trained on a sample that follows the mixture, or taken from a file."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gristmill.storage.address import Address
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.tokens.fill_in_the_middle import FillInTheMiddle

LARGEST_VOCABULARY = 1 << 20
NAMES = ("<unk>", "<s>", "</s>", "<|endoftext|>")  # special tokens of the tokenizers that are trained here


class Tokenizer(Settings):
    """Lossless: no normalisation, spaces and line breaks kept, digits split, unknown characters as bytes."""

    kind: Literal["bpe", "unigram", "byte_bpe"] = Field(
        "bpe",
        description="`bpe` and `unigram` are SentencePiece's, of characters, bytes for the rest; `byte_bpe` is that "
        "of GPT-2 and its followers, of bytes. `unigram` is slower to encode, and has no exact tokenizer.json",
    )
    vocab_size: int = Field(
        32_000,
        gt=300,
        le=LARGEST_VOCABULARY,
        description="256 are bytes, a few special tokens, the others learned; up to 65,536 a token is stored in two "
        "bytes, else in four",
    )
    sample_bytes: int = Field(100_000_000, gt=0, description="of text to train on, over all sources")
    character_coverage: float = Field(
        0.9995, gt=0, le=1, description="of characters; the rest fall back to bytes; `byte_bpe` knows bytes alone"
    )
    symbols: tuple[Annotated[str, Field(pattern=r"^\S+$")], ...] = Field(
        (), description="strings that are one token each wherever they stand in a text, such as `<|user|>`"
    )
    fim: FillInTheMiddle | None = Field(
        None, description="fill-in-the-middle: of some documents the middle is moved to the end; null: of none"
    )
    path: Address | None = Field(
        None,
        description="local file of a tokenizer that is there, in place of one that is trained: a `tokenizer.json` of "
        "Hugging Face, or a SentencePiece model",
    )
    end_of_text: str | None = Field(
        None, description="with path: the special token of a tokenizer.json that ends a text; default: "
        "`<|endoftext|>`, `<|end_of_text|>`, `</s>`, `<eos>`, whichever it has"
    )  # fmt: skip

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.path is not None:
            trained = ("kind", "vocab_size", "sample_bytes", "character_coverage", "symbols")
            for name in trained:
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"path is {self.path}, so nothing is trained: take out {name}, or path")
            return self
        if self.end_of_text is not None:
            raise ValueError(f"end_of_text is {self.end_of_text}, but there is no path: take it out, or give path")
        for at, symbol in enumerate(self.symbols):
            if symbol in NAMES or symbol in self.symbols[:at]:
                raise ValueError(f"symbols has {symbol}, which is a token already; take it out")
        # a learned token stands for at least two bytes that occur together
        if self.sample_bytes < 2 * self.vocab_size:
            raise ValueError(
                f"sample_bytes {self.sample_bytes} cannot give a vocabulary of vocab_size {self.vocab_size}; give "
                f"sample_bytes of at least {2 * self.vocab_size}, better a thousand times the vocabulary"
            )
        return self
