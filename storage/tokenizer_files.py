"""Tokenizers from files: a SentencePiece model, or Hugging Face's tokenizer.json.

A tokenizer.json does not say which token ends a text. One that `prepared` has written does: by its post-processor a
text begins with the end-of-text token, as a document in training begins after one.
Format: https://huggingface.co/docs/tokenizers
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import sentencepiece
import tokenizers

from gristmill.storage.damage import opening

SPACE = "▁"  # what SentencePiece writes for a space


class SentencePieceTokenizer:
    """A model with byte fallback. Control tokens in a text are text.

    `special`: ids of control tokens and of the unknown one; `symbols`: user-defined ones, by name.
    """

    def __init__(self, data: bytes, path: str) -> None:
        """Raise ValueError, which names the path, for a file that is not such a model, or has no end-of-text token or
        no tokens for bytes."""
        with opening(path, "SentencePiece model", "give another one"):
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=data)
            knows_bytes = self.processor.is_byte(self.processor.piece_to_id("<0x00>"))
        processor = self.processor
        if not knows_bytes:
            raise ValueError(f"{path} has no byte fallback for unknown characters; use a model with byte fallback")
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


# How the tokenizers of public models name the token that ends a text.
ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>")
BYTES = 256
MAX_IDS = 1 << 24  # eight times as many as the largest vocabularies of public models
# The characters that represent bytes in a byte-level BPE: a byte that Latin-1 prints represents itself, the others are
# numbered from 256 on. Of GPT-2 (https://github.com/openai/gpt-2/blob/master/src/encoder.py).
_PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = [byte for byte in range(BYTES) if byte not in _PRINTED]
_BYTE_OF = {chr(byte): byte for byte in _PRINTED} | {chr(BYTES + index): byte for index, byte in enumerate(_OTHERS)}


class JsonTokenizer:
    """A tokenizer.json as `prepared` writes it. Special tokens in a text are text; other added tokens are found in it.

    `plain`: its content without special tokens, by which texts are encoded.
    """

    def __init__(self, data: bytes, path: str) -> None:
        """Raises ValueError, which names the path, for anything else."""
        config, _ = _read(data, path)
        end = _first(config)
        added = config.get("added_tokens") or []
        self.special = frozenset(token["id"] for token in added if token["special"])
        self.names = _names(config)
        self.vocab_size = len(self.names)
        if end not in self.names:
            raise ValueError(f"{path} does not define which token ends a text; use it as tokenizer.path of a recipe")
        self.end_of_text = self.names.index(end)
        self.plain = json.dumps(_without_special(config, self.special), ensure_ascii=False)
        with opening(path, "tokenizer.json of Hugging Face", "give another one"):
            self._tokenizer = tokenizers.Tokenizer.from_str(self.plain)
        self._added = {token["id"] for token in added} - self.special
        self._of_bytes = _is_of_bytes(config)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode([i for i in ids if i not in self.special], skip_special_tokens=False)

    def pieces(self) -> list[bytes]:
        return [self._piece(i, name) for i, name in enumerate(self.names)]

    def token_bytes(self) -> list[int]:
        return [len(piece) for piece in self.pieces()]

    def _piece(self, token: int, name: str) -> bytes:
        if token in self.special:
            return b""
        if token in self._added:
            return name.encode()
        if self._of_bytes:
            return bytes(_BYTE_OF[character] for character in name)
        return byte_of(name) if _is_byte(name) else name.replace(SPACE, " ").encode()


def prepared(data: bytes, end: str | None, path: str) -> bytes:
    """The content of a tokenizer.json as it is kept: a text begins with the end-of-text token, and none is cut or
    padded. Ids stay as they are. `end`: the end-of-text token, None where it is one of ENDS.

    Raises ValueError, which names the path, for a file that is not a tokenizer.json, for one that does not know all
    bytes or loses the blanks between words, and for one without the end-of-text token.
    """
    config, tokenizer = _read(data, path)
    names = _names(config)
    if not _knows_bytes(config):
        raise ValueError(
            f"{path} does not know all bytes, so it would lose characters; give a byte-level BPE, or a model with byte "
            "fallback"
        )
    _check_blanks(tokenizer, path)
    special = [token["content"] for token in config.get("added_tokens") or [] if token["special"]]
    end_tokens = [name for name in ENDS if name in special]
    if end is None and len(end_tokens) != 1:
        raise ValueError(
            f"{path} has the special tokens {', '.join(special) or 'none'}; set tokenizer.end_of_text to the one that "
            "ends a text"
        )
    end = end_tokens[0] if end is None else end
    if end not in special:
        raise ValueError(
            f"tokenizer.end_of_text is {end}, which is not a special token of {path}; give one of "
            f"{', '.join(special) or 'another file, since it has none'}"
        )
    begins = {"SpecialToken": {"id": end, "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [begins, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            begins,
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": end, "type_id": 1}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {end: {"id": end, "ids": [names.index(end)], "tokens": [end]}},
    }
    kept = config | {"truncation": None, "padding": None, "post_processor": template}
    return data if kept == config else json.dumps(kept, ensure_ascii=False).encode()


def _read(data: bytes, path: str) -> tuple[dict[str, Any], tokenizers.Tokenizer]:
    """The values of a tokenizer.json, and the tokenizer. Raises ValueError for what cannot be used."""
    with opening(path, "tokenizer.json of Hugging Face", "give another one"):
        tokenizer = tokenizers.Tokenizer.from_buffer(data)
        config = json.loads(data)
        kind = config["model"]["type"]
        added = config.get("added_tokens") or []
        last = max([*_vocabulary(config).values(), *(token["id"] for token in added)], default=0)
    if last >= MAX_IDS:  # lists of as many would be made
        raise ValueError(f"{path} has a token with the id {last:,}; use a tokenizer with ids below {MAX_IDS:,}")
    if kind not in ("BPE", "Unigram"):
        raise ValueError(f"{path} is a {kind} tokenizer, which loses characters; use a BPE or unigram tokenizer")
    if config["model"].get("dropout"):
        raise ValueError(f"{path} drops merges at random; set dropout in its model to null")
    return config, tokenizer


def _check_blanks(tokenizer: tokenizers.Tokenizer, path: str) -> None:
    """Raise ValueError where words come back without the blank between them: a pre-tokenizer may remove it."""
    with opening(path, "tokenizer that takes a short text", "give another one"):
        ids = tokenizer.encode("one two", add_special_tokens=False).ids
        words = tokenizer.decode(ids, skip_special_tokens=False)
    if words.strip() == "onetwo":
        raise ValueError(
            f"{path} removes the blanks between words ('one two' comes back as {words!r}); use a "
            "pre-tokenizer that keeps them, such as ByteLevel and Metaspace"
        )


def _vocabulary(config: dict[str, Any]) -> dict[str, int]:
    vocab = config["model"]["vocab"]
    return vocab if isinstance(vocab, dict) else {name: i for i, (name, _) in enumerate(vocab)}


def _names(config: dict[str, Any]) -> list[str]:
    """Names of tokens by id; an id that is not used has an empty name."""
    names_by_id = {i: name for name, i in _vocabulary(config).items()}
    names_by_id |= {token["id"]: token["content"] for token in config.get("added_tokens") or []}
    return [names_by_id.get(i, "") for i in range(max(names_by_id) + 1)]


def _first(config: dict[str, Any]) -> str | None:
    """The special token that a text begins with."""
    first = ((config.get("post_processor") or {}).get("single") or [{}])[0]
    return first.get("SpecialToken", {}).get("id")


def _parts(part_config: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    if part_config is None:
        return
    yield part_config
    for key in ("pretokenizers", "decoders", "normalizers"):
        for part in part_config.get(key, ()):
            yield from _parts(part)


def _is_of_bytes(config: dict[str, Any]) -> bool:
    return any(part["type"] == "ByteLevel" for part in _parts(config.get("pre_tokenizer")))


def _is_byte(name: str) -> bool:
    return len(name) == 6 and name.startswith("<0x") and name.endswith(">")


def _knows_bytes(config: dict[str, Any]) -> bool:
    names = _vocabulary(config)
    if _is_of_bytes(config):
        return set(tokenizers.pre_tokenizers.ByteLevel.alphabet()) <= names.keys()
    return bool(config["model"].get("byte_fallback")) and sum(map(_is_byte, names)) == BYTES


def _without_special(config: dict[str, Any], special: frozenset[int]) -> dict[str, Any]:
    """The same tokenizer that finds no special token in a text. Those that the model's vocabulary lists as well get
    names that are in no text."""
    model = config["model"]

    def named(name: str, i: int) -> str:
        return f"\ufdd0{i}" if i in special else name  # a noncharacter of Unicode

    if isinstance(model["vocab"], dict):
        vocab: Any = {named(name, i): i for name, i in model["vocab"].items()}
    else:
        vocab = [[named(name, i), score] for i, (name, score) in enumerate(model["vocab"])]
    unknown = model.get("unk_token")
    if unknown is not None and unknown in model["vocab"]:
        unknown = named(unknown, model["vocab"][unknown])
    ordinary = [token for token in config.get("added_tokens") or [] if not token["special"]]
    changed = {"vocab": vocab} | ({"unk_token": unknown} if "unk_token" in model else {})
    return config | {"added_tokens": ordinary, "post_processor": None, "model": model | changed}


# A tokenizer by its file, the same for token shards, prompts and evaluation.


class TextTokenizer(Protocol):
    """Texts to ids and back. Names of special tokens in a text are text."""

    vocab_size: int
    end_of_text: int  # the id of the token that ends each document
    special: frozenset[int]  # ids without text
    names: list[str]  # of the tokens, by id, as the file has them

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def pieces(self) -> list[bytes]:
        """The UTF-8 of each token, empty for special ones; a token inside a character has a part of it."""
        ...

    def token_bytes(self) -> list[int]:
        """Bytes of UTF-8 of each token, 0 for special ones, with which bits per byte are computed."""
        ...


def load_tokenizer(path: str | Path) -> TextTokenizer:
    """The tokenizer in a local file. Raises FileNotFoundError, and as `read_tokenizer`."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"tokenizer {path} does not exist")
    return read_tokenizer(Path(path).read_bytes(), f"{path}")


def read_tokenizer(data: bytes, path: str) -> TextTokenizer:
    """The tokenizer of a file's content: Hugging Face's JSON, as `prepared` writes it, if the path ends in `.json`;
    else a SentencePiece model. Raises ValueError for anything else."""
    return (JsonTokenizer if path.endswith(".json") else SentencePieceTokenizer)(data, path)
