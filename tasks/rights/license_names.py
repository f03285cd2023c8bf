"""SPDX identifiers for the addresses and names of licenses by which pages state them.

A license without a version is named by its family, such as `CC-BY-SA`, which is not an identifier of SPDX: nobody knows
which version it is.
"""

import re
from functools import cache

from gristmill.tasks.source_code.licenses import expression

_CC = re.compile(
    r"creativecommons\.(?:org|net)/(?:licen[sc]es|publicdomain)/(?P<kind>[a-z+-]{2,20})"
    r"(?:/(?P<version>\d\.\d)(?:/(?P<port>[a-z]{2,4})(?![a-z]))?)?",
    re.I,
)
_GNU = re.compile(
    r"gnu\.org/(?:copyleft|licen[sc]es)/(?:old-licen[sc]es/)?(?P<name>fdl|gpl|lgpl|agpl)(?:-(?P<version>\d\.\d))?"
    r"(?![a-z]*-(?:faq|howto))",
    re.I,
)
_ADDRESSES = (
    (re.compile(r"nationalarchives\.gov\.uk/doc/open-government-licence/version/(\d)", re.I), "OGL-UK-{}.0"),
    (re.compile(r"opendatacommons\.org/licen[sc]es/odbl(?:/(\d))?", re.I), "ODbL-1.0"),
    (re.compile(r"opendatacommons\.org/licen[sc]es/by(?:/(\d))?", re.I), "ODC-By-1.0"),
    (re.compile(r"opendatacommons\.org/licen[sc]es/pddl(?:/(\d))?", re.I), "PDDL-1.0"),
    (re.compile(r"etalab\.gouv\.fr/licence-ouverte|github\.com/etalab/licence-ouverte", re.I), "etalab-2.0"),
    (re.compile(r"(?:opensource\.org|spdx\.org)/licen[sc]es/([A-Za-z0-9.+-]{2,40}?)(?:\.(?:php|html))?/?\Z"), "{}"),
    (re.compile(r"apache\.org/licen[sc]es/LICENSE-2\.0", re.I), "Apache-2.0"),
    (re.compile(r"unlicense\.org/?\Z", re.I), "Unlicense"),
)
# Words in the addresses of licenses of texts: a link to one of software is hardly ever about the page.
ADDRESS_WORDS = (
    *("creativecommons.", "gnu.org/copyleft", "gnu.org/licen", "open-government-licence", "opendatacommons.org"),
    "licence-ouverte",
)

_ELEMENTS = {"nc": "NC", "nd": "ND", "sa": "SA", "by": "BY"}
_ORDER = ("BY", "NC", "SA", "ND")  # as SPDX writes it: CC-BY-NC-SA, CC-BY-NC-ND
_SHORT = re.compile(
    r"\bCC(?:[ -](?P<kind>BY(?:[ -](?:NC|ND|SA)\b){0,3})(?:[ -]v?(?P<version>\d\.\d))?|0(?:[ -](?P<zero>1\.0))?)\b"
)
_LONG = re.compile(
    r"Creative\s+Commons(?:\s+Public)?\s*[:,-]?\s*(?P<kind>Attribution(?:[\s,/\u2013-]{1,4}"
    r"(?:Non[\s-]?Commercial|No[\s-]?Deriv\w{0,8}(?:\s+Works?)?|Share[\s-]?Alike)){0,3})"
    r"(?:\s+Public)?(?:\s*[,(]?\s*(?:Licen[sc]e\s+)?(?:v(?:ersion)?\.?\s*)?(?P<version>[1-4]\.\d))?",
    re.I,
)
_ZERO = re.compile(r"Creative\s+Commons\s+(?:Zero|CC0)|\bCC0\b|CC\s+Zero", re.I)
_FDL = re.compile(
    r"(?:GNU\s+Free\s+Documentation\s+Licen[sc]e|\bGFDL\b)(?:,?\s+v(?:ersion)?\.?|-)?(?:\s?(?P<version>1\.[123])"
    r"(?P<later>\+|,?\s+or\s+(?:any\s+)?later|-or-later)?)?",
    re.I,
)


def of_address(address: str) -> str | None:
    """The license at an address, such as `CC-BY-4.0` for creativecommons.org/licenses/by/4.0/; None for another one."""
    address = address[:2000]
    if match := _CC.search(address):
        return _creative_commons(match["kind"].lower(), match["version"], match["port"])
    if match := _GNU.search(address):
        name = match["name"].upper()
        name = "GFDL" if name == "FDL" else name
        return f"{name}-{match['version']}-only" if match["version"] else name
    for pattern, identifier in _ADDRESSES:
        if match := pattern.search(address):
            return _known(identifier.format(*match.groups()))
    return None


def of_words(text: str) -> str | None:
    """The license that a statement names, by its address or its usual name; None for none, or for several."""
    text = text[:2000]
    if address := of_address(text):
        return address
    names = {_of_kind(match["kind"], match["version"]) for match in _LONG.finditer(text)}
    names |= {_of_kind(match["kind"], match["version"]) for match in _SHORT.finditer(text) if match["kind"]}
    if _ZERO.search(text):
        names.add("CC0-1.0")
    for match in _FDL.finditer(text):
        end = "or-later" if match["later"] else "only"
        names.add(f"GFDL-{match['version']}-{end}" if match["version"] else "GFDL")
    # `CC BY` beside `Creative Commons Attribution 4.0` is the same license
    names = {name for name in names if not any(re.match(rf"{re.escape(name)}-\d", other) for other in names)}
    if len(names) > 1:
        return None
    return names.pop() if names else _known(text.strip()) if len(text) < 60 and " " not in text.strip() else None


def _of_kind(words: str, version: str | None) -> str:
    """The license of Creative Commons with these elements, in their short (`BY-NC`) or their long names."""
    squeezed = re.sub(r"[^a-z]", "", words.lower())
    if squeezed.startswith("by"):
        elements = re.findall("by|nc|nd|sa", squeezed)
        return _joined({each.upper() for each in elements}, version)
    long_names = {"NC": "noncommercial", "ND": "noderiv", "SA": "sharealike"}
    return _joined({"BY", *(short for short, long in long_names.items() if long in squeezed)}, version)


def _joined(parts: set[str], version: str | None) -> str:
    name = "-".join(["CC", *(each for each in _ORDER if each in parts)])
    return f"{name}-{version}" if version else name


def _creative_commons(kind: str, version: str | None, port: str | None) -> str | None:
    if kind == "zero":
        return "CC0-1.0"
    if kind == "mark":
        return "CC-PDM-1.0"
    if kind in ("publicdomain", "certification"):
        return "CC-PDDC"
    parts = {_ELEMENTS[each] for each in kind.split("-") if each in _ELEMENTS}
    if not parts or len(parts) != len(kind.split("-")):
        return None
    name = _joined(parts, version)
    ported = f"{name}-{port.upper()}" if port and version else ""
    if "BY" not in parts:  # the first licenses did without; SPDX has one of them
        return _known(name)
    return ported if ported and _known(ported) else name


@cache
def _known(identifier: str) -> str | None:
    """An identifier as SPDX writes it; None for one that it does not have."""
    return expression(identifier) if re.fullmatch(r"[A-Za-z0-9.+-]{2,60}", identifier) else None
