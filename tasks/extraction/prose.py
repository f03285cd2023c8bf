"""Whether a string of a page's data is prose, and what it says as text. Apart, since it knows no format of data."""

import html
import re

from gristmill.tasks.extraction.engines import plain

# Chinese characters, kana: a word of some five letters and a space takes two of them.
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9-]{0,20}(?:\s[^<>]{0,4000})?/?>")
_ESCAPED_TAG = re.compile(r"&(?:lt|#60|#x3c);/?[a-zA-Z]", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,31});")
_SENTENCE_END = re.compile("[.!?\u2026\u3002\uff01\uff1f\u0964\u061f\u06d4\u0e2f]")
_CODE = re.compile(
    r"[{};]\s*[\n}]|=>|function\s*\(|\);|</|^\s*[.#@][\w-]+\s*\{|^[\w.+-]+/[\w.+-]+$|^\w+\.\w+(?:\.\w+)+$"
)
_SPACES, _LINES = re.compile(r"[^\S\n]+"), re.compile(r"(?:\n ?){2,}")
_PROSE = 40  # the least weight


def weight(text: str) -> int:
    """Characters of a text, of which Chinese and Japanese ones count three times."""
    return len(text) if text.isascii() else len(text) + 2 * len(_WIDE.findall(text))


def text_of(value: str) -> str:
    """A string of data as text: without the tags and entities of HTML, which may be escaped as a whole."""
    if not _TAG.search(value) and _ESCAPED_TAG.search(value):
        value = html.unescape(value)
    if _TAG.search(value):
        value = plain(value)
    for _ in range(2):  # entities are often escaped once more
        if not _ENTITY.search(value):
            break
        value = html.unescape(value)
    value = _SPACES.sub(" ", value.replace("\r\n", "\n").replace("\r", "\n"))
    return "\n\n".join(part for each in _LINES.split(value) if (part := each.strip()))


def is_prose(text: str) -> bool:
    """Whether a text has the words of a sentence, and is not code, an address or a list of names of classes."""
    if weight(text) < _PROSE or not _SENTENCE_END.search(text) or _CODE.search(text):
        return False
    letters = sum(map(str.isalpha, text[:1000]))
    if letters < 0.6 * len(text[:1000]):
        return False
    return text.count(" ") >= 5 or bool(_WIDE.search(text))


_BEGIN = 30  # characters by which texts are compared


def joined(texts: list[str]) -> str:
    """Texts as paragraphs, each once, without those with which another begins, such as its teaser."""
    alike: dict[str, list[int]] = {}
    parts: list[str] = []
    for text in filter(None, texts):
        places = alike.setdefault(text[:_BEGIN], [])
        begin = text.rstrip(" .\u2026[]")
        for place in places[:_BEGIN]:
            if parts[place].startswith(begin):
                break
            if text.startswith(parts[place].rstrip(" .\u2026[]")) and len(parts[place]) >= _BEGIN:
                parts[place] = text
                break
        else:
            places.append(len(parts))
            parts.append(text)
    return "\n\n".join(parts)
