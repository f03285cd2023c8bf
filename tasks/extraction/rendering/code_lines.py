"""Code as it stands on a page, line by line: `pre` in all its shapes, and tables of lines."""

import re

from tasks.extraction.rendering.source import Source
from tasks.extraction.vocabulary import BLOCK, PROPERTIES, RAW, SKIP, E

_BR, _TR, _TD, _TH, _SPAN, _BUTTON = E["br"], E["tr"], E["td"], E["th"], E["span"], E["button"]
_CELLS = (_TD, _TH)
_TABLE_PARTS = tuple(E[name] for name in ("table", "tbody", "thead", "tfoot", "colgroup"))
# Spans that style sheets show as a line each (Shiki, Prism of Docusaurus, react-syntax-highlighter, CodeMirror).
_LINE = re.compile(r"(?:^|\s)(?:line|token-line|code-line|hljs-line|view-line|CodeMirror-line|code__line)(?:\s|$)")
_DISPLAYED = re.compile(r"display\s*:\s*(?:block|flex|table-row)")
# Columns and spans that hold the numbers of lines (Pygments, Rouge, Chroma, highlightjs-line-numbers, GitHub, Crayon,
# SyntaxHighlighter, Prism).
_NUMBERS = re.compile(
    r"(?:^|\s)(?:linenos?|linenodiv|linenumbers?|line-?numbers?(?:-rows)?|lnt?|lntd|gutter|rouge-gutter|gl|blob-num|"
    r"hljs-ln-(?:numbers|line|n)|crayon-nums?|react-code-line-number|react-syntax-highlighter-line-number|"
    r"line-num|code-line-number|linenr|ln-num|num)(?:\s|$)"
)
_CODE = re.compile(
    r"(?:^|\s)(?:blob-code(?:-inner)?|hljs-ln(?:-code)?|rouge-(?:code|table)|lntable|lntd|highlighttable|crayon-(?:code|table)|"
    r"code|js-file-line(?:-container)?|syntaxhighlighter|linenos)(?:\s|$)"
)
_LANGUAGE = re.compile(
    r"(?:^|\s)(?:language-|lang-|highlight-source-|highlight-|brush:\s*|sourceCode\s+)([A-Za-z0-9+#_.-]+)"
)
_NO_LANGUAGE = ("default", "none", "notranslate", "text", "plaintext")


def code(source: Source, first: int, last: int) -> str:
    """The lines of code between two tags, indented as they are; without their numbers."""
    element, end, ends = source.element, source.end, source.ends(first, last)
    out: list[str] = []  # text; never empty pieces
    lines: list[tuple[int, int]] = []  # open elements that are a line: end tag, length of `out` at their begin
    closed = False  # a line has ended, and nothing has been written since
    ended_itself = False  # its text ended with a line feed
    cell = False  # a cell of the row has text
    pos, k = end[first], first + 1
    while True:
        stop = source.begin[k]
        if stop > pos:
            text = source.text(pos, stop).replace("\r\n", "\n").replace("\r", "\n").replace("\xa0", " ")
            if text and pos == end[first] and text[0] == "\n":
                text = text[1:]  # the standard drops a line feed that a `pre` begins with
            if text:
                if closed and not ended_itself and text[0] != "\n" and text.strip():
                    out.append("\n")
                if not (closed and not text.strip() and "\n" not in text):
                    out.append(text)
                    closed = False
        if k >= last:
            break
        pos = end[k]
        tag = element[k]
        while lines and lines[-1][0] <= k:
            at = lines.pop()[1]
            if not closed or at == len(out):
                ended_itself = at < len(out) and out[-1].endswith("\n")
                closed = True
        if 0 <= tag < len(PROPERTIES):
            if tag == _BR:
                out.append("\n")
                closed = False
            elif k in ends and (
                (PROPERTIES[tag] & SKIP and not PROPERTIES[tag] & RAW)
                or tag == _BUTTON
                or _is_number(source, k, ends[k])
            ):
                k = ends[k]
                pos = end[k]
            elif tag in _CELLS:
                if cell and out and not out[-1].endswith("\n"):
                    out.append("\t")
                cell = True
            elif tag not in _TABLE_PARTS and k in ends and _is_line(source, k, tag):
                if closed:
                    if not ended_itself:
                        out.append("\n")
                elif out and PROPERTIES[tag] & BLOCK and not out[-1].endswith("\n"):
                    out.append("\n")
                closed = False
                cell = False
                lines.append((ends[k], len(out)))
        k += 1
    text = "".join(out)
    return re.sub(r"\A(?:[ \t]*\n)+", "", text).rstrip()


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
    if b"class" not in source.tag(first) or not _NUMBERS.search(source.classes(first)):
        return False
    return all(
        not (text := source.data[source.end[k] : source.begin[k + 1]].strip())
        or text.isdigit()
        or _digits(source, text)
        for k in range(first, last)
    )


def _digits(source: Source, text: bytes) -> bool:
    return not set(text.replace(b"&nbsp;", b"").replace(b"\xc2\xa0", b"")) - set(b"0123456789 \r\n\t.:")


def is_code_table(source: Source, first: int, last: int, within: bool) -> bool:
    """Whether a table shows code: a row a line, or all lines in one cell beside their numbers; `within`: of a `pre`."""
    marked = False
    for k in range(first, last):
        tag = source.element[k]
        if tag not in _CELLS and k != first:
            continue
        shown = source.tag(k)
        if b"data-line-number" in shown or (b"class" in shown and _NUMBERS.search(source.classes(k))):
            marked = True
        if marked and (within or (tag in _CELLS and b"class" in shown and _CODE.search(source.classes(k)))):
            return True
        if k > first + 40:
            break
    return False


def language(source: Source, first: int, last: int) -> str:
    """The language that code says it is in, by the classes of its element, of the two around it and of its first."""
    for k in range(max(0, first - 2), min(first + 3, last)):
        if source.element[k] >= 0 and (found := _LANGUAGE.search(source.classes(k))):
            if found[1].lower() not in _NO_LANGUAGE:
                return found[1]
    return ""
