"""The tables, listings and sections of a page of documentation as lxml's tree has them, and which a text keeps.

A table counts that holds data: header cells, or two rows of two cells with text. None that is nested or holds another,
is laid out by (a role says so, or a cell has a heading, a listing, a form or a thousand characters), links by four
fifths of its text, or stands in what a page says is no content of it. A listing is a `pre`, not line numbers alone. A
section is what stands between a heading and the next, if it has ten words and half of them are no links.
"""

import re
from typing import NamedTuple

from lxml import html

_WORD = re.compile(r"\w+")
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
# what is not shown, or not as text
_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "math", "button", "select", "textarea", "head"})
_ASIDE = frozenset({"nav", "aside", "footer", "form", "header"})
_ASIDE_WORDS = re.compile(
    r"nav|menu|sidebar|footer|header\b|breadcrumb|(?:^|[-_\s])toc|contents|related|search|topbar|linenos|version", re.I
)
# what XML holds no text with, as lxml says when it writes one
_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|&#(?:x0*(?:[0-8bcef]|1[0-9a-f])|0*(?:[0-8]|1[1-24-9]|2[0-9]|3[01]));",
    re.I,
)
_CELL_MOST = 1000
_LINKS = 0.8
_FEW = 10


class Truth(NamedTuple):
    """tables: the words of each row of each. listings: of each line of each. sections: (what stands around its heading,
    its words, a name) of each, in the order of the page."""

    tables: list[list[str]]
    listings: list[list[str]]
    sections: list[tuple[str, list[str], str]]


class Found(NamedTuple):
    """counts: tables, whole ones; listings, lost ones; sections, dropped ones between kept ones, kept ones. missed: a
    line for each table that is not whole, listing lost and section dropped."""

    counts: tuple[int, int, int, int, int, int, int]
    missed: list[str]


def words(text: str) -> str:
    """The words of a text with a space around each."""
    return " " + " ".join(_WORD.findall(text.lower())) + " "


def truth(page: str) -> Truth:
    """What a page has; all is empty for one that lxml cannot parse."""
    try:
        data = _CONTROLS.sub("", page).encode("utf-8", "replace")
        tree = html.document_fromstring(data, parser=html.HTMLParser(encoding="utf-8"))
    except (ValueError, html.etree.ParserError):
        return Truth([], [], [])
    body = tree.find("body")
    if body is None:
        return Truth([], [], [])
    for each in list(body.iter()):
        if not isinstance(each.tag, str) or each.tag in _UNSEEN or _hidden(each) or _is_pilcrow(each):
            each.drop_tree()
    # an aside is one by its own words, and so is all that is in it
    aside = {each for root in body.iter() if _is_aside(root) for each in root.iter()}
    tables = [rows for each in body.iter("table") if each not in aside and (rows := _rows(each))]
    listings = [
        lines
        for each in body.iter("pre")
        if each not in aside
        and next(each.iterancestors("pre"), None) is None
        and (lines := [words(line) for line in _text(each).splitlines() if _WORD.search(line)])
        and any(re.search(r"[^\W\d]", line) for line in lines)
    ]
    return Truth(tables, listings, _sections(body, aside))


def _hidden(each: html.HtmlElement) -> bool:
    style = each.get("style", "").replace(" ", "").lower()
    return "hidden" in each.attrib or "display:none" in style or "visibility:hidden" in style


def _is_pilcrow(each: html.HtmlElement) -> bool:
    return each.tag == "a" and each.text_content().strip() in ("¶", "#", "§", "\uf0c1")


def _is_aside(each: html.HtmlElement) -> bool:
    if each.tag == "body":
        return False
    named = " ".join(each.get(name, "") for name in ("class", "id", "role", "summary"))
    return each.tag in _ASIDE or bool(_ASIDE_WORDS.search(named))


def _text(each: html.HtmlElement) -> str:
    """The text of an element, a `<br>` as a line."""
    parts = []
    for event, node in html.etree.iterwalk(each, events=("start", "end")):
        if event == "start":
            parts.append("\n" if node.tag == "br" else node.text or "")
        elif node is not each:
            parts.append(node.tail or "")
    return "".join(parts)


def _link_share(each: html.HtmlElement) -> float:
    linked = sum(len(words(link.text_content())) for link in each.iter("a") if link.get("href"))
    return linked / max(1, len(words(each.text_content())))


def _rows(table: html.HtmlElement) -> list[str]:
    """The words of each row of a table of data; nothing for another."""
    nested = (
        next(table.iterancestors("table"), None) is not None or next(table.iterdescendants("table"), None) is not None
    )
    if nested or table.get("role") in ("presentation", "none") or _link_share(table) >= _LINKS:
        return []
    if next(table.iterdescendants(*_HEADINGS, "pre", "input", "form"), None) is not None:
        return []
    grid = [[words(_spaced(cell)) for cell in row.iter("td", "th")] for row in table.iter("tr")]
    if any(len(cell) > _CELL_MOST for row in grid for cell in row):
        return []
    # words that a page joins by signs stand apart in a text, too
    full = [[cell for cell in row if cell.strip()] for row in grid]
    pairs = sum(len(row) >= 2 for row in full)
    if pairs < (1 if next(table.iter("th"), None) is not None else 2):
        return []
    return ["".join(row).replace("  ", " ") for row in full if row]


def _spaced(cell: html.HtmlElement) -> str:
    """The text of a cell, its blocks apart."""
    parts = []
    for event, node in html.etree.iterwalk(cell, events=("start", "end")):
        apart = " " if node.tag in ("br", "p", "div", "li", "ul", "ol", "dl", "dt", "dd", "img") else ""
        if event == "start":
            parts += (apart, node.text or "")
        else:
            parts += (apart, (node.tail or "") if node is not cell else "")
    return "".join(parts)


def _sections(body: html.HtmlElement, aside: set[html.HtmlElement]) -> list[tuple[str, list[str], str]]:
    found: list[tuple[str, list[str], str]] = []
    around, name, parts, linked = "", "", [], 0
    links = 0  # open links

    def close() -> None:
        own = _WORD.findall(" ".join(parts).lower())
        if name and len(own) >= _FEW and 2 * linked < len(own):
            found.append((around, own, name))

    for event, node in html.etree.iterwalk(body, events=("start", "end")):
        if event == "start" and node.tag in _HEADINGS and node not in aside:
            close()
            around = "/".join(f"{up.tag}.{up.get('class', '')}" for up in node.iterancestors()) + node.tag
            name, parts, linked = " ".join(node.text_content().split())[:60], [], 0
        in_heading = node.tag in _HEADINGS or next(node.iterancestors(*_HEADINGS), None) is not None
        if event == "start":
            links += node.tag == "a" and "href" in node.attrib
            text, of = node.text, node
        else:
            links -= node.tag == "a" and "href" in node.attrib
            text, of = node.tail, node.getparent()
            in_heading = of is not None and (
                of.tag in _HEADINGS or next(of.iterancestors(*_HEADINGS), None) is not None
            )
        if text and of not in aside and not in_heading:
            parts.append(text)
            linked += len(_WORD.findall(text)) * (links > 0)
    close()
    return found


def found(true: Truth, text: str) -> Found:
    """What a text keeps. A table is whole if the words of each of its rows stand in a row. A listing is lost if less
    than half of its lines do. A section is dropped if a fifth at most of its runs of four words is found, kept from
    four fifths on; it counts where one before and one behind it, with the same elements around their headings, are
    kept."""
    kept = words(text)
    missed = []
    whole = 0
    for rows in true.tables:
        lost = [row for row in rows if row not in kept]
        whole += not lost
        if lost:
            missed.append(f"table, {len(lost)} of {len(rows)} rows: {lost[0][:80]}")
    gone = 0
    for lines in true.listings:
        here = sum(line in kept for line in lines)
        gone += 2 * here < len(lines)
        if 2 * here < len(lines):
            missed.append(f"listing, {len(lines)} lines: {lines[0][:80]}")
    own = kept.split()
    runs = {tuple(own[i : i + 4]) for i in range(len(own) - 3)}
    shares = [
        sum(tuple(each[i : i + 4]) in runs for i in range(len(each) - 3)) / (len(each) - 3)
        for _, each, _ in true.sections
    ]
    dropped = 0
    for k, (around, _, name) in enumerate(true.sections):
        same = [i for i, (other, _, _) in enumerate(true.sections) if other == around and shares[i] >= 0.8]
        if shares[k] <= 0.2 and same and same[0] < k < same[-1]:
            dropped += 1
            missed.append(f"section: {name}")
    counts = (len(true.tables), whole, len(true.listings), gone, len(shares), dropped, sum(s >= 0.8 for s in shares))
    return Found(counts, missed)
