"""Addresses as they may be logged and kept: without what lets their reader in."""

import re

_HTTP = re.compile(r"https?://", re.IGNORECASE)
_WORD = re.compile(r"https?://\S+", re.IGNORECASE)
_USER = re.compile(r"(?<=//)[^/?#]*@")


def redact_url(address: str) -> str:
    """An address without the user, the password and the query of HTTP, which may be a signature; others as they are."""
    if not (found := _HTTP.search(address)):
        return address
    return address[: found.start()] + _USER.sub("", address[found.start() :].partition("?")[0], count=1)


def redact_urls(text: str) -> str:
    """A text, a library's error for one, with each address in it as `redact_url` gives it."""
    return _WORD.sub(lambda found: redact_url(found[0]), text)
