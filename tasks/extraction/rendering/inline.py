"""The text between two tags of a page in one piece: exponents, ruby and formulas as a reader takes them."""

import re

from gristmill.tasks.extraction.rendering import formulas
from gristmill.tasks.extraction.rendering.markdown_signs import escaped
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.vocabulary import BLOCK, CUSTOM, ENDS, PROPERTIES, RAW, SKIP, E

_SUP, _SUB, _RT, _RTC, _RP, _A, _BR = (E[name] for name in ("sup", "sub", "rt", "rtc", "rp", "a", "br"))
_SPAN, _DIV = E["span"], E["div"]
_Q, _STRUCK = E["q"], (E["del"], E["s"], E["strike"])
_REWRITTEN = (_SUP, _SUB, _RT, _RTC, _RP, _Q, *_STRUCK)
_MARKS = {
    **{E[name]: "**" for name in ("b", "strong")},
    **{E[name]: "*" for name in ("i", "em")},
    **{E[name]: "`" for name in ("code", "kbd", "samp", "tt")},
}
# In these, signs are escaped in Markdown.
_PROSE = frozenset((_Q, -2, *_STRUCK, *(tag for tag, mark in _MARKS.items() if mark != "`")))
_PERMALINK = re.compile(r"(?:^|[\s_-])(?:header-?link|anchor|permalink|hash-?link|header-?anchor|heading-?link)", re.I)
# Google's fonts of icons show the picture of a name: `<i class=material-icons>share</i>`.
_ICON = re.compile(r"(?:^|\s)material-(?:icons|symbols)")
_SIGNS = frozenset("¶#§🔗\u200b\u200c")
_SPACE = re.compile(r"[ \t\r\n\f\xa0]+")
_LINE_ENDS, _RUNS = re.compile(r" *\n *"), re.compile(r"  +")
# Ordinals, marks of trade: raised for looks.
_LOOKS = re.compile(r"(?:st|nd|rd|th|er|re|e|ème|eme|o|a|os|as|º|ª|tm|sm|r|c|®|™|©|\*+|†+|‡+)$", re.IGNORECASE)
_SIMPLE = re.compile(r"[+−-]?(?:\w|\d+)$")
_ELEMENT = re.compile(r"(?:^|[^A-Za-z])(?:[A-Z][a-z]?\d*)+[)\]]?$|\)$")
# Elements that change nothing in plain text; with their end tags.
_INERT = frozenset(
    code
    for name in "a b i u em strong font small big tt nobr cite dfn abbr code kbd samp var mark span".split()
    for code in (E[name], ENDS - E[name])
)
# A `sup` that is the mark of a note: a link to a place of the page stands in it or around it; a `q` in another.
_NOTE, _INNER_Q = -1, -2
_QUOTES = frozenset("\"'\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a\u300c\u300e")
# The images of an emoji: one character, or several that are joined or modified; or what has been typed, such as `:-)`.
_SIGN = "[\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
_MODIFIED = "[\ufe0e\ufe0f\u20e3\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
_EMOJI = re.compile(
    rf"(?:{_SIGN}|[0-9#*](?=\ufe0f?\u20e3)){_MODIFIED}(?:\u200d{_SIGN}{_MODIFIED})*|(?!.*\w\w)\S{{2,5}}"
)
_OPENING, _CLOSING = frozenset("([{‘“«（「『"), frozenset(",.;:!?)]}’”»、。，；：！？）」』")
_EMOJI_CLASS = re.compile(rb"(?i)emoji|smil|emoticon")
_NUMBERS = re.compile(r"\d{1,3}(?:\s?[,–-]\s?\d{1,3})*$")
_BOLD_APART = re.compile(r"(?<=[^\s*\\])\*\* \*\*(?=[^\s*])")
# How many elements whose text is rewritten may lie in each other.
_NESTED = 8


def inline(source: Source, first: int, last: int, markdown: bool = False) -> str:
    """The text between two tags, white space collapsed, a line for each `<br>`; blocks in it are parted by spaces.

    Fractions and exponents are written as `1/2` and `10^8`, marks of notes as `[1]`, ruby in brackets behind its base,
    formulas as LaTeX, quotations in the marks of the page's language, images of emoji as these. What is struck
    through stays, as on the page, a space from the words beside it: `<del>10</del><ins>12</ins>` is two numbers. Links
    of headings to themselves and names of icons are left out.
    """
    if last == first + 1:
        text = _SPACE.sub(" ", source.text(source.end[first], source.begin[last])).strip()
        return escaped(text) if markdown else text
    element, end = source.element, source.end
    if not markdown and _INERT.issuperset(element[first + 1 : last]) and not (source.formulas or source.icons):
        text = source.between(first, last)
        if (
            _SIGNS.isdisjoint(text)
            and not source.hidden
            and source.data.find(b"editsection", end[first], source.begin[last]) < 0
        ):
            return _SPACE.sub(" ", text).strip()
    ends = source.ends(first, last)
    out: list[str] = []
    open_elements: list[tuple[int, int, int]] = []  # end tag, length of `out`, element
    pos, k = end[first], first + 1
    searched = first  # up to this tag elements that show formulas have none
    while True:
        stop = source.begin[k] if k < last else source.begin[last]
        if stop > pos:
            text = _SPACE.sub(" ", source.text(pos, stop))
            is_prose = markdown and all(kind in _PROSE for *_, kind in open_elements)
            out.append(escaped(text) if is_prose else text)
        if k >= last:
            break
        pos = end[k]
        tag = element[k]
        while open_elements and open_elements[-1][0] <= k:
            _close(open_elements.pop(), out, source, k, last, markdown)
        formula, last_tag = _formula(source, k, ends, k < searched)
        if formula is not None:
            out.append(formula)
            pos, k = max(pos, end[last_tag]), last_tag + 1
            continue
        searched = max(searched, last_tag)
        if k in source.hidden:
            pos, k = source.after_hidden(k)
            if k > last:  # it ends beyond the piece
                pos, k = source.begin[last], last
            continue
        if 0 <= tag < len(PROPERTIES):
            if tag == _BR:
                out.append("\n")
            elif tag == _A and k in ends and _is_permalink(source, k, ends[k]):
                k = ends[k]
                pos = end[k]
            elif k in ends and (
                (tag == _SPAN and b"editsection" in source.tag(k))  # MediaWiki's [edit]
                or (source.icons and not PROPERTIES[tag] & BLOCK and _ICON.search(source.classes(k)))
            ):
                k = ends[k]
                pos = end[k]
            elif PROPERTIES[tag] & SKIP and not PROPERTIES[tag] & RAW:
                pos = end[ends[k]] if k in ends else source.begin[last]
                k = ends.get(k, last - 1)  # one that is not closed goes on as far as its block
            elif PROPERTIES[tag] & BLOCK:
                out.append(" ")
            elif k in ends and len(open_elements) < _NESTED:
                if tag in _REWRITTEN:
                    kind = tag
                    if tag == _SUP and _is_note(source, k, ends[k]):
                        kind = _NOTE
                    elif tag == _Q and any(outer == _Q for *_, outer in open_elements):
                        kind = _INNER_Q
                    open_elements.append((ends[k], len(out), kind))
                elif _marks(tag, markdown, open_elements):
                    open_elements.append((ends[k], len(out), tag))
        elif tag < 0 and PROPERTIES[ENDS - tag] & BLOCK:
            out.append(" ")
        k += 1
    while open_elements:
        _close(open_elements.pop(), out, source, last, last, markdown)
    text = _RUNS.sub(" ", _LINE_ENDS.sub("\n", "".join(out))).strip()
    return _BOLD_APART.sub(" ", text) if markdown else text


def _close(element: tuple[int, int, int], out: list[str], source: Source, tag: int, last: int, markdown: bool) -> None:
    """Rewrite an element that ends at a tag of the piece up to the tag `last`."""
    _, length, kind = element
    text = "".join(out[length:])
    content = text.strip()
    del out[length:]
    if kind in _STRUCK:
        if content:
            out += (" " * _adjoins(_last(out), text[0]), text)
            out.append(" " * _adjoins(text[-1], _following(source, tag, last)[:1]))
    elif kind in (_Q, _INNER_Q):
        if content and content[0] not in _QUOTES and _last(out) not in _QUOTES:
            first = 0 if kind == _Q else 2
            before, _, after = text.partition(content)
            text = f"{before}{source.quotes[first]}{content}{source.quotes[first + 1]}{after}"
        out.append(text)
    elif kind not in _MARKS:
        out.append(_rewritten(kind, content, out, "*`" if markdown else ""))
    elif not content:
        out.append(text)
    else:
        before, _, after = text.partition(content)
        previous = before[-1:] or _last(out)
        out += (before, _emphasised(_MARKS[kind], previous, content, after or _following(source, tag, last)), after)


def _last(out: list[str]) -> str:
    """The last character that is written, "" without one."""
    return next((piece[-1] for piece in reversed(out) if piece), "")


def _following(source: Source, tag: int, last: int) -> str:
    """The text behind a tag, up to the next; behind tags without text the text behind these."""
    texts = (source.text(source.end[k], source.begin[k + 1]) for k in range(tag, last))
    return next((text for text in texts if text), "")


def _emphasised(mark: str, previous: str, content: str, following: str) -> str:
    """Marks around a text where a parser reads them as such: not at a word on one side and a sign on the other, and
    not at another mark (CommonMark 0.31, section 6.2)."""
    if mark == "`":
        return f"`` {content} ``" if "`" in content else f"`{content}`"
    apart = (_apart(outside, inside) for outside, inside in ((previous, content[0]), (following[:1], content[-1])))
    return f"{mark}{content}{mark}" if "\n" not in content and content[0] != "$" and all(apart) else content


def _adjoins(before: str, following: str) -> bool:
    """Whether two characters, "" for none, have no space between them and none belongs there."""
    texts = before and following and not (before.isspace() or following.isspace())
    return bool(texts) and before not in _OPENING and following not in _CLOSING


def _apart(outside: str, inside: str) -> bool:
    return outside != "*" and (inside.isalnum() or not outside.isalnum())


def _marks(tag: int, markdown: bool, open_elements: list[tuple[int, int, int]]) -> bool:
    """Whether an element is marked: not in another of its mark, and not in code."""
    return markdown and tag in _MARKS and all(_MARKS.get(kind) not in ("`", _MARKS[tag]) for *_, kind in open_elements)


def _formula(source: Source, k: int, ends: dict[int, int], searched: bool) -> tuple[str | None, int]:
    """(the formula or emoji that begins with a tag, its last tag); (None, the last tag that was searched) if none does.

    searched: whether an element around it shows a formula, and has none of the notations that are known.
    """
    tag = source.element[k]
    if tag == formulas.SCRIPT:
        formula = formulas.of_script(source.tag(k))
        return formula, k if formula is not None else k - 1
    if tag == formulas.IMG:
        formula = formulas.of_image(source, k)
        if formula is None and _EMOJI_CLASS.search(source.tag(k)):
            alt = (source.attribute(k, "alt") or "").strip()
            formula = alt if _EMOJI.fullmatch(alt) else None
        return formula, k if formula is not None else k - 1
    if tag == formulas.MATH or tag == CUSTOM:
        if k in ends and (tag == formulas.MATH or source.name(k) == "mjx-container"):
            formula = formulas.of_element(source, k, ends[k])
            if formula is not None:
                return formula, ends[k]
    elif tag in (_SPAN, _DIV) and k in ends:
        classes = source.classes(k)
        if classes and not searched and formulas.RENDERED.search(classes):
            return _rendered(source, k, ends[k], classes)
    return None, k - 1


def _rendered(source: Source, k: int, end_tag: int, classes: str) -> tuple[str | None, int]:
    """The same for an element that shows a formula; "" where its LaTeX follows in a script of its own."""
    if "MathJax" in classes or "mjx" in classes.lower():
        for j in range(end_tag + 1, min(end_tag + 4, len(source.element))):
            if source.element[j] == formulas.SCRIPT and formulas.of_script(source.tag(j)) is not None:
                return "", end_tag
            if "Preview" in classes and source.element[j] >= 0 and "MathJax" in source.classes(j):
                return "", end_tag
    display = "display" in source.classes(k - 1) if k and source.element[k - 1] in (_SPAN, _DIV) else False
    formula = formulas.of_element(source, k, end_tag, display)
    return formula, end_tag


def _is_permalink(source: Source, first: int, last: int) -> bool:
    if last - first > 4 or source.end[first] + 120 < source.begin[last]:
        return False
    text = source.between(first, last)
    return set(text) <= _SIGNS | {" "} and (bool(text.strip()) or bool(_PERMALINK.search(source.classes(first))))


def _is_note(source: Source, k: int, end_tag: int) -> bool:
    """Whether the link right around a `sup`, or right in it, leads to a place of the page."""
    within = range(k + 1, min(k + 3, end_tag))
    around = range(k - 1, k) if k and not source.data[source.end[k - 1] : source.begin[k]].strip() else range(0)
    return any(source.element[j] == _A and b"#" in source.tag(j) for j in (*around, *within))


def _rewritten(kind: int, content: str, before: list[str], marks: str) -> str:
    """The text of an element that is raised, lowered, or beside its base; `marks`: of emphasis around the base."""
    if not content:
        return ""
    if kind == _RP:
        return ""
    if kind in (_RT, _RTC):
        return f"({content})"
    if kind == _NOTE and _NUMBERS.match(content):
        return f"[{content}]"
    base = ""
    for piece in reversed(before):
        base = piece[-12:] + base
        if len(base) >= 12:
            break
    bare = base.rstrip().rstrip(marks)
    if not bare or content[0] in "[({":
        return content
    if kind == _SUB:
        if bare[-1] in "/⁄":
            _part_whole(before)
            return content
        if content.isdigit() and _ELEMENT.search(bare):
            return content
        return f"_{content}" if _SIMPLE.match(content) or content.isalnum() else f"_{{{content}}}"
    if base[-1].isspace() or _LOOKS.match(content) or not (bare[-1].isalnum() or bare[-1] in ")]}|'"):
        return content
    return f"^{content}" if _SIMPLE.match(content) else f"^{{{content}}}"


def _part_whole(before: list[str]) -> None:
    """The numerator of a fraction stands apart from a number before it: `3 1/2`."""
    for index in range(len(before) - 1, max(-1, len(before) - 4), -1):
        if before[index][:1] == "^" and before[index][1:].isdigit():
            before[index] = " " + before[index][1:]
            return
