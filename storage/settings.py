"""Settings from a file, checked when they are read: unknown keys are errors, and true and false are not numbers.

An `Address` in settings is relative to the folder of the settings file. A key does not include this folder, since the
files in it are identified by their content.
"""

from collections.abc import Mapping
from functools import cache
from os.path import join
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PlainSerializer,
    SerializationInfo,
    ValidationInfo,
    field_validator,
)


class CheckedSettings(BaseModel):
    """Unknown keys are an error, values cannot be changed afterwards.

    Defaults are validated too, so that 0 and 0.0 for a float do not make two keys of one setting. YAML reads `off`,
    `no`, `on` and `yes` as true and false, which pydantic takes as the numbers 0 and 1 ("conversion table"): a
    user who writes `max_words: off` means no bound, and would lose every document.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        if _has_truth(value) and info.field_name and _is_of_numbers(cls, info.field_name):
            raise ValueError(
                "is true or false, which is how YAML reads on, off, yes and no; give a number, or null for none"
            )
        return value


def _has_truth(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(isinstance(each, bool) for each in value.values())
    if isinstance(value, list | tuple):
        return any(isinstance(each, bool) for each in value)
    return isinstance(value, bool)


# Kinds of values for which true and false are a mistake; nested settings check their own values.
_PLAIN = frozenset({int, float, str, bytes, type(None), tuple, list, dict, frozenset})


@cache
def _is_of_numbers(settings: type[BaseModel], name: str) -> bool:
    """Whether a field holds numbers, or numbers or text: pydantic itself refuses true and false for text."""
    kinds, seen, numbers = [settings.model_fields[name].annotation], set(), False
    while kinds:
        kind = kinds.pop()
        if (
            isinstance(kind, bool)
            or kind is Any
            or (isinstance(kind, type) and not get_args(kind) and kind not in _PLAIN)
        ):
            return False
        numbers |= kind in (int, float)
        if id(kind) not in seen:
            seen.add(id(kind))
            kinds += get_args(kind)
    return numbers


# Keys in pydantic's context: the folder of the settings file; whether the values are for a key.
FOLDER, KEY = "folder", "key"


def from_folder(value: str, info: ValidationInfo) -> str:
    """A relative path joined to the folder of its settings file; unchanged without such a file."""
    folder = (info.context or {}).get(FOLDER)
    if not folder or "://" in value or "::" in value or value.startswith(("/", "~", "{")) or not value:
        return value
    return join(folder, value)


def is_for_key(value: Any, info: SerializationInfo) -> bool:
    """Whether a value is a local address, and is serialized for a key."""
    return bool((info.context or {}).get(KEY)) and isinstance(value, str) and "://" not in value


def is_one_name(value: Any, other: Any) -> bool:
    """Whether two values are local addresses that are equal in a key: files of one name in two folders."""
    paths = [each for each in (value, other) if isinstance(each, str) and "/" in each and "://" not in each]
    return len(paths) == 2 and paths[0].rpartition("/")[2] == paths[1].rpartition("/")[2]


def _without_folder(value: Any, info: SerializationInfo) -> Any:
    return value.rpartition("/")[2] if is_for_key(value, info) else value


Address = Annotated[str, AfterValidator(from_folder), PlainSerializer(_without_folder, return_type=str)]
