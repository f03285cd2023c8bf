"""Byte-level BPE as a tokenizer.json, trained by Hugging Face's `tokenizers`."""

import json
from collections.abc import Iterator

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from gristmill.storage.tokenizer_json import prepared

END = "<|endoftext|>"

# What no token goes beyond: words with the character before them, single digits, marks, line breaks. Of Qwen2
# (https://huggingface.co/Qwen/Qwen2-7B/blob/main/tokenizer.json), after OpenAI's cl100k_base: its digits are by threes.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_byte_bpe(texts: Iterator[str], vocab_size: int, symbols: tuple[str, ...]) -> tuple[bytes, int]:
    """The content of tokenizer.json, and the size of its vocabulary, which is smaller where the texts have no more
    pairs.

    The same texts in the same order give the same bytes: merges are counted, and ties go to the smaller ids.
    Held: each distinct piece of the texts with its count.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, *symbols],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    described = json.loads(tokenizer.to_str())
    for token in described["added_tokens"]:
        token["special"] = token["content"] == END
    return prepared(
        json.dumps(described, ensure_ascii=False).encode(), END, "tokenizer.json"
    ), tokenizer.get_vocab_size()
