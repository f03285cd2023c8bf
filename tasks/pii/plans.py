"""Numbering plans, as libphonenumber's metadata have them, in forms that are quick to ask."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import product

import numpy as np
import phonenumbers
from phonenumbers import (
    COUNTRY_CODE_TO_REGION_CODE,
    NumberParseException,
    PhoneMetadata,
    PhoneNumber,
    PhoneNumberFormat,
)

MAX_GROUPS = 8  # of four bits each in a grouping


TRUNK = 1 << 4 * MAX_GROUPS


_TYPES = (
    *("fixed_line", "mobile", "toll_free", "premium_rate", "shared_cost", "personal_number", "voip", "pager", "uan"),
    "voicemail",
)
_WORLD = "001"  # the region of codes that are no country's, such as 800
_MAX_CODE_DIGITS = 3  # E.164


@cache
def _metadata(code: int, region: str) -> PhoneMetadata:
    """What libphonenumber knows of a region; `code` says which, where the region is the world."""
    metadata = (
        PhoneMetadata.metadata_for_nongeo_region(code)
        if region == _WORLD
        else PhoneMetadata.metadata_for_region(region)
    )
    assert metadata is not None, f"{region} is a region with a numbering plan"
    return metadata


def _numbers(metadata: PhoneMetadata) -> tuple[str, frozenset[int]]:
    """What all numbers of a region match, and how many digits they have."""
    assert metadata.general_desc is not None, f"{metadata.id} is a region with a numbering plan"
    return metadata.general_desc.national_number_pattern or "", frozenset(metadata.general_desc.possible_length)


def _region_metadata(region: str) -> PhoneMetadata:
    return _metadata(0, region)


@cache
def _valid(code: int, region: str) -> re.Pattern[str]:
    """What the valid numbers of a region match, and no others, without what a caller dials first."""
    metadata = _metadata(code, region)
    descriptions = (getattr(metadata, name) for name in _TYPES)
    kinds = "|".join(
        f"(?:{one.national_number_pattern})" for one in descriptions if one and one.national_number_pattern
    )
    return re.compile(f"(?=(?:{_numbers(metadata)[0]})$)(?:{kinds})")


@cache
def _of_code(code: int) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    """What the valid numbers behind a country code match, and what callers inside its regions dial first."""
    regions = COUNTRY_CODE_TO_REGION_CODE[code]
    prefixes = {_metadata(code, region).national_prefix_for_parsing for region in regions} - {None}
    valid = "|".join(f"(?:{_valid(code, region).pattern})" for region in regions)
    return re.compile(valid), re.compile(
        "|".join(f"(?:{one})" for one in sorted(map(str, prefixes)))
    ) if prefixes else None


def country_code(digits: str) -> int:
    """The country code that the digits begin with; 0 if they begin with none."""
    for n in range(1, _MAX_CODE_DIGITS + 1):
        if (code := int(digits[:n])) in COUNTRY_CODE_TO_REGION_CODE:
            return code
    return 0


@lru_cache(1 << 14)  # a site has its numbers on each of its pages
def is_international(digits: str) -> bool:
    """Whether the digits are a country code and a number of that country, with or without its trunk prefix."""
    code = country_code(digits)
    if not code:
        return False
    rest = digits[len(str(code)) :]
    valid, prefix = _of_code(code)
    if valid.fullmatch(rest):
        return True
    if prefix is None or not prefix.match(rest):
        return False
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(f"+{digits}"))
    except NumberParseException:
        return False


@cache
def _dialled(region: str) -> tuple[re.Pattern[str] | None, frozenset[int]]:
    """What all that is dialled inside the region for a valid number matches, None if no pattern says so; and how many
    digits that has."""
    metadata = _region_metadata(region)
    lengths = _numbers(metadata)[1]
    lengths |= {length + len(metadata.national_prefix or "") for length in lengths}
    if metadata.national_prefix_transform_rule:
        return None, lengths
    # a number of another region with the same country code is dialled like one of this
    regions = COUNTRY_CODE_TO_REGION_CODE[phonenumbers.country_code_for_region(region)]
    valid = "|".join(f"(?:{_valid(0, one).pattern})" for one in regions)
    return re.compile(f"(?:{metadata.national_prefix_for_parsing or ''})?(?:{valid})"), lengths


@lru_cache(1 << 14)
def national_groups(digits: str, region: str) -> tuple[str, ...]:
    """The groups in which the region writes the number that is dialled by these digits; none if there is none."""
    pattern, lengths = _dialled(region)
    if len(digits) not in lengths or (pattern and not pattern.fullmatch(digits)):
        return ()
    if _valid(0, region).fullmatch(digits):
        zeros = len(digits) - len(digits.lstrip("0"))
        code = phonenumbers.country_code_for_region(region)
        number = PhoneNumber(code, int(digits), italian_leading_zero=zeros > 0, number_of_leading_zeros=zeros or None)
    else:
        try:
            number = phonenumbers.parse(digits, region)
        except NumberParseException:
            return ()
        if not phonenumbers.is_valid_number(number):
            return ()
    return tuple(re.findall(r"\d+", phonenumbers.format_number(number, PhoneNumberFormat.NATIONAL)))


def trunk_prefix(region: str) -> str:
    """What a caller inside the region dials first; "" where that is nothing."""
    return _region_metadata(region).national_prefix or ""


def _widths(pattern: str) -> list[list[int]]:
    """How many digits each group of a pattern for digits can have."""
    plain = re.sub(r"\[[^\]]*\]|\\d|(?<![{,\d])\d(?![,\d}])", "0", pattern).replace("(?:", "<")
    groups = [group.replace("<", "(?:") for group in re.findall(r"\(((?:[^()<]|<(?:[^()<]|<[^()]*\))*\))*)\)", plain)]
    return [[n for n in range(1, 18) if re.fullmatch(group, "0" * n)] for group in groups]


def _groupings(region: str) -> Iterator[tuple[bool, tuple[int, ...]]]:
    """Whether a number begins with a trunk prefix 0, and the sizes of its groups, for each way that the region has."""
    # regions that share a country code write numbers as the first of them does
    metadata = _region_metadata(COUNTRY_CODE_TO_REGION_CODE[phonenumbers.country_code_for_region(region)][0])
    prefix = metadata.national_prefix or ""
    lengths = _numbers(_region_metadata(region))[1]
    for one in metadata.number_format:
        form = one.format or ""
        if one.national_prefix_formatting_rule:
            form = re.sub(r"(\\\d)", one.national_prefix_formatting_rule, form, count=1)
        for widths in product(*_widths(one.pattern or "")):
            if sum(widths) in lengths:
                example = form
                for n, width in enumerate(widths, 1):
                    example = example.replace(f"\\{n}", "x" * width)
                sizes = tuple(map(len, re.findall(r"[x\d]+", example)))
                yield re.match(r"\D*0", example) is not None, sizes
                if prefix:
                    yield prefix.startswith("0"), (len(prefix), *sizes)


@cache
def groupings(regions: tuple[str, ...]) -> np.ndarray:
    """How many digits stand in the groups of national numbers, as the regions write them: int64, ascending.

    Four bits a group, the first group lowest, and `TRUNK` where the first one begins with a trunk prefix 0.
    """
    distinct = {one for region in regions for one in _groupings(region) if 0 < len(one[1]) <= MAX_GROUPS}
    coded = (TRUNK * trunk + sum(size << 4 * n for n, size in enumerate(sizes)) for trunk, sizes in distinct)
    return np.array(sorted(coded), np.int64)
