"""A SentencePiece model as Hugging Face's tokenizer.json, which gives the same ids.

SentencePiece merges, of all neighbours that are a piece together, those of the highest score, the leftmost first;
`tokenizers` merges listed pairs in the order of the list. So each way of cutting a piece into two is a pair, in the
order of the pieces' scores. Spaces are spaces here: no `▁` stands for them, so a literal one falls back to bytes, as in
`storage.text_tokens`. There is no normaliser and no pre-tokeniser, as the SentencePiece model has none.

Format: https://huggingface.co/docs/tokenizers, the BPE model with byte fallback.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import Any

import sentencepiece

from storage.text_tokens import SPACE, encode_text


def tokenizer_json(processor: sentencepiece.SentencePieceProcessor) -> dict[str, Any]:
    """The content of tokenizer.json. A text begins with the end-of-text token, unless it is encoded without special
    tokens."""
    size = processor.vocab_size()
    normal = [
        i
        for i in range(size)
        if not (processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i) or processor.is_unused(i))
    ]
    names = {i: processor.id_to_piece(i) for i in range(size)}
    names |= {i: names[i].replace(SPACE, " ") for i in normal}
    vocabulary = {name: i for i, name in names.items()}
    assert len(vocabulary) == size, "pieces have names of their own"
    pieces = {names[i] for i in normal}
    ranked = sorted(normal, key=lambda i: (-processor.get_score(i), i))
    merges = [
        [piece[:at], piece[at:]]
        for piece in (names[i] for i in ranked)
        for at in range(1, len(piece))
        if piece[:at] in pieces and piece[at:] in pieces
    ]
    special = [i for i in range(size) if processor.is_control(i) or processor.is_unknown(i)]
    end = names[processor.eos_id()]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": names[i],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i in special
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special(end, 0), _sequence("A", 0)],
            "pair": [_special(end, 0), _sequence("A", 0), _special(end, 1), _sequence("B", 1)],
            "special_tokens": {end: {"id": end, "ids": [processor.eos_id()], "tokens": [end]}},
        },
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": names[processor.unk_id()],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }


def _special(token: str, kind: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": kind}}


def _sequence(name: str, kind: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": kind}}


def tokenizer_config(processor: sentencepiece.SentencePieceProcessor, seq_len: int) -> dict[str, Any]:
    """The content of tokenizer_config.json: a document begins after an end-of-text token and ends with one.

    Special tokens in a text are text, as they were in training.
    """
    end = processor.id_to_piece(processor.eos_id())
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": end,
        "eos_token": end,
        "unk_token": processor.id_to_piece(processor.unk_id()),
        "add_bos_token": True,
        "add_eos_token": False,
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": seq_len,
    }


def check_same_ids(
    processor: sentencepiece.SentencePieceProcessor, described: dict[str, Any], texts: Iterable[str]
) -> int:
    """Compare the ids that both give for texts, without special tokens; returns how many ids were compared.

    Raises ValueError for a text whose ids differ.
    """
    ranks = {(one, other): rank for rank, (one, other) in enumerate(described["model"]["merges"])}
    compared = 0
    for text in texts:
        ids = encode_text(processor, text)
        found = merged(text, described["model"]["vocab"], ranks)
        if ids != found:
            raise ValueError(
                f"tokenizer.json gives other ids than tokenizer.model for the text {text[:60]!r}...: this model is not "
                "exported; train it with another tokenizer.vocab_size"
            )
        compared += len(ids)
    return compared


def merged(text: str, vocabulary: dict[str, int], ranks: dict[tuple[str, str], int]) -> list[int]:
    """Ids of a text by the rules of `tokenizers`' BPE: of all neighbours that are a listed pair, the first pair of the
    list is merged, the leftmost first."""
    parts: list[str | None] = list(text)
    after = list(range(1, len(text) + 1))
    before = list(range(-1, len(text) - 1))
    waiting: list[tuple[int, int, str, str]] = []

    def add(left: int, right: int) -> None:
        if left >= 0 and right < len(text):
            one, other = parts[left], parts[right]
            assert one is not None and other is not None, "neighbours are parts"
            if (rank := ranks.get((one, other))) is not None:
                heapq.heappush(waiting, (rank, left, one, other))

    for left, right in itertools.pairwise(range(len(text))):
        add(left, right)
    while waiting:
        _, left, one, other = heapq.heappop(waiting)
        if parts[left] != one or after[left] >= len(text) or parts[after[left]] != other:
            continue  # one of them is merged with another since
        right = after[left]
        parts[left], parts[right] = one + other, None
        after[left] = after[right]
        if after[left] < len(text):
            before[after[left]] = left
        add(before[left], left)
        add(left, after[left])
    ids: list[int] = []
    for part in parts:
        if part is not None:
            known = vocabulary.get(part)
            ids += [known] if known is not None else [vocabulary[f"<0x{byte:02X}>"] for byte in part.encode()]
    return ids
