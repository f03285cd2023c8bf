"""Training of a language's models as CCNet has them: SentencePiece, then n-grams of its pieces by KenLM.

Sources of the defaults: cc_net's Makefile (65,536 pieces, unigram, coverage 0.9995, order 5; it does not prune) and
KenLM's own page (8 bits).
"""

import io
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import sentencepiece
from pydantic import Field

from gristmill.storage import files, leftovers
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.models.lmplz import estimate
from gristmill.tasks.models.perplexity import models_by_language
from gristmill.tasks.models.perplexity.scores import fold

_THREADS = 16  # sums of a unigram model depend on how many there are
_BATCH = 10_000  # lines
_PIECE = 4000  # characters: SentencePiece leaves out a longer line, or fails on it


class Training(Settings):
    """What decides the models, besides the texts."""

    vocabulary: int = Field(65_536, ge=16, description="pieces at most")
    lines: int = Field(
        1_000_000, ge=1, description="about so many, evenly spaced, are what the pieces are learned from"
    )
    order: int = Field(5, ge=2, le=6, description="longest n-gram, in pieces")
    prune: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0, 0, 1),
        max_length=6,
        description="n-grams with a count of at most so many are left out: by order from 1, the last for all higher",
    )
    bits: int = Field(8, ge=2, le=25, description="of a quantised probability, and of a back-off")


def train(texts: Iterable[str], folder: str, language: str, settings: Training) -> dict[str, Any]:
    """Write LANGUAGE.arpa.bin, a quantised trie, LANGUAGE.sp.model and a description of both; returns the latter's
    counts. Lines are read as `gristmill.tasks.models.perplexity.scores.fold` gives them.

    The texts are read once, and go through temporary files of about three times their size beside KenLM's own; held are
    the lines that the pieces are learned from, and 1 GB. Raises ValueError for texts without a line, and for thresholds
    that KenLM does not take.
    """
    if len(settings.prune) > settings.order or list(settings.prune) != sorted(settings.prune):
        raise ValueError(
            f"prune is {','.join(map(str, settings.prune))} for n-grams up to order {settings.order}; give one number "
            "for each order at most, none below the one before it"
        )
    model, pieces = models_by_language.names(folder, language)
    with tempfile.TemporaryDirectory(prefix=leftovers.scratch_prefix()) as scratch:
        folded, encoded, binary = (Path(scratch) / name for name in ("folded", "encoded", "model"))
        counts = _fold(texts, folded)
        if not counts["lines"]:
            raise ValueError(f"there is no text to train on ({counts['documents']} documents); name other files")
        trained = _train_pieces(folded, -(-counts["lines"] // settings.lines), settings)
        files.write_bytes(pieces, trained)
        counts |= _encode(sentencepiece.SentencePieceProcessor(model_proto=trained), folded, encoded)
        estimate(encoded, binary, settings.order, settings.prune, settings.bits)
        with files.create(model) as target, open(binary, "rb") as source:
            shutil.copyfileobj(source, target)
    models_by_language.write(model, settings, counts)
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


def _encode(pieces: sentencepiece.SentencePieceProcessor, folded: Path, target: Path) -> dict[str, int]:
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
