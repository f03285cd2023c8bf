"""fastText classifiers: their files, their training on examples of which each is kept out of one model, and measures.

A step names a classifier by path. A classifier that a run trained has a description next to it; others have none.

Cross-fitting: the examples are divided into two folds by a keyed hash of their ids, or of their origins, and model k is
trained on the other fold. So the model of a fold has not seen it, and its scores are as good as for documents that no
model has seen.
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import wrapt
from pydantic import Field

from gristmill.storage import files, leftovers
from gristmill.storage.damage import RecordedFile, opening
from gristmill.tasks.documents.file_problems import file_problems
from gristmill.tasks.documents.selection import uniform
from gristmill.tasks.documents.step import Problem, Settings
from gristmill.tasks.models.model_files import LABEL, ModelFileError, check_fasttext, keeps_case, label_of

if TYPE_CHECKING:
    from sklearn import metrics

    from gristmill.tasks.models import fasttext
else:
    fasttext = wrapt.lazy_import("gristmill.tasks.models.fasttext")
    metrics = wrapt.lazy_import("sklearn.metrics")


class Texts(Settings):
    """What a model reads of a document."""

    characters: int = Field(20_000, gt=0, description="Maximum number of characters read from each document.")
    lowercase: bool = Field(True, description="Lowercase texts before they are scored; false for DCLM's own model.")


_HELD = 4  # models; large ones take gigabytes


def labels(path: str) -> list[str]:
    """The labels of the model at an address, without `__label__`. Raises FileNotFoundError, and ModelFileError for a
    file that is not a complete model."""
    return [label.removeprefix(LABEL) for label in check_fasttext(files.local_copy(path))]


def recorded(path: str, checksum: str) -> RecordedFile:
    """The model at an address with the checksum that a step recorded, or, without one, with its current checksum."""
    return RecordedFile(path, checksum or files.checksum(path))


@lru_cache(_HELD)
def load(model: RecordedFile) -> "fasttext.Model":
    """Raises FileNotFoundError, DamagedFileError for a file that has changed since the run began, and
    ModelFileError."""
    local = model.local()
    check_fasttext(local)
    with opening(model.path, "fastText model", "copy it again", ModelFileError):
        return fasttext.load_model(local)


def description(path: str) -> str:
    """Where the description of a classifier is."""
    return f"{path}.json"


def write(path: str, settings: Texts, measures: dict[str, Any]) -> None:
    """Describe the classifier at a path: its digest, the settings that it was trained with, and `measures`."""
    described = {"digest": files.checksum(path), "settings": settings.model_dump(mode="json"), **measures}
    files.write_json(description(path), described)


def check(path: str, step: Settings) -> None:
    """Raise ModelFileError if a classifier's description is none, is of another file, or of one that reads texts
    otherwise than `step`, whose settings include `Texts`; or if a classifier without a description knows
    words with capitals, which the settings would never show it."""
    try:
        described = files.read_json(description(path))
        digest, settings = described["digest"], {name: described["settings"][name] for name in Texts.model_fields}
    except FileNotFoundError:
        if getattr(step, "lowercase", False) and keeps_case(files.local_copy(path)):
            raise ModelFileError(
                f"{path} has learned words with capital letters, but the step lowercases texts; write "
                "`lowercase: false`, as for DCLM's own model"
            ) from None
        return
    except (ValueError, LookupError, TypeError) as error:
        raise ModelFileError(
            f"{description(path)} is not a description of {path} ({error}); copy it again, or remove it"
        ) from error
    if files.checksum(path) != digest:
        raise ModelFileError(
            f"{path} does not match {description(path)}; copy both again, or train it again with `gristmill "
            "train classifier`"
        )
    for name, value in settings.items():
        if value != getattr(step, name):
            raise ModelFileError(
                f"{path} was trained with {name} {value}, but the step has {getattr(step, name)}; write "
                f"`{name}: {str(value).lower()}`"
            )


def problems(path: str, step: Settings, label: str | None, deep: bool) -> Iterator[Problem]:
    """Problems with the classifier that a step has in `model`: it is missing or damaged, lacks the label, or fails
    `check`."""

    def check_file() -> None:
        label_of(check_fasttext(files.local_copy(path)), label)
        check(path, step)

    return file_problems(path, ("model",), deep, check_file)


class FastText(Texts):
    """How a model is trained."""

    word_ngrams: int = Field(2, ge=1, le=5, description="Longest n-gram that is a feature (words).")
    epochs: int | None = Field(
        None,
        ge=1,
        description="Passes over the documents. null: as many as read 30,000 documents for each label (60,000 of good "
        "and bad ones) at a learning rate of 0.1, and at least 5.",
    )
    learning_rate: float = Field(0.1, gt=0, description="Learning rate of the first update. It falls to 0.")
    dimensions: int = Field(100, ge=1, description="Dimensions of the vectors of words and n-grams.")
    buckets: int = Field(
        2_000_000, ge=1, description="Size of the n-gram hash table. A model takes 4 * dimensions bytes per bucket."
    )


class Classifier(FastText):
    """What decides the models, besides the documents."""

    documents: int = Field(
        200_000,
        gt=1,
        description="Number of documents of each kind, good and bad, that each of the two models is "
        "trained on, about, or all if there are fewer (DCLM: 200k).",
    )
    seed: int = Field(1, description="Seed of the initial vectors, of the sample of documents and of its two folds.")


# With fewer updates the vectors of words are still near those with which they began, and all probabilities near 1/2: on
# 466 pages in 5 passes the area under the ROC curve is .51, and .83 in 100. With ten times as many they claim too
# much.
UPDATES = 30_000  # for each label, at a learning rate of 0.1
MIN_EPOCHS = 5  # fastText's default, and DCLM's

FOLDS = 2
GOOD, BAD = f"{LABEL}hq", f"{LABEL}raw"
_KINDS = {GOOD: "good examples", BAD: "bad ones"}
_COMMANDS = re.compile(r"(?<!\S)(__label__\S*|</s>)")
_BATCH = 1000


def fold(ids: pa.ChunkedArray, seed: int, folds: int) -> np.ndarray:
    """The fold of each document, int64 (n,), below `folds`: the fold whose model has not seen it."""
    return np.floor(uniform(ids, seed, "quality-fold") * folds).astype(np.int64)


def line(text: str, characters: int, lowercase: bool) -> str:
    """The beginning of a text as one line; a word that fastText would read as a label or a line's end is left out."""
    text = text[:characters]
    text = " ".join((text.lower() if lowercase else text).split())
    # few texts have one, and looking for it at each word takes as long as scoring
    return _COMMANDS.sub(" ", text) if LABEL in text or "</s>" in text else text


def probabilities(model: "fasttext.Model", lines: list[str], label: str) -> np.ndarray:
    """The model's probability of a label for each line, float64 (n,), in [0, 1]."""
    return distributions(model, lines, (label,))[:, 0]


def distributions(model: "fasttext.Model", lines: list[str], names: Sequence[str]) -> np.ndarray:
    """The model's probability of each of some labels for each line, float64 (n, labels), in [0, 1]; 0 of a label that
    the model has not."""
    if not lines:
        return np.empty((0, len(names)))
    labels, scores = model.predict(lines, k=-1)
    rows = (dict(zip(row, score.tolist(), strict=True)) for row, score in zip(labels, scores, strict=True))
    return np.clip(np.array([[row.get(name, 0.0) for name in names] for row in rows], np.float64), 0, 1)


@dataclass
class Examples:
    """Labelled lines in a file, and of each where it is, its fold of `n_folds`, its label and its place in the order of
    training. `groups`: a number that examples of one group share."""

    file: BinaryIO
    settings: Classifier
    n_folds: int = FOLDS
    sizes: list[np.ndarray] = field(default_factory=list)
    folds: list[np.ndarray] = field(default_factory=list)
    groups: list[np.ndarray] = field(default_factory=list)
    labels: list[np.ndarray] = field(default_factory=list)
    order: list[np.ndarray] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)

    def add(self, ids: pa.ChunkedArray, texts: list[str], label: str, groups: pa.ChunkedArray | None = None) -> None:
        """Texts of one label, as fastText has it, under their ids. `groups`: what each comes from, as its page; those
        of one group are in one fold."""
        settings = self.settings
        lines = [f"{line(text, settings.characters, settings.lowercase)}\n".encode() for text in texts]
        self.file.writelines(lines)
        self.sizes.append(np.array([len(each) for each in lines], np.int64))
        names = ids if groups is None else groups
        self.folds.append(fold(names, settings.seed, self.n_folds))
        self.groups.append(uniform(names, settings.seed, "quality-fold"))
        self.labels.append(np.full(len(lines), self.names.setdefault(label, len(self.names)), np.int64))
        self.order.append(uniform(ids, settings.seed, "quality-order"))


@dataclass(frozen=True)
class Ordered:
    """Examples in the order of training, which does not depend on that in which they came: `lines` gives those at some
    places. `folds`: int64 (n,); `names`: the labels, sorted; `labels`: the place of each example's there, int64
    (n,); `groups`: int64 (n,); `lengths`: of the lines in bytes, int64 (n,)."""

    folds: np.ndarray
    names: tuple[str, ...]
    labels: np.ndarray
    lines: Callable[[np.ndarray], Iterator[bytes]]
    groups: np.ndarray
    lengths: np.ndarray

    @property
    def good(self) -> np.ndarray:
        """Whether each has the label GOOD: bool (n,)."""
        return np.array([name == GOOD for name in self.names], bool)[self.labels]


@contextmanager
def ordered(settings: Classifier, fill: Callable[[Examples], None], n_folds: int = FOLDS) -> Iterator[Ordered]:
    """The examples that `fill` adds. They are in a temporary file; held are 64 bytes for each.

    fastText learns line by line at a falling rate, so that examples sorted by label or by shard would make another
    model: they are shuffled by a keyed hash of their ids.
    """
    with tempfile.TemporaryFile(prefix=leftovers.scratch_prefix()) as file:
        examples = Examples(file, settings, n_folds)
        fill(examples)
        empty = np.empty(0, np.int64)
        sizes = np.concatenate([empty, *examples.sizes])
        starts = np.cumsum(sizes) - sizes
        # equal texts of equal ids come in any order: which of them is first makes no difference
        ranks = np.argsort(np.concatenate([empty, *examples.order]), kind="stable")

        def lines(places: np.ndarray) -> Iterator[bytes]:
            for place in ranks[places]:
                file.seek(starts[place])
                yield file.read(sizes[place])

        folds, labels = (np.concatenate([empty, *each])[ranks] for each in (examples.folds, examples.labels))
        names = tuple(sorted(examples.names))
        place = np.array([names.index(name) for name in examples.names], np.int64)
        groups = np.unique(np.concatenate([empty, *examples.groups])[ranks], return_inverse=True)[1].astype(np.int64)
        yield Ordered(folds, names, place[labels], lines, groups, sizes[ranks])


def passes(settings: FastText, examples: int, n_labels: int = 2) -> int:
    """How often a training reads its examples, by the numbers of examples and labels."""
    updates = UPDATES * n_labels * 0.1 / settings.learning_rate
    return settings.epochs or max(MIN_EPOCHS, ceil(updates / max(1, examples)))


def train(examples: Ordered, rows: np.ndarray, settings: Classifier, target: str) -> int:
    """Train a classifier on the examples at some places, and write it to an address. Returns the passes over them.

    Holds the model: `4 * dimensions` bytes for each bucket and each word. One thread: fastText is deterministic with no
    more. Raises OSError if the disk is full.
    """
    epochs = passes(settings, len(rows), len(examples.names))
    with tempfile.TemporaryDirectory(prefix=leftovers.scratch_prefix()) as scratch:
        trained, model_path = Path(scratch) / "trained", Path(scratch) / "model.bin"
        with open(trained, "wb") as file:
            for label, each in zip(examples.labels[rows], examples.lines(rows), strict=True):
                file.write(f"{examples.names[label]} ".encode() + each)
        model = fasttext.train_supervised(
            str(trained),
            lr=settings.learning_rate,
            epoch=epochs,
            wordNgrams=settings.word_ngrams,
            dim=settings.dimensions,
            bucket=settings.buckets,
            minCount=1,
            thread=1,
            seed=settings.seed,
            verbose=0,
        )
        model.save_model(str(model_path))
        _check_whole(model_path, model)
        with files.create(target) as out, open(model_path, "rb") as source:
            shutil.copyfileobj(source, out)
    return epochs


def scores(examples: Ordered, rows: np.ndarray, model: "fasttext.Model") -> np.ndarray:
    """The probabilities of the labels of the examples at some places, float64 (n, labels)."""
    arrays = [np.empty((0, len(examples.names)))]
    for start in range(0, len(rows), _BATCH):
        texts = [each[:-1].decode() for each in examples.lines(rows[start : start + _BATCH])]
        arrays.append(distributions(model, texts, examples.names))
    return np.concatenate(arrays)


class FoldsError(ValueError):
    """The examples of a label are in so few folds that a model would be trained without them."""


def cross_fit(
    examples: Ordered, settings: Classifier, targets: list[str], required: tuple[str, ...] = ()
) -> np.ndarray:
    """Train a model for each fold, on the examples of the other, and write them to `targets`. Returns the probability
    of each label of each example, by the model that has not seen it: float64 (n, labels).

    Raises FoldsError where a fold lacks examples of a label, one of `required` among them.
    """
    predictions = np.empty((len(examples.labels), len(examples.names)))
    for number, target in enumerate(targets):
        train_rows = np.flatnonzero(examples.folds != number)
        counts = np.bincount(examples.labels[train_rows], minlength=len(examples.names)).tolist()
        there = dict.fromkeys(required, 0) | dict(zip(examples.names, counts, strict=True))
        if len(there) < 2 or min(there.values()) == 0:
            counts_text = ", ".join(
                f"{count} {_KINDS.get(name, name.removeprefix(LABEL))}" for name, count in there.items()
            )
            raise FoldsError(
                f"a classifier needs at least two labels, each with examples in two of {len(targets)} parts, but one "
                f"of the models would be trained on {counts_text or 'nothing'}: add documents, or remove a label"
            )
        train(examples, train_rows, settings, target)
        unseen = np.flatnonzero(examples.folds == number)
        predictions[unseen] = scores(examples, unseen, fasttext.load_model(files.local_copy(target)))
    return predictions


def _check_whole(path: Path, model: "fasttext.Model") -> None:
    """Raise OSError for a model of which not all was written: fastText says nothing of a full disk. Its file ends with
    the output matrix (FastText::saveModel)."""
    end = model.output_matrix().tobytes()
    with open(path, "rb") as f:
        f.seek(-min(len(end), path.stat().st_size), os.SEEK_END)
        if f.read() != end:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


# How well probabilities separate labels, and how far they are from the shares that they claim.

# Guo et al. 2017, On Calibration of Modern Neural Networks: 15 bins of equal width
BINS = 15


def measures(good: np.ndarray, scores: np.ndarray) -> dict[str, float | int]:
    """`roc_auc`, `average_precision`, `accuracy` at 0.5 and `calibration_error` (expected, in BINS bins) of the scores,
    float64 (n,) in [0, 1], of documents that are good examples or not, bool (n,) with both of them."""
    return {
        "tested": len(good),
        "roc_auc": float(metrics.roc_auc_score(good, scores)),
        "average_precision": float(metrics.average_precision_score(good, scores)),
        "accuracy": float(np.mean((scores >= 0.5) == good)),
        "calibration_error": calibration_error(good, scores),
    }


def label_measures(labels: np.ndarray, scores: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """`accuracy`, `macro_f1` (the mean of all labels' F1) and `calibration_error` (of the most probable label) of the
    probabilities, float64 (n, labels), of documents whose labels are at `labels`, int64 (n,), in `names`; `by_label`:
    of each the `examples`, `precision`, `recall` and `f1`; `confusion`: of the documents of each label, in the order of
    `by_label`, how many were given each. Of equal probabilities the first in `names` is the most probable."""
    predictions = scores.argmax(axis=1)
    right = predictions == labels
    of_labels = metrics.precision_recall_fscore_support(labels, predictions, labels=range(len(names)), zero_division=0)
    by_label = {
        name: {"examples": int(count), "precision": float(precision), "recall": float(recall), "f1": float(f1)}
        for name, precision, recall, f1, count in zip(names, *of_labels, strict=True)
    }
    return {
        "tested": len(labels),
        "accuracy": float(right.mean()),
        "macro_f1": float(np.mean([each["f1"] for each in by_label.values()])),
        "calibration_error": calibration_error(right, scores.max(axis=1)),
        "by_label": by_label,
        "confusion": metrics.confusion_matrix(labels, predictions, labels=range(len(names))).tolist(),
    }


def calibration(good: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Documents, mean score and share of good ones in each bin that has documents."""
    bins = np.minimum((scores * BINS).astype(np.int64), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    there = count > 0
    mean, share = (np.bincount(bins, weights=each, minlength=BINS)[there] / count[there] for each in (scores, good))
    return count[there], mean, share


def calibration_error(good: np.ndarray, scores: np.ndarray) -> float:
    """The expected calibration error: the mean over documents of |share of good ones - mean score| of their bin."""
    count, mean, share = calibration(good, scores)
    return float(np.average(np.abs(share - mean), weights=count))
