"""Text as ids of a SentencePiece model, the same for token shards, prompts and evaluation."""

import sentencepiece

SPACE = "▁"  # what SentencePiece writes for a space


def encode_text(processor: sentencepiece.SentencePieceProcessor, text: str) -> list[int]:
    """Ids of a text, without control tokens.

    A literal `▁` is given as its bytes, which are decoded as they are: SentencePiece itself would read a space.
    """
    first, *others = processor.encode(text.split(SPACE))
    literal = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE.encode()] if others else []
    return [*first, *(i for ids in others for i in (*literal, *ids))]
