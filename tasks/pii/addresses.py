"""Public IP addresses, version 4 and 6.

Masked is the address of a single host in the public networks (IANA registries, by `ipaddress`). Not masked are

- what is not public: private, shared, documentation, multicast and reserved networks;
- networks: addresses with a prefix length (`198.41.0.0/24`), version 4 ones that end in 0 or 255, version 6 ones
  without an interface;
- public resolvers that everybody knows by heart, and the stand-ins that FineWeb puts in place of addresses;
- version numbers, section numbers and object identifiers: four mostly small numbers, or four numbers behind a word
  that says so, unless a word before them says that they are an address.
"""

import ipaddress
import re

_KNOWN = frozenset(
    b"8.8.8.8 8.8.4.4 1.1.1.1 1.0.0.1 9.9.9.9 149.112.112.112 208.67.222.222 208.67.220.220 4.2.2.1 4.2.2.2 "
    # datatrove src/datatrove/pipeline/formatters/pii.py
    b"22.214.171.124 126.96.36.199 188.8.131.52 184.108.40.206 220.127.116.11 18.104.22.168".split()
)
_KNOWN_6 = frozenset(
    map(
        ipaddress.IPv6Address,
        ("2001:4860:4860::8888", "2001:4860:4860::8844", "2606:4700:4700::1111", "2606:4700:4700::1001", "2620:fe::fe"),
    )
)
# Numbers of versions, sections and the like are seldom larger.
_SMALL, _SMALLEST = 31, 9
_ADDRESS_WORD = re.compile(
    rb"\b(?:ip|ipv4|ip[ -]?address(?:es)?|address|addr|host|hostname|server|gateway|router|dns|nameserver|ping|proxy|"
    rb"peer|client|inet|traceroute)\b[ \t:=\"'`(\[<]{0,4}(?:(?:is|was|of|at|to|from|by)\b[ \t:\"'`]{0,3})?\Z"
    rb"|https?://(?:\S*@)?\Z|@\Z",
    re.IGNORECASE,
)
_VERSION_WORD = re.compile(
    rb"(?:\b|_)(?:v|ver|vers|version|versions|release|releases|rel|build|firmware|fw|update|driver|drivers|revision|rev|"
    rb"sections?|sect?|chapters?|clauses?|paragraphs?|para|appendix|tables?|figures?|fig|rules?|parts?|articles?|"
    rb"items?|steps?|oid|asn|patch|sdk|kernel|bios|spec|schema|assembly)\b\W{0,4}\Z",
    re.IGNORECASE,
)
_QUAD_BEFORE = re.compile(rb"(?:[.,\d][.,]?|[-+\\~^#$&*%]|[^/]/|^/|[<>=~!]=\s?|[<>]\s|\xe2\x80[\x90-\x95])\Z")
_QUAD_AFTER = re.compile(rb"\.?[A-Za-z0-9_]|/\d{1,2}(?!\d)|[-+*~%]|,\d|\xe2\x80[\x90-\x95]")
_HEXTETS_AFTER = re.compile(rb"[A-Za-z0-9_:]|\.\w|/\d")
# The first and the last that IANA has given to a registry, and room for its next blocks.
_UNICAST = ipaddress.IPv6Address("2001:200::"), ipaddress.IPv6Address("2fff:ffff::")


def ipv4(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate an address stands, given the bytes around it."""
    if _QUAD_AFTER.match(after) or _QUAD_BEFORE.search(before) or value in _KNOWN:
        return []
    try:
        address = ipaddress.IPv4Address(value.decode("ascii"))
    except ValueError:
        return []
    if not address.is_global or address.is_multicast:
        return []
    octets = address.packed
    if octets[3] in (0, 255) or len(set(octets)) == 1:
        return []
    if not _ADDRESS_WORD.search(before):
        first, small = octets[0], sum(octet <= _SMALL for octet in octets[1:])
        if _VERSION_WORD.search(before) or small >= (1 if first <= _SMALLEST else 2 if first <= _SMALL else 3):
            return []
    return [(0, len(value))]


def ipv6(value: bytes, before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Where in the candidate an address stands, given the bytes around it."""
    if before[-1:] in (b".", b"-") or _HEXTETS_AFTER.match(after):
        return []
    end = len(value.rstrip(b":")) if not value.endswith(b"::") else len(value)
    try:
        address = ipaddress.IPv6Address(value[:end].decode("ascii"))
    except ValueError:
        return []
    groups = [group for group in value[:end].split(b":") if group]
    within = address.sixtofour or address
    if not _UNICAST[0] <= address <= _UNICAST[1] or not within.is_global or len(groups) < 3 or address in _KNOWN_6:
        return []
    return [(0, end)] if int(address) & (1 << 64) - 1 else []
