"""Secrets that a word, a URL or a frame around them says to be such: see `keys` for those that their own form tells.

Masked are

- private keys in PEM (RFC 7468) and of OpenPGP (RFC 9580), from BEGIN to END, with 40 characters of base64 or more,
  also with `\\n` written out in place of line breaks;
- tokens of an `Authorization` header or behind `Bearer` (RFC 6750, 2.1) that have a letter and a digit;
- 40 characters behind `secret_access_key`, as Amazon's are;
- addresses of web hooks of Slack and Discord, as a whole: who knows them may write there;
- the password in an URL (RFC 3986, 3.2.1), of 8 characters or more with a letter and a digit.

Not masked are public keys, certificates and requests for them, keys that are not whole, passwords without an URL, and
what says that it stands for one (`YOUR_TOKEN`, `<token>`, `$TOKEN`, `xxxx`).
"""

import re

_FRAME = re.compile(
    rb"-----BEGIN ((?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?)-----(?P<body>.*)-----END \1-----", re.DOTALL
)
_NO_BASE64 = re.compile(rb"\\[nr]|[^A-Za-z0-9+/]")
_FEWEST_OF_KEY = 40
_HEADER = re.compile(rb"authorization[\"']?\s*[:=,]\s*[\"'`]?(?:\w+\s+)?$|\bbearer\s+\Z", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    rb"example|your|change|placeholder|insert|dummy|sample|token|secret|passw|xxx|\.\.\.|(.)\1{5}|12345678|abcdefg",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(rb"secret[_-]?access[_-]?key\Z", re.IGNORECASE)
_SECRET = re.compile(rb"[\"']?\s{0,2}[:=]?\s{0,2}[\"']?([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])")
_FEWEST_DIFFERENT = 8
_SCHEME = re.compile(rb"https://(?:\w+\.)?(?:discord(?:app)?\.com/api/)?\Z")
_HOOK = re.compile(
    rb"hooks\.slack\.com/(?:services|workflows|triggers)/[TE]\w{7,12}/[\w/-]{20,80}|webhooks/\d{17,20}/[\w-]{60,80}"
)
_PASSWORD = re.compile(rb"[\w.%+~-]*:(?P<password>[\w.~!*,;=&'()%+-]{8,64})", re.ASCII)


def _mixed(value: bytes) -> bool:
    return re.search(rb"\d", value) is not None and re.search(rb"[A-Za-z]", value) is not None


def blocks(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Whether the candidate is a private key: all of it, or nothing."""
    frame = _FRAME.fullmatch(value)
    if not frame or len(_NO_BASE64.sub(b"", frame["body"])) < _FEWEST_OF_KEY or b"..." in frame["body"]:
        return []
    return [(0, len(value))]


def tokens(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate a token stands, given the bytes before it: all of it but for points at its end."""
    value = value.rstrip(b".")
    if not _HEADER.search(before) or not _mixed(value) or _PLACEHOLDER.search(value):
        return []
    return [(0, len(value))] if len(set(value)) >= _FEWEST_DIFFERENT else []


def named(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate a secret stands, given the word that ends before it."""
    match = _SECRET_NAME.search(before) and _SECRET.match(value + after)
    if not match or _PLACEHOLDER.search(match[1]) or len(set(match[1])) < _FEWEST_DIFFERENT:
        return []
    return [match.span(1)]


def hooks(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where a hook's address stands that has the word at the candidate's beginning; it starts before the candidate."""
    scheme, match = _SCHEME.search(before), _HOOK.match(value)
    if not scheme or not match or _PLACEHOLDER.search(match[0]):
        return []
    return [(scheme.start() - len(before), match.end())]


def passwords(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate, which is a user and a password, the password stands."""
    match = _PASSWORD.fullmatch(value)
    if not match or not _mixed(match["password"]) or _PLACEHOLDER.search(match["password"]):
        return []
    return [match.span("password")]
