"""Models that C libraries read: their form is compared with their format first, since the libraries trust it.

fastText loads a file that was cut anywhere, and scores otherwise; a wrong size in it ends the process. KenLM compares
sizes itself, but not the sentence and the numbers that begin its files.
"""

import mmap
import os
import re
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO

import wrapt

from gristmill.storage.damage import opening

if TYPE_CHECKING:
    import sentencepiece
else:
    sentencepiece = wrapt.lazy_import("sentencepiece")

LABEL = "__label__"  # what the name of a label begins with
# fasttext.cc: FASTTEXT_FILEFORMAT_MAGIC_INT32, FASTTEXT_VERSION
_FASTTEXT = (793712314, 12)
_SUPERVISED = 3  # args.h: model_name::sup
_ENTRY_LABEL = b"\1"  # dictionary.h: entry_type::label
_GOOD = "hq"  # as DCLM's fasttext_oh_eli5.bin has it beside `cc`
_DICTIONARY, _ENTRIES = 64, 92  # where dictionary.cc writes its sizes, and the first word, after args.cc's
_FREQUENT, _CAPITALS = 10_000, 0.05  # words of an English text with capitals have them in a fifth
_CENTROIDS = 256  # productquantizer.h: ksub_
# lm/binary_format.cc: kMagicBytes and the rest of `Sanity`, as 64-bit machines with little ends write it
_KENLM = b"mmap lm http://kheafield.com/code format version 5\n\0".ljust(56, b"\0") + struct.pack(
    "<3f2I4xQ", 0.0, 1.0, -0.5, 1, 2**32 - 1, 1
)
_KENLM_ORDER = range(2, 7)  # KENLM_MAX_ORDER of the package kenlm
_KENLM_TYPES = range(6)  # model_type.hh
_ARPA = b"\\data\\"
_ARPA_HEADER = 1 << 16  # bytes; it has a line for each order
_COUNT = re.compile(rb"ngram [0-9]+ ?= ?([0-9]{1,20})")
_MIN_ENTRY = 4  # bytes of a line with an n-gram: a number, a tab, a word and the end


class ModelFileError(ValueError):
    """A file is not a model of its kind, or not a complete one: which file, why, and what to do."""


def check_fasttext(path: str) -> tuple[str, ...]:
    """The labels of a local model. Raises ModelFileError unless the file has the form of fastText's version 12 from its
    first byte to its last.

    Reads the dictionary, and of the matrices their sizes.
    """
    labels: list[str] = []
    _check(path, "fastText", lambda f: _walk_fasttext(f, labels))
    return tuple(labels)


def keeps_case(path: str) -> bool:
    """Whether a local fastText model has learned from texts with capital letters: at least one in twenty of its most
    frequent words, of which 10,000 are looked at, has one. Raises ModelFileError for a file that ends too early."""
    capitals = count = 0
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        (words,) = struct.unpack_from("<i", data, _DICTIONARY + 4)
        offset = _ENTRIES
        while count < min(words, _FREQUENT):  # words come first, sorted by frequency
            begin, offset = offset, data.find(b"\0", offset) + 10
            if offset < 10:
                raise ModelFileError(
                    f"{path} is not a valid fastText model: its dictionary ends too early; copy it again"
                )
            word = data[begin : offset - 10].decode(errors="replace")
            capitals += word != word.lower()
            count += 1
    return capitals >= max(1, count * _CAPITALS)


def label_of(labels: Sequence[str], name: str | None) -> str:
    """The label of fastText's whose probability is the score: `name`, with or without `__label__`, or without one
    `hq`. Raises ModelFileError for a model without it."""
    label = f"{LABEL}{(name or _GOOD).removeprefix(LABEL)}"
    if label not in labels:
        there = ", ".join(each.removeprefix(LABEL) for each in labels[:8])
        raise ModelFileError(f"the model has no label {label.removeprefix(LABEL)}; use one of {there} in `label`")
    return label


def check_kenlm(path: str) -> None:
    """Raise ModelFileError unless a local file begins as a binary model of KenLM does, or as an ARPA file."""
    _check(path, "KenLM", _read_kenlm_header)


def check_sentencepiece(path: str) -> None:
    """Raise ModelFileError unless a local file is a SentencePiece model."""
    with opening(path, "SentencePiece model", "copy or make it again", ModelFileError):
        sentencepiece.SentencePieceProcessor(model_file=path)


def _check(path: str, kind: str, read: Callable[[BinaryIO], str]) -> None:
    with open(path, "rb") as f:
        try:
            wrong = read(f)
        except ModelFileError as error:
            wrong = str(error)
        except (struct.error, ValueError):
            wrong = "it ends too early"
    if wrong:
        raise ModelFileError(f"{path} is not a valid {kind} model: {wrong}; copy or make it again")


def _read_kenlm_header(f: BinaryIO) -> str:
    begin = f.read(len(_KENLM))
    if begin.lstrip().startswith(_ARPA):
        f.seek(0)
        return _read_arpa_counts(f)
    if begin != _KENLM:
        return "it does not begin like KenLM's files"
    order, _, model_type, has_words, _ = struct.unpack("<B3xfiB3xI", f.read(20))
    if order not in _KENLM_ORDER or model_type not in _KENLM_TYPES or has_words > 1:
        return f"its header says order {order}, type {model_type}"
    return ""


def _read_arpa_counts(f: BinaryIO) -> str:
    """What is wrong with the numbers of n-grams that an ARPA file begins with: KenLM allocates as much as they say."""
    size = f.seek(0, os.SEEK_END)
    f.seek(0)
    header = f.read(_ARPA_HEADER).partition(b"\\1-grams:")[0].partition(_ARPA)[2]
    counts = 0
    for line in filter(None, map(bytes.strip, header.splitlines())):
        if (match := _COUNT.fullmatch(line)) is None:
            return f"its header has the line {line[:40].decode(errors='replace')!r}"
        counts += int(match[1])
    if counts * _MIN_ENTRY > size:
        return f"its header says {counts:,} n-grams, and it has {size:,} bytes"
    return ""


def _walk_fasttext(f: BinaryIO, labels: list[str]) -> str:
    with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _walk(data, labels)


def _walk(data: mmap.mmap, names: list[str]) -> str:
    """What is wrong, or ""; adds the labels to `names`."""
    if (magic := struct.unpack_from("<2i", data)) != _FASTTEXT:
        return f"it begins with {magic[0]} and {magic[1]}, not with {_FASTTEXT[0]} and {_FASTTEXT[1]}"
    width, _, _, _, _, _, _, model, buckets, *_ = struct.unpack_from("<12id", data, 8)
    entries, words, labels, _, pruned = struct.unpack_from("<3i2q", data, _DICTIONARY)
    if width < 1 or min(entries, words, labels) < 0 or words + labels != entries or pruned < -1:
        return f"it has {width} dimensions and {entries} entries, {words} words and {labels} labels"
    offset = _ENTRIES
    for _ in range(entries):
        begin, offset = offset, data.find(b"\0", offset) + 10
        if offset < 10:
            return "its dictionary ends too early"
        if data[offset - 1 : offset] == _ENTRY_LABEL:
            names.append(data[begin : offset - 10].decode(errors="replace"))
    offset += 8 * max(0, pruned)
    quantized, offset = _flag(data, offset)
    offset = _matrix(data, offset, quantized, words + (buckets if pruned < 0 else pruned), width)
    outer, offset = _flag(data, offset)
    offset = _matrix(data, offset, quantized and outer, labels if model == _SUPERVISED else words, width)
    return "" if offset == len(data) else f"it has {len(data):,} bytes, its sizes say {offset:,}"


def _flag(data: mmap.mmap, offset: int) -> tuple[bool, int]:
    (value,) = struct.unpack_from("<B", data, offset)
    if value > 1:
        raise ModelFileError(f"a flag is {value}")
    return bool(value), offset + 1


def _matrix(data: mmap.mmap, offset: int, quantized: bool, rows: int, width: int) -> int:
    """Where a matrix of `rows` rows ends that begins at `offset`."""
    normed = False
    if quantized:
        normed, offset = _flag(data, offset)
    if (shape := struct.unpack_from("<2q", data, offset)) != (rows, width):
        raise ModelFileError(f"a matrix has {shape[0]} rows of {shape[1]}, and not {rows} of {width}")
    offset += 16
    if not quantized:
        return offset + 4 * rows * width
    (codes,) = struct.unpack_from("<i", data, offset)
    offset = _quantizer(data, offset + 4 + codes)
    return _quantizer(data, offset + rows) if normed else offset


def _quantizer(data: mmap.mmap, offset: int) -> int:
    width, *_ = struct.unpack_from("<4i", data, offset)
    return offset + 16 + 4 * _CENTROIDS * width
