"""Candidates for personal data: one pass over the bytes of a batch. Most text has no candidate.

What a candidate is, is decided by single characters only (shapes below); whether it is personal data is decided by
the modules of the kinds, which only look at candidates. Every byte is visited at most a fixed number of times, so
the pass is linear in the text.
"""

from dataclasses import dataclass

import numpy as np

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.pii.digits import (
    MAX_NUMBER_LENGTH,
    MIN_CARD_DIGITS,
    MIN_DIGITS,
    announced,
    card,
    foreign_number,
    grouped,
    next_group,
    spaced,
)
from gristmill.tasks.pii.phones import MAX_GROUPS
from gristmill.tasks.pii.shapes import (
    DIGIT,
    HEX,
    KEY_PART,
    WORD,
    account,
    block,
    classes,
    has,
    hextets,
    login,
    mailbox,
    quad,
    run,
    spelled,
    token,
)

# The shapes.
MAILBOX = 0  # local part, @, domain with a point in it
QUAD = 1  # four groups of one to three digits with points between them, that may be a host's address
HEXTETS = 2  # four hexadecimal digits, the first 2 or 3, not after a colon; then more of them and two colons
NUMBER = 3  # 7 or more digits in groups, with a phone number's separators, that may be one: see `_numbers`
ACCOUNT = 4  # two capital letters, two digits, then capital letters and digits, with right check digits
KEY = 5  # 20 or more characters of a key, the first three of them like a known key's
CARD = 6  # 13 to 19 digits, in one group or as cards have them, with a right check digit
FOREIGN = 7  # like NUMBER, of digits that are none of ASCII's
SPELLED = 8  # `(at)` with the text around it
TOKEN = 9  # 20 or more characters of a token after the word `bearer` or `token` and a space
SECRET = 10  # what follows a word that ends in `access_key`
HOOK = 11  # what follows the words `hooks` or `webhooks`
BLOCK = 12  # from -----BEGIN to the end of -----END, with no BEGIN between them
LOGIN = 13  # user and password of an URL
PASSWORD = 15  # what follows a word that ends like `password`
CURL = 16  # what follows the word `curl`
BASIC = 17  # 12 or more characters of a token after the word `basic` and a space
WIDE_MAILBOX = 18  # like MAILBOX, with a full-width @
ESCAPED = 19  # like MAILBOX, with %40
NAMED = 20  # what follows a word that ends in `key`, `token`, `secret` or `credentials` and has a value
CODE = 14  # a word or number that holds a digit, 6 characters or more; only if asked for

_MIN_KEY_LENGTH = 20
_SECRET, _HOOK, _PASSWORD, _CURL, _NAMED = 60, 200, 260, 300, 260
_MIN_CODE_LENGTH, _MAX_CODE_LENGTH = 6, 32
# digits of a number with a trunk prefix 0, by spaces in the region's groups, and in others
_MIN_DIGITS_WITH_TRUNK, _MIN_DIGITS_REGROUPED = 9, 10


@nb.njit(nogil=True, cache=True)
def _begins(data, i, pairs):
    """Whether the first and second byte, and the second and third, are in a key."""
    a, b, c = np.int64(byte(data, i)), np.int64(byte(data, i + 1)), np.int64(byte(data, i + 2))
    return (byte(pairs, a << 8 | b) & 1) != 0 and (byte(pairs, b << 8 | c) & 2) != 0


@nb.njit(nogil=True, cache=True)
def _put(columns, count, document, start, stop, shape):
    """The number of candidates with this one, which is written down if there is room."""
    if count < columns.shape[1]:
        columns[0, count] = document
        columns[1, count] = start
        columns[2, count] = stop
        columns[3, count] = shape
    return count + 1


@nb.njit(nogil=True, cache=True)
def _ending(data, stop):
    """The four bytes before `stop` as a number, letters in lower case."""
    ending = np.uint32(0)
    for k in range(4):
        ending = np.uint32(ending << np.uint32(8)) | np.uint32(byte(data, stop - 4 + k) | 0x20)
    return ending


_OKEN, _ARER, _OOKS, _EGIN, _SKEY, _UNDERSCORE_KEY, _CURL_WORD, _ASIC, _CRET, _IALS, _REDS = (
    np.uint32(int.from_bytes(ending, "big"))
    for ending in (
        *(b"oken", b"arer", b"ooks", b"egin", b"skey", b"\x7fkey", b"curl", b"asic", b"cret", b"ials", b"reds"),
    )
)  # as `_ending` gives them, which makes \x7f of an underscore
_THREE, _KEY_WORD = np.uint32(0xFFFFFF), np.uint32(int.from_bytes(b"key", "big"))
# Of `password`, `passwd`, `passphrase`, `passwort` and `kennwort`, `passe`; and `pwd` after an underscore or `;`.
_WORD_, _SSWD, _RASE, _WORT, _ASSE, _UNDERSCORE_PWD, _SEMICOLON_PWD = (
    np.uint32(int.from_bytes(ending, "big"))
    for ending in (b"word", b"sswd", b"rase", b"wort", b"asse", b"\x7fpwd", b";pwd")
)


@nb.njit(nogil=True, cache=True)
def _has_sign(data, begin, first, stop, end):
    """Whether the word from `first` to `stop` may be given a value: by a sign, the end of a quotation with a comma,
    `is`, or as an option of a command."""
    if stop < end and byte(data, stop) == 0x20 and first > begin and byte(data, first - 1) == 0x2D:
        return True
    i, quoted = stop, False
    while i < end and i < stop + 8:
        b = byte(data, i)
        if b == 0x22 or b == 0x27 or b == 0x60 or b == 0x5D or b == 0x5C:
            quoted = True
        elif b == 0x3A or b == 0x3D or b == 0x3E:
            return True
        elif b != 0x20 and b != 0x09:
            return (quoted and (b == 0x2C or b == 0x76)) or (b == 0x69 and i == stop + 1)
        i += 1
    return False


@nb.njit(nogil=True, cache=True)
def _announced(data, begin, first, stop, end, classes):
    """(shape, start, stop) of what the word from `first` to `stop` announces; a shape of -1 if it announces nothing."""
    ending = _ending(data, stop)
    if ending == _WORD_ or ending == _SSWD or ending == _RASE or ending == _WORT or ending == _ASSE:
        return (PASSWORD, stop, min(end, stop + _PASSWORD)) if stop - first >= 5 else (-1, stop, stop)
    if ending == _UNDERSCORE_PWD or ending == _SEMICOLON_PWD:
        return PASSWORD, stop, min(end, stop + _PASSWORD)
    if ending == _CURL_WORD:
        return (CURL, stop, min(end, stop + _CURL)) if stop - first == 4 else (-1, stop, stop)
    is_name = ending & _THREE == _KEY_WORD or ending == _OKEN or ending == _CRET or ending == _IALS or ending == _REDS
    if is_name and _has_sign(data, begin, first, stop, end):
        return NAMED, stop, min(end, stop + _NAMED)
    if ending == _ASIC and stop - first == 5:
        start, after = token(data, stop, end, classes, True)
        return BASIC if after else -1, start, after
    if stop - first < 5:
        return -1, stop, stop
    if ending == _ARER or ending == _OKEN:
        start, after = token(data, stop, end, classes, False)
        return TOKEN if after else -1, start, after
    if ending == _SKEY or ending == _UNDERSCORE_KEY:
        return (SECRET, stop, min(end, stop + _SECRET)) if stop - first >= 9 else (-1, stop, stop)
    if ending == _OOKS:
        return HOOK, first, min(end, stop + _HOOK)
    if ending == _EGIN and stop - first == 5:
        start, after = block(data, begin, first, end)
        return BLOCK if after else -1, start, after
    return -1, stop, stop


@nb.njit(nogil=True, cache=True)
def _numbers(data, document, begin, first, stop, end, classes, groupings, codes, columns, count):
    """(stop, candidates so far) after the number whose first group goes from `first` to `stop`.

    It is a candidate if it may be a phone number: after a plus sign or a letter, with a prefix of international calls
    or a parenthesis, or if a piece of it without a space, or what begins with 0, is grouped as the regions do. Two
    groups with a point between them are a decimal.
    """
    signed = first > begin and byte(data, first - 1) == 0x2B
    zero = byte(data, first) == 0x30 and stop - first > 1
    abroad = zero and (
        byte(data, first + 1) == 0x30
        or (stop - first == 3 and byte(data, first + 1) == 0x31 and byte(data, first + 2) == 0x31)
    )
    kept = signed or abroad
    total = groups = grouping = 0  # of the number
    digits = parts = piece = 0  # of the piece without a space
    trunk = False
    card_stop = first
    group = first
    while True:
        size = stop - group
        if not parts:
            trunk = byte(data, group) == 0x30
            kept |= group > begin and byte(data, group - 1) == 0x28
        if groups < MAX_GROUPS:
            grouping |= min(size, 15) << 4 * groups
        if parts < MAX_GROUPS:
            piece |= min(size, 15) << 4 * parts
        total, digits = total + size, digits + size
        groups, parts = groups + 1, parts + 1
        if parts > 1 and not kept and (parts > 2 or byte(data, group - 1) != 0x2E):
            kept = digits >= MIN_DIGITS and grouped(piece, trunk, groupings)
            kept |= trunk and digits >= _MIN_DIGITS_REGROUPED and piece & 15 > 1
        if zero and total >= _MIN_DIGITS_WITH_TRUNK and not kept:
            kept = grouped(grouping, zero, groupings)
        if (size == 4 or size >= MIN_CARD_DIGITS) and group >= card_stop:
            after = card(data, group, end, classes)
            if after:
                count = _put(columns, count, document, group, after, CARD)
                card_stop = after
        if stop < end:
            b = byte(data, stop)
            after = hextets(data, begin, group, end, classes) if b == 0x3A and size == 4 else 0
            if after:
                count = _put(columns, count, document, group, after, HEXTETS)
            after = quad(data, begin, group, end, classes) if b == 0x2E and size <= 3 else 0
            if after and (group == begin or byte(data, group - 1) != 0x2E):
                count = _put(columns, count, document, group, after, QUAD)
        last = stop
        group, stop = next_group(data, last, end, classes, groups == 1 and (signed or size == 1))
        if group < 0:
            break
        if spaced(data, last, group):
            digits = parts = piece = 0
    if total >= MIN_DIGITS and last - first <= MAX_NUMBER_LENGTH and (kept or announced(data, begin, first)):
        count = _put(columns, count, document, first, last, NUMBER)
    if codes and last - first >= _MIN_CODE_LENGTH:
        count = _put(columns, count, document, first, last, CODE)
    return last, count


@nb.njit(nogil=True, cache=True)
def _find(data, documents, classes, pairs, lengths, groupings, codes, columns):
    """Fill `columns`, int64 of shape (4, room): documents, starts, stops, shapes; returns how many there are."""
    count = 0
    for d in range(len(documents) - 1):
        begin, end = documents[d], documents[d + 1]
        i = begin
        while i < end:
            b = byte(data, i)
            if not byte(classes, np.int64(b)) & WORD:
                if b == 0x40:
                    start, stop = mailbox(data, begin, i, end, classes, 1)
                    if stop:
                        count = _put(columns, count, d, start, stop, MAILBOX)
                    start = login(data, begin, i, end)
                    if start >= 0:
                        count = _put(columns, count, d, start, i, LOGIN)
                elif b == 0x25 and i + 2 < end and byte(data, i + 1) == 0x34 and byte(data, i + 2) == 0x30:
                    start, stop = mailbox(data, begin, i, end, classes, 3)
                    if stop:
                        count = _put(columns, count, d, start, stop, ESCAPED)
                elif b == 0xEF and i + 2 < end and byte(data, i + 1) == 0xBC and byte(data, i + 2) == 0xA0:
                    start, stop = mailbox(data, begin, i, end, classes, 3)
                    if stop:
                        count = _put(columns, count, d, start, stop, WIDE_MAILBOX)
                elif b >= 0xD9:
                    stop, kept = foreign_number(data, i, end)
                    if kept:
                        count = _put(columns, count, d, i, stop, FOREIGN)
                    i = max(i, stop - 1)
                elif b == 0x28 or b == 0x5B or b == 0x7B:
                    start, stop = spelled(data, begin, i, end, classes)
                    if stop:
                        count = _put(columns, count, d, start, stop, SPELLED)
                i += 1
                continue
            first = i
            some = np.uint8(0)
            every = np.uint8(255)
            while i < end:
                c = byte(classes, np.int64(byte(data, i)))
                if not c & WORD:
                    break
                some |= c
                every &= c
                i += 1
            if first + _MIN_KEY_LENGTH <= end and _begins(data, first, pairs):
                # it must begin a run of a key's characters: so no byte is looked at for two keys
                if first == begin or not has(data, first - 1, classes, KEY_PART):
                    stop = run(data, first, end, classes, KEY_PART)
                    if stop - first >= _MIN_KEY_LENGTH:
                        count = _put(columns, count, d, first, stop, KEY)
            if i - first >= 3 and i - begin >= 4 and not every & DIGIT:
                shape, start, stop = _announced(data, begin, first, i, end, classes)
                if shape >= 0:
                    count = _put(columns, count, d, start, stop, shape)
            if not some & DIGIT:
                continue
            if not every & DIGIT:
                if codes and _MIN_CODE_LENGTH <= i - first <= _MAX_CODE_LENGTH:
                    count = _put(columns, count, d, first, i, CODE)
                stop = hextets(data, begin, first, end, classes) if i - first == 4 and every & HEX else 0
                if stop:
                    count = _put(columns, count, d, first, stop, HEXTETS)
                stop = account(data, first, end, classes, lengths) if i - first >= 4 else 0
                if stop:
                    count = _put(columns, count, d, first, stop, ACCOUNT)
                continue
            i, count = _numbers(data, d, begin, first, i, end, classes, groupings, codes, columns, count)
    return count


@dataclass(frozen=True)
class Candidates:
    """Bytes `start` to `stop` of the batch's data, in document `document`, have the shape `shape`; all int64."""

    document: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    shape: np.ndarray


@dataclass(frozen=True)
class Sought:
    """What decides which candidates there are beside their bytes.

    key_beginnings: of all known keys, three bytes each at least; account_lengths: int64, shape (26, 26), by the letters
    of a country; groupings: of phone numbers, int64 and ascending, see `phones.groupings`; codes: whether those of
    shape CODE are found.
    """

    key_beginnings: tuple[bytes, ...]
    account_lengths: np.ndarray
    groupings: np.ndarray
    codes: bool = False


def candidates(data: np.ndarray, documents: np.ndarray, sought: Sought) -> Candidates:
    """The candidates in the texts `data[documents[d]:documents[d + 1]]`.

    Holds 32 bytes for every candidate or every 64 bytes of text, whichever are more.
    """
    pairs = np.zeros(1 << 16, np.uint8)
    for beginning in sought.key_beginnings:
        pairs[int.from_bytes(beginning[:2], "big")] |= 1
        pairs[int.from_bytes(beginning[1:3], "big")] |= 2
    room = len(data) // 64 + 256
    while True:
        columns = np.empty((4, room), np.int64)
        tables = classes(), pairs, sought.account_lengths, sought.groupings
        count = _find(data, documents, *tables, sought.codes, columns)
        if count <= room:
            return Candidates(*columns[:, :count])
        room = count
