"""Texts from elsewhere, made safe for a terminal, a log or a record: addresses without secrets, no control characters.

Everything uses it, so it imports nothing of ours.
"""

import re

_HTTP = re.compile(r"https?://", re.IGNORECASE)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_WORD = re.compile(rf"{_ADDRESS.pattern}\S+", re.IGNORECASE)
_USER = re.compile(r"(?<=//)[^/?#]*@")


def redact_url(address: str) -> str:
    """An address without user and password, and one of HTTP without its query, which may be a signature.

    In other addresses `?` is a wildcard. A path is given as it is.
    """
    http = _HTTP.search(address)
    if not (match := http or _ADDRESS.search(address)):
        return address
    before, rest = address[: match.start()], address[match.start() :]
    return before + _USER.sub("", rest.partition("?")[0] if http else rest, count=1)


def redact_user(address: str) -> str:
    """An address without user and password. Its query stays: for pages, whose query is a part of their name."""
    if not (match := _HTTP.search(address) or _ADDRESS.search(address)):
        return address
    return address[: match.start()] + _USER.sub("", address[match.start() :], count=1)


def redact_urls(text: str) -> str:
    """A text, a library's error for one, with each address in it as `redact_url` gives it."""
    return _WORD.sub(lambda match: redact_url(match[0]), text)


# C0 but tab and line feed, DEL, C1; surrogates, which no output takes; embeddings, overrides and isolates of
# directions (UAX #9), by which a line reads otherwise than it is
_COMMANDS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile("[\t\n\u2028\u2029]")


def printable(text: str) -> str:
    r"""The text with control characters as `\x1b`; its line ends and tabs stay, CR LF becomes LF."""
    return _COMMANDS.sub(_escape, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    r"""The same in one line: line ends and tabs as `\n` and `\t`, too."""
    return _BREAKS.sub(_escape, printable(text))


def printable_json(text: str) -> str:
    r"""The same JSON without control characters in its strings: DEL, C1 and directions as `\u009b`. JSON itself escapes
    only C0."""
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match) -> str:
    return match[0].encode("unicode_escape").decode()
