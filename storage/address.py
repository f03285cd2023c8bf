"""Addresses in settings, relative to the folder of the settings file. Separate: recipes are read without the stores.

A key does not know the folder, since what is in it is known by its content.
"""

from os.path import join
from typing import Annotated, Any

from pydantic import AfterValidator, PlainSerializer, SerializationInfo, ValidationInfo

# Contexts of pydantic: the folder of the file whose values are validated; values that a key is made of.
FOLDER, KEY = "folder", "key"


def from_folder(value: str, info: ValidationInfo) -> str:
    """A relative path behind the folder of the file that it stands in; without such a file as it is."""
    folder = (info.context or {}).get(FOLDER)
    if not folder or "://" in value or "::" in value or value.startswith(("/", "~", "{")) or not value:
        return value
    return join(folder, value)


def is_for_key(value: Any, info: SerializationInfo) -> bool:
    """Whether a value is a local address, and a key is made of it."""
    return bool((info.context or {}).get(KEY)) and isinstance(value, str) and "://" not in value


def is_one_name(value: Any, other: Any) -> bool:
    """Whether two values are local addresses that a key does not tell apart: files of one name in two folders."""
    paths = [each for each in (value, other) if isinstance(each, str) and "/" in each and "://" not in each]
    return len(paths) == 2 and paths[0].rpartition("/")[2] == paths[1].rpartition("/")[2]


def _without_folder(value: Any, info: SerializationInfo) -> Any:
    return value.rpartition("/")[2] if is_for_key(value, info) else value


Address = Annotated[str, AfterValidator(from_folder), PlainSerializer(_without_folder, return_type=str)]
