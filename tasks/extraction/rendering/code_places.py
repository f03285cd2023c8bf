"""Where a page shows code: `pre`, tables and containers of lines, `code` with line breaks."""

import re
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.scanned import COMMENT, ENDS, PREFORMATTED
from gristmill.tasks.extraction.vocabulary import BLOCK, PROPERTIES, E

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
    position = source.data.find(text) if source.has(text) else -1
    while position >= 0:
        tag = bisect_left(source.begin, position) - 1
        if tag >= 0 and position < source.end[tag]:
            yield tag
        position = source.data.find(text, position + 1)


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
    begins, ends = np.flatnonzero(elements == _CODE), np.flatnonzero(elements == ENDS - _CODE)
    lines = np.flatnonzero(elements == _BR)
    if not len(begins) or not len(ends) or not len(lines):
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
