"""A SentencePiece model as Hugging Face's tokenizer.json, which gives the same ids.

BPE: SentencePiece merges, of all neighbors that are a piece together, the pair of the highest score, the leftmost
first; `tokenizers` merges listed pairs in the order of the list. So each way of cutting a piece into two is a pair, in
the order of the pieces' scores. Unigram: pieces with their scores; names of control tokens and of bytes, which
SentencePiece does not find in a text, get a score that no text chooses. Where two ways to cut a text are as likely, as
for a run of one character, `tokenizers` rounds otherwise and may take the other: such a model is not exported.

Spaces are spaces here, not `▁`, so a literal `▁` falls back to bytes, as in
`gristmill.storage.tokenizer_files`. There is no normalizer and no pre-tokenizer, as the SentencePiece model has
none.

Format: https://huggingface.co/docs/tokenizers, the models BPE and Unigram with byte fallback.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gristmill.storage.tokenizer_files import SPACE, SentencePieceTokenizer, TextTokenizer, read_tokenizer

_NEVER = -1e9


def tokenizer_json(tokenizer: SentencePieceTokenizer) -> dict[str, Any]:
    """The content of tokenizer.json. A text begins with the end-of-text token, unless it is encoded without special
    tokens. Raises ValueError for a model that does not keep white space as it is."""
    processor, size = tokenizer.processor, tokenizer.vocab_size
    if tokenizer.decode(tokenizer.encode(" a  b ")) != " a  b " or tokenizer.begins_with_a_space:
        raise ValueError(
            "the SentencePiece model changes white space, which tokenizer.json cannot express; train a tokenizer"
        )
    symbols = {i for i, name in enumerate(tokenizer.names) if name in tokenizer.symbols}
    odd = {i for i in range(size) if processor.is_byte(i) or processor.is_unused(i)} | tokenizer.special | symbols
    names = [name if i in odd else name.replace(SPACE, " ") for i, name in enumerate(tokenizer.names)]
    assert len(set(names)) == size, "pieces have names of their own"
    normal = [i for i in range(size) if i not in odd]
    model = _unigram if _is_unigram(tokenizer) else _bpe
    special = sorted(tokenizer.special | symbols)
    end = names[tokenizer.end_of_text]
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
                "special": i in tokenizer.special,
            }
            for i in special
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [_special(end, 0), _sequence("A", 0)],
            "pair": [_special(end, 0), _sequence("A", 0), _special(end, 1), _sequence("B", 1)],
            "special_tokens": {end: {"id": end, "ids": [tokenizer.end_of_text], "tokens": [end]}},
        },
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": model(tokenizer, names, normal),
    }


def _bpe(tokenizer: SentencePieceTokenizer, names: list[str], normal: list[int]) -> dict[str, Any]:
    pieces = {names[i] for i in normal}
    ranked = sorted(normal, key=lambda i: (-tokenizer.processor.get_score(i), i))
    merges = [
        [piece[:split], piece[split:]]
        for piece in (names[i] for i in ranked)
        for split in range(1, len(piece))
        if piece[:split] in pieces and piece[split:] in pieces
    ]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": names[tokenizer.processor.unk_id()],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": {name: i for i, name in enumerate(names)},
        "merges": merges,
    }


def _unigram(tokenizer: SentencePieceTokenizer, names: list[str], normal: list[int]) -> dict[str, Any]:
    normal_ids = set(normal)
    scores = [tokenizer.processor.get_score(i) if i in normal_ids else _NEVER for i in range(len(names))]
    return {
        "type": "Unigram",
        "unk_id": tokenizer.processor.unk_id(),
        "vocab": [list(pair) for pair in zip(names, scores, strict=True)],
        "byte_fallback": True,
    }


def _is_unigram(tokenizer: SentencePieceTokenizer) -> bool:
    """Scores of a BPE are places in the order of its merges: whole numbers, each once."""
    processor = tokenizer.processor
    scores = (
        processor.get_score(i)
        for i in range(tokenizer.vocab_size)
        if not processor.is_byte(i) and i not in tokenizer.special
    )
    return any(score != round(score) for score in scores)


def _special(token: str, kind: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": kind}}


def _sequence(name: str, kind: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": kind}}


def tokenizer_config(tokenizer: TextTokenizer, seq_len: int) -> dict[str, Any]:
    """The content of tokenizer_config.json: a document begins after an end-of-text token and ends with one.

    Special tokens in a text are text, as they were in training.
    """
    end = tokenizer.names[tokenizer.end_of_text]
    unknown = {"unk_token": "<unk>"} if "<unk>" in tokenizer.names else {}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": end,
        "eos_token": end,
        **unknown,
        "add_bos_token": True,
        "add_eos_token": False,
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
        "model_max_length": seq_len,
    }


def check_same_ids(tokenizer: TextTokenizer, config: dict[str, Any], texts: Iterable[str]) -> int:
    """Compare the ids that a tokenizer and a tokenizer.json give for texts, without special tokens; returns how many
    ids were compared.

    Raises ValueError for a text whose ids differ.
    """
    exported = read_tokenizer(json.dumps(config, ensure_ascii=False).encode(), "tokenizer.json")
    compared = 0
    for text in texts:
        ids = tokenizer.encode(text)
        if ids != exported.encode(text):
            raise ValueError(
                f"tokenizer.json gives other ids than tokenizer.model for the text {text[:60]!r}...: this model is not "
                "exported; train it with another tokenizer.kind or vocab_size"
            )
        compared += len(ids)
    return compared
