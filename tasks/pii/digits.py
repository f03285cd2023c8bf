"""Shapes of numbers: groups of digits with separators, and which of them can be somebody's.

Most numbers of a text are nobody's, and a judgment costs as much as a kilobyte of prose. So what no rule of `phones`
or `cards` could accept is left here.
"""

import numpy as np

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.pii.phones import TRUNK
from gristmill.tasks.pii.shapes import DIGIT, WORD, has, run

MIN_DIGITS = 7
MAX_NUMBER_LENGTH = 64  # a longer one is a row of a table or a matrix
MIN_CARD_DIGITS, _MAX_CARD_DIGITS = 13, 19  # ISO/IEC 7812-1, without those that nobody issues
_ANNOUNCED = 8  # bytes between a number and the word that says what it is


@nb.njit(nogil=True, cache=True)
def separator(data, i, end):
    """Length of the separator of a number at `i`, or 0: space - . / ( ), no-break space, U+2010 to U+2015, the minus
    sign, a full-width hyphen or parenthesis."""
    if i >= end:
        return 0
    b = byte(data, i)
    if b == 0x20 or b == 0x2D or b == 0x2E or b == 0x2F or b == 0x28 or b == 0x29:
        return 1
    if b == 0xC2 and i + 1 < end and byte(data, i + 1) == 0xA0:
        return 2
    if (b == 0xE2 or b == 0xEF) and i + 2 < end:
        middle, c = byte(data, i + 1), byte(data, i + 2)
        is_separator = (middle == 0x80 and 0x90 <= c <= 0x95) or (middle == 0x88 and c == 0x92)
        if b == 0xEF:
            is_separator = middle == 0xBC and (c == 0x88 or c == 0x89 or c == 0x8D)
        return 3 if is_separator else 0
    return 0


@nb.njit(nogil=True, cache=True)
def next_group(data, i, end, classes, leads):
    """(start, stop) of the next group of digits of a number whose last one ends at `i`; a start of -1 if that was it.

    Between two groups are one to four separators. A parenthesis after a space begins another number, unless the first
    part `leads`: it is a country code or a single digit, as in `8 (495)`.
    """
    for _ in range(4):
        size = separator(data, i, end)
        if not size:
            return -1, i
        i += size
        if i < end and has(data, i, classes, DIGIT):
            if byte(data, i - 1) == 0x28 and byte(data, i - 2) == 0x20 and not leads:
                return -1, i
            stop = run(data, i, end, classes, DIGIT)
            return -1 if stop < end and has(data, stop, classes, WORD) else i, stop
    return -1, i


@nb.njit(nogil=True, cache=True)
def spaced(data, i, stop):
    """Whether a space is among the separators from `i` to `stop`."""
    while i < stop:
        if byte(data, i) == 0x20 or byte(data, i) == 0xC2:
            return True
        i += 1
    return False


@nb.njit(nogil=True, cache=True)
def announced(data, begin, first):
    """Whether a letter, or a character beyond ASCII, is close before the number that begins at `first`."""
    i = first - 1
    while i >= begin and first - i <= _ANNOUNCED:
        b = byte(data, i)
        if b >= 0x80 or 0x41 <= b & 0xDF <= 0x5A:
            return True
        if 0x30 <= b <= 0x39:
            return False
        i -= 1
    return False


@nb.njit(nogil=True, cache=True)
def grouped(grouping, zero, groupings):
    """Whether a number is grouped as one of `groupings` (see `phones.groupings`); `zero`: whether it begins with
    one."""
    index = np.searchsorted(groupings, grouping)
    if index < len(groupings) and groupings[index] == grouping:
        return True
    if not zero:
        return False
    index = np.searchsorted(groupings, grouping | TRUNK)
    return index < len(groupings) and groupings[index] == grouping | TRUNK


@nb.njit(nogil=True, cache=True)
def card(data, first, end, classes):
    """The stop of the card number whose first digit is at `first`, 0 if there is none.

    It is one group of 13 to 19 digits, or groups with one separator, a space or a hyphen, of four digits (the last of
    one to four) or of 4, 6 and 4 or 5; and its check digit is right (Luhn).
    """
    b = byte(data, first)
    if b < 0x32 or b > 0x36:
        return 0
    i = first
    between = np.uint8(0)
    total = odd = even = groups = 0
    second = 0
    while True:
        stop = run(data, i, min(end, i + _MAX_CARD_DIGITS + 1), classes, DIGIT)
        size = stop - i
        total += size
        if total > _MAX_CARD_DIGITS:
            return 0
        for k in range(i, stop):
            digit = np.int64(byte(data, k)) - 0x30
            doubled = 2 * digit - 9 if digit > 4 else 2 * digit
            # the last digit counts once: which ones double is known at the end
            odd, even = even + doubled, odd + digit
        groups += 1
        if groups == 1 and size >= MIN_CARD_DIGITS:
            break
        if groups == 1 and size != 4:
            return 0
        second = size if groups == 2 else second
        if (groups == 2 and size != 4 and size != 6) or (groups > 2 and second == 4 and size > 4):
            return 0
        if groups == 4 and second == 4 and size == 4 and even % 10 == 0:
            break
        if total >= MIN_CARD_DIGITS and (second == 6 or size < 4 or total == _MAX_CARD_DIGITS):
            break
        following = byte(data, stop) if stop < end else np.uint8(0)
        more = stop + 1 < end and has(data, stop + 1, classes, DIGIT)
        if groups == 1:
            between = following
        if not more or following != between or (between != 0x20 and between != 0x2D):
            break
        if groups == 4 and second == 4:
            # four digits after four groups belong to the next number
            after = run(data, stop + 1, min(end, stop + 5), classes, DIGIT)
            if after - stop - 1 == 4:
                break
        i = stop + 1
    if total < MIN_CARD_DIGITS or even % 10 or (stop < end and has(data, stop, classes, WORD)):
        return 0
    if second == 6 and (groups != 3 or total not in (14, 15)):
        return 0
    return stop


@nb.njit(nogil=True, cache=True)
def _foreign_digit(data, i, end):
    """Length of the digit at `i` that is none of ASCII's, or 0.

    Arabic-Indic and its eastern forms, those of the scripts of India from Devanagari to Malayalam, Thai, Lao, Burmese
    and full-width ones.
    """
    if i + 1 >= end:
        return 0
    a, b = byte(data, i), byte(data, i + 1)
    if a == 0xD9 and 0xA0 <= b <= 0xA9 or a == 0xDB and 0xB0 <= b <= 0xB9:
        return 2
    if i + 2 >= end:
        return 0
    c = byte(data, i + 2)
    if a == 0xE0 and 0xA5 <= b <= 0xB5 and b & 1 and 0xA6 <= c <= 0xAF:
        return 3
    if a == 0xE0 and (b == 0xB9 or b == 0xBB) and 0x90 <= c <= 0x99 or a == 0xE1 and b == 0x81 and 0x80 <= c <= 0x89:
        return 3
    return 3 if a == 0xEF and b == 0xBC and 0x90 <= c <= 0x99 else 0


@nb.njit(nogil=True, cache=True)
def _wide_separator(data, i, end):
    """`separator`, or the length of a full-width space or full stop."""
    size = separator(data, i, end)
    if size or i + 2 >= end:
        return size
    a, b, c = byte(data, i), byte(data, i + 1), byte(data, i + 2)
    return 3 if (a == 0xEF and b == 0xBC and c == 0x8E) or (a == 0xE3 and b == 0x80 and c == 0x80) else 0


@nb.njit(nogil=True, cache=True)
def foreign_number(data, first, end):
    """(stop, kept) of the number of digits beyond ASCII at `first`; the stop is `first` if no such digit is there."""
    digits = 0
    i = stop = first
    while _foreign_digit(data, i, end):
        size = _foreign_digit(data, i, end)
        while size:
            digits += 1
            i += size
            size = _foreign_digit(data, i, end)
        stop = i
        for _ in range(4):
            size = _wide_separator(data, i, end)
            i += size
            if not size or _foreign_digit(data, i, end):
                break
    return stop, MIN_DIGITS <= digits and stop - first <= 3 * MAX_NUMBER_LENGTH
