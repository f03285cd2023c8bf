"""Code as it stands on a page, line by line: `pre` in all its shapes, and tables of lines."""

import re

from gristmill.tasks.extraction.rendering.code_places import NUMBERS, counted, number_cells
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.scanned import ENDS
from gristmill.tasks.extraction.vocabulary import BLOCK, PROPERTIES, RAW, SKIP, E

_BR, _TD, _TH, _SPAN, _BUTTON, _TABLE, _THEAD = (E[n] for n in "br td th span button table thead".split())
_PRE, _CODE, _A = E["pre"], E["code"], E["a"]
_CELLS = (_TD, _TH)
_TABLE_PARTS = tuple(E[name] for name in ("table", "tbody", "thead", "tfoot", "colgroup"))
# Behind these stands no text: white space between rows and cells is not shown.
_OUTSIDE_CELLS = frozenset(
    code for tag in (*_TABLE_PARTS, E["tr"]) for code in (tag, ENDS - tag) if code != ENDS - _TABLE
) | {ENDS - _TD, ENDS - _TH}
# Spans that style sheets show as a line each (Shiki, Prism of Docusaurus, react-syntax-highlighter, CodeMirror).
_LINE = re.compile(r"(?:^|\s)(?:line|token-line|code-line|hljs-line|view-line|CodeMirror-line|code__line)(?:\s|$)")
_DISPLAYED = re.compile(r"display\s*:\s*(?:block|flex|table-row)")
_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language-|lang-|highlight-source-|highlight-|brush:\s*|sourceCode\s+)([A-Za-z0-9+#_.-]+)"
)
_ANCHOR = re.compile(rb"<a name=\"l([0-9]{5})\">")
_SPACE = re.compile(r"[ \t\n\f]+")
_NO_LANGUAGE = ("default", "none", "notranslate", "text", "plaintext")


def code(source: Source, first: int, last: int) -> str:
    """The lines of code between two tags, indented as they are; without their numbers."""
    element, end, ends = source.element, source.end, source.ends(first, last)
    numbers = _numbers(source, first, last, ends)
    lines = _Lines(element[first] == _CODE)
    pos, k = end[first], first + 1
    last_tag = first  # the tag that the text stands behind
    number, start = False, -1  # that was the number of a line; its tag
    while True:
        stop = source.begin[k]
        if stop > pos:
            text = source.text(pos, stop).replace("\r\n", "\n").replace("\r", "\n")
            if pos == end[first]:
                text = text.removeprefix("\n")  # the standard drops a line feed that a `pre` begins with
            if number:
                if start in numbers:
                    text = text.removeprefix(" " * numbers[start])
                elif b"ltx_" not in source.tag(start):
                    text = text.removeprefix("\xa0")  # Doxygen parts a line from its number by it
            if element[last_tag] == ENDS - _A and (anchor := _ANCHOR.search(source.tag(last_tag - 1))):
                text = text.removeprefix(anchor[1].decode()).removeprefix(" ")  # Doxygen up to 1.7
            if not (element[last_tag] in _OUTSIDE_CELLS and last_tag != first and not text.strip()):
                lines.text(text)
        if k >= last:
            break
        pos, last_tag, tag = end[k], k, element[k]
        number = False
        lines.close(k)
        if 0 <= tag < len(PROPERTIES):
            if tag == _BR:
                lines.line_break()
            elif k in ends and (k in numbers or _is_number(source, k, ends[k])):
                start, k, number = k, ends[k], True
                pos, last_tag = end[k], k
            elif k in ends and (
                (PROPERTIES[tag] & SKIP and not PROPERTIES[tag] & RAW)
                or tag == _BUTTON
                or (tag == _A and b" download" in source.tag(k))
                or (tag == _THEAD and element[first] == _TABLE)
            ):
                k = ends[k]
                pos, last_tag = end[k], k
            elif tag in _CELLS:
                lines.cell()
            elif tag not in _TABLE_PARTS and k in ends and _is_line(source, k, tag):
                lines.open(ends[k], bool(PROPERTIES[tag] & BLOCK))
        k += 1
    return re.sub(r"\A(?:[ \t]*\n)+", "", "".join(lines.out)).rstrip()


class _Lines:
    """Code that is being written; `collapsed`: where line feeds are spaces, and several spaces are one."""

    def __init__(self, collapsed: bool) -> None:
        self.out: list[str] = []  # never empty pieces
        self._collapsed = collapsed
        # elements that are a line: end tag, length of `out` at their begin, whether they are blocks
        self._opened: list[tuple[int, int, bool]] = []
        self._block = False  # the line that has ended last was one
        self._closed = False  # a line has ended, and nothing has been written since
        self._ended_itself = False  # its text ended with a line feed
        self._cells = False  # a cell of the row has begun

    def text(self, text: str) -> None:
        if self._collapsed:
            text = _SPACE.sub(" ", text)
            if not self.out or self.out[-1][-1] in "\n ":
                text = text.removeprefix(" ")
        text = text.replace("\xa0", " ").replace("\u200b", "")
        blank = not text.strip()
        if not text or (self._closed and blank and "\n" not in text):
            return
        if self._closed and not self._ended_itself and text[0] != "\n" and not blank:
            self.out.append("\n")
        self.out.append(text)
        self._closed = False

    def line_break(self) -> None:
        if self._closed and self._block and not self._ended_itself:
            self.out.append("\n")  # between two blocks a break is a line of its own
        self.out.append("\n")
        self._closed = False

    def cell(self) -> None:
        if self._cells and self.out and not self.out[-1].endswith("\n"):
            self.out.append("\t")
        self._cells = True

    def open(self, end: int, block: bool) -> None:
        """Begin an element that is a line, up to its end tag; blocks begin a line also behind text."""
        if self._closed:
            if not self._ended_itself:
                self.out.append("\n")
        elif self.out and block and not self.out[-1].endswith("\n"):
            self.out.append("\n")
        self._closed = self._cells = False
        self._opened.append((end, len(self.out), block))

    def close(self, tag: int) -> None:
        """End the lines that end up to a tag."""
        while self._opened and self._opened[-1][0] <= tag:
            _, begin, self._block = self._opened.pop()
            if all(self.out[i].isspace() and "\n" not in self.out[i] for i in range(begin, len(self.out))):
                del self.out[begin:]  # an empty line holds a space so that it is as high as others
            if not self._closed or begin == len(self.out):
                self._ended_itself = begin < len(self.out) and self.out[-1].endswith("\n")
                self._closed = True


def _numbers(source: Source, first: int, last: int, ends: dict[int, int]) -> dict[int, int]:
    """Elements that are the number of a line by their place, whatever their class; the spaces behind each."""
    if source.element[first] == _TABLE:
        return dict.fromkeys(number_cells(source, first, last, ends), 0)
    return counted(source, first, last) if source.element[first] == _PRE else {}


def _is_line(source: Source, k: int, tag: int) -> bool:
    if PROPERTIES[tag] & BLOCK:
        return True
    if tag != _SPAN:
        return False
    shown = source.tag(k)
    if b"class" in shown and _LINE.search(source.classes(k)):
        return True
    return b"display" in shown and bool(_DISPLAYED.search(source.attribute(k, "style") or ""))


def _is_number(source: Source, first: int, last: int) -> bool:
    """Whether an element holds the numbers of lines, and nothing else."""
    if b"class" not in source.tag(first) or not NUMBERS.search(source.classes(first)):
        return False
    return all(
        not (text := source.data[source.end[k] : source.begin[k + 1]].strip())
        or text.isdigit()
        or _digits(source, text)
        for k in range(first, last)
    )


def _digits(source: Source, text: bytes) -> bool:
    return not set(text.replace(b"&nbsp;", b"").replace(b"\xc2\xa0", b"")) - set(b"0123456789 \r\n\t.:")


def language(source: Source, first: int, last: int) -> str:
    """The language that code says it is in, by the classes of its element, of the two around it and of its first."""
    for k in range(max(0, first - 2), min(first + 3, last)):
        if source.element[k] >= 0 and (match := _LANGUAGE.search(source.classes(k))):
            if match[1].lower() not in _NO_LANGUAGE:
                return match[1]
    return ""
