"""International bank account numbers (ISO 13616): the country's length and form, and check digits by mod 97."""

import re
from functools import cache
from string import ascii_uppercase

import numpy as np
from stdnum import iban, numdb

_BEFORE = re.compile(rb"(?:[\w./\\+%@-]|(?<![A-Za-z])=)\Z", re.ASCII)
_AFTER = re.compile(rb"[\w/\\=+%@-]| ?\d", re.ASCII)
_GROUPS = re.compile(rb"[A-Z0-9]{4}(?: [A-Z0-9]{4})+(?: [A-Z0-9]{1,3})?|[A-Z0-9]+")


@cache
def _length(country: str) -> int:
    """Characters of a country's numbers, 0 if it has none: those of its parts, such as `8!n10!n`, and four."""
    ((_, found), *_) = numdb.get("iban").info(f"{country}00")
    return 4 + sum(map(int, re.findall(r"(\d+)!", found["bban"]))) if "bban" in found else 0


@cache
def lengths() -> np.ndarray:
    """The lengths of the numbers by the two letters of a country, int64, shape (26, 26); 0 where there are none."""
    letters = ascii_uppercase
    return np.array([[_length(a + b) for b in letters] for a in letters], np.int64)


def ibans(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate a number stands, given the bytes around it."""
    length = _length(value[:2].decode("ascii"))
    characters = [match.end() for match in re.finditer(rb"\S", value)]
    if not length or len(characters) < length:
        return []
    stop = characters[length - 1]
    number = value[:stop]
    if not _GROUPS.fullmatch(number) or _BEFORE.search(before) or _AFTER.match(value[stop:] + after):
        return []
    # national check digits differ between the banks of a country and between versions of the library
    return [(0, stop)] if iban.is_valid(number.decode("ascii"), check_country=False) else []
