"""The key by which indexes of web archives sort addresses: SURT, the sort-friendly form of a URL. Separate: an export
needs it, and no step does.

The rules are from the canonicalizer of webarchive-commons, with which Wayback machines and Common Crawl's index make
`urlkey` and `url_surtkey` (https://github.com/iipc/webarchive-commons, src/main/java/org/archive/url). The package
The Python package `surt` has them under the AGPL, so it is not a dependency.
"""

import re
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from gristmill.tasks.url.canonical import DEFAULT_PORTS, canonical_host, host_of

_WWW = re.compile(r"^www\d*\.")
_SLASHES = re.compile("/{2,}")
_DOTS = re.compile(r"\.{2,}")
# Session ids, which the index leaves out: in paths of ASP.NET, and at the end of a query or before its next parameter.
_PATH_SESSION = re.compile(r"/(?:\((?:[a-z]\([0-9a-z]{24}\))+\)|\([0-9a-z]{24}\))(?=/[^?]+\.aspx)", re.I)
_QUERY_SESSIONS = tuple(
    re.compile(rf"(.*){pattern}(?:&(.*))?", re.I | re.S)
    for pattern in (
        "jsessionid=[0-9a-z]{32}",
        "phpsessid=[0-9a-z]{32}",
        "sid=[0-9a-z]{32}",
        "aspsessionid[a-z]{8}=[a-z]{24}",
        "cfid=[^&]+&cftoken=[^&]+",
    )
)


def surt_key(url: str | None) -> str | None:
    """The key of a URL, as `com,example)/path?a=1`; None for what has no scheme or no valid host.

    Takes off `www.`, user names, default ports, fragments and session ids, lowercases the rest and sorts the
    parameters. Never raises. IP addresses are reversed like names, as in the index.
    """
    if not url:
        return None
    scheme, colon, rest = url.strip().partition("://")
    if not colon or not scheme.isalnum():
        return None
    rest, question, query = rest.partition("#")[0].partition("?")
    authority, slash, path = rest.partition("/")
    host, port = _host_and_port(authority.rpartition("@")[2])
    if not host:
        return None
    place = f":{port}" if port and port != DEFAULT_PORTS.get(scheme.lower()) else ""
    key = f"{_reversed(host)}{place}){_path(slash + path)}"
    parameters = _query(query) if question else ""
    return f"{key}?{parameters}" if parameters else key


def _host_and_port(authority: str) -> tuple[str, str]:
    bare = host_of(authority)
    port = authority[len(bare) :].removeprefix(":")
    return canonical_host(_DOTS.sub(".", bare).strip(".")), port if port.isascii() and port.isdigit() else ""


@lru_cache(1 << 16)
def _reversed(host: str) -> str:
    if host.startswith("["):
        return host[1:-1]
    return ",".join(reversed(_WWW.sub("", host, count=1).split(".")))


def _path(path: str) -> str:
    segments: list[str] = []
    # characters beyond ASCII stay bytes of their encoding
    parts = _unescaped(path).decode("latin-1").split("/")[1:]
    for part in parts:
        if part == "..":
            if segments:
                segments.pop()
            else:
                segments.append(part)
        elif part != ".":
            segments.append(part)
    plain = _SLASHES.sub("/", "/" + "/".join(segments))
    plain = _PATH_SESSION.sub("", _escaped(plain).lower())
    return plain.removesuffix("/") or "/"


def _query(query: str) -> str:
    escaped = _escaped(_unescaped(query).decode("latin-1"))
    for pattern in _QUERY_SESSIONS:
        if match := pattern.fullmatch(escaped):
            escaped = match[1] + (match[2] or "")
    parameters = [parameter.partition("=") for parameter in escaped.lower().split("&")]
    # a name without `=` is before the same name with an empty value
    parameters.sort(key=lambda parts: (parts[0], bool(parts[1]), parts[2]))
    return "&".join("".join(parts) for parts in parameters)


def _unescaped(text: str) -> bytes:
    """The bytes of a text after all escapes in it are decoded."""
    data = text.encode("utf-8", "replace")
    while b"%" in data and (plain := unquote_to_bytes(data)) != data:
        data = plain
    return data


_SAFE = frozenset(range(0x21, 0x80)) - frozenset(b"#%")


def _escaped(text: str) -> str:
    return "".join(c if ord(c) in _SAFE else f"%{ord(c):02X}" for c in text)
