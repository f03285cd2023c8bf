"""The canonical form of a URL: two URLs that surely lead to one page are one string."""

import ipaddress
import re
from collections.abc import Callable
from functools import cache, lru_cache
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

import idna
import pyarrow as pa
import pyarrow.compute as pc
from publicsuffixlist import PublicSuffixList
from pydantic import Field

from gristmill.storage import parquet
from gristmill.tasks.documents.step import Settings


def without_www(host: str) -> str:
    """A host without `www.`, `www2.`, ..., unless a single label were left."""
    if host.startswith("www"):
        first, _, rest = host.partition(".")
        if "." in rest and (first == "www" or first[3:].isdigit()):
            return rest
    return host


# Parameters that advertisers and mailers use to track visitors; a trailing `*` matches any rest. From the
# documentation of each: Google (utm_*, gclid, gclsrc, gbraid, wbraid, dclid, gad_*, _ga, _gl, srsltid), Matomo
# (pk_*, mtm_*), Microsoft, Meta, X, TikTok, LinkedIn, Pinterest, Yandex (yclid, ysclid, _openstat), HubSpot
# (_hs*), Mailchimp (mc_*), Marketo (mkt_tok), Vero; and from the strip list of Firefox (oly_*, __s).
TRACKING = (
    *("utm_*", "gclid", "gclsrc", "gbraid", "wbraid", "dclid", "gad_source", "gad_campaignid", "_ga", "_gl", "srsltid"),
    *("pk_*", "mtm_*", "msclkid", "fbclid", "igshid", "igsh", "twclid", "ttclid", "li_fat_id", "epik"),
    *("yclid", "ysclid", "_openstat", "_hsenc", "_hsmi", "mc_cid", "mc_eid", "mkt_tok", "vero_id", "vero_conv"),
    *("oly_anon_id", "oly_enc_id", "__s"),
)

# The list of public suffixes that an installed package carries: where domains begin.
PUBLIC_SUFFIXES = "publicsuffixlist:public_suffix_list.dat"


class Canonical(Settings):
    """What canonicalization removes from a URL, in addition to what the standards call equivalent."""

    tracking: tuple[str, ...] = Field(
        TRACKING, description="Query parameters to remove. A trailing * matches the rest of the name."
    )
    fold_scheme: bool = Field(False, description="Replace http with https.")
    fold_www: bool = Field(False, description="Remove a leading `www.` if a registered domain remains.")


# Rules and their sources: RFC 3986 section 6.2.2 (case, percent-encoding, dot segments) and 6.2.3 (default port,
# empty path); the URL standard of the WHATWG for what browsers accept and RFC 3986 does not (surrounding and inner
# white space, backslashes, missing slashes, IPv4 numbers, UTS #46 for international names); Heritrix and the SURT
# canonicalizer of the Internet Archive for session ids, empty queries and sorted parameters.


DEFAULT_PORTS = {"http": "80", "https": "443", "ftp": "21"}

# Names of the Internet Archive's StripSessionIDs rules; `sid` has other uses, so only with a value of 32 characters.
_SESSION = re.compile(r"(?:jsessionid|phpsessid|cfid|cftoken|aspsessionid[a-z]*)(?:=.*)?|sid=[0-9a-z]{32}", re.I | re.S)
_PATH_SESSION = re.compile(r";jsessionid=[^;/]*", re.I)

_MAX_HOST = 253  # characters of a name in the DNS: RFC 1035, section 2.3.4
_HOST = re.compile(r"[a-z0-9\-._~!$&'()*+,;=]+")  # reg-name of RFC 3986, section 3.2.2, without escapes
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_CONTROLS_AND_SPACE = "".join(map(chr, range(0x21)))
_INNER_SPACE = str.maketrans("", "", "\t\n\r")
# An escape, or a character that is allowed neither in a path nor in a query (RFC 3986, sections 3.3 and 3.4).
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})|[^A-Za-z0-9\-._~!$&'()*+,;=:@/?]")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Most URLs of a crawl look like this, and are canonical unless a segment begins with a dot.
_PLAIN = re.compile(r"https?://(?:[a-z0-9_-]++\.)++(?:[a-z]{2,}|xn--[a-z0-9-]+)/[A-Za-z0-9\-._~!$&'()*+,=:@/]*+")


# A host with a dot and a top-level domain in letters, and a slash; or one that is a host because of what precedes it.
_LABEL = r"[^\W_](?:[\w-]*+(?<=[^\W_]))?+"
_DOMAIN = rf"(?:{_LABEL}\.)+(?:[^\W\d_]{{2,}}|xn--[a-z0-9-]+)(?::[0-9]{{1,5}})?"
_WITHOUT_SCHEME = re.compile(rf"//{_DOMAIN}(?:[/?#]|\Z)|www\.{_DOMAIN}(?:[/?#]|\Z)|{_DOMAIN}/", re.IGNORECASE)


def with_scheme(url: str) -> str:
    """A URL without a scheme as one of http, if it surely begins with a host: `example.com/a`, `//example.com`,
    `www.example.com`. Any other text as it is, such as `example.com`, which could be a file, or `docs/a.html`."""
    bare = url.strip(_CONTROLS_AND_SPACE)
    return f"http://{bare.removeprefix('//')}" if _WITHOUT_SCHEME.match(bare) else url


@cache
def canonicalizer(options: Canonical) -> Callable[[str], str]:
    """A function from a URL to its canonical form; "" for one that has none.

    URLs without a canonical form: other schemes than http, https and ftp; hosts that are empty, are longer than a name
    in the DNS, have a forbidden character or an empty label, or end in a number but are not an IP address; ports above
    65535.
    The function never raises, takes time linear in the URL's length but for the sorting of its parameters, and
    leaves a canonical URL as it is.
    """
    names = frozenset(name.lower() for name in options.tracking if not name.endswith("*"))
    stems = tuple(name[:-1].lower() for name in options.tracking if name.endswith("*"))
    folds = options.fold_scheme or options.fold_www

    def keeps(parameter: str) -> bool:
        name = parameter.partition("=")[0].lower()
        return not (name in names or name.startswith(stems) or _SESSION.fullmatch(parameter))

    def kept(query: str) -> str:
        escaped = _ESCAPE.sub(_escape, query).replace("'", "%27")  # the special-query percent-encode set of WHATWG
        parameters = [p for p in escaped.split("&") if p and keeps(p)]
        parameters.sort(key=lambda parameter: parameter.partition("=")[0])  # stable: repeated names keep their order
        return f"?{'&'.join(parameters)}" if parameters else ""

    def canonical(url: str) -> str:
        if not url.isprintable() or url[:1] == " " or url[-1:] == " ":
            url = url.strip(_CONTROLS_AND_SPACE).translate(_INNER_SPACE)
        if not folds and (plain := _PLAIN.match(url)) and "/." not in plain[0] and plain.end() < _MAX_HOST:
            if plain.end() == len(url):
                return url
            if url[plain.end()] in "?#":
                query = url[plain.end() :].partition("#")[0]
                return plain[0] + kept(query[1:])
        scheme, _, rest = url.partition(":")
        scheme = scheme.lower()
        if scheme not in DEFAULT_PORTS:
            return ""
        rest, _, query = rest.partition("#")[0].partition("?")
        authority, _, path = rest.replace("\\", "/").lstrip("/").partition("/")
        host, port = _authority(authority)
        if not host or port is None:
            return ""
        if port == DEFAULT_PORTS[scheme]:
            port = ""
        if options.fold_scheme and scheme == "http":
            scheme = "https"
            port = "" if port == DEFAULT_PORTS[scheme] else port
        while options.fold_www and host.startswith("www.") and registered_domain(host[4:], False):
            host = host[4:]
        path = _without_dots(_PATH_SESSION.sub("", _ESCAPE.sub(_escape, "/" + path)))
        return f"{scheme}://{host}{':' if port else ''}{port}{path}{kept(query)}"

    return canonical


@lru_cache(1 << 16)
def registered_domain(host: str, private: bool) -> str:
    """The domain that was registered under a public suffix; "" for an IP address, a suffix and a single label.

    `private` takes the list's private suffixes (`github.io`) for suffixes too. The list is the one that comes inside
    the package `publicsuffixlist`; under a top-level domain that it does not know, the second label counts.
    """
    if host.startswith("[") or host.rpartition(".")[2].isdigit():
        return ""
    return _suffixes(private).privatesuffix(host) or ""


def host_of(authority: str) -> str:
    """The host of a canonical URL's authority: without the port."""
    if authority.startswith("["):
        return authority.partition("]")[0] + "]"
    return authority.partition(":")[0]


@lru_cache(1 << 16)
def canonical_host(host: str) -> str:
    """Lower case, punycode, IP addresses in their usual notation, no trailing dot; "" if it is not a host."""
    if host.startswith("["):
        return _ipv6(host)
    if "%" in host:
        try:
            host = unquote_to_bytes(host).decode()
        except UnicodeDecodeError:
            return ""
    if not host.isascii():
        try:
            host = idna.uts46_remap(host, std3_rules=False)
            labels = [x if x.isascii() else "xn--" + x.encode("punycode").decode() for x in host.split(".")]
        except (idna.IDNAError, UnicodeError):
            return ""
        host = ".".join(labels)
    host = host.lower().removesuffix(".")
    if not _HOST.fullmatch(host) or len(host) > _MAX_HOST or host[0] == "." or host[-1] == "." or ".." in host:
        return ""
    return _ipv4(host) if _NUMBER.fullmatch(host.rpartition(".")[2]) else host


@cache
def _suffixes(private: bool) -> PublicSuffixList:
    return PublicSuffixList(only_icann=not private)


def _authority(authority: str) -> tuple[str, str | None]:
    """Host and port of an authority; the port is "" if there is none, and None if what is there is none."""
    authority = authority.rpartition("@")[2]
    host, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = authority, ""
    port = port.lstrip("0") or port[:1]
    if len(host) > 4 * _MAX_HOST or (port and not (port.isascii() and port.isdigit() and len(port) <= 5)):
        return "", None
    return canonical_host(host), port if int(port or 0) <= 65535 else None


def _ipv4(host: str) -> str:
    """The IPv4 parser of the URL standard: up to four numbers, each decimal, octal (0...) or hexadecimal (0x...)."""
    parts = host.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        return ""
    try:
        numbers = [
            int(p[2:] or "0", 16) if p[:2] == "0x" else int(p, 8 if p[0] == "0" and len(p) > 1 else 10) for p in parts
        ]
    except ValueError:
        return ""
    last = 256 ** (5 - len(numbers))
    if any(n > 255 for n in numbers[:-1]) or numbers[-1] >= last:
        return ""
    value = numbers[-1] + sum(n * 256 ** (3 - i) for i, n in enumerate(numbers[:-1]))
    return str(ipaddress.IPv4Address(value))


def _ipv6(host: str) -> str:
    """An address in the form of RFC 5952, without its zone identifier, which means nothing on another machine."""
    try:
        address = ipaddress.IPv6Address(host[1:-1] if host.endswith("]") and "%" not in host else "")
    except ValueError:
        return ""
    # section 5 of RFC 5952; what Python writes here depends on its version
    return f"[::ffff:{address.ipv4_mapped}]" if address.ipv4_mapped else f"[{address.compressed}]"


def _escape(match: re.Match) -> str:
    digits = match[1]
    if digits is None:
        return quote_from_bytes(match[0].encode("utf-8", "replace"), safe="")
    byte = int(digits, 16)
    return chr(byte) if byte in _UNRESERVED else f"%{digits.upper()}"


def _without_dots(path: str) -> str:
    """RFC 3986, section 5.2.4, for a path that begins with a slash."""
    if "/." not in path:
        return path
    out: list[str] = []
    segments = path[1:].split("/")
    for segment in segments:
        if segment == "..":
            del out[-1:]
        elif segment != ".":
            out.append(segment)
    if segments[-1] in (".", ".."):
        out.append("")
    return "/" + "/".join(out)


# The host of a document: what is drawn in a sample of pages, since the documents of one site are alike.


OWN = "host"  # the name that a source gives a column of its own to be used instead of the URL's host
_READ = ["url", "file"]


def host_columns(documents: str) -> list[str]:
    """The columns of a part with documents that `hosts` needs."""
    return [*_READ, *([OWN] if OWN in parquet.columns(documents) else [])]


def hosts(documents: pa.Table) -> pa.Array:
    """The host of each document, a string that is never empty: as `known_hosts`, else the file that the document was
    read from."""
    files = pc.coalesce(documents["file"].cast(pa.string()), "-").combine_chunks()
    return pc.coalesce(known_hosts(documents), files)


def known_hosts(documents: pa.Table) -> pa.Array:
    """The host of each document, a string that is not empty, or null.

    It is the value of the documents' own column `host`, if a source has one that is not a list or a mapping; otherwise
    the host of the URL, without `www.`.
    """
    own = pa.nulls(len(documents), pa.string())
    if OWN in documents.column_names and not pa.types.is_nested(documents[OWN].type):
        own = documents[OWN].cast(pa.string()).combine_chunks()
    of_urls = pa.array(map(page_host, documents["url"].to_pylist()), pa.string())
    return pc.coalesce(*(pc.if_else(pc.equal(column, ""), None, column) for column in (own, of_urls)))


def page_host(url: str | None) -> str | None:
    """The host of an address, without `www.`; None where it has none."""
    try:
        return None if url is None else _site(urlsplit(url).hostname or "") or None
    except ValueError:  # brackets without an address in them
        return None


@lru_cache(1 << 16)
def _site(host: str) -> str:
    return without_www(canonical_host(host))
