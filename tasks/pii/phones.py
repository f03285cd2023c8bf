"""Phone numbers, by Google's libphonenumber (`phonenumbers`).

Masked is a number that exists by its country's numbering plan (`is_valid_number`):

- one with a country code after a plus sign (`+44 20 7946 0123`), whatever its grouping; or after a prefix of
  international calls, 00, 011 or 0011, in groups (`0044 20 7946 0123`);
- a national number of one of the given regions, if it is grouped as that region writes it, by hyphens, points or
  parentheses (`(212) 555-0123`, `212.555.0123`);
- a national number that begins with a trunk prefix 0: by spaces in the region's groups (`020 7946 0123`), or by
  hyphens or slashes with the region's area code first (`030/23125-123`); not what grows from group to group, as
  `01 02 03 04 05` does;
- one that begins with 1300 or 1800 in the region's groups (Australia: `1800 975 707`);
- a national number in any groups, or in one, if a word just before it says what it is (`Tel. 2125550123`); in the
  region's groups or with a trunk prefix 0, if the word is further off or only may say so (see `phone_words`), or if its
  region is one of those that need a word (see `announced_regions`).

Digits may be of any script, also full-width; so may hyphens and parentheses. The given regions are those of the
setting `regions` and those of the document's language; numbers of Hong Kong and Singapore, two groups of four digits as
years are, need a word. Not masked are decimals, dates, quads and digits in a longer row of numbers, extensions, numbers
with letters, and short numbers of services (`112`).

Numbers kept for fiction (555-01xx, Ofcom's, Arcep's) are valid by their plans and masked like all others: they read
as numbers, and are too rare in real text for a rule of their own.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import phonenumbers
from phonenumbers import (
    COUNTRY_CODE_TO_REGION_CODE,
    NumberParseException,
    PhoneMetadata,
    PhoneNumber,
    PhoneNumberFormat,
)

from gristmill.tasks.pii.phone_words import Announcement, announced_after, announced_before, announced_regions

MAX_GROUPS = 8  # of four bits each in a grouping


TRUNK = 1 << 4 * MAX_GROUPS


_TYPES = (
    *("fixed_line", "mobile", "toll_free", "premium_rate", "shared_cost", "personal_number", "voip", "pager", "uan"),
    "voicemail",
)
_WORLD = "001"  # the region of codes without a country, such as 800
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
    """What the valid numbers after a country code match, and what callers inside its regions dial first."""
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
    """How many digits the groups of national numbers have, as the regions write them: int64, ascending.

    Four bits a group, the first group lowest, and `TRUNK` where the first one begins with a trunk prefix 0.
    """
    distinct = {one for region in regions for one in _groupings(region) if 0 < len(one[1]) <= MAX_GROUPS}
    coded = (TRUNK * trunk + sum(size << 4 * n for n, size in enumerate(sizes)) for trunk, sizes in distinct)
    return np.array(sorted(coded), np.int64)


_WORDS_BEFORE = 80  # bytes that may hold the words
_NO_WORD = b" \t\r\n.:=\"'>()[#|/,-"  # may be between it and the number
_OTHER_SEPARATOR = re.compile(rb"[^\d \xc2\xa0]")
_DIGITS = re.compile(rb"\d+")
_FIELD = re.compile(rb"(?:[^ \xc2]|\xc2(?!\xa0))+")
# More of a word, a number, a path, a variable or an expression; an amount of money.
_BEFORE = re.compile(rb"(?:[\w./\\=+$#%@&^*~<>-]|\d[:]|[$#=<>+*^/]\s|\xc2\xa3\s?|\xe2\x82\xac\s?)\Z", re.ASCII)
_BEFORE_NAMED = re.compile(rb"(?:[\w\\+$%@&^*~<-]|\w/)\Z", re.ASCII)
_BEFORE_PLUS = re.compile(rb"[\w.\\)\]+^*/=-]\Z", re.ASCII)
_AFTER = re.compile(rb"[\w@%^*=+\\]|[.:/-]\w|\s?[*=^]\s?\d|\s\+\s\d", re.ASCII)
_DIVIDED = re.compile(rb"\s/\s\d")  # by a number, if the dividend is not grouped as only phone numbers are
_LISTED_BEFORE, _LISTED_AFTER = re.compile(rb"\d,\s?\Z"), re.compile(rb"(?:,\s?| |\xc2\xa0)\d")
_CLAUSE = re.compile(rb"\d\.\d+-\d|\d-\d+\.\d|^\d+\.\d+\Z")  # as in `DFARS 252.227-7013`; a decimal
_MADE_UP = re.compile(r"(\d)\1{6}|123456789|987654321")
# Regions whose numbers are two groups of four digits, as years are: they need a word or a country code.
_BARE = ("HK", "SG")
_FREE = re.compile(rb"1[38]00(?!\d)")  # begins numbers that cost the caller little, in Australia and its neighbors
_MIN_DIGITS, _MAX_DIGITS = 7, 15  # digits; E.164
_MIN_DIGITS_WITH_TRUNK, _MIN_DIGITS_REGROUPED = 9, 10
_TRUNK_APART = re.compile(rb"0 ?\(\d")  # `0 (212) 247 36 58`
_AREA = re.compile(rb"0\d{1,3}\)\s?\d")  # in Korean and Chinese: `02)212-3456`
_SUFFIX = re.compile(rb"-(?:[aeo]s|\xc3\xb6s)\b")  # of a number in Hungarian: `06-1-347-2958-as telefonszám`
_MIN_GROUPS_ABROAD = 3
_ABROAD = re.compile(r"00(?:11)?|011")


class Regions(NamedTuple):
    """Whose national numbers are found in a document: `own`; and after a word more by `language`, None if not known,
    and by the words' languages, of which `by_language` has the regions."""

    own: tuple[str, ...]
    language: str | None
    by_language: Mapping[str, tuple[str, ...]]


def _is_national(groups: tuple[str, ...], region: str, has_word: bool, spaced: bool) -> bool:
    """Whether the digits are a number of the region, in one group or grouped as it writes them.

    `has_word`: any grouping will do. spaced: only spaces are between the groups.
    """
    digits = "".join(groups)
    zero = digits.startswith("0")
    if not has_word and (region in _BARE or (zero and spaced and _is_list(groups))):
        return False
    if (
        not has_word
        and spaced
        and not _FREE.match(groups[0].encode())
        and (not zero or len(digits) < _MIN_DIGITS_WITH_TRUNK)
    ):
        return False
    usual = national_groups(digits, region)
    if not usual:
        return False
    whole = "".join(usual)
    if has_word:
        return digits in (whole, trunk_prefix(region) + whole) or len(digits) >= _MIN_DIGITS_WITH_TRUNK
    if groups in (usual, (trunk_prefix(region), *usual)):
        return True
    return zero and not spaced and groups[0] == usual[0] and digits == whole and len(digits) >= _MIN_DIGITS_REGROUPED


def _is_grouped_national(groups: tuple[str, ...], region: str) -> bool:
    """Whether the digits are a number of the region that begins with its trunk prefix 0, or in the region's groups."""
    digits = "".join(groups)
    usual = national_groups(digits, region)
    if not usual:
        return False
    if digits.startswith("0"):
        return (
            digits in ("".join(usual), trunk_prefix(region) + "".join(usual)) and len(digits) >= _MIN_DIGITS_WITH_TRUNK
        )
    return len(groups) > 1 and groups in (usual, (trunk_prefix(region), *usual))


def _is_list(groups: tuple[str, ...]) -> bool:
    """Whether the groups are numbers of two digits that grow up to 49 at most: `01 02 03 04 05`, or a draw of lots."""
    grow = all(one < other for one, other in pairwise(groups))
    return grow and {len(group) for group in groups} == {2} and groups[-1] <= "49"


def _is_abroad(groups: tuple[str, ...], has_word: bool) -> bool:
    """Whether the groups are a number with a prefix of international calls; without `has_word` its country code
    is a group."""
    prefix = _ABROAD.match(groups[0])
    if not prefix or (len(groups) < _MIN_GROUPS_ABROAD and not has_word):
        return False
    rest = groups[0][prefix.end() :], *groups[1:]
    digits = "".join(rest)
    code = rest[0] or rest[1]
    if not has_word and str(country_code(code)) != code:
        return False
    return _MIN_DIGITS < len(digits) <= _MAX_DIGITS and is_international(digits)


def phones(value: bytes, before: bytes, after: bytes, regions: Regions) -> list[tuple[int, int]]:
    """Where the candidate has numbers, given the bytes around it.

    The first start is negative where a plus sign or a parenthesis before the candidate is part of the number.
    """
    signed = before.endswith(b"+")
    outside = before.removesuffix(b"+").removesuffix(b"(")
    word = None if signed else _announcement(outside, after)
    is_named = word is not None and not word.weak
    is_bracketed = is_named and outside != before  # the word, and the number in parentheses
    if not is_bracketed and (_BEFORE_PLUS if signed else _BEFORE_NAMED if is_named else _BEFORE).search(outside):
        return []
    fields = [match.span() for match in _FIELD.finditer(value) if _DIGITS.search(value, *match.span())]
    spans: list[tuple[int, int]] = []
    first = 0
    while first < len(fields):
        start = fields[first][0]
        announced = not first or (word is not None and bool(spans) and spans[-1][1] == fields[first - 1][1])
        before_brackets = first + 1 < len(fields) and value[fields[first + 1][0] :].startswith(b"(")  # `8 (495) ...`
        several = announced and (
            signed or word or before_brackets or value[start : start + 1] == b"0" or _FREE.match(value, start)
        )
        most = first + (MAX_GROUPS if several else 1 + (b")" in value[start : fields[first][1]]))
        for last in range(min(len(fields), most) - 1, first - 1, -1):
            stop = fields[last][1]
            rest = value[stop:] + after
            if span := _number(value, start, stop, before, rest, signed, word if announced else None, regions):
                spans.append(span)
                first = last
                break
        first += 1
    return spans


def _announcement(before: bytes, after: bytes) -> Announcement | None:
    last = before.rstrip(_NO_WORD)[-1:]
    if (last.isalpha() or last > b"\x7f") and (word := announced_before(before[-_WORDS_BEFORE:])):
        return word
    return Announcement(True, ()) if announced_after(after) else None


def _number(
    value: bytes,
    start: int,
    stop: int,
    before: bytes,
    after: bytes,
    signed: bool,
    word: Announcement | None,
    regions: Regions,
) -> tuple[int, int] | None:
    """The span of the number that goes from `start` to `stop`, with what belongs to it before the candidate."""
    part = value[start:stop]
    groups = tuple(group.decode("ascii") for group in _DIGITS.findall(part))
    if _TRUNK_APART.match(part):
        groups = groups[0] + groups[1], *groups[2:]
    digits = "".join(groups)
    is_named = word is not None and not word.weak
    has_more = _AFTER.match(after) and not (word and _SUFFIX.match(after))
    if not _MIN_DIGITS <= len(digits) <= _MAX_DIGITS + 4 or has_more or _MADE_UP.search(digits):
        return None
    has_open = not start and before.removesuffix(b"+").endswith(b"(")
    has_close = b")" in part.partition(b"(")[0]
    if signed and not start:
        return (
            (-1 - (has_open and has_close), stop) if len(digits) <= _MAX_DIGITS and is_international(digits) else None
        )
    if (
        (has_open < has_close and not (word and _AREA.match(part)))
        or (len(groups) == 1 and not word)
        or (not is_named and _CLAUSE.search(part))
    ):
        return None
    spaced = not _OTHER_SEPARATOR.search(part) and not (has_open and has_close)
    if (
        spaced
        and not is_named
        and ((not start and _LISTED_BEFORE.search(before)) or _LISTED_AFTER.match(after) or _DIVIDED.match(after))
    ):
        return None
    if not _is_abroad(groups, is_named):
        if len(groups) > MAX_GROUPS - 2 or not _is_of_regions(groups, word, spaced, regions):
            return None
    return start - (has_open and has_close), stop


def _is_of_regions(groups: tuple[str, ...], word: Announcement | None, spaced: bool, regions: Regions) -> bool:
    """Whether the digits are a number of the document's regions, or of those that a word is enough for."""
    is_named = word is not None and not word.weak
    if (is_named or len(groups) > 1) and any(_is_national(groups, region, is_named, spaced) for region in regions.own):
        return True
    if word is None:
        return False
    more = announced_regions(regions.language, word.languages, regions.by_language)
    return any(_is_grouped_national(groups, region) for region in (*(regions.own if word.weak else ()), *more))


def foreign_phones(value: bytes, before: bytes, after: bytes, regions: Regions) -> list[tuple[int, int]]:
    """`phones` of a candidate with digits beyond ASCII."""
    text = value.decode()
    folded = "".join(map(_folded, text)).encode()
    lead = before.decode("utf-8", "ignore")[-2:]
    spans = phones(
        folded, before[: len(before) - len(lead.encode())] + "".join(map(_folded, lead)).encode(), after, regions
    )
    ends = [0]
    for character in text:
        ends.append(ends[-1] + len(character.encode()))
    return [(ends[start] if start >= 0 else -len(lead[start:].encode()), ends[stop]) for start, stop in spans]


def _folded(character: str) -> str:
    """The ASCII form of a character that may be in a number, or near it; the character itself if it has none."""
    digit = unicodedata.digit(character, None)
    if digit is not None:
        return str(digit)
    plain = unicodedata.normalize("NFKC", character)
    if len(plain) == 1 and plain.isascii():
        return plain
    return "-" if unicodedata.category(character) == "Pd" else " " if character.isspace() else character
