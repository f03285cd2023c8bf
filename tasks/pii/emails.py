"""E-mail addresses.

Masked is an address that could be written to: a local part and a domain below a public suffix. The local part is a dot
string or a quoted one (RFC 5321), of any script (RFC 6531); the domain may be internationalised (RFC 5890), written as
such or in punycode. Beside letters without a space between words (Chinese, Japanese, Thai, ...) an address of ASCII
ends where these begin; a local part of such letters goes as far as the letters do.

Masked is also `name (at) host (dot) org`, with any of three kinds of brackets around `at`; an address with a full-width
@, or of full-width letters; and one that is escaped in an URL (`%40`, RFC 3986).

Not masked are

- names kept for documentation (RFC 2606, RFC 6761: `example.com`, `.test`, `.invalid`, ...): nobody's address, and
  what a text about e-mail is made of;
- text that is written like an address but is a place to log in or copy to (`git@github.com:a/b`, `scp f
a@host.org:dir`,
  `ftp://user@host.org/`), a file (`icon@2x.zip`), code (`a@b.to(c)`) or a handle (`@jane@host.org`);
- the name of a message (RFC 5322, Message-ID), as links to archived mail have it;
- addresses in words without brackets (`name at host dot org`), and the part before `=` of an address that has one.
"""

import re
import unicodedata
from functools import cache, lru_cache

import idna
from publicsuffixlist import PublicSuffixList

_RESERVED = re.compile(rb"(?:^|\.)(?:example(?:\.(?:com|net|org|edu))?|test|invalid|localhost|local)\Z")
_ACCOUNTS = (b"git", b"hg", b"svn", b"cvs", b"anonymous", b"anoncvs")
_LABEL = re.compile(rb"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LOCAL = re.compile(r"[\w%+\-\x80-\U0010ffff](?:[\w.%+\-\x80-\U0010ffff]*[\w+\-\x80-\U0010ffff])?")
_QUOTED = re.compile(r'"[\w.+-]+(?: [\w.+-]+)*"')
_MARKS = ".%+-_"
_NUMBERED = re.compile(rb"\d{1,2}\.(?=[A-Za-z])")
# The beginning of a URL, a path, another address, an escape, a variable. A masked address ends with `|`.
_BEFORE = re.compile(rb"(?:://[^\s/?#]*|(?<!\|)/|[@\\$]|[\w/]#)\Z")
_COPYING = re.compile(rb"\b(?:scp|rsync|s?ftp|ssh|clone)\b[^\n]*\Z")
_IRISH = re.compile(rb"(?<!\w)[oO]'\Z")
# A path to copy to or a port, but no hour; another address, more of a name.
_AFTER = re.compile(
    rb"[@=\\]|_\w|:[/~.]|:\d{2,5}(?![\w:.])|:(?!\d{1,2}(?:[:.]\d\d)?(?:[ap]m|h)\b)\S*(?:/|\.git)",
    re.ASCII | re.IGNORECASE,
)
# A call or an index, where the last label may be a name in a program.
_CALLED = re.compile(rb"[(\[]")
_NO_NAMES = re.compile(rb"\.(?:com|org|net|edu|gov|info|(?!to|id|is|it|at|in|am|do|me)[a-z]{2})\Z")
_NEXT_WORD = re.compile(rb"(?:[a-z]{2,})([A-Z][a-z]*)")
_NEXT_SENTENCE = re.compile(rb"[A-Z][a-z]*")
_SCALED_IMAGE = re.compile(rb"\dx\.")
# Said to be one; or as mutt and git, Thunderbird and Gmail make them: of the time, of numbers.
_MESSAGE = re.compile(rb"message[- ]?id\W{0,4}\Z", re.IGNORECASE)
_MESSAGE_LOCAL = re.compile(
    rb"(?:19|20)\d{6,}\.[\w.+-]*\w|[\dA-F]{8}\.\d{7,8}|[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}", re.ASCII
)
_MESSAGE_DOMAIN = b"mail.gmail.com"
_SPELLED = re.compile(
    rb"[.%+-]*(?P<local>\w[\w.%+-]{0,63}) ?(?:\(at\)|\[at\]|\{at\}) ?"
    rb"(?P<domain>[a-z0-9-]{1,63}(?:\s?(?:[(\[{](?:dot|punkt|point|punto|ponto|punt|\.)[)\]}]|\.)\s?[a-z0-9-]{2,63}){1,4})(?![\w-])",
    re.IGNORECASE | re.ASCII,
)
_ESCAPE = re.compile(rb".*%(?:[01][0-9A-F]|2[0-24679CF]|3[A-F]|5[BD]|7[BD])", re.IGNORECASE)
_DOT = re.compile(rb"\s?(?:[(\[{][a-z.]+[)\]}]|\.)\s?", re.IGNORECASE)


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList(accept_unknown=False, only_icann=True)


@lru_cache(1 << 14)
def _deliverable(domain: bytes) -> bool:
    if not domain.isascii():
        try:
            domain = idna.encode(domain.decode(), uts46=True)
        except (idna.IDNAError, UnicodeError):
            return False
    labels = domain.split(b".")
    if not all(map(_LABEL.fullmatch, labels)) or _RESERVED.search(domain):
        return False
    suffix = _suffixes().publicsuffix(domain.decode("ascii"))
    return suffix is not None and suffix.count(".") + 1 < len(labels)


def _in_a_word(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] in "LM" or category == "Nd"


def _is_latin(character: str) -> bool:
    return character < "\u0250"


def _beyond_ascii(text: str) -> tuple[int, int]:
    """(start, stop) of the address in a candidate with characters beyond ASCII; the stop is 0 if there is none."""
    at_sign = text.index("@")
    start = at_sign
    if text[0] == '"':
        start = 0
    elif at_sign:
        latin = _is_latin(text[at_sign - 1])
        while start and (
            text[start - 1] in _MARKS or (_in_a_word(text[start - 1]) and (not latin or _is_latin(text[start - 1])))
        ):
            start -= 1
    stop = at_sign + 1
    while stop < len(text) and (text[stop] in ".-" or _in_a_word(text[stop])):
        stop += 1
    stop = at_sign + 1 + len(text[at_sign + 1 : stop].rstrip(".-"))
    if _deliverable(text[at_sign + 1 : stop].lower().encode()):
        return start, stop
    ascii_ = at_sign + 1
    while ascii_ < stop and text[ascii_].isascii():
        ascii_ += 1
    shorter = at_sign + 1 + len(text[at_sign + 1 : ascii_].rstrip(".-"))
    if _deliverable(text[at_sign + 1 : shorter].lower().encode()):
        return start, shorter
    last = text.rfind(".", at_sign, stop) + 1
    if last and not text[last : last + 1].isascii():
        for shorter in range(stop - 1, last, -1):
            if _deliverable(text[at_sign + 1 : shorter].lower().encode()):
                return start, shorter
    return start, 0


def emails(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate has an address, given the bytes around it.

    The start is negative where an `O'` before the candidate is part of it.
    """
    begin, end = 0, len(value)
    if b"@" not in value[1:]:
        return []
    if not value.isascii():
        text = value.decode()
        first, last = _beyond_ascii(text)
        if not last:
            return []
        begin, end = len(text[:first].encode()), len(text[:last].encode())
    before, value, after = before + value[:begin], value[begin:end], value[end:] + after
    return [(begin + start, begin + stop) for start, stop in _addresses(value, before, after)]


def _addresses(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    at_sign = value.index(b"@")
    quoted = value.startswith(b'"')
    start = 0 if quoted else at_sign - len(value[:at_sign].lstrip(b".%+-"))
    if not quoted and (number := _NUMBERED.match(value, start)) and (not before or before[-1:].isspace()):
        start = number.end()
    emphasised = value[start : start + 1] == after[:1] == b"_" and not re.match(rb"_\w", after, re.ASCII)
    start += emphasised
    local = value[start:at_sign]
    if not (_QUOTED if quoted else _LOCAL).fullmatch(local.decode()) or b".." in local or local.lower() in _ACCOUNTS:
        return []
    if quoted and re.search(rb"[\w=]\Z", before):
        return []
    stop = len(value.rstrip(b".-"))
    last = value.rindex(b".") + 1 if b"." in value[at_sign:stop] else stop
    if not _deliverable(value[at_sign + 1 : stop].lower()):
        if _NEXT_SENTENCE.fullmatch(value, last, stop):
            stop = last - 1  # of the next sentence, which follows without a space
        elif word := _NEXT_WORD.fullmatch(value, last, stop):
            stop = word.start(1)
    domain = value[at_sign + 1 : stop].lower()
    before, after = before + value[:start], value[stop:] + after
    if _BEFORE.search(before) or (_AFTER.match(after) and not emphasised) or _SCALED_IMAGE.match(domain):
        return []
    if _CALLED.match(after) and not _NO_NAMES.search(domain):
        return []
    if after.startswith(b":") and _COPYING.search(before):
        return []
    if _MESSAGE_LOCAL.fullmatch(local) or domain == _MESSAGE_DOMAIN or _MESSAGE.search(before):
        return []
    if not _deliverable(domain):
        return []
    return [(start - 2 if not start and _IRISH.search(before) else start, stop)]


def spelled(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where the candidate, which continues after it, has an address with `(at)`."""
    match = _SPELLED.match(value + after)
    if not match or not _deliverable(_DOT.sub(b".", match["domain"]).lower()):
        return []
    return [(match.start("local"), match.end())]


def wide_emails(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """`emails` of a candidate with a full-width @: as its characters are in ASCII."""
    text = value.decode()
    folded = "".join(map(_narrow, text))
    ends = [0]
    for character in text:
        ends.append(ends[-1] + len(character.encode()))
    offsets = {len(folded[:place].encode()): ends[place] for place in range(len(text) + 1)}
    return [(offsets[start], offsets[stop]) for start, stop in emails(folded.encode(), before, after) if start >= 0]


def _narrow(character: str) -> str:
    """The character of ASCII for a full-width one; itself for others."""
    return chr(ord(character) - 0xFEE0) if "\uff01" <= character <= "\uff5e" else character


def escaped_emails(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """`emails` of a candidate with `%40`, after other escapes that may come before it, as `%3C`."""
    local, _, domain = value.rpartition(b"%40")
    escape = _ESCAPE.match(local)
    begin = escape.end() if escape else 0
    lead = before + value[:begin]
    spans = emails(local[begin:] + b"@" + domain, lead if not escape else b"<", after)
    at_sign = len(local) - begin
    return [(begin + start, begin + (stop + 2 if stop > at_sign else stop)) for start, stop in spans if start >= 0]
