"""Shapes around one byte of a text: how far what may be personal data goes to both sides.

Every function looks at a bounded number of bytes, or at bytes that no other call looks at.
"""

from functools import cache

import numpy as np

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.compiled import nb

# Bits of a byte's class.
WORD = np.uint8(1)  # ASCII letter, digit, underscore
DIGIT = np.uint8(2)
_LOCAL = np.uint8(4)  # may be in the local part of an address
_DOMAIN = np.uint8(8)  # may be in its domain
HEX = np.uint8(16)
UPPER = np.uint8(32)
KEY_PART = np.uint8(64)  # may be in a key
_TOKEN = np.uint8(128)  # may be in a token of an HTTP header: RFC 6750, 2.1

_MAX_LOCAL_LENGTH = 64  # RFC 5321, 4.5.3.1
_MAX_DOMAIN_LENGTH = 255
_MAX_SPELLED_LENGTH = 120
_MAX_LOGIN_LENGTH = 160
_MAX_HEXTETS_LENGTH = 45  # RFC 4291 with an IPv4 address at the end
_MIN_TOKEN_LENGTH = 20
_MIN_BASIC_LENGTH = 12


@cache
def classes() -> np.ndarray:
    """The bits of each byte's class, uint8, shape (256,)."""
    table = np.zeros(256, np.uint8)
    letters = b"abcdefghijklmnopqrstuvwxyz"
    digits = b"0123456789"
    alphanumeric = letters + letters.upper() + digits
    beyond = bytes(range(128, 256))
    for bit, members in (
        (WORD, alphanumeric + b"_"),
        (DIGIT, digits),
        (_LOCAL, alphanumeric + b"._%+-" + beyond),
        (_DOMAIN, alphanumeric + b".-" + beyond),
        (HEX, digits + b"abcdefABCDEF"),
        (UPPER, letters.upper()),
        (KEY_PART, alphanumeric + b"_-."),
        (_TOKEN, alphanumeric + b"_-.~+/="),
    ):
        table[list(members)] |= bit
    return table


@nb.njit(nogil=True, cache=True)
def has(data, i, classes, bit):
    """Whether the byte at `i` is of the class `bit`; `i` may be beside the text."""
    return 0 <= i < len(data) and (byte(classes, np.int64(byte(data, i))) & bit) != 0


@nb.njit(nogil=True, cache=True)
def run(data, i, end, classes, bit):
    """The end of the run of bytes of the class `bit` that begins at `i`."""
    while i < end and byte(classes, np.int64(byte(data, i))) & bit:
        i += 1
    return i


@nb.njit(nogil=True, cache=True)
def _inside(data, i, end):
    """Whether the byte at `i` goes on with the character of the byte before it."""
    return i < end and byte(data, i) & 0xC0 == 0x80


@nb.njit(nogil=True, cache=True)
def _is_ascii(data, start, stop):
    for i in range(start, stop):
        if byte(data, i) >= 0x80:
            return False
    return True


@nb.njit(nogil=True, cache=True)
def mailbox(data, begin, at_sign, end, classes, sign):
    """(start, stop) of what may be an address around the @ at `at_sign` of `sign` bytes; the stop is 0 if there is
    none.

    Both sides are cut at the lengths of RFC 5321, between characters; an ASCII local part that is longer is none. A
    local part in double quotes goes from quote to quote, on one line. With another @ right
    after an ASCII domain, or before an ASCII local part, there is none.
    """
    left = at_sign
    if at_sign > begin and byte(data, at_sign - 1) == 0x22:
        left = at_sign - 2
        while (
            left >= begin
            and at_sign - left <= _MAX_LOCAL_LENGTH
            and byte(data, left) != 0x22
            and byte(data, left) != 0x0A
        ):
            left -= 1
        if left < begin or byte(data, left) != 0x22:
            return left, 0
    else:
        ascii_ = True
        while left > begin and has(data, left - 1, classes, _LOCAL):
            ascii_ &= byte(data, left - 1) < 0x80
            if at_sign - left == _MAX_LOCAL_LENGTH:
                if ascii_:
                    return left, 0
                break
            left -= 1
        while left < at_sign and _inside(data, left, end):
            left += 1
    right = run(data, at_sign + sign, min(end, at_sign + sign + _MAX_DOMAIN_LENGTH), classes, _DOMAIN)
    while _inside(data, right, end):
        right -= 1
    point = False
    for i in range(at_sign + sign + 1, right):
        point |= byte(data, i) == 0x2E
        point |= sign == 3 and byte(data, i) == 0xEF and i + 2 < right and byte(data, i + 2) == 0x8E  # full-width
    is_crowded = left > begin and byte(data, left - 1) == 0x40 and _is_ascii(data, left, at_sign)
    is_crowded |= right < end and byte(data, right) == 0x40 and _is_ascii(data, at_sign, right)
    return left, right if point and left < at_sign and not is_crowded else 0


@nb.njit(nogil=True, cache=True)
def login(data, begin, at_sign, end):
    """Where the user and the password of an URL begin that end at the @ at `at_sign`; -1 if no URL's do."""
    i = at_sign - 1
    colon = False
    while i > begin + 1 and at_sign - i <= _MAX_LOGIN_LENGTH:
        b = byte(data, i)
        if b <= 0x20 or b == 0x40 or b == 0x22 or b == 0x27:
            return -1
        if b == 0x2F:
            return i + 1 if colon and byte(data, i - 1) == 0x2F and byte(data, i - 2) == 0x3A else -1
        colon |= b == 0x3A
        i -= 1
    return -1


@nb.njit(nogil=True, cache=True)
def _at_in_brackets(data, i, end):
    """Whether the bracket at `i` begins `(at)`, with any of three kinds of brackets, in either case."""
    return (
        i + 4 < end
        and byte(data, i + 1) | 0x20 == 0x61
        and byte(data, i + 2) | 0x20 == 0x74
        and (byte(data, i + 3) == byte(data, i) + 2 or byte(data, i + 3) == byte(data, i) + 1)
    )


@nb.njit(nogil=True, cache=True)
def spelled(data, begin, i, end, classes):
    """(start, stop) of what may be an address around the `(at)` whose bracket is at `i`; the stop is 0 if none is.

    A space may be on both sides of the brackets. The stop is as far as a domain can go.
    """
    if not _at_in_brackets(data, i, end):
        return i, 0
    left = i
    if left > begin and byte(data, left - 1) == 0x20:
        left -= 1
    local = left
    while left > begin and local - left <= _MAX_LOCAL_LENGTH and has(data, left - 1, classes, _LOCAL):
        if byte(data, left - 1) >= 0x80:
            break
        left -= 1
    right = i + 4 + (byte(data, i + 4) == 0x20)
    fits = 0 < local - left <= _MAX_LOCAL_LENGTH and right < end and has(data, right, classes, WORD)
    return left, min(end, right + _MAX_SPELLED_LENGTH) if fits else 0


@nb.njit(nogil=True, cache=True)
def token(data, i, end, classes, basic):
    """(start, stop) of the token after the white space at `i`; the stop is 0 if there is none. `basic`: it may be
    shorter."""
    start = i
    while start < end and start - i < 3 and (byte(data, start) == 0x20 or byte(data, start) == 0x09):
        start += 1
    if start == i:
        return i, 0
    # it begins after white space, which it does not hold: so no byte is looked at for two tokens
    stop = run(data, start, end, classes, _TOKEN)
    return start, stop if stop - start >= (_MIN_BASIC_LENGTH if basic else _MIN_TOKEN_LENGTH) else 0


@nb.njit(nogil=True, cache=True)
def dashes(data, i, end):
    """Whether five hyphens are at `i`."""
    if i < 0 or i + 5 > end:
        return False
    for k in range(5):
        if byte(data, i + k) != 0x2D:
            return False
    return True


@nb.njit(nogil=True, cache=True)
def block(data, begin, first, end):
    """(start, stop) of the block of PEM (RFC 7468) whose word BEGIN is at `first`; the stop is 0 if there is none.

    It ends with the second five hyphens after END; the next B after five hyphens ends the search, so that no byte is
    looked at twice: a BEGIN that is not in capitals begins none.
    """
    start = first - 5
    if start < begin or byte(data, first) != 0x42 or not dashes(data, start, end):
        return start, 0
    i = first + 5
    while i + 8 < end:
        if byte(data, i) == 0x2D and dashes(data, i, end):
            b = byte(data, i + 5)
            if b == 0x42:
                return start, 0
            if b == 0x2D:
                i += 1
                continue
            if b == 0x45 and byte(data, i + 6) == 0x4E and byte(data, i + 7) == 0x44:
                stop = i + 8
                while stop < end and stop - i < 64 and byte(data, stop) != 0x0A:
                    if dashes(data, stop, end):
                        return start, stop + 5
                    stop += 1
                return start, 0
            i += 5
        else:
            i += 1
    return start, 0


@nb.njit(nogil=True, cache=True)
def account(data, start, end, classes, lengths):
    """The stop of the account number at `start`, with single spaces in it; 0 if there is none.

    lengths: int64, shape (26, 26), of the numbers of a country by its two letters, 0 where it has none. The check
    digits are right: the number, its first four characters put last, is 1 modulo 97 (ISO 7064).
    """
    for k in range(4):
        if not has(data, start + k, classes, UPPER if k < 2 else DIGIT):
            return 0
    length = lengths[np.int64(byte(data, start)) - 0x41, np.int64(byte(data, start + 1)) - 0x41]
    size = 0
    head = tail = np.int64(0)
    stop = i = start
    while i < end and size < length:
        b = np.int64(byte(data, i))
        if has(data, i, classes, UPPER | DIGIT):
            value = b - 0x30 if b < 0x41 else b - 0x37
            if size < 4:
                head = (head * (10 if value < 10 else 100) + value) % 97
            else:
                tail = (tail * (10 if value < 10 else 100) + value) % 97
            size += 1
            stop = i + 1
        elif b != 0x20 or stop != i:
            break
        i += 1
    # two letters and two digits make six digits
    return stop if size == length and length and (tail * 1_000_000 + head) % 97 == 1 else 0


@nb.njit(nogil=True, cache=True)
def hextets(data, begin, start, end, classes):
    """The stop of the hexadecimal groups from `start` on; 0 if they are none."""
    b = byte(data, start)
    if (b != 0x32 and b != 0x33) or (start > begin and byte(data, start - 1) == 0x3A):
        return 0
    colons = 0
    i = start
    while i < end and i - start < _MAX_HEXTETS_LENGTH and (has(data, i, classes, HEX) or byte(data, i) == 0x3A):
        colons += byte(data, i) == 0x3A
        i += 1
    return i if colons >= 2 else 0


@nb.njit(nogil=True, cache=True)
def _opened(data, begin, start):
    """Whether a letter, a slash or an @ is before `start`, with at most eight white spaces, colons, equals signs,
    quotes and brackets between them."""
    i = start - 1
    while i >= begin and start - i <= 8:
        b = byte(data, i)
        if b <= 0x20 or b == 0x3A or b == 0x3D or b == 0x22 or b == 0x27 or b == 0x60:
            i -= 1
        elif b == 0x28 or b == 0x5B or b == 0x3C:
            i -= 1
        else:
            return b == 0x2F or b == 0x40 or b >= 0x80 or 0x41 <= b & 0xDF <= 0x5A
    return False


@nb.njit(nogil=True, cache=True)
def quad(data, begin, start, end, classes):
    """The stop of the four groups of digits from `start` on; 0 if there are none, or if they cannot be a public host.

    No group is over 255 or begins with a zero, the last is neither 0 nor 255, the first is that of a network for hosts.
    Four numbers with a small first and another small one are a version, unless a letter, a slash or an @ is before
    them and white space and what opens a value.
    """
    i = start
    first = small = 0
    for k in range(4):
        stop = run(data, i, min(end, i + 4), classes, DIGIT)
        if not 1 <= stop - i <= 3 or (byte(data, i) == 0x30 and stop - i > 1):
            return 0
        octet = 0
        for byte_index in range(i, stop):
            octet = 10 * octet + np.int64(byte(data, byte_index)) - 0x30
        first = octet if k == 0 else first
        small += k > 0 and octet <= 31
        if octet > 255 or (k == 0 and (octet in (0, 10, 127) or octet > 223)) or (k == 3 and octet in (0, 255)):
            return 0
        if k == 3:
            return stop if first > 9 or small == 0 or _opened(data, begin, start) else 0
        if stop >= end or byte(data, stop) != 0x2E:
            return 0
        i = stop + 1
    return 0
