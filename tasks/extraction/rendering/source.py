"""The source of a page, by the tags that a scan found in it: attributes, matching end tags, text with its entities."""

import html
import re
from collections import defaultdict
from functools import cached_property

import numpy as np

from gristmill.tasks.extraction.vocabulary import COMMENT, CUSTOM, ENDS, OTHER, Page
from gristmill.tasks.kernels.phrases import contains

_NAME = re.compile(rb"</?([^\s/>]*)")
_ATTRIBUTE = rb"""(?i)(?<=[\s"'/])%s\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))"""
_HIDDEN = re.compile(r"(?i)display\s*:\s*none")
_ATTRIBUTES: dict[str, re.Pattern[bytes]] = {}


class Source:
    """`data`: the page's bytes; `page`: its scan. Tags are named by their numbers; see `scanned.Tags`."""

    def __init__(self, data: bytes, page: Page) -> None:
        self.data, self.page = data, page

    @cached_property
    def begin(self) -> list[int]:
        return [*self.page.tags.begin.tolist(), len(self.data)]

    @cached_property
    def end(self) -> list[int]:
        # the last is that of tag -1, behind which the page begins
        return [*self.page.tags.end.tolist(), 0]

    @cached_property
    def element(self) -> list[int]:
        return self.page.tags.element.tolist()

    @cached_property
    def formulas(self) -> bool:
        """Whether elements of any name may show formulas, so that their classes must be looked at."""
        return any(self.has(word) for word in (b"MathJax", b"katex", b"mwe-math", b"mjx"))

    @cached_property
    def icons(self) -> bool:
        """Whether the page may have icons of a font that draws them for their names."""
        return self.has(b"material-icons") or self.has(b"material-symbols")

    def has(self, word: bytes) -> bool:
        """Whether a word stands anywhere in the page."""
        return contains(np.frombuffer(self.data, np.uint8), np.frombuffer(word, np.uint8))

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

    def hides(self, first: int, last: int) -> bool:
        """Whether an element between two tags may be hidden by its style."""
        return self.data.find(b"display", self.end[first], self.begin[last]) >= 0

    def hidden(self, number: int) -> bool:
        """Whether the style of a tag says that its element is not shown."""
        tag = self.tag(number)
        return b"display" in tag and b"none" in tag and bool(_HIDDEN.search(self.attribute(number, "style") or ""))

    def text(self, begin: int, end: int) -> str:
        """What stands between two tags, with its entities decoded."""
        text = self.data[begin:end].decode("utf-8", "replace")
        if "&" in text:
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
