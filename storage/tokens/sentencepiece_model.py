"""A SentencePiece model as a tokenizer: see `gristmill.storage.tokens.text_tokens`."""

from collections.abc import Sequence

import sentencepiece

SPACE = "▁"  # what SentencePiece writes for a space


class SentencePieceTokenizer:
    """A model with byte fallback. Control tokens in a text are text.

    `special`: ids of control tokens and of the unknown one; `symbols`: user-defined ones, by name.
    """

    def __init__(self, data: bytes, path: str) -> None:
        """Raises ValueError, which names the path, for what is no such model, ends no text, or has no bytes."""
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=data)
        except RuntimeError as error:
            raise ValueError(f"{path} is no SentencePiece model: {' '.join(str(error).split())}") from error
        processor = self.processor
        if not processor.is_byte(processor.piece_to_id("<0x00>")):
            raise ValueError(f"{path} has no bytes for what it does not know; give a model with byte fallback")
        if processor.eos_id() < 0:
            raise ValueError(f"{path} has no token that ends a text; give a model with an end of sentence")
        self.vocab_size = processor.vocab_size()
        self.end_of_text = processor.eos_id()
        self.names = [processor.id_to_piece(i) for i in range(self.vocab_size)]
        self.special = frozenset(
            i for i in range(self.vocab_size) if processor.is_control(i) or processor.is_unknown(i)
        )
        ordinary = (i for i in range(self.vocab_size) if i not in self.special and not processor.is_byte(i))
        # the library has no question for user-defined pieces; they have the score 0, the first learned one has -0
        self.symbols = tuple(self.names[i] for i in ordinary if str(processor.get_score(i)) == "0.0")
        self.begins_with_a_space = processor.id_to_piece(processor.encode("a")[0]).startswith(SPACE)

    def encode(self, text: str) -> list[int]:
        if self.begins_with_a_space:  # each part of a text would begin with one
            return self.processor.encode(text)
        return encode_text(self.processor, text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.processor.decode(list(ids))

    def pieces(self) -> list[bytes]:
        return [self._piece(i, name) for i, name in enumerate(self.names)]

    def token_bytes(self) -> list[int]:
        return [len(piece) for piece in self.pieces()]

    def _piece(self, token: int, name: str) -> bytes:
        if token in self.special:
            return b""
        return byte_of(name) if self.processor.is_byte(token) else name.replace(SPACE, " ").encode()


def byte_of(name: str) -> bytes:
    """The byte of a token with the name `<0x0A>`."""
    return bytes([int(name[3:5], 16)])


def encode_text(processor: sentencepiece.SentencePieceProcessor, text: str) -> list[int]:
    """Ids of a text, without control tokens.

    A literal `▁` is given as its bytes, which are decoded as they are: SentencePiece itself would read a space.
    """
    first, *others = processor.encode(text.split(SPACE))
    literal = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE.encode()] if others else []
    return [*first, *(i for ids in others for i in (*literal, *ids))]
