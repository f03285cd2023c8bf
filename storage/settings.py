"""Settings that a file holds, checked as they are read: unknown keys are errors, and true and false are no numbers."""

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class CheckedSettings(BaseModel):
    """Unknown keys are an error, values cannot be changed afterwards.

    Defaults are validated too, so that 0 and 0.0 for a float do not make two keys of one setting. YAML reads `off`,
    `no`, `on` and `yes` as true and false, which pydantic takes as the numbers 0 and 1 ("conversion table"): whoever
    writes `max_words: off` means no bound, and would lose every document.
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


# Kinds of values for which true and false are a mistake; settings within settings check their own.
_PLAIN = frozenset({int, float, str, bytes, type(None), tuple, list, dict, frozenset})


@cache
def _is_of_numbers(settings: type[BaseModel], name: str) -> bool:
    """Whether a field holds numbers, alone or beside text: pydantic itself refuses true and false for text."""
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
