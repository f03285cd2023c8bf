"""Numbers of payment cards.

Masked is a number with an issuer's beginning and length (ISO/IEC 7812-1) and a right check digit (Luhn), in one group
or in those printed on the card. Not masked are the numbers that payment services publish for tests: nobody's card,
and what code about payment is made of.
"""

import re

from stdnum import luhn

# By beginning: Visa, Mastercard, Discover, JCB and UnionPay; American Express; Diners Club.
_SIXTEEN = re.compile(
    rb"(?:4\d{3}|5[1-5]\d{2}|222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720|6011|64[4-9]\d|65\d{2}|352[89]|35[3-8]\d|62\d{2})"
    rb"(?:([ -]?)\d{4})(?:\1\d{4}){2}"
)
_FIFTEEN = re.compile(rb"3[47]\d{2}([ -]?)\d{6}\1\d{5}")
_FOURTEEN = re.compile(rb"3(?:0[0-5]|[68]\d)\d([ -]?)\d{6}\1\d{4}")
# Of the documentation of Stripe, PayPal, Adyen and Braintree.
_TESTS = frozenset(
    "4111111111111111 4242424242424242 4012888888881881 4000056655665556 4000000000000002 4000000000000077 "
    "4000000000000341 4000000000009995 4000002500003155 4000002760003184 4444333322221111 4917610000000000 "
    "5555555555554444 5105105105105100 5200828282828210 5454545454545454 2223003122003222 2223000048400011 "
    "378282246310005 371449635398431 378734493671000 341111111111111 6011111111111117 6011000990139424 "
    "6011981111111113 30569309025904 38520000023237 36227206271667 3530111333300000 3566002020360505 "
    "6200000000000005 6205500000000000004".split()
)
# More of a word, a path or an expression; a call; a list of numbers.
_BEFORE = re.compile(rb"(?:[\w./\\=+$#%@&^*~<>-]|\w\(|\d[,:]\s?)$", re.ASCII)
_AFTER = re.compile(rb"[\w@%^*=+\\]|[.:/-]\w|,\s?-?\d", re.ASCII)


_FEWEST_DIFFERENT = 4


def _is_card(written: bytes) -> bool:
    number = re.sub(rb"\D", b"", written).decode("ascii")
    return number not in _TESTS and len(set(number)) >= _FEWEST_DIFFERENT and luhn.is_valid(number)


def cards(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate cards' numbers stand, given the bytes around it: all of it must be cards and spaces."""
    spans = []
    at = 0
    while at < len(value):
        match = next(filter(None, (form.match(value, at) for form in (_SIXTEEN, _FIFTEEN, _FOURTEEN))), None)
        if not match or value[match.end() : match.end() + 1] not in (b"", b" ") or not _is_card(match[0]):
            return []
        spans.append(match.span())
        at = match.end() + 1
    return [] if _BEFORE.search(before) or _AFTER.match(after) else spans
