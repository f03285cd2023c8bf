"""fastText classifiers that a step names by path: their labels, and the models, loaded once a process."""

from functools import lru_cache
from typing import TYPE_CHECKING

from gristmill.storage import files
from gristmill.storage.recorded_file import RecordedFile
from gristmill.tasks.models.model_files import LABEL, check_fasttext

if TYPE_CHECKING:
    import fasttext

_HELD = 4  # models; large ones take gigabytes


def labels(path: str) -> list[str]:
    """The labels of the model at an address, without `__label__`. Raises FileNotFoundError, and ModelFileError for a
    file that is no whole model."""
    return [label.removeprefix(LABEL) for label in check_fasttext(files.local_copy(path))]


def recorded(path: str, checksum: str) -> RecordedFile:
    """The model at an address with the checksum that a step has of it, or, without one, with that of today."""
    return RecordedFile(path, checksum or files.checksum(path))


@lru_cache(_HELD)
def load(model: RecordedFile) -> "fasttext.FastText._FastText":
    """Raises FileNotFoundError, DamagedFileError for a file that has changed since the run began, and
    ModelFileError."""
    import fasttext  # here: it takes a quarter of a second

    local = model.local()
    check_fasttext(local)
    return fasttext.load_model(local)
