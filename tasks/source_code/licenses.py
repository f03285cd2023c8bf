"""Licences as expressions of SPDX: of a file's own line, of a licence's text, of what a package's metadata says.

`license-expression` knows the identifiers and, from ScanCode's index, whether a license is permissive; `identify`
brings the texts of the licenses of choosealicense.com, by which a text is recognized.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from email.parser import HeaderParser
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from wrapt import lazy_import

from gristmill.tasks.source_code.comments import comment_text

if TYPE_CHECKING:
    import license_expression
    from identify.vendor import licenses as license_texts
else:
    license_expression = lazy_import("license_expression")
    license_texts = lazy_import("identify.vendor.licenses")

PERMISSIVE, NOT_PERMISSIVE, NONE = "permissive", "non_permissive", "no_license"
# Categories of ScanCode's that The Stack v2 takes for permissive (Lozhkov et al. 2024, arXiv 2402.19173, section 2.1).
_FREE = frozenset({"Permissive", "Public Domain"})
_LINE = re.compile(r"SPDX-License-Identifier:[ \t]*([^\n]{1,300})")
_LINE_ENDS = re.compile(r"[ \t]*(?:\*/|-->|#\}|\*\)|\"\"\"|''')?[ \t]*$")
_HEAD = 20_000
_MAX_EXPRESSION = 500
# Identifiers of GNU's licenses state whether later versions may be chosen; without such a statement only this one may.
_GNU = {
    f"{name}-{version}": f"{name}-{version}-only"
    for name, versions in {
        "GPL": ("1.0", "2.0", "3.0"),
        "LGPL": ("2.0", "2.1", "3.0"),
        "AGPL": ("1.0", "3.0"),
        "GFDL": ("1.1", "1.2", "1.3"),
    }.items()
    for version in versions
}
_LATER = {f"{name}+": only.replace("-only", "-or-later") for name, only in _GNU.items()}
# What metadata have in the place of an identifier: the classifiers of the Python Package Index, and common names.
_NAMES = {
    "academic free license (afl)": "AFL-3.0",
    "al2": "Apache-2.0",
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache license version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache software license 2.0": "Apache-2.0",
    "artistic license": "Artistic-2.0",
    "boost software license 1.0 (bsl-1.0)": "BSL-1.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd-3-clause license": "BSD-3-Clause",
    "modified bsd license": "BSD-3-Clause",
    "new bsd license": "BSD-3-Clause",
    "3-clause bsd license": "BSD-3-Clause",
    "3-clause bsd": "BSD-3-Clause",
    "simplified bsd license": "BSD-2-Clause",
    "2-clause bsd license": "BSD-2-Clause",
    "cc0 1.0 universal (cc0 1.0) public domain dedication": "CC0-1.0",
    "gnu affero general public license v3": "AGPL-3.0-only",
    "gnu affero general public license v3 or later (agplv3+)": "AGPL-3.0-or-later",
    "gnu general public license v2 (gplv2)": "GPL-2.0-only",
    "gnu general public license v2 or later (gplv2+)": "GPL-2.0-or-later",
    "gnu general public license v3 (gplv3)": "GPL-3.0-only",
    "gnu general public license v3 or later (gplv3+)": "GPL-3.0-or-later",
    "gnu lesser general public license v2 (lgplv2)": "LGPL-2.0-only",
    "gnu lesser general public license v2 or later (lgplv2+)": "LGPL-2.0-or-later",
    "gnu lesser general public license v3 (lgplv3)": "LGPL-3.0-only",
    "gnu lesser general public license v3 or later (lgplv3+)": "LGPL-3.0-or-later",
    "gpl v2": "GPL-2.0-only",
    "gpl v3": "GPL-3.0-only",
    "gplv2": "GPL-2.0-only",
    "gplv3": "GPL-3.0-only",
    "gplv3+": "GPL-3.0-or-later",
    "historical permission notice and disclaimer (hpnd)": "HPND",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "lgplv3": "LGPL-3.0-only",
    "mit license": "MIT",
    "mit licence": "MIT",
    "the mit license": "MIT",
    "the mit license (mit)": "MIT",
    "mit no attribution license (mit-0)": "MIT-0",
    "mozilla public license 1.1 (mpl 1.1)": "MPL-1.1",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "mpl 2.0": "MPL-2.0",
    "psf": "PSF-2.0",
    "psf license": "PSF-2.0",
    "psfl": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
    "python software foundation license version 2": "PSF-2.0",
    "public domain": "LicenseRef-scancode-public-domain",
    "the unlicense (unlicense)": "Unlicense",
    "universal permissive license (upl)": "UPL-1.0",
    "zlib/libpng license": "Zlib",
    "zope public license": "ZPL-2.1",
    "zpl 2.1": "ZPL-2.1",
}
# A family without an identifier: a text next to it shows which license it is.
_FAMILIES = {
    "bsd license": ("BSD-3-Clause", "BSD-2-Clause"),
    "bsd": ("BSD-3-Clause", "BSD-2-Clause"),
    "bsd-like": ("BSD-3-Clause", "BSD-2-Clause"),
    "gnu general public license (gpl)": ("GPL-3.0-only", "GPL-2.0-only"),
    "gnu library or lesser general public license (lgpl)": ("LGPL-2.1-only", "LGPL-3.0-only"),
    "gpl": ("GPL-3.0-only", "GPL-2.0-only"),
    "lgpl": ("LGPL-2.1-only", "LGPL-3.0-only"),
}


@cache
def _licensing() -> "license_expression.Licensing":
    return license_expression.get_spdx_licensing()  # which reads its index each time


@lru_cache(10_000)
def expression(stated: str) -> str | None:
    """An SPDX expression as SPDX writes it; None for what is none, or names a license that SPDX and ScanCode do not
    know. GNU's licenses without `-only` or `-or-later` get the former."""
    if not stated.strip() or len(stated) > _MAX_EXPRESSION:
        return None
    try:
        parsed = _licensing().parse(stated.strip(), validate=True, strict=True)
    except (license_expression.ExpressionError, RecursionError):
        return None
    if parsed is None:
        return None
    rendered = parsed.render("{symbol.key}")
    for old, new in (*_LATER.items(), *_GNU.items()):
        rendered = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w.+-])", new, rendered)
    return rendered


def named(stated: str) -> str | None:
    """The SPDX expression for what metadata say: an expression, a classifier, or a usual name; None for other words.
    Of a family (`BSD`) it is the license of it that is used most."""
    words = " ".join(stated.split()).strip(" .")
    if spdx_expression := expression(words):
        return spdx_expression
    words = words.rpartition(" :: ")[2].lower()
    if words in _NAMES:
        return _NAMES[words]
    if words in _FAMILIES:
        return _FAMILIES[words][0]
    return expression(words.upper()) if re.fullmatch(r"[a-z]+(-[\d.]+)?", words) else None


def is_family(stated: str) -> bool:
    """Whether metadata name a family of licenses, and not which of it."""
    return stated.rpartition(" :: ")[2].strip().lower() in _FAMILIES


def of_line(text: str) -> str | None:
    """The license that a file's own line `SPDX-License-Identifier:` names; of several all of them hold."""
    expressions = []
    for match in _LINE.finditer(text[:_HEAD]):
        if (one := expression(_LINE_ENDS.sub("", match[1]))) and one not in expressions:
            expressions.append(one)
    return together(expressions)


def together(expressions: Iterable[str]) -> str | None:
    """The expression of licenses that all hold; None for none."""
    parts = [f"({one})" if " OR " in one else one for one in dict.fromkeys(expressions)]
    if len(parts) == 1:
        return parts[0].removeprefix("(").removesuffix(")") if parts[0].startswith("(") else parts[0]
    return " AND ".join(parts) or None


@cache
def _categories() -> dict[str, str]:
    categories: dict[str, str] = {}
    for entry in license_expression.get_license_index():
        for key in (entry.get("spdx_license_key"), *entry.get("other_spdx_license_keys", ())):
            if key and not entry.get("is_exception"):
                categories.setdefault(key, entry["category"])
    return categories


@lru_cache(10_000)
def kind(license: str | None) -> str:
    """`permissive`, as The Stack v2 has it (of an `AND` every license, of an `OR` one), `non_permissive`, or
    `no_license`."""
    if not license:
        return NONE
    parsed = _licensing().parse(license, validate=False)
    return PERMISSIVE if _is_free(parsed) else NOT_PERMISSIVE


def _is_free(node: Any) -> bool:
    if arguments := getattr(node, "args", ()):
        free = [_is_free(each) for each in arguments]
        return any(free) if node.operator.strip() == "OR" else all(free)
    symbol = getattr(node, "license_symbol", node)  # of one with an exception
    return _categories().get(symbol.key) in _FREE


_WORD = re.compile(r"[a-z0-9]+")
_GRAM = 3
_COPYRIGHT = re.compile(
    r"(?im)^[ \t#/*;%!-]*(?:copyright\b.*|\(c\).*|©.*|portions copyright.*|all rights reserved\.?)$"
)
_ALIKE, _HELD = 0.8, 0.9
_MAX_TEXT = 200_000
# what MIT-0 leaves out of MIT's text
_MIT_CONDITION = frozenset({("permission", "notice", "shall"), ("shall", "be", "included")})
_OF_PYTHON = ("ISC", "0BSD")
# The titles of texts that `identify` does not have; Python's is followed by titles of older licenses.
_TITLES = (
    (re.compile(r"PSF LICENSE AGREEMENT FOR PYTHON|PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2"), "PSF-2.0"),
    (re.compile(r"(?i)Blue Oak Model License\s+Version 1\.0\.0"), "BlueOak-1.0.0"),
    (re.compile(r"(?i)Zope Public License \(ZPL\) Version 2\.1"), "ZPL-2.1"),
    (re.compile(r"(?i)MOZILLA PUBLIC LICENSE\s+Version 1\.1"), "MPL-1.1"),
)


def _grams(text: str) -> frozenset[tuple[str, ...]]:
    words = _WORD.findall(_COPYRIGHT.sub(" ", text[:_MAX_TEXT]).lower())
    return frozenset(zip(*(words[offset:] for offset in range(_GRAM)), strict=False))


@cache
def _texts() -> list[tuple[str, frozenset[tuple[str, ...]]]]:
    return [(_GNU.get(name, name), _grams(text)) for name, text in license_texts.LICENSES]


def of_text(text: str) -> str | None:
    """The licenses whose texts a text is, or has in it; None if there are none.

    By the sets of their 3-grams of words, without lines on copyright: the one whose Dice coefficient is the largest,
    if it is at least .8, else all of which nine tenths are in the text, but those that are a part of another of them.
    """
    grams = _grams(text)
    if not grams:
        return None
    shared = [(name, own, len(own & grams)) for name, own in _texts()]
    titles = [name for title, name in _TITLES if title.search(text[:_MAX_TEXT])]
    alike, name = max((2 * both / (len(own) + len(grams)), name) for name, own, both in shared)
    if alike >= _ALIKE and not titles:
        return "MIT-0" if name == "MIT" and not _MIT_CONDITION & grams else name
    # Python's license contains the licenses of its first authors, which are similar to these
    contained = [
        (name, own) for name, own, both in shared if both >= _HELD * len(own) and not (titles and name in _OF_PYTHON)
    ]
    whole = [
        name
        for name, own in contained
        if not any(len(own & other) >= _HELD * len(own) and len(own) < len(other) for _, other in contained)
    ]
    return together([*whole, *titles]) or of_notice(text)


@lru_cache(256)  # of as many headers, which the files of a repository share
def of_header(text: str) -> str | None:
    """The licenses that the header of a file names, or has in it."""
    return of_text(comment_text(text))


# The notices by which a file, or a short license file, refers to a license whose text is elsewhere, and the titles of
# texts that `identify` does not bring. Words may be parted by line ends and the marks of comments.
_BETWEEN = r"[\s#/*;%!|.-]+"
_NOTICES = tuple(
    (re.compile(notice.replace(" ", _BETWEEN), re.IGNORECASE), name)
    for notice, name in (
        (r"under the (?:terms of the )?Apache(?: Software)? License,? (?:Version )?2\.0", "Apache-2.0"),
        (r"apache\.org/licenses/LICENSE-2\.0", "Apache-2.0"),
        (r"subject to the terms of the Mozilla Public License,? (?:Version |v\. ?)2\.0", "MPL-2.0"),
        (r"(?:under|released under|licensed under) the (?:terms of the )?MIT license", "MIT"),
        (r"Permission is hereby granted, free of charge, to any person obtaining a copy of this software", "MIT"),
        (r"governed by a BSD-style license that can be found in the LICENSE", "BSD-3-Clause"),
    )
)
_GNU_NOTICE = re.compile(
    (
        r"GNU (Lesser |Library |Affero )?General Public License,?(?: as published by the Free Software Foundation)?"
        r"(?:[;:,]? either)?,? version (\d(?:\.\d)?)(?: of the License)?"
        r"(,? or \(?at your option\)? any later version)?"
    ).replace(" ", _BETWEEN),
    re.IGNORECASE,
)
_GNU_NAMES = {"": "GPL", "lesser": "LGPL", "library": "LGPL", "affero": "AGPL"}


def of_notice(text: str) -> str | None:
    """The licenses that a notice refers to, as headers of files have it: all of them hold."""
    head = text[:_HEAD]
    names = [name for notice, name in _NOTICES if notice.search(head)]
    for match in _GNU_NOTICE.finditer(head):
        version = match[2] if "." in match[2] else f"{match[2]}.0"
        name = f"{_GNU_NAMES[(match[1] or '').strip(' *#/;').lower()]}-{version}-{'or-later' if match[3] else 'only'}"
        if name in (*_GNU.values(), *_LATER.values()):
            names.append(name)
    return together(names)


_FILE = re.compile(
    r"(?i)(licen[cs]es?|copying|copyright|unlicense|[\w.-]+[.-]licen[cs]e|licen[cs]e[.-][\w.-]+|copying[.-][\w.-]+|"
    r"copying\d?)(\.(txt|md|rst|markdown))?"
)
_CODE = re.compile(r"(?i)\.(py|pyi|c|h|js|ts|go|java|rs|rb|sh|html|json|xml|cpp|cc|el|pl)$")
_METADATA = re.compile(r"(?i)(.*/)?(PKG-INFO|METADATA|pyproject\.toml|setup\.cfg|package\.json|Cargo\.toml)")


def is_license_file(path: str) -> bool:
    """Whether a file's name is one of a licence's text; one in a folder `LICENSES`, as REUSE has it, is."""
    name = path.rsplit("/", 1)[-1]
    if _CODE.search(name):
        return False
    return _FILE.fullmatch(name) is not None or "/LICENSES/" in f"/{path}"


def is_metadata(path: str) -> bool:
    return _METADATA.fullmatch(path) is not None


def stated_in(path: str, text: str) -> list[str]:
    """The license in a package's metadata, as written there: only the expression, if there is one, otherwise the name,
    then the classifiers."""
    name = path.rsplit("/", 1)[-1].lower()
    try:
        return [each.strip() for each in _STATED[name](text) if isinstance(each, str) and each.strip()]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, ConfigError):
        return []


def of_metadata(path: str, text: str) -> str | None:
    """The license that a package's metadata state; classifiers all hold."""
    statements = stated_in(path, text)
    for one in statements:
        if " :: " not in one and (spdx_expression := named(one)) and not is_family(one):
            return spdx_expression
    classified = [spdx_expression for one in statements if " :: " in one and (spdx_expression := named(one))]
    return together(classified) or next(
        (spdx_expression for one in statements if (spdx_expression := named(one))), None
    )


def _of_headers(text: str) -> Sequence[Any]:
    headers = HeaderParser().parsestr(text)
    if exact := headers.get("License-Expression"):
        return [exact]
    classifiers = [each for each in headers.get_all("Classifier", []) if each.startswith("License :: ")]
    license = headers.get("License") or ""
    # older packages have the whole text there
    return [*([license] if "\n" not in license.strip() else []), *(c for c in classifiers if c.count(" :: ") > 1)]


def _of_pyproject(text: str) -> Sequence[Any]:
    whole = tomllib.loads(text)
    project = whole.get("project", {})
    license = project.get("license") or whole.get("tool", {}).get("poetry", {}).get("license")
    exact = license.get("text") if isinstance(license, dict) else license
    short = [exact] if isinstance(exact, str) and "\n" not in exact.strip() else []
    return [*short, *(each for each in project.get("classifiers", []) if each.startswith("License :: "))]


def _of_setup(text: str) -> Sequence[Any]:
    parser = ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)
    metadata = parser["metadata"]
    return [
        metadata.get("license", ""),
        *(each for each in metadata.get("classifiers", "").splitlines() if each.strip().startswith("License :: ")),
    ]


def _of_package(text: str) -> Sequence[Any]:
    license = json.loads(text).get("license")
    return [license.get("type") if isinstance(license, dict) else license]


def _of_cargo(text: str) -> Sequence[Any]:
    # Cargo's older form has a slash for OR
    return [str(tomllib.loads(text)["package"]["license"]).replace("/", " OR ")]


_STATED = {
    "pkg-info": _of_headers,
    "metadata": _of_headers,
    "pyproject.toml": _of_pyproject,
    "setup.cfg": _of_setup,
    "package.json": _of_package,
    "cargo.toml": _of_cargo,
}
