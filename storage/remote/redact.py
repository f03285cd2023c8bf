"""Addresses without their secrets, for logs and records. Separate: code without pydantic imports it."""

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


def redact_urls(text: str) -> str:
    """A text, a library's error for one, with each address in it as `redact_url` gives it."""
    return _WORD.sub(lambda match: redact_url(match[0]), text)


# Secrets of addresses: a recipe names them, the environment holds them.
#
# `{secret:mirror}` in an address stands for the value of GRISTMILL_SECRET_MIRROR, as user or password, or in the query.
# It is put in where a file is opened, and nowhere else: keys, manifests, logs and recorded parameters have the name.
