"""Phone numbers, by Google's libphonenumber (`phonenumbers`).

Masked is a number that exists by its country's numbering plan (`is_valid_number`):

- one with a country code: `+44 20 7946 0123`, whatever its grouping;
- a national number of one of the given regions, if it is grouped as that region writes it, by hyphens, points or
  parentheses (`(212) 555-0123`, `212.555.0123`);
- a national number grouped by spaces only, or not at all, if a word just before it says what it is (`Tel. 2125550123`).

Numbers kept for fiction (555-01xx, Ofcom's, Arcep's) are valid by their plans and masked like all others: they read
as numbers, and are too rare in real text for a rule of their own.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache

import phonenumbers
from phonenumbers import NumberParseException, PhoneMetadata, PhoneNumberFormat

# In the languages that the web has most of; whole words, or the end of one (`Mobiltelefon`, `cellphone`).
_PHONE_WORD = re.compile(
    r"(?:\b(?:tel|telf|ph|call|text|fax|facsimile|telefax|mobile|mob|cell|cellular|handy|whatsapp|sms|hotline|helpline|"
    r"toll[- ]free|fon|t[ée]l|tel[ée]fono|telefoon|móvil|movil|celular|cellulare|gsm|телефон|тел|電話|电话)"
    r"|phones?|telefon|t[ée]l[ée]phone)"
    r"(?:\s+(?:no|nr|number|num))?[\s.:#☎📞-]{0,4}$",
    re.IGNORECASE,
)
_DIGITS = re.compile(rb"\d+")
_FIELD = re.compile(rb"(?:[^ \xc2]|\xc2(?!\xa0))+")
# More of a word, a number, a path, a variable or an expression; an amount of money.
_BEFORE = re.compile(rb"(?:[\w./\\=+$#%@&^*~<>-]|\d[,:]|[$#=<>+*^/]\s|\xc2\xa3\s?|\xe2\x82\xac\s?)$", re.ASCII)
_BEFORE_PLUS = re.compile(rb"[\w.\\)\]+^*/=-]$", re.ASCII)
_AFTER = re.compile(rb"[\w@%^*=+\\]|[.,:/-]\w|\s?[*=^]\s?\d|\s[+/]\s\d", re.ASCII)
_CLAUSE = re.compile(rb"\d\.\d+-\d|\d-\d+\.\d")  # as in `DFARS 252.227-7013`
_MADE_UP = re.compile(r"(\d)\1{6}|12345678|23456789|98765432|87654321")


def _fields(value: bytes, announced: bool) -> Iterator[tuple[int, int]]:
    """Spans of the fields, between spaces, that a number may consist of; for each first field the longest first.

    A number has several only if its first is an area code in parentheses, or if it begins where the candidate does
    and a plus sign or a word has `announced` it.
    """
    spans = [match.span() for match in _FIELD.finditer(value)]
    for first, (start, stop) in enumerate(spans):
        several = len(spans) if announced and not first else first + 1 + (b")" in value[start:stop])
        for _, stop in reversed(spans[first:several]):
            yield start, stop


@lru_cache(1 << 14)  # a site has its numbers on each of its pages
def _international(digits: str) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(f"+{digits}"))
    except NumberParseException:
        return False


# with the prefix; French numbers have six
_MOST_GROUPS = 6


@cache
def _plan(region: str) -> tuple[str, frozenset[int]]:
    """What a caller inside the region dials first, and how many digits a number can then have, with and without it."""
    metadata = PhoneMetadata.metadata_for_region(region)
    assert metadata is not None and metadata.general_desc is not None, f"{region} is a region with a numbering plan"
    prefix = metadata.national_prefix or ""
    lengths = metadata.general_desc.possible_length
    return prefix, frozenset(lengths) | {length + len(prefix) for length in lengths}


@lru_cache(1 << 14)
def _national(groups: tuple[str, ...], region: str) -> bool:
    """Whether the digits are a number of the region, in one group or grouped as it writes them."""
    if len(groups) > _MOST_GROUPS:
        return False
    prefix, lengths = _plan(region)
    digits = "".join(groups)
    if len(digits) not in lengths:
        return False
    try:
        number = phonenumbers.parse(digits, region)
    except NumberParseException:
        return False
    if not phonenumbers.is_valid_number(number):
        return False
    usual = tuple(re.findall(r"\d+", phonenumbers.format_number(number, PhoneNumberFormat.NATIONAL)))
    return len(groups) == 1 or groups == usual or groups == (prefix, *usual)


def phones(value: bytes, before: bytes, after: bytes, regions: tuple[str, ...]) -> list[tuple[int, int]]:
    """Where in the candidate numbers stand, given the bytes around it.

    The first start is negative where a plus sign or a parenthesis before the candidate is part of the number.
    """
    signed = before.endswith(b"+")
    outside = before.removesuffix(b"+").removesuffix(b"(")
    if (_BEFORE_PLUS if signed else _BEFORE).search(outside):
        return []
    named = not signed and _PHONE_WORD.search(outside.decode("utf-8", "ignore")) is not None
    found = []
    end = 0
    for start, stop in _fields(value, signed or named):
        part = value[start:stop]
        groups = tuple(group.decode("ascii") for group in _DIGITS.findall(part))
        digits = "".join(groups)
        if start < end or not 7 <= len(digits) <= 15 or _MADE_UP.search(digits) or _AFTER.match(value[stop:] + after):
            continue
        opened = not start and len(before) - len(outside) > signed
        closed = b")" in part.partition(b"(")[0]
        if signed and not start:
            if _international(digits):
                found.append((-1 - (opened and closed), stop))
                end = stop
        elif (len(groups) > 1 or (named and not start)) and opened >= closed and (named or not _CLAUSE.search(part)):
            if any(_national(groups, region) for region in regions):
                found.append((start - (opened and closed), stop))
                end = stop
    return found
