"""The source of a page, by the tags that a scan found in it: attributes, matching end tags, text with its entities."""

import html
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from gristmill.tasks.extraction.vocabulary import COMMENT, CUSTOM, ENDS, OTHER, E, Page
from gristmill.tasks.kernels.phrases import places

_NAME = re.compile(rb"</?([^\s/>]*)")
_ATTRIBUTE = rb"""(?i)(?<=[\s"'/])%s\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))"""
_EVERY_ATTRIBUTE = re.compile(r"""([^\s"'<>/=]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?""")
# What the source of an element has that is not shown, `hidden` or a style; `aria-hidden` is for screen readers.
_HIDES = re.compile(rb"""(?i)display\s*:\s*none|visibility\s*:\s*hidden|[\s"'/]hidden(?=[\s=/>])""")
_HIDING = (b"idden", b"IDDEN", b"isplay", b"ISPLAY")
_DECLARATION = re.compile(r"(display|visibility)\s*:\s*([a-z-]+)\s*(!\s*important)?\s*")
_LANGUAGE = re.compile(_ATTRIBUTE.replace(b"(?<=", rb"<html\b[^>]*?(?<=", 1) % rb"(?:xml:)?lang")
_HEAD = 10_000  # bytes in which the page's own start tag is looked for
# What browsers draw around `q`, by language (CLDR, delimiters).
_ENGLISH = "\u201c\u201d\u2018\u2019"
_QUOTES = {
    language: quotes
    for languages, quotes in (
        ("de cs sk sl is", "„“‚‘"),
        ("bg lt mk", "„“„“"),
        ("pl ro", "„”«»"),
        ("hu", "„”»«"),
        ("hr", "„”‚‘"),
        ("et", "„“«»"),
        ("sr", "„“‘‘"),
        ("ru uk be", "«»„“"),
        ("fr", "«»«»"),
        ("es it ca gl pt-pt el", "«»“”"),
        ("no nb nn", "«»‘’"),
        ("fa", "«»‹›"),
        ("de-ch fr-ch it-ch", "«»‹›"),
        ("nl", "‘’“”"),
        ("sv fi he", "””’’"),
        ("ar", "”“’‘"),
        ("ja zh-hant zh-tw zh-hk", "「」『』"),
    )
    for language in languages.split()
}
_XMP, _PLAINTEXT = E["xmp"], E["plaintext"]
_ATTRIBUTES: dict[str, re.Pattern[bytes]] = {}


class Source:
    """`data`: the page's bytes; `page`: its scan; `hidden`: the elements that are left out because no reader sees them
    (`visibility.hidden_elements`), start tag and the tag that ends it. Tags are named by their numbers; see
    `vocabulary.Tags`."""

    def __init__(self, data: bytes, page: Page, hidden: Mapping[int, int] | None = None) -> None:
        self.data, self.page, self.hidden = data, page, hidden or {}

    @cached_property
    def begin(self) -> memoryview:
        return np.append(self.page.tags.begin, len(self.data)).data

    @cached_property
    def end(self) -> memoryview:
        # the last is that of tag -1, behind which the page begins
        return np.append(self.page.tags.end, 0).data

    @cached_property
    def element(self) -> list[int]:
        return self.page.tags.element.tolist()

    @cached_property
    def formulas(self) -> bool:
        """Whether elements of any name may show formulas, so that their classes must be looked at."""
        return any(self.has(word) for word in (b"MathJax", b"katex", b"mwe-math", b"mjx"))

    @cached_property
    def quotes(self) -> str:
        """The quotation marks of the page's language: opening and closing, and those inside of others."""
        match = _LANGUAGE.search(self.data, 0, _HEAD)
        language = (match[1] or match[2] or match[3]).decode("ascii", "replace").lower() if match else ""
        while language and language not in _QUOTES:
            language = language.rpartition("-")[0]
        return _QUOTES.get(language, _ENGLISH)

    @cached_property
    def icons(self) -> bool:
        """Whether the page may have icons of a font that draws them for their names."""
        return self.has(b"material-") and (b"material-icons" in self.data or b"material-symbols" in self.data)

    def has(self, word: bytes) -> bool:
        """Whether a word stands anywhere in the page."""
        return bool(places(self.data, word))

    def tag(self, number: int) -> bytes:
        return self.data[self.begin[number] : self.end[number]]

    def name(self, number: int) -> str:
        """The name of a tag in lower case, without a prefix."""
        match = _NAME.match(self.data, self.begin[number])
        return match[1].decode("ascii", "replace").lower().rpartition(":")[2] if match else ""

    def attribute(self, number: int, name: str) -> str | None:
        """The value of an attribute of a tag, None without one."""
        pattern = _ATTRIBUTES.get(name)
        if pattern is None:
            pattern = _ATTRIBUTES[name] = re.compile(_ATTRIBUTE % name.encode())
        match = pattern.search(self.data, self.begin[number], self.end[number])
        if not match:
            return None
        return html.unescape((match[1] or match[2] or match[3] or b"").decode("utf-8", "replace"))

    def classes(self, number: int) -> str:
        return self.attribute(number, "class") or ""

    def attributes(self, number: int) -> dict[str, str]:
        """The attributes of a tag by their names in lower case; of two of one name the first counts."""
        tag = self.tag(number).decode("utf-8", "replace")
        attributes: dict[str, str] = {}
        for name, double, single, bare in _EVERY_ATTRIBUTE.findall(tag, len(tag.split(None, 1)[0])):
            attributes.setdefault(name.lower(), html.unescape(double or single or bare))
        return attributes

    def hides(self, first: int, last: int) -> bool:
        """Whether an element between two tags may not be shown."""
        begin, end = self.end[first], self.begin[last]
        # a search for words is ten times as fast as that for a pattern
        if all(self.data.find(word, begin, end) < 0 for word in _HIDING):
            return False
        return bool(_HIDES.search(self.data, begin, end))

    def is_hidden(self, number: int) -> bool:
        """Whether a start tag says that its element is not shown: by `hidden`, unless the element is found by a search
        (HTML standard, 6.1), or by the last declaration of `display` or `visibility` in its style."""
        if not _HIDES.search(self.data, self.begin[number], self.end[number]):
            return False
        attributes = self.attributes(number)
        style: dict[str, tuple[bool, str]] = {}
        for each in attributes.get("style", "").lower().split(";"):
            if match := _DECLARATION.fullmatch(each.strip()):
                important = bool(match[3])
                if important >= style.get(match[1], (False, ""))[0]:
                    style[match[1]] = important, match[2]
        if style.get("visibility", (False, ""))[1] == "hidden":
            return True
        if "display" in style:
            return style["display"][1] == "none"
        return attributes.get("hidden", "until-found").strip().lower() != "until-found"

    def after_hidden(self, first: int) -> tuple[int, int]:
        """(where the source goes on after a hidden element, in bytes; the first tag there)."""
        last = self.hidden[first]
        if last < len(self.element) and self.element[last] == ENDS - self.element[first]:
            return self.end[last], last + 1
        return self.begin[last], last

    @cached_property
    def _raw(self) -> frozenset[int]:
        """Where raw text begins that is shown as it stands, without entities (HTML standard, 13.2.6.4.7)."""
        element = self.page.tags.element
        return frozenset(self.page.tags.end[(element == _XMP) | (element == _PLAINTEXT)].tolist())

    def text(self, begin: int, end: int) -> str:
        """What stands between two tags, with its entities decoded."""
        text = self.data[begin:end].decode("utf-8", "replace")
        if "&" in text and begin not in self._raw:
            text = html.unescape(text)
        return text.replace("\0", "")

    def between(self, first: int, last: int) -> str:
        """The text between two tags without the tags in it."""
        return "".join([self.text(self.end[k], self.begin[k + 1]) for k in range(first, last)])

    @staticmethod
    def text_of(scanned: bytes) -> str:
        """The text of a block as the scan has it, with its entities decoded."""
        text = scanned.decode("utf-8", "replace")
        return html.unescape(text) if "&" in text else text

    def ends(self, first: int, last: int) -> dict[int, int]:
        """Of each start tag between two tags its end tag, if there is one, by number."""
        end_tags: dict[int, int] = {}
        open_tags: defaultdict[int | str, list[int]] = defaultdict(list)
        for k, element in enumerate(self.element[first + 1 : last], first + 1):
            if element == COMMENT:
                continue
            own = element if element >= 0 else ENDS - element
            starts = open_tags[self.name(k) if own == OTHER or own == CUSTOM else own]
            if element >= 0:
                starts.append(k)
            elif starts:
                end_tags[starts.pop()] = k
        return end_tags
