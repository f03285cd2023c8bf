"""The file system of an address: the one place where its secrets are put in and its redirects are bounded."""

import re
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gristmill.storage.remote.url_secrets import with_secrets

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
    """Whether it is no address, for fsspec either. Of the time that a small file takes, half went into asking it."""
    return "://" not in path and "::" not in path and not path.startswith("data:")
