"""What the kernel takes for a candidate: as plain Python finds it, and few of what is only numbers."""

import re
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stdnum import luhn
from stdnum.iso7064 import mod_97_10

from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.pii.candidates import (
    ACCOUNT,
    BASIC,
    BLOCK,
    CARD,
    CODE,
    CURL,
    ESCAPED,
    FOREIGN,
    HEXTETS,
    HOOK,
    KEY,
    LOGIN,
    MAILBOX,
    NUMBER,
    PASSWORD,
    QUAD,
    SECRET,
    SPELLED,
    TOKEN,
    WIDE_MAILBOX,
    Sought,
    candidates,
)
from gristmill.tasks.pii.credentials import BEGINNINGS
from gristmill.tasks.pii.identifiers import lengths
from gristmill.tasks.pii.phones import TRUNK, groupings
from gristmill.tasks.pii.step import BY_LANGUAGE
from tests.tasks.pii.examples import MIXED

SEPARATOR = re.compile(rb"[ \-./()]|\xc2\xa0|\xe2\x80[\x90-\x95]|\xe2\x88\x92|\xef\xbc[\x88\x89\x8d]")
WIDE = re.compile(SEPARATOR.pattern + rb"|\xef\xbc\x8e|\xe3\x80\x80")
GROUPINGS = groupings(("DE", "FR", "US"))
SOUGHT = Sought(BEGINNINGS, lengths(), GROUPINGS, codes=True)


def runs(text: bytes):
    """The groups of digits of each number, as (start, stop)."""
    at = 0
    while word := re.compile(rb"\w+", re.ASCII).search(text, at):
        at = word.end()
        if not word[0].isdigit():
            continue
        groups, i = [word.span()], at
        while True:
            for _ in range(4):
                separator = SEPARATOR.match(text, i)
                i = separator.end() if separator else i
                if not separator or text[i : i + 1].isdigit():
                    break
            group = re.compile(rb"\d+(?!\w)", re.ASCII).match(text, i) if separator else None
            leads = len(groups) == 1 and (text[word.start() - 1 : word.start()] == b"+" or len(word[0]) == 1)
            if not group or (text[i - 2 : i] == b" (" and not leads):
                break
            groups.append(group.span())
            at = i = group.end()
        yield groups


def is_usual(text: bytes, groups: list[tuple[int, int]]) -> bool:
    sizes = [stop - start for start, stop in groups]
    coded = sum(min(n, 15) << 4 * i for i, n in enumerate(sizes[:8]))
    zero = text[groups[0][0] : groups[0][0] + 1] == b"0"
    return sum(sizes) >= 7 and bool({coded, coded | TRUNK if zero else coded} & set(GROUPINGS.tolist()))


def may_be_phone(text: bytes, groups: list[tuple[int, int]]) -> bool:
    """Whether a number is a candidate by the words of `_numbers`."""
    first, stop = groups[0]
    number = text[first:stop]
    before = re.split(rb"[0-9]", text[max(0, first - 8) : first])[-1]
    if re.search(rb"[A-Za-z\x80-\xff]", before) or text[first - 1 : first] == b"+" or re.match(rb"00|011$", number):
        return True
    if re.match(rb"0\d", number) and any(
        sum(b - a for a, b in groups[:n]) >= 9 and is_usual(text, groups[:n]) for n in range(1, len(groups) + 1)
    ):
        return True
    pieces = [[groups[0]]]
    for last, group in pairwise(groups):
        if re.search(rb"[ \xc2]", text[last[1] : group[0]]):
            pieces.append([])
        pieces[-1].append(group)
    for piece in pieces:
        start, stop = piece[0]
        if start and text[start - 1 : start] == b"(":
            return True
        for n in range(2, len(piece) + 1):
            if n == 2 and text[piece[1][0] - 1 : piece[1][0]] == b".":
                continue
            trunk = text[start : start + 1] == b"0" and stop - start > 1 and sum(b - a for a, b in piece[:n]) >= 10
            if trunk or is_usual(text, piece[:n]):
                return True
    return False


def cards(text: bytes, groups: list[tuple[int, int]]):
    last = 0
    for start, _ in groups:
        if start < last:
            continue
        for form in (
            rb"\d{13,19}",
            rb"(\d{4})([ -])\d{4}\2\d{4}\2\d{4}",
            rb"(\d{4})([ -])\d{4}\2\d{4}\2\d{4}\2\d{1,3}",
            rb"(\d{4})([ -])\d{4}\2\d{4}\2\d{1,3}",
            rb"(\d{4})([ -])\d{6}\2\d{4,5}",
        ):
            match = re.compile(rb"(?=[2-6])(?:" + form + rb")(?!\d)").match(text, start)
            if match and luhn.is_valid(re.sub(rb"\D", b"", match[0]).decode()):
                if not re.compile(rb"\w", re.ASCII).match(text, match.end()):
                    last = match.end()
                    yield start, last, CARD
                break


def is_host(text: bytes, start: int, stop: int) -> bool:
    parts = text[start:stop].split(b".")
    if any(len(part) > 1 and part[:1] == b"0" for part in parts) or max(map(int, parts)) > 255:
        return False
    first, *others = map(int, parts)
    if first in (0, 10, 127) or first > 223 or others[-1] in (0, 255):
        return False
    opened = re.search(rb"[A-Za-z/@\x80-\xff][\0-\x20:=\"'`(\[<]{0,8}\Z", text[:start])
    return first > 9 or not any(n <= 31 for n in others) or opened is not None


def has_right_digits(text: bytes) -> bool:
    number = text.replace(b" ", b"").decode()
    return mod_97_10.is_valid(number[4:] + number[:4])


def numbers(text: bytes):
    """Candidates that begin with a digit, but for those of other shapes than numbers' and addresses'."""
    for groups in runs(text):
        start, stop = groups[0][0], groups[-1][1]
        if sum(b - a for a, b in groups) >= 7 and stop - start <= 64 and may_be_phone(text, groups):
            yield start, stop, NUMBER
        if stop - start >= 6:
            yield start, stop, CODE
        yield from cards(text, groups)


DIGIT = rb"\xd9[\xa0-\xa9]|\xdb[\xb0-\xb9]|\xe0[\xa5\xa7\xa9\xab\xad\xaf\xb1\xb3\xb5][\xa6-\xaf]"
DIGIT += rb"|\xe0[\xb9\xbb][\x90-\x99]|\xe1\x81[\x80-\x89]|\xef\xbc[\x90-\x99]"


def foreign(text: bytes):
    group, gap = rb"(?:" + DIGIT + rb")+", rb"(?:" + WIDE.pattern + rb"){1,4}?"
    for match in re.finditer(group + rb"(?:" + gap + group + rb")*", text):
        if len(re.findall(DIGIT, match[0])) >= 7 and len(match[0]) <= 192:
            yield *match.span(), FOREIGN


def mailboxes(text: bytes, sign: bytes = b"@", shape: int = MAILBOX):
    for at in re.finditer(sign, text):
        end = at.start()
        if text[end - 1 : end] == b'"' and end:
            quoted = re.search(rb'"[^"\n]{0,63}"\Z', text[:end])
            left = end - quoted.start() if quoted else 0
        else:
            local = re.search(rb"[\w.%+\-\x80-\xff]*\Z", text[:end], re.ASCII)[0]
            left = (
                0 if len(local) > 64 and local[-65:].isascii() else len(local[-64:].decode("utf-8", "ignore").encode())
            )
        right = re.match(rb"[A-Za-z0-9.\-\x80-\xff]{0,255}", text[at.end() :])[0].decode("utf-8", "ignore").encode()
        start, stop = end - left, at.end() + len(right)
        beside = text[stop : stop + 1] == b"@" and right.isascii()
        beside |= start > 0 and text[start - 1 : start] == b"@" and text[start:end].isascii()
        point = rb"\." if sign == b"@" else rb"\.|\xef.\x8e"
        if left and re.search(point, right[1:], re.DOTALL) and not beside:
            yield start, stop, shape


def framed(text: bytes):
    """Candidates that a word or a frame around them makes."""
    word = rb"(?<!\w)\w*"
    for match in re.finditer(
        word + rb"(?:bearer|token)(?=[ \t]{1,3}(?P<token>[\w.~+/=-]{20,}))", text, re.ASCII | re.I
    ):
        yield *match.span("token"), TOKEN
    for match in re.finditer(word + rb"(?:access_key|accesskey|s_key)(?!\w)", text, re.ASCII | re.I):
        if len(match[0]) >= 9:
            yield match.end(), min(len(text), match.end() + 60), SECRET
    for match in re.finditer(word + rb"ooks(?!\w)", text, re.ASCII | re.I):
        if len(match[0]) >= 5:
            yield match.start(), min(len(text), match.start() + 200), HOOK
    words = rb"(?:" + word + rb"(?:word|sswd|rase|wort|asse))"
    for match in re.finditer(words + rb"(?!\w)", text, re.ASCII | re.I):
        if len(match[0]) >= 5:
            yield match.end(), min(len(text), match.end() + 90), PASSWORD
    for match in re.finditer(rb"(?:" + word + rb"_|(?<=;))pwd(?!\w)", text, re.ASCII | re.I):
        yield match.end(), min(len(text), match.end() + 90), PASSWORD
    for match in re.finditer(rb"(?<!\w)curl(?!\w)", text, re.ASCII | re.I):
        yield match.end(), min(len(text), match.end() + 300), CURL
    for match in re.finditer(rb"(?<!\w)basic(?=[ \t]{1,3}(?P<token>[\w.~+/=-]{12,}))", text, re.ASCII | re.I):
        yield *match.span("token"), BASIC
    for match in re.finditer(rb"://([^\0-\x20@\"'/]*)@", text):
        if b":" in match[1]:
            yield *match.span(1), LOGIN


def reference(text: bytes) -> list[tuple[int, int, int]]:
    spans = [*numbers(text), *foreign(text), *mailboxes(text), *framed(text)]
    spans += [*mailboxes(text, b"%40", ESCAPED), *mailboxes(text, b"\xef\xbc\xa0", WIDE_MAILBOX)]
    first, second = (b"|".join({re.escape(b[at : at + 2]) for b in BEGINNINGS}) for at in (0, 1))
    for shape, form in (
        (QUAD, rb"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\d)"),
        (HEXTETS, rb"(?<![\w:])(?=[23][0-9A-Fa-f]{3}(?!\w))(?=[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{1,45}"),
        (KEY, rb"(?<![\w.-])(?=(?:" + first + rb"))(?=.(?:" + second + rb"))[\w.-]{20,}"),
        (CODE, rb"(?<!\w)(?=\w*\d)(?=\d*[A-Za-z_])\w{6,32}(?!\w)"),
        (SPELLED, rb"[\w.%+-]{1,64} ?(?:\([aA][tT]\)|\[[aA][tT]\]|\{[aA][tT]\}) ?(?=\w)"),
    ):
        for match in re.finditer(form, text, re.ASCII):
            start, stop = match.span()
            if shape == QUAD and not is_host(text, start, stop):
                continue
            spans.append((start, min(stop + 120, len(text)) if shape == SPELLED else stop, shape))
    for match in re.finditer(rb"(?<!\w)[A-Z]{2}\d{2}", text, re.ASCII):
        size = int(lengths()[match[0][0] - 65, match[0][1] - 65])
        number = re.compile(rb"[A-Z]{2}\d{2}(?: ?[A-Z0-9]){%d}" % (size - 4) if size else rb"(?!)").match(
            text, match.start()
        )
        if number and has_right_digits(number[0]):
            spans.append((*number.span(), ACCOUNT))
    for match in re.finditer(rb"-----(?=BEGIN(?!\w))", text, re.ASCII):
        block = re.compile(rb"-----BEGIN(?:(?!-----B).)*?-----END[^\n]{0,60}?-----", re.DOTALL).match(
            text, match.start()
        )
        if block:
            spans.append((*block.span(), BLOCK))
    return sorted(spans)


@pytest.mark.extended
@settings(max_examples=200, deadline=None)
@given(st.lists(MIXED, min_size=1, max_size=3))
@example(["Bearer 20240115103000Bearer 83.12.44.99jane.doe+mill@mail"])
@example(["DB_PASSWORD=", "my_pwd x;Pwd=1 pwd", " pwd", "keyword=a7 curl -u a:b Basic YTpiYTpiYTpi Basic a"])
@example(["jane%40planted.org%40a.b＠ｃ．d", "a%40@b.c", "a＠b.c"])
@example(["------BEGIN A-----\n------END A-----", "-----begin A-----\n-----END A-----"])
def test_candidates_are_those_of_plain_python(documents):
    data, offsets = utf8(pa.array(documents, pa.large_string()))
    places = candidates(data, offsets, SOUGHT)
    for d, text in enumerate(documents):
        mine = places.document == d
        columns = (places.start[mine] - offsets[d], places.stop[mine] - offsets[d], places.shape[mine])
        assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == reference(text.encode())


def test_more_candidates_than_there_was_room_for():
    text = "a@b.c " * 5000
    data, offsets = utf8(pa.array([text], pa.large_string()))
    places = candidates(data, offsets, SOUGHT)
    assert places.start.tolist() == list(range(0, len(text), 6))


NUMBERS = {
    "integers": lambda n: f"{n * 7919 % 10**8} ",
    "decimals in commas": lambda n: f"{n % 97}.{n * 7919 % 10**6:06},{n * 104729 % 10**4 / 7:.4f}\n",
    "hyphens": lambda n: f"{n * 7919 % 10**4}-{n * 104729 % 10**5}-",
    "hyphens, a line each": lambda n: f"{n * 7919 % 9000 + 1000}-{n * 104729 % 10**5:05}\n",
    "dates": lambda n: f"20{n % 30:02}-{n % 12 + 1:02}-{n % 28 + 1:02} {n % 24:02}:{n % 60:02}\n",
    "one number": lambda n: f"{n * 7919}",
    "versions": lambda n: f"{n % 9}.{n % 7}.{n % 5}.{n % 30}\n",
    "accounts": lambda n: f"DE00{n * 104729:018} ",
    "at signs": lambda n: "a@a.",
    "signs": lambda n: f"+{n % 10} ",
    "beginnings of tokens": lambda n: "eyJ",
    "beginnings of keys": lambda n: "-----BEGIN PRIVATE KEY-----\n",
    "digits beyond ASCII": lambda n: "٠١٢٣ ",
}


@pytest.mark.parametrize("name", NUMBERS)
def test_lists_of_numbers_are_left_before_anything_is_judged(name):
    """What is judged costs time; so the kernel leaves all but one number of a thousand bytes."""
    text = "".join(map(NUMBERS[name], range(10_000)))
    data, offsets = utf8(pa.array([text], pa.large_string()))
    sought = Sought(BEGINNINGS, lengths(), groupings(("US", *BY_LANGUAGE["en"])))
    assert len(candidates(data, offsets, sought).start) <= 1 + len(data) / 1000
