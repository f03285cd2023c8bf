"""E-mail addresses.

Masked is an address that could be written to: a local part and a domain below a public suffix. Not masked are

- names kept for documentation (RFC 2606, RFC 6761: `example.com`, `.test`, `.invalid`, ...): nobody's address, and
  what a text about e-mail is made of;
- what is written like an address but is a place to log in or copy to (`git@github.com:a/b`, `scp f a@host.org:dir`,
  `ftp://user@host.org/`), a file (`icon@2x.zip`) or code (`a@b.to(c)`);
- the name of a message (RFC 5322, Message-ID), as links to archived mail have it.
"""

import re
from functools import cache, lru_cache

from publicsuffixlist import PublicSuffixList

_RESERVED = re.compile(rb"(?:^|\.)(?:example(?:\.(?:com|net|org|edu))?|test|invalid|localhost|local)$")
_ACCOUNTS = (b"git", b"hg", b"svn", b"cvs", b"anonymous", b"anoncvs")
_LABEL = re.compile(rb"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LOCAL = re.compile(rb"\w(?:[\w.%+-]*[\w+-])?", re.ASCII)
# What an URL begins with, a path, another address, an escape, a variable.
_BEFORE = re.compile(rb"(?:://\S*|[@/\\$#])$")
# A path to copy to, a call, an index, another address, more of a name.
_AFTER = re.compile(rb"[@/(\[_=\\]|:[^\s]")
_SCALED_IMAGE = re.compile(rb"\dx\.")
# Said to be one; or as mutt and git, Thunderbird and Gmail make them: of the time, of numbers.
_MESSAGE = re.compile(rb"message[- ]?id\W{0,4}$", re.IGNORECASE)
_MESSAGE_LOCAL = re.compile(
    rb"(?:19|20)\d{6,}\.[\w.+-]*\w|[\dA-F]{8}\.\d{7,8}|[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}", re.ASCII
)
_MESSAGE_DOMAIN = b"mail.gmail.com"


@cache
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList(accept_unknown=False, only_icann=True)


@lru_cache(1 << 14)
def _deliverable(domain: bytes) -> bool:
    labels = domain.split(b".")
    if not all(map(_LABEL.fullmatch, labels)) or _RESERVED.search(domain):
        return False
    suffix = _suffixes().publicsuffix(domain.decode("ascii"))
    return suffix is not None and suffix.count(".") + 1 < len(labels)


def emails(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate an address stands, given the bytes around it."""
    at = value.index(b"@")
    start = at - len(value[:at].lstrip(b".%+-"))
    local = value[start:at]
    if not _LOCAL.fullmatch(local) or b".." in local or local.lower() in _ACCOUNTS:
        return []
    stop = len(value.rstrip(b".-"))
    last = value.rindex(b".") + 1 if b"." in value[at:stop] else stop
    if re.fullmatch(rb"[A-Z][a-z]*", value[last:stop]) and not _deliverable(value[at + 1 : stop].lower()):
        stop = last - 1  # of the next sentence, which follows without a space
    domain = value[at + 1 : stop].lower()
    if _BEFORE.search(before + value[:start]) or _AFTER.match(value[stop:] + after) or _SCALED_IMAGE.match(domain):
        return []
    if _MESSAGE_LOCAL.fullmatch(local) or domain == _MESSAGE_DOMAIN or _MESSAGE.search(before):
        return []
    return [(start, stop)] if _deliverable(domain) else []
