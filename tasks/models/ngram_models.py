"""KenLM models for the step `perplexity`: the tools that make them, their files, the scores by them, their training.

A model of a language is three files: KenLM's, SentencePiece's, and `LANGUAGE.arpa.bin.json`, which says what they are
and what they were trained on. Models that somebody else trained, as CCNet's, have no such description.
"""

import io
import re
import shutil
import subprocess
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import wrapt
from pydantic import Field

from gristmill.storage import files, leftovers
from gristmill.storage.damage import RecordedFile, opening
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.models.model_files import ModelFileError, check_kenlm, check_sentencepiece

if TYPE_CHECKING:
    import sentencepiece

    from gristmill.tasks.models.compiled import kenlm
else:
    kenlm = wrapt.lazy_import("gristmill.tasks.models.compiled.kenlm")
    sentencepiece = wrapt.lazy_import("sentencepiece")


# KenLM's own programs, which `native/build_hook.py` compiles when a wheel is built or a checkout is installed.
_BIN = Path(__file__).with_name("compiled")

LMPLZ = _BIN / "lmplz"
BUILD_BINARY = _BIN / "build_binary"

_MEMORY = "1G"
_POINTER_BITS = 22  # of Bhiksha's compression, at most: as KenLM's page has it in its example


def tool(name: str, folder: Path = _BIN) -> Path:
    """Path of the executable `name`, "lmplz" or "build_binary", in `folder`.

    Raises ValueError for another name, and FileNotFoundError, with the remedy, where it was never built (a
    tree that is on the path but was not installed).
    """
    if name not in (LMPLZ.name, BUILD_BINARY.name):
        raise ValueError(f"{name!r} is not a KenLM tool built here; {LMPLZ.name} and {BUILD_BINARY.name} are")
    path = folder / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: wheels of Gristmill have KenLM's programs, and a checkout gets them by its "
            "installation; run `make venv`, or `pip install -e .` in the project's folder"
        )
    return path


def estimate(text: Path, model: Path, order: int, prune: Sequence[int] = (), bits: int | None = None) -> None:
    """Write a model of n-grams up to `order`, a trie, from lines of words separated by one space.

    `prune`: n-grams with at most this count are left out, by order from 1, the last for all higher ones.
    `bits`: probabilities and back-offs are quantized to this many bits each. Sorts on disk beside `model`, within 1 GB.
    Raises RuntimeError with the tool's own last words.
    """
    arpa = model.with_name(f"{model.name}.arpa")
    # small texts lack the counts of counts that Kneser-Ney discounts need
    options = ["-o", str(order), "-S", _MEMORY, "-T", str(model.parent), "--discount_fallback", "--skip_symbols"]
    if prune:
        options += ["--prune", *map(str, prune)]
    _run([str(tool("lmplz")), *options, "--text", str(text), "--arpa", str(arpa)])
    quantised = [] if bits is None else ["-q", str(bits), "-b", str(bits), "-a", str(_POINTER_BITS)]
    _run([str(tool("build_binary")), *quantised, "trie", str(arpa), str(model)])
    arpa.unlink()


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}: {result.stderr.strip()[-800:]}")


MODEL_SUFFIX, PIECES_SUFFIX = ".arpa.bin", ".sp.model"  # as cc_net names them


def pieces_of(model: str) -> str:
    """The address of the SentencePiece model that belongs to a KenLM model, `en.sp.model` to `en.arpa.bin`."""
    return model.removesuffix(MODEL_SUFFIX) + PIECES_SUFFIX


def description(model: str) -> str:
    """Where the description of a KenLM model is."""
    return f"{model}.json"


def write(model: str, settings: Settings, measures: dict[str, Any]) -> None:
    """Describe a model and its SentencePiece model: their sizes and digests, the settings, and `measures`."""
    described = {
        "files": {path.rsplit("/", 1)[-1]: _facts(path) for path in (model, pieces_of(model))},
        "settings": settings.model_dump(mode="json"),
        **measures,
    }
    files.write_json(description(model), described)


def check(model: str) -> None:
    """Raise ModelFileError, or FileNotFoundError, unless a model and its SentencePiece model are there, are what their
    names say, and are those that the description, if there is one, describes."""
    described = _described(model)
    for path, look in ((model, check_kenlm), (pieces_of(model), check_sentencepiece)):
        if not files.exists(path):
            remedy = "train one with `gristmill train lm`, or correct the path"
            raise FileNotFoundError(f"{path} does not exist; {remedy}")
        look(files.local_copy(path))
        name = path.rsplit("/", 1)[-1]
        if described and _facts(path) != described.get(name):
            raise ModelFileError(
                f"{path} does not match {description(model)}; copy both again, or train it again with "
                "`gristmill train lm`"
            )
    _check_loads(model)


def _described(model: str) -> dict[str, Any]:
    """What the description says of the files; nothing where there is none."""
    if not files.exists(description(model)):
        return {}
    try:
        return dict(files.read_json(description(model))["files"])
    except (ValueError, LookupError, TypeError) as error:
        raise ModelFileError(
            f"{description(model)} is not a description of {model} ({error}); copy it again, or remove it"
        ) from error


def _check_loads(model: str) -> None:
    """KenLM compares the file's size with what its header says."""
    config = kenlm.Config()
    config.load_method = kenlm.LoadMethod.LAZY
    local = files.local_copy(model)
    with opening(model, "KenLM model", "copy or make it again", ModelFileError):
        kenlm.Model(local, config)


def _facts(path: str) -> dict[str, Any]:
    return {"bytes": files.info(path)["size"], "digest": files.checksum(path)}


def names(folder: str, language: str) -> tuple[str, str]:
    """Addresses of the models of a language in a folder: KenLM's and SentencePiece's."""
    model = files.join(folder, f"{language}.arpa.bin")
    return model, pieces_of(model)


# Perplexities of documents under a KenLM model, each distinct line scored once for all documents of a batch.
#
# A line is written as words or pieces separated by one space, in one of two ways: `sentences`, for models of whole
# words that are trained within a run; `fold` and SentencePiece, as CCNet's models of one language have it.

_WORDS = re.compile(r"\w+|[^\w\s]")
_DIGITS = re.compile(r"\d")
# Wenzek et al. 2020, cc_net/text_normalizer.py: UNICODE_PUNCT; its entry for the digit one in full width is left out,
# since digits are folded before.
_MARKS = {
    ",": "，、",
    ".": "。",
    '"': "„”“«»」「《》",
    "'": "´’",
    ":": "∶：",
    "?": "？",
    "!": "！",
    "(": "（",
    ")": "）",
    ";": "；",
    "-": "–━►",
    " - ": "—",
    ". ": "．",
    "~": "～",
    "...": "…",
    "<": "〈",
    ">": "〉",
    "[": "【",
    "]": "】",
    "%": "％",
}
PUNCTUATION = {mark: ascii for ascii, marks in _MARKS.items() for mark in marks}


class _Folding(dict[int, str | None]):
    """The replacement of a character, by its code point: computed once for each that occurs."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        folded: str | None = character
        if unicodedata.category(character) in ("Mn", "Cc"):
            folded = None
        elif _DIGITS.match(character):
            folded = "0"
        self[code] = folded
        return folded


_FOLDING = _Folding({ord(mark): ascii for mark, ascii in PUNCTUATION.items()})


def fold(text: str) -> str:
    """A text as CCNet's models read it before SentencePiece does: in lower case, without accents, every digit 0, marks
    of punctuation replaced by ASCII ones, no control characters, and so no line ends."""
    text = text.strip().lower()
    return (text if text.isascii() else unicodedata.normalize("NFD", text)).translate(_FOLDING)


def sentences(text: str) -> list[str]:
    """The lines of a document as models of words read it: words separated by one space, no empty lines."""
    folded = _DIGITS.sub("0", text.lower())
    return [" ".join(words) for line in folded.split("\n") if (words := _WORDS.findall(line))]


# Writes some distinct lines as words or pieces separated by one space, in UTF-8, which KenLM reads.
Written = Callable[[list[str]], list[bytes]]


@dataclass(frozen=True)
class Scored:
    """The perplexities of some documents, float64; and of all their lines, float32, one document's after the
    other's, `lengths` for each."""

    perplexity: np.ndarray
    lines: np.ndarray
    lengths: np.ndarray


@cache
def load(model: RecordedFile) -> "kenlm.Model":
    """The model, mapped into memory once per process."""
    local = model.local()
    check_kenlm(local)
    with opening(model.path, "KenLM model", "copy or make it again", ModelFileError):
        return kenlm.Model(local)


@cache
def load_pieces(model: RecordedFile) -> "sentencepiece.SentencePieceProcessor":
    """The SentencePiece model, loaded once per process."""
    local = model.local()
    check_sentencepiece(local)
    return sentencepiece.SentencePieceProcessor(model_file=local)


def score_words(model: "kenlm.Model", texts: Sequence[str]) -> Scored:
    """Perplexities per word under a model of words."""
    return _scored(model, [sentences(text) for text in texts], lambda distinct: [line.encode() for line in distinct])


def score_pieces(
    model: "kenlm.Model", pieces: "sentencepiece.SentencePieceProcessor", texts: Sequence[str], by_line: bool
) -> Scored:
    """Perplexities per piece under a model of CCNet's kind: each line is a sentence, or the whole text with its lines
    joined, as CCNet's own run has it."""
    lines = [_filled_lines(text) if by_line else [text] * bool(text.strip()) for text in texts]
    return _scored(model, lines, lambda distinct: as_pieces(pieces, distinct))


def as_pieces(pieces: "sentencepiece.SentencePieceProcessor", lines: list[str]) -> list[bytes]:
    """Lines as CCNet's models read them: folded, in pieces, in UTF-8."""
    encoded = pieces.encode([fold(line) for line in lines], out_type=bytes, num_threads=1)
    return [b" ".join(each) for each in encoded]


def _filled_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _scored(model: "kenlm.Model", documents: Sequence[list[str]], write: Written) -> Scored:
    """A document without a line is an empty sentence. CCNet's formula: pp = 10 ** (-log10 score / length), where length
    counts the words of every line and one end of sentence a line."""
    lengths = np.array([len(lines) or 1 for lines in documents], np.int64)
    places: dict[str, int] = {}
    indices = np.array(
        [places.setdefault(line, len(places)) for lines in documents for line in lines or [""]], np.int64
    )
    distinct = write(list(places))
    scores = np.array([model.score(line, bos=True, eos=True) for line in distinct], np.float64)[indices]
    words = np.array([len(line.decode().split()) + 1 for line in distinct], np.int64)[indices]
    document = np.repeat(np.arange(len(documents)), lengths)
    # added up in the order of the lines, whatever other documents the batch has
    score, length = (np.bincount(document, each, minlength=len(documents)) for each in (scores, words))
    return Scored(_raised(score, length), _raised(scores, words).astype(np.float32), lengths)


def _raised(scores: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    # with Python's powers: numpy's may depend on the position of a number in its array
    return np.array([10**exponent for exponent in (-scores / lengths).tolist()], np.float64)


# Training of a language's models as CCNet has them: SentencePiece, then n-grams of its pieces by KenLM.
#
# Sources of the defaults: cc_net's Makefile (65,536 pieces, unigram, coverage 0.9995, order 5; it does not prune) and
# KenLM's own page (8 bits).

_THREADS = 16  # sums of a unigram model depend on how many there are
_BATCH = 10_000  # lines
_PIECE = 4000  # characters: SentencePiece leaves out a longer line, or fails on it


class Training(Settings):
    """What decides the models, besides the texts."""

    vocabulary: int = Field(65_536, ge=16, description="maximum number of pieces")
    lines: int = Field(
        1_000_000, ge=1, description="approximate number of lines, evenly spaced, that the pieces are learned from"
    )
    order: int = Field(5, ge=2, le=6, description="longest n-gram, in pieces")
    prune: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0, 0, 1),
        max_length=6,
        description="n-grams with at most this count are removed: by order from 1, the last value for all "
        "higher orders",
    )
    bits: int = Field(8, ge=2, le=25, description="bits of a quantized probability, and of a quantized back-off")


def train(texts: Iterable[str], folder: str, language: str, settings: Training) -> dict[str, Any]:
    """Write LANGUAGE.arpa.bin, a quantized trie, LANGUAGE.sp.model and a description of both; returns the latter's
    counts. Lines are read as `fold` returns them.

    The texts are read once, and go through temporary files of about three times their size beside KenLM's own; held are
    the lines that the pieces are learned from, and 1 GB. Raises ValueError for texts without a line, and for thresholds
    that KenLM does not take.
    """
    if len(settings.prune) > settings.order or list(settings.prune) != sorted(settings.prune):
        raise ValueError(
            f"prune is {','.join(map(str, settings.prune))} for n-grams up to order {settings.order}; give one number "
            "for each order at most, none below the one before it"
        )
    model, pieces = names(folder, language)
    with tempfile.TemporaryDirectory(prefix=leftovers.scratch_prefix()) as scratch:
        folded, encoded, binary = (Path(scratch) / name for name in ("folded", "encoded", "model"))
        counts = _fold(texts, folded)
        if not counts["lines"]:
            raise ValueError(f"no text to train on ({counts['documents']} documents); use other files")
        trained = _train_pieces(folded, -(-counts["lines"] // settings.lines), settings)
        files.write_bytes(pieces, trained)
        counts |= _encode(sentencepiece.SentencePieceProcessor(model_proto=trained), folded, encoded)
        estimate(encoded, binary, settings.order, settings.prune, settings.bits)
        with files.create(model) as target, open(binary, "rb") as source:
            shutil.copyfileobj(source, target)
    write(model, settings, counts)
    return counts


def _fold(texts: Iterable[str], target: Path) -> dict[str, int]:
    documents = lines = 0
    with open(target, "w", encoding="utf-8") as f:
        for text in texts:
            documents += 1
            for line in text.split("\n"):
                if folded := fold(line):
                    f.write(folded + "\n")
                    lines += 1
    return {"documents": documents, "lines": lines}


def _train_pieces(folded: Path, every: int, settings: Training) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(
            line[start : start + _PIECE]
            for i, line in enumerate(_lines(folded))
            if i % every == 0
            for start in range(0, len(line), _PIECE)
        ),
        model_writer=model,
        model_type="unigram",
        vocab_size=settings.vocabulary,
        hard_vocab_limit=False,
        character_coverage=0.9995,
        max_sentence_length=1 << 20,  # bytes
        num_threads=_THREADS,
        minloglevel=2,
    )
    return model.getvalue()


def _encode(pieces: "sentencepiece.SentencePieceProcessor", folded: Path, target: Path) -> dict[str, int]:
    count = 0
    with open(target, "w", encoding="utf-8") as f:
        for lines in _batches(folded):
            for encoded in pieces.encode(lines, out_type=str, num_threads=_THREADS):
                count += len(encoded)
                f.write(" ".join(encoded) + "\n")
    return {"pieces": count, "vocabulary": pieces.vocab_size()}


def _lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8", newline="\n") as f:
        for line in f:
            yield line.removesuffix("\n")


def _batches(path: Path) -> Iterator[list[str]]:
    batch: list[str] = []
    for line in _lines(path):
        batch.append(line)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
