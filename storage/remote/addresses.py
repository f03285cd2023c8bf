"""Addresses of remote files: secrets that a recipe names and the environment holds, and the file system of each."""

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import fsspec
from fsspec.implementations.local import LocalFileSystem
from pydantic import BaseModel

from gristmill.storage.printable import redact_url

# `{secret:mirror}` in an address is replaced by the value of GRISTMILL_SECRET_MIRROR, as user or password, or in the
# query. This happens only when a file is opened: keys, manifests, logs and recorded parameters have the name.
_SECRET = re.compile(r"\{secret:([a-z][a-z0-9_]*)\}")


_SECRET_ADDRESS = re.compile(
    r"((?:.*::)?[a-z][a-z0-9+.-]*://)(?:([^/?#]*)@)?([^?]*)(?:\?(.*))?", re.IGNORECASE | re.DOTALL
)


# user and password; fields of a query, each of them a secret, or a name with a secret
_NO_PASSWORD = re.compile(rf"(?:{_SECRET.pattern})?(?::{_SECRET.pattern})?")


_FIELD = rf"(?:[\w.-]+=)?{_SECRET.pattern}"


_NO_VALUE = re.compile(rf"{_FIELD}(?:&{_FIELD})*")


class SecretError(RuntimeError):
    """An address contains a secret, or a named secret is missing. Not a ValueError, since pydantic shows the values of
    those."""


def with_secrets(address: str) -> str:
    """The address as it is opened. Raises SecretError for a secret that the environment does not have."""
    if "{secret:" not in address or not (match := _SECRET_ADDRESS.fullmatch(address)):
        return address
    scheme, user, place, query = match.groups()

    def value(name: re.Match) -> str:
        variable = f"GRISTMILL_SECRET_{name[1].upper()}"
        if not (secret := os.environ.get(variable)):
            raise SecretError(
                f"{redact_url(address)} needs the environment variable {variable}, which is not set: set it, on every "
                "machine that reads the file"
            )
        return secret

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

    Names of secrets are allowed. `where`: the part's key. `url_prefixes` are of pages, and open nothing.
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
    elif isinstance(value, str) and (match := _SECRET_ADDRESS.fullmatch(value)):
        scheme, user, _, query = match.groups()
        if user is not None and not _NO_PASSWORD.fullmatch(user):
            part = "a user or a password"
        elif query and "http" in scheme.lower() and not _NO_VALUE.fullmatch(query):
            part = "a query"
        else:
            return
        raise SecretError(
            f"{where}: the address {redact_url(value)} has {part}, which would be stored in logs and "
            f"databases: write {{secret:name}} instead, and set GRISTMILL_SECRET_NAME in the environment"
        )


def check_no_name(address: str, where: str) -> None:
    """Raise SecretError for an address, given by a file or a server, that names a secret: it could send it anywhere."""
    if "{secret:" in address:
        raise SecretError(
            f"{redact_url(where)} has an address with `{{secret:`, which is only allowed in a recipe: remove "
            "that address"
        )


# The file system of an address: the one place where its secrets are put in and its redirects are bounded.


_LOCAL = LocalFileSystem()
_HTTP = re.compile(r"(https?)://", re.IGNORECASE)


def file_system(path: str, **options: Any) -> tuple[Any, str]:
    """fsspec's file system of a path or address, and the path in it. Raises SecretError."""
    if not options and _is_path(path):
        return _LOCAL, LocalFileSystem._strip_protocol(path)
    if schemes := {scheme.lower() for scheme in _HTTP.findall(path)}:
        # imported here, since local paths need no HTTP
        from gristmill.storage.remote.redirects import checked_client

        options |= {scheme: {"get_client": checked_client} for scheme in schemes}
    elif "://" in path:
        options |= {"use_listings_cache": False}  # other processes write there, too: what was listed is old at once
    return fsspec.core.url_to_fs(with_secrets(path), **options)


def _is_path(path: str) -> bool:
    """Whether it is not an address, also for fsspec. Asking fsspec took half of the time of a small file."""
    return "://" not in path and "::" not in path and not path.startswith("data:")
