"""Code on a page: where it is (`pre`, tables and containers of lines, `code` with line breaks), and its lines."""

import re
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.vocabulary import BLOCK, COMMENT, ENDS, PREFORMATTED, PROPERTIES, RAW, SKIP, E
from gristmill.tasks.kernels.phrases import places

_CODE, _BR, _DIV, _OL, _TD, _TH = E["code"], E["br"], E["div"], E["ol"], E["td"], E["th"]
_PRE, _SPAN = E["pre"], E["span"]
_TR, _THEAD = E["tr"], E["thead"]
_CELLS = (_TD, _TH)
# A cell with the number of a line has few tags.
_FEW = 8
# Before the number of a line: what a `pre` begins with, empty anchors (epydoc), spans that are a line (Chroma).
_NUMBERED = re.compile(
    rb"(?:</?span[^>]*>|<code[^>]*>|<a [^>]*></a>)*"
    rb"(<(span|a|tt|b|i|em)(?: [^>]*)?>)(?:&nbsp;| )*([0-9]{1,9})(?:&nbsp;| )*</\2>"
)
_TAG = re.compile(rb"<[^>]*>")
_ONLY_TAGS = re.compile(rb"(?:</[^>]*>|\s)*")
# Columns and spans that hold the numbers of lines (Pygments, Rouge, Chroma, highlightjs-line-numbers, GitHub, Crayon,
# SyntaxHighlighter, Prism, Redmine).
NUMBERS = re.compile(
    r"(?:^|\s)(?:linenos?|linenodiv|linenumbers?|(?:react-)?line-?numbers?(?:-rows)?|lnt?|lntd|gutter|rouge-gutter|gl|"
    r"blob-num|hljs-ln-(?:numbers|n)|crayon-nums?|react-code-line-number|react-syntax-highlighter-line-number|"
    r"line-num|lines-num|code-line-number|linenr|ln-num|num|source-line-no|phabricator-source-line|"
    r"ltx_tag_listingline|CodeMirror-gutter-wrapper)(?:\s|$)"
)
_LINES = re.compile(
    r"(?:^|\s)(?:blob-code(?:-inner)?|hljs-ln(?:-code)?|rouge-(?:code|table)|lntable|lntd|highlighttable|"
    r"crayon-(?:code|table)|code|js-file-line(?:-container)?|syntaxhighlighter|linenos|line-code|lines-code|"
    r"phabricator-source-code)(?:\s|$)"
)
# Elements whose children are lines of code, with what the source of one contains: Doxygen's, GitHub's of today, those
# of SyntaxHighlighter 1.
_CONTAINERS = (
    (b'class="fragment"', _DIV, b'class="line"'),
    (b'class="react-code-file-contents"', _DIV, b"react-file-line"),
    (b'class="dp-', _OL, b"<li"),
)
_CODE_MIRROR = ((b"CodeMirror-code", _DIV, b"CodeMirror-line"),)
_LATEXML = ((b"ltx_lstlisting", _DIV, b"ltx_listingline"),)
# How far the classes of LaTeXML are looked for: the body's first elements have them.
_HEAD = 10_000
_AS_PRE = re.compile(r"white-space\s*:\s*pre(?:-wrap)?\s*(?:;|$)")


def is_code_table(source: Source, first: int, last: int, within: bool) -> bool:
    """Whether a table shows code: a row a line, or all lines in one cell beside their numbers; `within`: of a `pre`."""
    marked = False
    has_line_class = b"class" in source.tag(first) and bool(_LINES.search(source.classes(first)))
    for k in range(first, last):
        tag = source.element[k]
        if tag not in _CELLS and k != first:
            continue
        shown = source.tag(k)
        if b"data-line-number" in shown or (b"class" in shown and NUMBERS.search(source.classes(k))):
            marked = True
        if marked and (within or (tag in _CELLS and b"class" in shown and _LINES.search(source.classes(k)))):
            return True
        if k > first + 40:
            break
    lines = source.element[first:last].count(_PRE)  # in ViewVC's tables each is a line
    if not (marked and has_line_class) and lines < 2:
        return False
    numbers = number_cells(source, first, last, source.ends(first, last))
    return bool(numbers) and ((marked and has_line_class) or len(numbers) == lines)


def number_cells(source: Source, first: int, last: int, ends: dict[int, int]) -> set[int]:
    """The first cells of the rows of a table, behind its header, if they count these; else none."""
    cells: set[int] = set()
    number = None
    row = head = False
    for k in range(first + 1, last):
        tag = source.element[k]
        if tag in (_THEAD, ENDS - _THEAD):
            head = tag == _THEAD
        elif tag == _TR:
            row = not head
        elif tag in _CELLS and row:
            row = False
            end_tag = ends.get(k, last)
            if end_tag > k + _FEW:
                return set()
            digits = source.between(k, end_tag).strip()
            if not digits.isdecimal() or (number is not None and int(digits) != number + 1):
                return set()
            number = int(digits)
            cells.add(k)
    return cells


def counted(source: Source, first: int, last: int) -> dict[int, int]:
    """The elements with which all lines of a `pre` begin, if they hold nothing but the numbers of these (Pygments with
    styles in place of classes, rustdoc, epydoc), each with the spaces that part it from its line; else none."""
    lines = source.data[source.end[first] : source.begin[last]].split(b"\n")
    while len(lines) > 1 and _ONLY_TAGS.fullmatch(lines[-1]):
        lines.pop()
    position = source.end[first]
    if not lines[0].strip():  # a line feed that a `pre` begins with is not shown
        position += len(lines.pop(0)) + 1
    numbers: dict[int, int] = {}
    number = None
    widths, spaces = [], []
    blank = False
    for line in lines:
        begins = _NUMBERED.match(line)
        if not begins or (number is not None and int(begins[3]) != number + 1):
            return {}
        number = int(begins[3])
        numbers[bisect_left(source.begin, position + begins.start(1))] = 0
        position += len(line) + 1
        widths.append(begins.end(3) - begins.end(1))
        rest = line[begins.end() :]
        spaces.append(len(rest) - len(rest.lstrip(b" ")))
        blank |= not _TAG.sub(b"", rest).strip()
    if not numbers:
        return {}
    # A line by itself that is all number is code: nobody numbers one empty line. Its first word may be a number, too: a
    # class that does not say that it counts lines says what the word is.
    if len(lines) == 1:
        tag = max(numbers)
        styled = source.element[tag] == _SPAN and b"class" not in source.tag(tag)
        if blank or not (styled or b"user-select" in lines[0]):
            return {}
    # Pygments has no space there, and code that stands in may be all there is.
    if blank or source.element[max(numbers)] != _SPAN:
        # Either all gaps are equally wide, or all lines begin in one column.
        column = min(space + width for space, width in zip(spaces, widths, strict=True))
        gaps = max([min(spaces)] * len(lines), [max(0, column - width) for width in widths], key=sum)
        numbers = dict(zip(numbers, gaps, strict=True))
    return numbers


def containers(source: Source) -> Iterator[int]:
    """The nodes of elements whose children are lines of code."""
    kinds: tuple[tuple[bytes, int, bytes], ...] = _CONTAINERS
    if (source.page.blocks.kind == PREFORMATTED).any():
        kinds += _CODE_MIRROR
    if source.data.find(b"ltx_", 0, _HEAD) >= 0:
        kinds += _LATEXML
    for name, element, content in kinds:
        last_tag = -1
        for tag in _tags_with(source, name):
            if tag > last_tag and source.element[tag] == element and (node := _node(source, tag)) >= 0:
                last_tag = int(source.page.nodes.last[node])
                if source.data.find(content, source.end[tag], source.begin[last_tag]) >= 0:
                    yield node
    yield from _styled(source)


def _tags_with(source: Source, text: bytes) -> Iterator[int]:
    for position in places(source.data, text):
        tag = bisect_left(source.begin, position) - 1
        if tag >= 0 and position < source.end[tag]:
            yield tag


def _node(source: Source, tag: int) -> int:
    """The node that begins with a tag, -1 for none."""
    first = source.page.nodes.first
    node = int(np.searchsorted(first, tag))
    return node if node < len(first) and first[node] == tag else -1


def _styled(source: Source) -> Iterator[int]:
    """The nodes of divisions that a style shows as `pre` is shown (Visual Studio Code, Notion)."""
    last_tag = -1
    for tag in _tags_with(source, b"monospace"):
        if tag <= last_tag or source.element[tag] != _DIV:
            continue
        if _AS_PRE.search(source.attribute(tag, "style") or "") and (node := _node(source, tag)) >= 0:
            last_tag = int(source.page.nodes.last[node])
            inner = set(source.element[tag + 1 : last_tag])
            if all(element == _DIV or not PROPERTIES[element] & BLOCK for element in inner if 0 <= element < COMMENT):
                yield node


def broken(source: Source) -> Iterator[tuple[int, int]]:
    """The tags of `code` elements with line breaks in them, and nothing that is not inline."""
    elements = source.page.tags.element
    begins = np.flatnonzero(elements == _CODE)
    if not len(begins):
        return
    ends, lines = np.flatnonzero(elements == ENDS - _CODE), np.flatnonzero(elements == _BR)
    if not len(ends) or not len(lines):
        return
    place = np.searchsorted(ends, begins)
    next_ends = ends[np.minimum(place, len(ends) - 1)]
    alone = (next_ends > begins) & (np.append(begins[1:], len(elements)) > next_ends)
    several = np.searchsorted(lines, begins) < np.searchsorted(lines, next_ends)
    for first, last in zip(*(each[alone & several].tolist() for each in (begins, next_ends)), strict=True):
        inner = elements[first + 1 : last]
        own = np.where(inner >= 0, inner, ENDS - inner)
        if not (PROPERTIES[own[own < len(PROPERTIES)]] & BLOCK).any():
            yield first, last


# Code as it stands on a page, line by line: `pre` in all its shapes, and tables of lines.

_BUTTON, _TABLE, _A = E["button"], E["table"], E["a"]
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
        if k in source.hidden:
            pos, k = source.after_hidden(k)
            pos, k = (pos, k) if k <= last else (source.begin[last], last)
            continue
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
