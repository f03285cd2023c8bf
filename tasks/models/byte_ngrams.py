"""py3langid's model of languages: naive Bayes over byte n-grams (Lui and Baldwin 2011), and its labels.

The package loops over the bytes in Python and multiplies with BLAS. Here a kernel does both: four times as fast, and
the same bits on all machines. Separate: a recipe is checked without the model.
"""

import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import wrapt

from gristmill.tasks import kernels

if TYPE_CHECKING:
    import py3langid
    from py3langid import modelio
else:
    py3langid = wrapt.lazy_import("py3langid")
    modelio = wrapt.lazy_import("py3langid.modelio")

NAME = "py3langid"
DATA = "py3langid:data/model.npz.xz"
NOT_LANGUAGE = "zxx"  # ISO 639-2: no linguistic content; the model learned it from numbers, markup and identifiers
LABELS = frozenset(
    (
        "ace af am an ar ary arz as az ba bcl be bg bn br bs ca crh cs cy da de dz el en eo es et eu ext fa fi fo "
        "fr fuv fy ga gcf gcr gd gl gom grc gu gug guw ha hbo he hi hr ht hu hy id ig is it ja jv ka kab kik kk "
        "km kn ko ku ky la lb lg lij ln lo lt ltg lv mg mk ml mn mr ms mt my ne nl nn no nso oc om or pa pcm pl "
        "ps pt qu ro ru rw sa sdh se si sk sl sn so sq sr st sv sw ta te tg th tk tl tr tt ug uk ur uz uzs vec vi "
        "vo wa wuu xh yo yue zh zu zxx"
    ).split()
)
# A sum of log probabilities grows with the text, and neighboring n-grams are not independent evidence, so the bare
# probabilities are 0 and 1. The package divides by the square root of the bytes, which leaves pages in languages
# that the model does not know at 0.9. These two were fitted to half of NTREX-128 at 10 to 5,000 characters, by the
# squared error of the probability that the label is right; of the best pairs, this one keeps the most English web pages
# (docs/explanation/languages.md).
_SCALE, _EXPONENT = 0.3, 0.8


class ByteModel(NamedTuple):
    """The arrays of `kernels.automaton.most_probable`, and the names of its labels."""

    transitions: np.ndarray
    rows: np.ndarray
    ngrams: np.ndarray
    weights: np.ndarray
    priors: np.ndarray
    labels: np.ndarray
    names: list[str]


def predict(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The most probable label of each text, and its probability: float64 in (0, 1].

    White space counts as one space, and letters are composed (NFC), as in the texts that the model was trained on.
    """
    if not texts:
        return [], np.empty(0)
    lines = [unicodedata.normalize("NFC", " ".join(text.split())) for text in texts]
    data, offsets = kernels.buffers.utf8(pa.array(lines, pa.large_string()))
    loaded = model()
    best, probabilities = kernels.automaton.most_probable(
        data,
        offsets,
        loaded.transitions,
        loaded.rows,
        loaded.ngrams,
        loaded.weights,
        loaded.priors,
        loaded.labels,
        _SCALE,
        _EXPONENT,
    )
    return [loaded.names[label] for label in best.tolist()], probabilities


@cache
def model() -> ByteModel:
    """The model, loaded once per process: 68 MB, in half a second."""
    path = Path(py3langid.__file__).with_name("data") / "model.npz.xz"
    weights, priors, classes, transitions, rows, ngrams = modelio.load_model(path)
    names = list(dict.fromkeys(classes))  # Serbian and Uzbek have a class for each of two scripts
    arrays = (
        np.asarray(transitions, np.uint32).reshape(-1, 256),
        np.asarray(rows, np.uint16),
        np.asarray(ngrams, np.int32),
        np.ascontiguousarray(weights, np.float16).view(np.uint16),
        np.asarray(priors, np.float32),
        np.array([names.index(name) for name in classes], np.int64),
    )
    for array in arrays:
        array.flags.writeable = False
    return ByteModel(*arrays, names)
