"""Passwords, which have no form of their own: those that a word, an option of a program or a header says to be such.

Masked is what stands

- behind a word that ends in `password`, `passwd`, `passphrase`, `passwort`, `kennwort`, `passe` or `pwd`, and a colon,
  an equals sign, `is`, or the end of a tag or a key of JSON, YAML or XML (`DB_PASSWORD=`, `"password": "`, `passwd is`,
  `Pwd=` of a connection string); or behind an option (`--password `);
- behind the user of `curl -u user:` and `curl --user user:` (curl's manual);
- behind `Basic` in a header (RFC 7617): base64 of a user, a colon and a password.

A password has a digit and a letter, or a mark among its letters, 6 characters in quotes and 8 without, of which 5
differ. Not masked are words, what says that it stands for a password (`<password>`, `${DB_PASSWORD}`, `your_password1`,
`changeme1`), calls and attributes of a program (`self.password1`, `getpass()`), addresses, dates, sizes and names of
algorithms (`sha256`). So a password of letters alone stays.
"""

import re
from base64 import b64decode

from gristmill.tasks.pii.credentials import PLACEHOLDER

_WORD = re.compile(rb"(?:pass(?:word|wd|phrase|wort)|kennwort|(?<![a-z])passe|(?<![a-z])pwd)\Z", re.IGNORECASE)
_OPTION = re.compile(rb"--?[\w-]*\Z", re.ASCII)
_GIVEN = re.compile(
    rb"(?P<sign>[\"'`]?\]?[ \t]{0,4}(?::=|=>|[:=])[ \t]{0,4}|[ ](?:is|was|ist|est)[ ]?:?[ ]?|[\"']?>|[\"'] value=)"
    rb"(?:(?P<quote>[\"'`])(?P<quoted>[^\"'`\n]{6,64})(?P=quote)|(?P<bare>[^\s\"'`<>,;|]{8,65}))"
)
_BEHIND_OPTION = re.compile(
    rb"[ ](?:(?P<quote>[\"'])(?P<quoted>[^\"'\n]{6,64})(?P=quote)|(?P<bare>[^\s\"'`<>,;|-][^\s\"'`<>,;|]{7,64}))"
)
_END = b".,;:)]}"
_MARK = re.compile(rb"[A-Za-z][!#$%^&*@][A-Za-z\d]|\d[A-Za-z]|[A-Za-z]\d|[A-Za-z].*\d|\d.*[A-Za-z]", re.DOTALL)
_NO_PASSWORD = re.compile(
    rb"[$%{<&*(\[\\|]|(?:https?|ftp|file)://|/|\.{1,2}/|"  # a variable, an address, a path
    rb"(?:sha|md|aes|utf|base|pbkdf|bcrypt|scrypt|argon|des|rc|win|oauth|http|varchar|char|string|text|int|x)-?_?\d|"
    rb"\d{1,4}[-./]\d{1,2}[-./]\d|\d+(?:st|nd|rd|th|px|em|ms|kb|mb|gb|bits?|bytes?|chars?|characters?|days?|min|hours?)?"
    rb"(?:-\w+)*\Z|[a-z_]\w*(?:\.[a-z_]\w*)+\Z",
    re.IGNORECASE | re.ASCII,
)
_CALL = re.compile(rb"[\w\])][(\[{]|->|::|[)\]]\Z|\.\w+\(")
_NAME = re.compile(rb"(?:[a-z]+[_-])*[a-z]{3,}_?\d{1,2}\Z", re.IGNORECASE)  # `field1`, `new_value2`
_WORD_OF_PROSE, _PROSE = re.compile(rb"[a-z]+\d+\Z", re.IGNORECASE), re.compile(rb",? [a-z]+")  # `user1024 was told`
_FEWEST_DIFFERENT = 5
_LOGIN = re.compile(
    rb"[^\n|;]{0,240}?(?<=\s)(?:-u|--user|-U|--proxy-user)(?:\s{1,3}|=)?[\"']?(?P<user>[^\s:\"'$<]{1,64}):"
    rb"(?P<password>[^\s\"'$<>{}]{6,64})"
)


def _is_password(value: bytes, quoted: bool) -> bool:
    if not _MARK.search(value) or PLACEHOLDER.search(value) or len(set(value)) < _FEWEST_DIFFERENT:
        return False
    if _NO_PASSWORD.match(value) or (b" " in value and not re.search(rb"\d", value)):
        return False
    return quoted or not (_CALL.search(value) or _NAME.match(value))


def said(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate a password stands, given the word that ends before it."""
    word = _WORD.search(before)
    if not word:
        return []
    match = _GIVEN.match(value)
    if not match and (option := _OPTION.search(before)) and option[0].startswith(b"-"):
        match = _BEHIND_OPTION.match(value)
    if not match:
        return []
    group = "quoted" if match["quoted"] else "bare"
    found = match[group]
    if group == "bare":
        if match.end() == len(value) and len(found) > 64:
            return []
        found = found.rstrip(_END)
    if (group == "bare" and len(found) < 8) or not _is_password(found, group == "quoted"):
        return []
    start = match.start(group)
    if group == "bare" and _WORD_OF_PROSE.match(found) and _PROSE.match(value, start + len(found)):
        return []
    return [(start, start + len(found))]


def of_curl(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate, which follows the word `curl`, the password of its user stands."""
    match = _LOGIN.match(value.replace(b"\\\n", b"  "))
    if not match or not _MARK.search(match["password"]) or PLACEHOLDER.search(match["password"]):
        return []
    return [match.span("password")] if len(set(match["password"])) >= _FEWEST_DIFFERENT else []


def basic(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Whether the candidate, which follows the word `Basic`, is a user and a password: all of it but for points at its
    end."""
    value = value.rstrip(b".")
    try:
        user, colon, password = b64decode(value, validate=True).decode().partition(":")
    except ValueError:
        return []
    if not colon or len(password) < 4 or not f"{user}{password}".isprintable() or PLACEHOLDER.search(password.encode()):
        return []
    return [] if (user, password) == ("Aladdin", "open sesame") else [(0, len(value))]  # RFC 7617's
