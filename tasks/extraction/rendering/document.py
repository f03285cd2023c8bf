"""The kept blocks of a page as readable text, plain or as Markdown: paragraphs, headings, lists, code and tables.

Blocks stand on lines of their own, with an empty line between them, but for the items of a list, which follow each
other. An item begins with `- ` or its number, and what is in it stands in as far. A definition follows its term behind
a colon. The rows of a table of data read like Markdown's: `| a | b |`; tables for layout are read as if they were not
there. Code keeps its lines.

Markdown differs by marks of headings (`#`), fences around code, a line below the header of a table, emphasis, inline
code, and a backslash before what would begin a line as a mark without being one. Links and images are left out.
"""

import re

import numpy as np

from tasks.extraction.rendering import code_lines, data_tables
from tasks.extraction.rendering.inline import inline
from tasks.extraction.rendering.lists import Lists
from tasks.extraction.rendering.source import Source
from tasks.extraction.rendering.whole import CODE, DATA, Units
from tasks.extraction.scanned import HEADING
from tasks.extraction.vocabulary import E

_CLOSE, _FAR = "\n", "\n\n"
_DT, _DD, _LI, _H1 = E["dt"], E["dd"], E["li"], E["h1"]
# what the UTF-8 of a str cannot hold, and what html.unescape may make of a number
_SURROGATES = re.compile("[\ud800-\udfff]")
_RUNS = re.compile(r"[^\S\n]{2,}|[^\S\n ]")
_MARK = re.compile(r"^(?=(?:#{1,6}|[-+*>]|```|\d+[.)])(?:\s|$)|```|~~~)", re.MULTILINE)
PARAGRAPH, ITEM, DEFINITION, ROWS, TERM = range(5)


def render(source: Source, chosen: Units, kept: np.ndarray, markdown: bool = False) -> str:
    """The text of the kept blocks (bool) of a page."""
    page = source.page
    numbers = np.flatnonzero(kept)
    blocks, nodes = page.blocks, page.nodes
    text = page.text.tobytes()
    begin, end, kind = blocks.begin[numbers].tolist(), blocks.end[numbers].tolist(), blocks.kind[numbers].tolist()
    bullet = blocks.bullet[numbers].tolist()
    after, before = blocks.after[numbers].tolist(), blocks.before[numbers].tolist()
    marked, linked = blocks.marked[numbers].tolist(), blocks.links[numbers].tolist()
    unit = chosen.unit[numbers].tolist()
    item = chosen.around.item[blocks.node[numbers]].tolist()
    heading = chosen.around.heading[blocks.node[numbers]].tolist()
    lists = Lists(source)
    formulas = bool(blocks.marked.any()) and source.formulas
    parts: list[str] = []
    last_kind = PARAGRAPH
    last_item = last_heading = -1
    done: set[int] = set()
    for i in range(len(begin)):
        is_code = False
        this = PARAGRAPH
        if unit[i]:
            if unit[i] in done:
                continue
            done.add(unit[i])
            piece, is_code, this = _unit(source, unit[i], chosen.kinds[unit[i]], markdown)
            if not piece:
                continue
        else:
            if marked[i] or (linked[i] and kind[i] == HEADING) or ((markdown or formulas) and before[i] > after[i] + 1):
                piece = inline(source, after[i], before[i], markdown)
            else:
                piece = source.text_of(text[begin[i] : end[i]])
            piece = piece.strip() if piece.isascii() else _RUNS.sub(" ", piece).strip()
            if piece.endswith("¶"):
                piece = piece[:-1].rstrip()
            if not piece:
                continue
            if markdown:
                piece = _MARK.sub(r"\\", piece)
        if kind[i] == HEADING and not unit[i]:
            if heading[i] == last_heading and parts:
                parts.append(" " if markdown else _CLOSE)
                parts.append(piece.replace("\n", " ") if markdown else piece)
                continue
            if markdown:
                level = int(nodes.tag[heading[i]]) - _H1 + 1 if heading[i] > 0 else 1
                piece = "#" * level + " " + piece.replace("\n", " ")
        last_heading = heading[i]
        within = item[i] if item[i] > 0 else -1
        begins = bullet[i] > 0
        if unit[i]:  # the item that it lies in, not one that lies in it
            within = int(chosen.around.item[nodes.parent[unit[i]]])
            begins &= within == item[i]
        indent = 0
        if within > 0 and nodes.tag[within] == _LI:
            if begins:
                indent = lists.indent(within)
                piece = lists.mark(within) + piece
                this = ITEM
                if "\n" in piece and not is_code:
                    piece = piece.replace("\n", "\n" + " " * (lists.content(within) - indent))
            elif within == last_item or (last_kind == ITEM and within > 0):
                indent = lists.content(within) if not is_code or markdown else 0
        elif within > 0 and this == PARAGRAPH and not is_code:
            if nodes.tag[within] == _DT:
                this = TERM
            elif last_kind in (TERM, DEFINITION) and within != last_item and nodes.tag[within] == _DD:
                this = DEFINITION
                piece = ": " + piece
        if indent and not (is_code and not markdown):
            piece = " " * indent + piece.replace("\n", "\n" + " " * indent)
        if parts:
            close = (this == ITEM and last_kind == ITEM) or (this == DEFINITION and last_kind in (TERM, DEFINITION))
            parts.append(_CLOSE if close else _FAR)
        parts.append(piece)
        last_kind = this
        last_item = within
    return _SURROGATES.sub("\ufffd", "".join(parts))


def _unit(source: Source, node: int, kind: int, markdown: bool) -> tuple[str, bool, int]:
    """(text, whether it is code, ROWS or PARAGRAPH) of what is rendered as a whole."""
    nodes = source.page.nodes
    first, last = int(nodes.first[node]), int(nodes.last[node])
    if kind == DATA:
        outside, grid = data_tables.rows(source, first, last, markdown)
        equations = "ltx_eqn" in source.classes(first)
        found = [" ".join(filter(None, row)) for row in grid] if equations else data_tables.lines(grid, markdown)
        return _FAR.join([*outside, _CLOSE.join(found)]).strip(), False, ROWS
    if kind == CODE:
        text = code_lines.code(source, first, last)
        if markdown and text:
            fence = "```"
            while fence in text:
                fence += "`"
            text = f"{fence}{code_lines.language(source, first, last)}\n{text}\n{fence}"
        return text, True, PARAGRAPH
    return inline(source, first, last), False, TERM
