"""fastText classifiers that a step names by path: their labels, their descriptions, and the models themselves.

A classifier that a run trained has a description beside it. A classifier of somebody else has none.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import wrapt
from pydantic import Field

from gristmill.storage import files
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.file_problems import file_problems
from gristmill.tasks.documents.step import Problem, Settings
from gristmill.tasks.models.model_files import LABEL, ModelFileError, check_fasttext, keeps_case, label_of

if TYPE_CHECKING:
    import fasttext
else:
    fasttext = wrapt.lazy_import("fasttext")


class Texts(Settings):
    """What a model reads of a document."""

    characters: int = Field(20_000, gt=0, description="of each document are read")
    lowercase: bool = Field(True, description="whether the model reads texts in lower case; DCLM's own model: false")


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
    local = model.local()
    check_fasttext(local)
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
                f"{path} has learned words with capital letters, and the step gives it texts in lower case; write "
                "`lowercase: false`, as for DCLM's own model"
            ) from None
        return
    except (ValueError, LookupError, TypeError) as error:
        raise ModelFileError(
            f"{description(path)} is no description of {path} ({error}); copy it again, or remove it"
        ) from error
    if files.checksum(path) != digest:
        raise ModelFileError(
            f"{path} is not the file that {description(path)} describes; copy both again, or train it anew by "
            "`gristmill train classifier`"
        )
    for name, value in settings.items():
        if value != getattr(step, name):
            raise ModelFileError(
                f"{path} was trained with {name} {value}, and the step has {getattr(step, name)}; write "
                f"`{name}: {str(value).lower()}`"
            )


def problems(path: str, step: Settings, label: str | None, deep: bool) -> Iterator[Problem]:
    """Problems with the classifier that a step has in `model`: it is missing or damaged, lacks the label, or fails
    `check`."""

    def check_file() -> None:
        label_of(check_fasttext(files.local_copy(path)), label)
        check(path, step)

    return file_problems(path, ("model",), deep, check_file)
