"""fastText's supervised models: trained, loaded, saved and asked, by the module that is compiled into the package.

fastText's own Python file imports its module under a top-level name, which belongs to a user's installation of
fastText. This one has what Gristmill calls of it, with the defaults of `train_supervised` there.
"""

from functools import cached_property

import numpy as np

from gristmill.tasks.models.compiled import fasttext_pybind


class Model:
    """A supervised model in memory."""

    def __init__(self, handle: fasttext_pybind.fasttext) -> None:
        self._handle = handle

    @cached_property
    def labels(self) -> list[str]:
        """All labels, with their prefix `__label__`, the most frequent one first."""
        return self._handle.getLabels("strict")[0]

    def predict(self, lines: list[str], k: int = 1) -> tuple[list[list[str]], list[np.ndarray]]:
        """Labels and probabilities of each line, the most probable label first: `k` of them, all with -1.

        Probabilities are float32, and can exceed 1 by rounding. Raises ValueError for a line with a line break in it.
        """
        if any("\n" in line for line in lines):
            raise ValueError("fastText predicts one line at a time: replace the line breaks in the text")
        # the end of a line is a word of the model
        return self._handle.multilinePredict([f"{line}\n" for line in lines], k, 0.0, "strict")

    def output_matrix(self) -> np.ndarray:
        """A copy of the matrix from hidden layer to labels, float32 (labels, dimensions), of a model that is not
        quantized."""
        return np.array(self._handle.getOutputMatrix())

    def save_model(self, path: str) -> None:
        """Write the model to a local path. A full disk is not reported."""
        self._handle.saveModel(path)


def load_model(path: str) -> Model:
    """Load the model at a local path, quantized or not. Raises ValueError for a file that is not there or has another
    format; a damaged file can end the process (`model_files.check_fasttext` finds those)."""
    handle = fasttext_pybind.fasttext()
    handle.loadModel(path)
    return Model(handle)


def train_supervised(path: str, *, loss: str = "softmax", **parameters: float) -> Model:
    """Train a classifier on a local file of lines that begin with their label.

    `parameters` are fastText's, by its names: lr, dim, ws, epoch, minCount, minn, maxn, neg, wordNgrams, bucket,
    thread (1 unless given, which is deterministic), seed, verbose. `loss`: softmax, hs, ns or ova. Raises ValueError
    for a file without labels or that cannot be read, AttributeError for a name that fastText lacks.
    """
    args = fasttext_pybind.args()
    args.input = path
    args.model = fasttext_pybind.model_name.supervised
    args.loss = getattr(fasttext_pybind.loss_name, loss)
    defaults: dict[str, float] = {"lr": 0.1, "minCount": 1, "minn": 0, "maxn": 0, "thread": 1}
    for name, value in (defaults | parameters).items():
        setattr(args, name, value)
    if args.wordNgrams <= 1 and args.maxn == 0:
        args.bucket = 0  # there are no n-grams to hash
    handle = fasttext_pybind.fasttext()
    fasttext_pybind.train(handle, args)
    return Model(handle)
