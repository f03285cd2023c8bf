"""The columns that the extraction gives to a page whose rights are recorded: its statements, license and copyright.

Separate from the parsers of each, since a page without any word of these is not parsed for them.
"""

import re
from collections.abc import Sequence
from typing import TypedDict

from resiliparse.parse.html import HTMLTree

from gristmill.tasks.rights.copyright import copyright_line
from gristmill.tasks.rights.licenses import License, may_state_license, of_fields, of_page
from gristmill.tasks.rights.statements import DIRECTIVES, META_TAGS, of_headers, of_metas, written

# `meta` elements, in lower case, and the words of statements in them; `&#` begins a character reference.
_META = re.compile(rb"<meta\b[^<>]{0,4000}")
_META_AS_IS = re.compile(_META.pattern.decode(), re.IGNORECASE)
_MAX_TAGS = 2_000
_WORDS = (*(directive.encode() for directive in DIRECTIVES), b"tdm-", b"none", b"&#")


class Rights(TypedDict):
    """The columns of `columns.SIGNALS`; None where a page states nothing."""

    rights_signals: str | None
    rights_license: str | None
    rights_license_scope: str | None
    rights_license_source: str | None
    rights_copyright: str | None


def page_rights(page: str, headers: Sequence[Sequence[str]]) -> Rights:
    """What a page, given as HTML ("" for a payload that is none), and its HTTP headers state. Parses the page, by the
    rules of browsers, only if it has a word of these. Holds the page three times, and its tree."""
    # bytes, since the lower case of a text beyond ASCII takes as long as some extractions
    words = (encoded := page.encode("utf-8", "replace")).lower()
    tags = _META.findall(words)
    metas = b" ".join(tags)
    has_meta = any(word in metas for word in _WORDS)
    has_license = may_state_license(words, metas)
    statements = [*of_headers(headers)]
    stated: License | None = of_fields(headers)
    if has_meta or has_license:
        # of a page of ever so many tags the first ones are parsed by themselves
        tree = HTMLTree.parse(page if len(tags) <= _MAX_TAGS else ">".join(_META_AS_IS.findall(page)[:_MAX_TAGS]) + ">")
        if has_meta and tree.document is not None:
            statements += of_metas(tree.document.query_selector_all(META_TAGS).values())
        if has_license and tree.document is not None:
            stated = stated or of_page(tree)
    return Rights(
        rights_signals=written(statements),
        rights_license=stated.id if stated else None,
        rights_license_scope=stated.scope if stated else None,
        rights_license_source=stated.source if stated else None,
        rights_copyright=copyright_line(encoded, words),
    )
