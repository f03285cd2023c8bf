"""A classifier for other runs: a fastText file, and beside it `<file>.json`, which says what it is.

A classifier of somebody else has no such description.
"""

from typing import Any

from gristmill.storage import files
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.models.model_files import ModelFileError
from gristmill.tasks.models.quality.quality import Texts


def description(path: str) -> str:
    """Where the description of a classifier is."""
    return f"{path}.json"


def write(path: str, settings: Texts, found: dict[str, Any]) -> None:
    """Describe the classifier at a path: its digest, the settings that it was trained with, and what was `found`."""
    described = {"digest": files.checksum(path), "settings": settings.model_dump(mode="json"), **found}
    files.write_json(description(path), described)


def check(path: str, given: Settings) -> None:
    """Raise ModelFileError if a classifier's description is none, is of another file, or of one that reads texts
    otherwise than the settings `given`, which have those of `Texts`."""
    try:
        described = files.read_json(description(path))
        digest, settings = described["digest"], {name: described["settings"][name] for name in Texts.model_fields}
    except FileNotFoundError:
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
    for name, wanted in settings.items():
        if wanted != getattr(given, name):
            raise ModelFileError(
                f"{path} was trained with {name} {wanted}, and the step has {getattr(given, name)}; write "
                f"`{name}: {str(wanted).lower()}`"
            )
