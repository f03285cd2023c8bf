"""The copyright line of a page: its last one, since that of the site is in the footer.

`All rights reserved` is a copyright line and no license. Separate: it reads the page as it is written, without a
parser.
"""

import html
import re

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
