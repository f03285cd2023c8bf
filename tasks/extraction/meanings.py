"""What elements mean where their names do not say it: roles of ARIA, code in text areas, lines of verse, formulas that
are images, icons that are words, text that is deleted.

The source of a page is rewritten before its blocks are cut: `<span role=cell>` becomes `<td>`. A page without any of
these is not changed by a byte, so that the classifier sees it as it was trained.
"""

import html
import re
from collections.abc import Iterator, Mapping

import numpy as np

from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.vocabulary import COMMENT, E, Page
from gristmill.tasks.kernels.phrases import places

# The elements that mean what a role does (ARIA in HTML, W3C): tables and lists count with their parts alone.
_TABLES = ("table", "grid", "treegrid")
_ELEMENTS = {
    **dict.fromkeys(_TABLES, "table"),
    "rowgroup": "tbody",
    "row": "tr",
    "columnheader": "th",
    "rowheader": "th",
    "cell": "td",
    "gridcell": "td",
    "caption": "caption",
    "list": "ul",
    "listitem": "li",
    "heading": "h2",
    "blockquote": "blockquote",
    "paragraph": "p",
    "strong": "strong",
    "emphasis": "em",
    "superscript": "sup",
    "subscript": "sub",
    "insertion": "ins",
    "code": "code",
}
# What each must be in, to be what its role says.
_WITHIN = {"tbody": ("table",), "tr": ("table",), "th": ("tr",), "td": ("tr",), "caption": ("table",), "li": ("ul",)}
_PLAIN = frozenset(E[name] for name in ("div", "span", "p", "section", "b", "i", "", "-"))
_PARTS = _PLAIN | frozenset(E[name] for name in ("ul", "ol", "li", "dl", "dt", "dd", "article", "header"))
_PARTS_OF_TABLES = frozenset(E[name] for name in "table thead tbody tfoot tr td th caption li dt dd".split())
_SIMPLE = frozenset(E[name] for name in "div span b i strong em code br small mark".split())
_RUN_TOGETHER = frozenset(E[name] for name in "span a button b i".split())
_DIV, _SPAN, _P, _I, _DEL, _TEXTAREA, _CUSTOM = (E[n] for n in ("div", "span", "p", "i", "del", "textarea", "-"))
_PRE, _CODE, _UL, _OL, _IMG = E["pre"], E["code"], E["ul"], E["ol"], E["img"]
_CONTROLS = (E["button"], E["input"])
_ROLE = re.compile(
    rb"""role\s*=\s*["']?\s*(table|(?:tree)?grid|list|heading|separator|code|blockquote|paragraph|strong|emphasis|"""
    rb"""superscript|subscript|insertion|deletion|img|tooltip)(?=[\s"'/>])"""
)
_NAME = re.compile(rb"<([^\s/<>]*)")
# Elements with which a role on this list is worth a look; a page has many pictures and lists that say what they are.
_PLAIN_NAMES = (b"div", b"span", b"p", b"section", b"b", b"i")
_NAMES = {
    b"img": (b"span", b"i"),
    b"list": (*_PLAIN_NAMES, b"dl", b"article"),
    b"separator": (*_PLAIN_NAMES, b"li"),
    b"table": (*_PLAIN_NAMES, b"ul", b"ol"),
}
_LONGEST_TAG = 2000
_AFTER_LINE = frozenset((b" ", b"\t", b"\n", b"\r", b"\f", b"\v", b'"', b"'", b">"))
_BEFORE_LINE = re.compile(rb"""(?:[\s"'=]|(?:verse|poem|poetry)[_-]?)\Z""")
_LINES = re.compile(r"(?i)(?:^|\s)(?:(?:verse|poem|poetry)[_-]?)?line(?:\s|$)")
_OF_CODE = re.compile(r"(?i)code|highlight|hljs|shiki|editor|terminal|cm-|view-line")
# Fonts of icons draw the picture of such a name.
_LIGATURE = re.compile(rb"""aria-hidden\s*=\s*["']?true\b[^<>]*>\s*[a-z]+(?:_[a-z0-9]+)+\s*</""")
_LIGATURE_NAME = re.compile(r"\s*[a-z]+(?:_[a-z0-9]+)+\s*")
_ICONS = ("mat-icon", "md-icon")
_ICON_CLASS = re.compile(r"(?i)icon|glyph|(?:^|[\s_-])(?:fas?|far|fab|bi|ri|ti)(?:[\s_-]|$)|material")
_PRESERVED = re.compile(r"(?i)white-space\s*:\s*(?:pre|break-spaces)")
_TEXTAREA_PARTS = re.compile(rb"""(?is)<textarea((?:\s[^<>]*)?)>(.*?)(?:</textarea[^>]*>)?\Z""")
_SHOWS_CODE = re.compile(
    r"""(?i)\breadonly\b|\bdisabled\b|class\s*=\s*["']?[^"'>]*(?:code|embed|snippet|source|copy)"""
)
_IS_MARKUP = re.compile(
    r"<[a-z!/][^<>]*>|&lt;[a-z!/]|[{};]\s*\n|^\s*(?:\$|#!|import |def |function |"
    r"(?:git|npm|pip|sudo|curl|docker|cd|apt(?:-get)?|yarn|wget|make|ssh|SELECT|INSERT) )",
    re.IGNORECASE,
)
_IS_HIDDEN = re.compile(r"""(?i)display\s*:\s*none|visibility\s*:\s*hidden|[\s"']hidden(?=[\s=>"']|\Z)|sr-only""")
# An `alt` in LaTeX; other images of the page may be formulas then, too.
_DRAWN = re.compile(rb"""alt\s*=\s*(?:"[^"<>]*(?:\\[a-zA-Z]{2}|[\^_]\{)|'[^'<>]*(?:\\[a-zA-Z]{2}|[\^_]\{))""")
_FORMULA_ALT = re.compile(r"\\[a-zA-Z]{2}|[\^_]\{|^[^.!?]{1,80}[=<>≤≥≈∝][^.!?]{1,80}$")
_LATEX = re.compile(r"\\[a-zA-Z]{2}|[\^_]\{")
_FOR_FORMULAS = re.compile(r"(?i)(?:^|[\s_-])(?:equations?|formulas?)(?:[\s_-]|$)")
# A page is not a text that is deleted; a line of verse has few characters, and a picture's name has.
_LOOK_AHEAD = 16  # blocks
_MAX_DELETED_SHARE, _MAX_LINE, _MAX_LABEL = 1 / 4, 120, 60


def with_meanings(data: bytes, page: Page) -> bytes | None:
    """The source of a page with elements that mean what it says, None for a page where nothing is to be rewritten."""
    by_role, by_line = _has_role(data), _has_lines(data)
    present = np.bincount(page.tags.element[page.tags.element >= 0], minlength=len(E)) > 0
    has_icons = any(_matches(_LIGATURE, b"aria-hidden", data)) or (
        present[_CUSTOM] and (b"<mat-icon" in data or b"<md-icon" in data)
    )
    deleted, areas = present[_DEL], present[_TEXTAREA]
    drawn = present[_IMG] and any(_matches(_DRAWN, b"alt", data))
    if not (by_role or by_line or has_icons or deleted or areas or drawn):
        return None
    source = Source(data, page)
    edits: dict[int, tuple[int, bytes]] = {}  # by where it begins, where it ends and what it becomes
    if areas:
        edits.update(_areas(source))
    if drawn:
        edits.update(_formulas(source))
    ends = source.ends(-1, len(source.element)) if deleted or by_role or by_line or has_icons else {}
    if deleted or (by_role and b"deletion" in data):
        edits.update(_deleted(source, ends))
    if by_role:
        edits.update(_by_role(source, ends))
    if by_line:
        edits.update(_verse(source, ends))
    if has_icons:
        edits.update(_icons(source, ends))
    return _edited(data, edits) if edits else None


def _matches(pattern: re.Pattern[bytes], word: bytes, data: bytes) -> Iterator[re.Match[bytes]]:
    """The matches of a pattern that begins with a word, which is found faster than a pattern is."""
    return filter(None, (pattern.match(data, place) for place in places(data, word)))


def _has_role(data: bytes) -> bool:
    """Whether an element of another kind has a role, as far as its tag tells."""
    for match in _matches(_ROLE, b"role", data):
        begin = data.rfind(b"<", max(0, match.start() - _LONGEST_TAG), match.start())
        tag = _NAME.match(data, begin) if begin >= 0 else None
        name = tag[1].lower() if tag else b""
        if b"-" in name or name in _NAMES.get(match[1], _PLAIN_NAMES):
            return True
    return False


def _has_lines(data: bytes) -> bool:
    """Whether two elements have a class for a line."""
    found = 0
    for begin in places(data, b"line"):
        if data[begin + 4 : begin + 5] in _AFTER_LINE and _BEFORE_LINE.search(data, max(0, begin - 7), begin):
            tag = data.rfind(b"<", max(0, begin - _LONGEST_TAG), begin)
            found += b"class" in data[tag:begin] if tag >= 0 else 0
            if found == 2:
                return True
    return False


def same_blocks(page: Page, other: Page) -> tuple[list[int], list[int]]:
    """The blocks of a page that have the texts of blocks of another one in the same order, and these."""
    texts = [
        [text[begin:end] for begin, end in zip(each.blocks.begin.tolist(), each.blocks.end.tolist(), strict=True)]
        for each in (page, other)
        for text in [each.text.tobytes()]
    ]
    same: tuple[list[int], list[int]] = ([], [])
    at = 0
    for number, text in enumerate(texts[0]):
        for place in range(at, min(at + _LOOK_AHEAD, len(texts[1]))):
            if texts[1][place] == text:
                same[0].append(number)
                same[1].append(place)
                at = place + 1
                break
    return same


def _edited(data: bytes, edits: Mapping[int, tuple[int, bytes]]) -> bytes:
    parts: list[bytes] = []
    done = 0
    for begin in sorted(edits):
        if begin < done:  # in what is left out
            continue
        end, new = edits[begin]
        parts += (data[done:begin], new)
        done = end
    return b"".join((*parts, data[done:]))


_Edits = Iterator[tuple[int, tuple[int, bytes]]]


def _renamed(source: Source, first: int, last: int, name: bytes) -> _Edits:
    """Another name for the element between two tags."""
    begin = source.begin[first]
    size = len(re.match(rb"<[^\s/>]*", source.tag(first))[0])  # type: ignore[index]  # each start tag has a name
    yield begin, (begin + size, b"<" + name)
    yield source.begin[last], (source.end[last], b"</" + name + b">")


def _wrapped(source: Source, first: int, last: int, name: bytes) -> _Edits:
    """An element right around the one between two tags, such as a link."""
    yield source.begin[first], (source.begin[first], b"<" + name + b">")
    yield source.begin[last], (source.end[last], source.tag(last) + b"</" + name + b">")


def _left_out(source: Source, first: int, last: int) -> tuple[int, tuple[int, bytes]]:
    return source.begin[first], (source.end[last], b"")


def _by_role(source: Source, ends: Mapping[int, int]) -> _Edits:
    around: list[tuple[int, str]] = []  # the end tag and the name of each rewritten element, and of lists
    for k, element in enumerate(source.element):
        while around and around[-1][0] <= k:
            around.pop()
        if element in (_UL, _OL) and k in ends:
            around.append((ends[k], "ul"))
        if not 0 <= element < COMMENT or k not in ends or b"role" not in source.tag(k).lower():
            continue
        role = (source.attribute(k, "role") or "").lower().split()[:1]
        if not role:
            continue
        if role[0] in ("separator", "img"):
            yield from _signs(source, k, ends[k], role[0])
            continue
        if role[0] == "tooltip":  # which is shown on request, and stands in the middle of a sentence
            yield _left_out(source, k, ends[k])
            continue
        name = _ELEMENTS.get(role[0], "")
        is_part = element in (_PARTS if name in _WITHIN or name in ("table", "ul") else _PLAIN)
        if not name or not (is_part or (name in ("li", "td", "th") and element not in _PARTS_OF_TABLES)):
            continue
        if name == "ul" and not _is_list(source, k, ends[k]):
            continue
        if role[0] == "grid" and _is_of_controls(source, k, ends[k]):
            yield _left_out(source, k, ends[k])
            continue
        if name in _WITHIN and not any(each in _WITHIN[name] for _, each in around[-2:]):
            continue
        if name == "h2":
            level = source.attribute(k, "aria-level") or ""
            name = f"h{level}" if level in ("1", "2", "3", "4", "5", "6") else name
        elif name == "code" and (element == _DIV or _PRESERVED.search(source.attribute(k, "style") or "")):
            name = "pre"
        around.append((ends[k], name))
        yield from (_renamed if is_part else _wrapped)(source, k, ends[k], name.encode())


def _is_list(source: Source, first: int, last: int) -> bool:
    """Whether a list is of short texts, or its items would run together; not one of cards, whose blocks are apart."""
    inside = [k for k in range(first + 1, last) if 0 <= source.element[k] < COMMENT]
    return all(source.element[k] in _SIMPLE for k in inside) or any(
        source.element[k] in _RUN_TOGETHER and source.attribute(k, "role") == "listitem" for k in inside
    )


def _is_of_controls(source: Source, first: int, last: int) -> bool:
    """Whether most cells of a grid are there to be pressed, such as the days of a calendar."""
    cells = sum(0 <= source.element[k] < COMMENT and b"gridcell" in source.tag(k) for k in range(first + 1, last))
    return 2 * sum(source.element[k] in _CONTROLS for k in range(first + 1, last)) > cells


def _signs(source: Source, first: int, last: int, role: str) -> _Edits:
    """A line for a separator; the name of a sign in running text that a style draws. Both have no text."""
    if last != first + 1 or source.between(first, last).strip():
        return
    begin = source.begin[first]
    if role == "separator":
        yield begin, (source.end[last], b"<hr>")
        return
    label = (source.attribute(first, "aria-label") or "").strip()
    if source.element[first] in (_SPAN, _I) and 0 < len(label) <= _MAX_LABEL:
        in_text = source.text(source.end[first - 1], begin).strip() and not _ICON_CLASS.search(source.classes(first))
        if in_text:
            yield begin, (source.end[last], html.escape(label).encode())


def _deleted(source: Source, ends: Mapping[int, int]) -> _Edits:
    """Text that is deleted; not that of a listing, which shows what was before."""
    found = []
    listing = -1  # the end of the listing that a tag is in
    for k, element in enumerate(source.element):
        if element == _PRE:
            listing = max(listing, ends.get(k, k))
        if k < listing or k not in ends:
            continue
        if element == _DEL or (
            element in _PLAIN and b"deletion" in source.tag(k) and source.attribute(k, "role") == "deletion"
        ):
            found.append(k)
    if sum(source.end[ends[k]] - source.begin[k] for k in found) <= _MAX_DELETED_SHARE * len(source.data):
        for k in found:
            yield _left_out(source, k, ends[k])


def _areas(source: Source) -> _Edits:
    """Text areas that show code to copy, as code."""
    for k, element in enumerate(source.element):
        match = _TEXTAREA_PARTS.match(source.tag(k)) if element == _TEXTAREA else None
        if not match:
            continue
        attributes, content = (part.decode("utf-8", "replace") for part in match.groups())
        if len(content.strip()) < 4 or _IS_HIDDEN.search(attributes):
            continue
        if _SHOWS_CODE.search(attributes) or _IS_MARKUP.search(content):
            code = content.strip("\n").replace("<", "&lt;").encode()
            yield source.begin[k], (source.end[k], b"<pre>" + code + b"</pre>")


def _verse(source: Source, ends: Mapping[int, int]) -> _Edits:
    """Lines of verse that are an element each, as lines of one block."""
    run: list[int] = []
    code = -1  # the end of the code that a tag is in
    for k, element in enumerate((*source.element, COMMENT)):
        if element in (_PRE, _CODE):
            code = max(code, ends.get(k, k))
        is_line = k > code and element in (_DIV, _SPAN, _P) and k in ends and _is_line(source, k, ends[k])
        if is_line and run and not source.data[source.end[ends[run[-1]]] : source.begin[k]].strip():
            run.append(k)
        elif is_line or k == len(source.element):
            yield from _as_lines(source, ends, run)
            run = [k] if is_line else []


def _is_line(source: Source, first: int, last: int) -> bool:
    classes = source.classes(first)
    around = source.classes(first - 1) if first and source.element[first - 1] >= 0 else ""
    if not _LINES.search(classes) or _OF_CODE.search(classes) or _OF_CODE.search(around):
        return False
    return source.end[last] - source.begin[first] <= 4 * _MAX_LINE and len(source.between(first, last)) <= _MAX_LINE


def _as_lines(source: Source, ends: Mapping[int, int], run: list[int]) -> _Edits:
    if len(run) < 2:
        return
    for k in run:
        yield source.begin[k], (source.end[k], b"<div>" if k == run[0] else b"")
        last = ends[k]
        yield source.begin[last], (source.end[last], b"</div>" if k == run[-1] else b"<br>")


def _formulas(source: Source) -> _Edits:
    """The class of an image of a formula, for images that only their text or the element around them tells."""
    for k, element in enumerate(source.element):
        if element != _IMG or b"alt" not in source.tag(k):
            continue
        alt = source.attribute(k, "alt") or ""
        is_for_formulas = k > 0 and source.element[k - 1] >= 0 and _FOR_FORMULAS.search(source.classes(k - 1))
        if _FORMULA_ALT.search(alt) and (is_for_formulas or _LATEX.search(alt)):
            begin = source.begin[k] + len(b"<img")
            yield begin, (begin, b' class="tex"')


def _icons(source: Source, ends: Mapping[int, int]) -> _Edits:
    for k, element in enumerate(source.element):
        if not 0 <= element < COMMENT or k not in ends:
            continue
        if element == _CUSTOM:
            is_icon = source.name(k) in _ICONS
        else:
            is_icon = (
                ends[k] == k + 1
                and b"aria-hidden" in source.tag(k)
                and (source.attribute(k, "aria-hidden") or "").lower() == "true"
                and _LIGATURE_NAME.fullmatch(source.between(k, k + 1)) is not None
            )
        if is_icon:
            yield _left_out(source, k, ends[k])
