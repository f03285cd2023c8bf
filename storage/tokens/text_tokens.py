"""A tokenizer by its file, the same for token shards, prompts and evaluation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gristmill.storage.tokens.sentencepiece_model import SentencePieceTokenizer


class TextTokenizer(Protocol):
    """Texts to ids and back. Names of special tokens in a text are text."""

    vocab_size: int
    end_of_text: int  # the id of the token that ends each document
    special: frozenset[int]  # ids that stand for no text
    names: list[str]  # of the tokens, by id, as the file has them

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def pieces(self) -> list[bytes]:
        """The UTF-8 that each token stands for, empty for special ones; of a token within a character a part of it."""
        ...

    def token_bytes(self) -> list[int]:
        """Bytes of UTF-8 that each token stands for, 0 for special ones: what bits per byte are counted by."""
        ...


def load_tokenizer(path: str | Path) -> TextTokenizer:
    """The tokenizer in a local file. Raises FileNotFoundError, and as `read_tokenizer`."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no tokenizer {path}")
    return read_tokenizer(Path(path).read_bytes(), f"{path}")


def read_tokenizer(data: bytes, path: str) -> TextTokenizer:
    """The tokenizer of a file's content: Hugging Face's JSON, as `gristmill.storage.tokens.tokenizer_json.prepared`
    writes it, if the path ends in `.json`; else a SentencePiece model. Raises ValueError for anything else."""
    if not path.endswith(".json"):
        return SentencePieceTokenizer(data, path)

    from gristmill.storage.tokens.tokenizer_json import JsonTokenizer  # here, since most do without its library

    return JsonTokenizer(data, path)
