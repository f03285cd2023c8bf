"""Secrets of addresses: a recipe names them, the environment holds them.

`{secret:mirror}` in an address stands for the value of GRISTMILL_SECRET_MIRROR, as user or password, or in the query.
It is put in where a file is opened, and nowhere else: keys, manifests, logs and recorded parameters have the name.
"""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import BaseModel

from gristmill.storage.remote.redact import redact_url

_SECRET = re.compile(r"\{secret:([a-z][a-z0-9_]*)\}")
_ADDRESS = re.compile(r"((?:.*::)?[a-z][a-z0-9+.-]*://)(?:([^/?#]*)@)?([^?]*)(?:\?(.*))?", re.IGNORECASE | re.DOTALL)
# user and password; fields of a query, each of them a secret, or a name with a secret
_NO_PASSWORD = re.compile(rf"(?:{_SECRET.pattern})?(?::{_SECRET.pattern})?")
_FIELD = rf"(?:[\w.-]+=)?{_SECRET.pattern}"
_NO_VALUE = re.compile(rf"{_FIELD}(?:&{_FIELD})*")


class SecretError(RuntimeError):
    """A secret stands in an address, or one that is named is missing. Not a ValueError: pydantic shows the value of
    those."""


def with_secrets(address: str) -> str:
    """The address as it is opened. Raises SecretError for a secret that the environment does not have."""
    if "{secret:" not in address or not (found := _ADDRESS.fullmatch(address)):
        return address
    scheme, user, place, query = found.groups()

    def value(name: re.Match) -> str:
        variable = f"GRISTMILL_SECRET_{name[1].upper()}"
        if not (given := os.environ.get(variable)):
            raise SecretError(
                f"{redact_url(address)} needs the environment variable {variable}, which is not set: set it, on every "
                "machine that reads the file"
            )
        return given

    # a password may have an @; a query is given as a server signed it
    user = "" if user is None else _SECRET.sub(lambda name: quote(value(name), safe=""), user) + "@"
    query = "" if query is None else "?" + _SECRET.sub(value, query)
    return f"{scheme}{user}{place}{query}"


def without_user(address: str) -> tuple[str, str, str]:
    """An address without its user and password; these, empty if it has none."""
    parts = urlsplit(address)
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=place).geturl(), unquote(parts.username or ""), unquote(parts.password or "")


def check_no_secrets(value: Any, where: str = "") -> None:
    """Raise SecretError if an address in a recipe, or in a part of one, has a password, or a query with a value.

    Names of secrets may stand there. `where`: the part's key. `url_prefixes` are of pages, and open nothing.
    """
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key != "url_prefixes":
                check_no_secrets(each, f"{where}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            check_no_secrets(each, f"{where}[{number}]")
    elif isinstance(value, str) and (found := _ADDRESS.fullmatch(value)):
        scheme, user, _, query = found.groups()
        if user is not None and not _NO_PASSWORD.fullmatch(user):
            part = "a user or a password"
        elif query and "http" in scheme.lower() and not _NO_VALUE.fullmatch(query):
            part = "a query"
        else:
            return
        raise SecretError(
            f"{where}: the address {redact_url(value)} has {part}, which logs and databases would keep: write "
            "{secret:name} in its place, and set GRISTMILL_SECRET_NAME in the environment"
        )


def check_no_name(address: str, where: str) -> None:
    """Raise SecretError for an address, given by a file or a server, that names a secret: it could send it anywhere."""
    if "{secret:" in address:
        raise SecretError(
            f"{redact_url(where)} names an address with `{{secret:`, which only a recipe may: take that address out"
        )
