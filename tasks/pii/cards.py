"""Numbers of payment cards, and of bank accounts by their IBAN.

Masked is a number with an issuer's beginning and length (ISO/IEC 7812-1; the ranges that Visa, Mastercard, American
Express, Discover, Diners Club, JCB and UnionPay publish) and a right check digit (Luhn), in one group or in those
printed on the card, with spaces or hyphens between them; also in a cell of a table, in quotes, or one after the other.

Only behind a word such as `card` or `Visa` are masked lengths and beginnings that identifiers have as often: Visa's of
13 and 19 digits, UnionPay's of 17 to 19, Maestro's, Mir's, RuPay's.

Not masked are the numbers that payment services publish for tests: nobody's card, and what code about payment is made
of; parts of words, paths and expressions; and numbers in a list whose neighbours are numbers, but no cards: a tenth of
all numbers has a right check digit.
"""

import re
from functools import cache
from string import ascii_uppercase

import numpy as np
from stdnum import iban, luhn, numdb

_BEFORE_IBAN = re.compile(rb"(?:[\w./\\+%@-]|(?<![A-Za-z])=)\Z", re.ASCII)
_AFTER_IBAN = re.compile(rb"[\w/\\=+%@-]| ?\d", re.ASCII)
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
    if not _GROUPS.fullmatch(number) or _BEFORE_IBAN.search(before) or _AFTER_IBAN.match(value[stop:] + after):
        return []
    # national check digits differ between the banks of a country and between versions of the library
    return [(0, stop)] if iban.is_valid(number.decode("ascii"), check_country=False) else []


# By beginning: Visa, Mastercard, Discover, JCB and UnionPay; American Express; Diners Club.
_ISSUED = re.compile(
    rb"(?:4\d{3}|5[1-5]\d{2}|222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720|6011|64[4-9]\d|65\d{2}|352[89]|35[3-8]\d|62\d{2})"
    rb"\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
)
# Visa; UnionPay; Maestro; Mir; RuPay.
_ISSUED_IF_SAID = re.compile(
    rb"4\d{12}(?:\d{6})?|62\d{15,17}|(?:50|5[6-9]|6[37]|60|69)\d{11,17}|220[0-4]\d{12,15}|(?:508|60|65|81|82)\d{13,14}"
)
_CARD_WORD = re.compile(
    r"(?:\b(?:visa|master ?card|maestro|amex|american express|discover|diners(?: club)?|jcb|mir|мир|rupay|unionpay|"
    r"ccn?|credit|debit|kredit)|cards?|karten?|cartes?|tarjetas?|cart[aã]o|carta|kaart|kort|kart[aıy]?|карт[аыу]|カード|"
    r"卡号?|카드)\b[^\d\n]{0,24}\Z",
    re.IGNORECASE,
)
# Of the documentation of Stripe, PayPal, Adyen and Braintree.
_TESTS = frozenset(
    "4111111111111111 4242424242424242 4012888888881881 4000056655665556 4000000000000002 4000000000000077 "
    "4000000000000341 4000000000009995 4000002500003155 4000002760003184 4444333322221111 4917610000000000 "
    "5555555555554444 5105105105105100 5200828282828210 5454545454545454 2223003122003222 2223000048400011 "
    "378282246310005 371449635398431 378734493671000 341111111111111 6011111111111117 6011000990139424 "
    "6011981111111113 30569309025904 38520000023237 36227206271667 3530111333300000 3566002020360505 "
    "6200000000000005 6205500000000000004".split()
)
# More of a word, a path or an expression; a call; a number with a decimal point or comma.
_BEFORE = re.compile(rb"(?:[\w./\\+$#%@&^*~-]|[\w)]\(|\d:|(?<![\w\"'/])>|<)\Z", re.ASCII)
_ASSIGNED = re.compile(rb"=\s?\Z")
_AFTER = re.compile(rb"[\w@%^*=+\\]|[.:/-]\w|\s?[*=^+]\s?\d", re.ASCII)
_NUMBER_BEFORE = re.compile(rb"(\d[\d -]*)[\"']?(?:[,;|\t]\s?|\s)[\"']?\Z")
_NUMBER_AFTER = re.compile(rb"[\"']?(?:[,;|\t]\s?|[ \n])[\"']?(-?\d(?:[\d/.]|[ -](?=\d{4,6}))*)")
# A date until which a card is good, or the digits on its back.
_BESIDE = re.compile(rb"(?:0[1-9]|1[0-2])[/-](?:20)?\d\d|\d{3}")
_FEWEST_DIFFERENT = 4


def _is_card(written: bytes, said: bool) -> bool:
    digits = re.sub(rb"\D", b"", written)
    if not _ISSUED.fullmatch(digits) and not (said and _ISSUED_IF_SAID.fullmatch(digits)):
        return False
    number = digits.decode("ascii")
    return number not in _TESTS and len(set(number)) >= _FEWEST_DIFFERENT and luhn.is_valid(number)


def cards(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Whether the candidate is a card's number, given the bytes around it: all of it, or nothing."""
    if _BEFORE.search(before) or _AFTER.match(after) or not _is_card(value, said=True):
        return []
    return [(0, len(value))] if _stands_alone(value, before, after) or _is_said(before) else []


def _is_said(before: bytes) -> bool:
    letters = re.search(rb"[^\d\n]*\Z", before)
    return letters is not None and _CARD_WORD.search(letters[0].decode("utf-8", "ignore")) is not None


def _stands_alone(value: bytes, before: bytes, after: bytes) -> bool:
    """Whether the number is a card's by itself, and what stands in a list beside it is another, or belongs to it."""
    if not _is_card(value, said=False) or _ASSIGNED.search(before):
        return False
    ahead, behind = _NUMBER_BEFORE.search(before), _NUMBER_AFTER.match(after)
    if ahead and not _is_card(ahead[1], said=False):
        return False
    return not behind or _BESIDE.fullmatch(behind[1]) is not None or _is_card(behind[1], said=False)
