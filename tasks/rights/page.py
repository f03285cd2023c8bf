"""The rights columns of a page: its statements about use, its license and its copyright line.

A page is parsed only if it has a word of a statement or a license. The copyright line is found without a parser: it is
the last one of the page, since the site's is in the footer. `All rights reserved` is a copyright line, not a
license.
"""

import html
import re
from collections.abc import Sequence
from typing import TypedDict

from resiliparse.parse.html import HTMLTree

from gristmill.tasks.rights.licenses import License, may_state_license, of_fields, of_page
from gristmill.tasks.rights.statements import DIRECTIVES, META_TAGS, of_headers, of_metas, written

_MARKS = ("©".encode(), b"&copy", b"&#169;", b"&#xa9;", b"copyright", b"(c)")
_SPAN = 400  # bytes of HTML that a line is looked for in
_LENGTH = 200
_TAG = re.compile(r"<[^<>]{0,400}>")
# Elements that end a line; a cut tag at the end of the span, too.
_ENDS = re.compile(r"</?(?:p|div|li|ul|ol|td|tr|table|footer|section|body|html|h[1-6]|script|br)\b|<[^<>]*\Z", re.I)
_SIGN = r"(?:©|\(c\)|copyright|copr\.)"
_FIRST = re.compile(rf"({_SIGN})$", re.I)
_DATED = re.compile(rf"{_SIGN}.{{0,80}}?(?:(?<!\d)(?:19|20)\d\d(?!\d)|all rights reserved)", re.I)
_BEFORE = 60  # characters before a sign that may be another one
_END = 100_000  # bytes at the end of a page that are looked at
_TRIES = 6  # marks from the end of the page that are looked at: scripts and styles have some, too


def copyright_line(page: bytes, words: bytes) -> str | None:
    """The last line with a copyright sign and a year, or `all rights reserved`; None for none. `page`: as UTF-8;
    `words`: the same in lower case."""
    page, words = page[-_END:], words[-_END:]
    places = {mark: words.rfind(mark) for mark in _MARKS}
    for _ in range(_TRIES):
        begin = max(places.values())
        if begin < 0:
            return None
        inside = words.rfind(b"<", max(0, begin - _SPAN), begin) > words.rfind(b">", max(0, begin - _SPAN), begin)
        line = _line(_text(page[max(0, begin - _BEFORE) : begin]), _text(page[begin : begin + _SPAN]))
        if line and not inside:
            return line
        # a mark that the page does not have is not looked for again
        places = {mark: words.rfind(mark, 0, begin) if place >= begin else place for mark, place in places.items()}
    return None


def _line(before: str, span: str) -> str | None:
    end = _ENDS.search(span)
    text = _plain(span[: end.start()] if end else span)
    # `Copyright © 2020` has two marks, of which this is the second
    first = _FIRST.search(_plain(before.rpartition(">")[2] if "<" in before else before))
    text = f"{first[1]} {text}" if first else text
    if not _DATED.match(text) or any(mark in text for mark in ("{", "}", "=", "*/")):
        return None  # of a script, of a style, or a word in a sentence
    return text[:_LENGTH].encode("utf-8", "replace").decode()


def _text(span: bytes) -> str:
    return span.decode("utf-8", "ignore")  # a letter may be cut at either end


def _plain(span: str) -> str:
    text = html.unescape(_TAG.sub(" ", span))
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


# `meta` elements, in lower case, and the words of statements in them; `&#` begins a character reference.
_META = re.compile(rb"<meta\b[^<>]{0,4000}")
_META_AS_IS = re.compile(_META.pattern.decode(), re.IGNORECASE)
_MAX_TAGS = 2_000
_WORDS = (*(directive.encode() for directive in DIRECTIVES), b"tdm-", b"none", b"&#")


class Rights(TypedDict):
    """The columns of `statements.SIGNALS`; None where a page states nothing."""

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
        # only the first tags of a page are parsed, however many it has
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
