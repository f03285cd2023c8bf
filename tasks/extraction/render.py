"""Blocks as readable text: paragraphs, headings, lists, code and tables.

Blocks stand on lines of their own, with an empty line between them, but for the items of a list and the rows of a
table, which follow each other. An item begins with `- ` or its number, indented by two spaces for each list around
its own; the cells of a row are separated by ` | ` on one line, unless a cell holds several blocks (then it is a table
for layout). Code keeps its line breaks. Entities are decoded once.
"""

import html
import re

import numpy as np

from tasks.extraction.blocks import PREFORMATTED, Page

_CLOSE, _FAR = "\n", "\n\n"
# what the UTF-8 of a str cannot hold, and what html.unescape may make of a number
_SURROGATES = re.compile("[\ud800-\udfff]")


def render(page: Page, kept: np.ndarray) -> str:
    """The text of the kept blocks; `kept`: their numbers, ascending."""
    blocks = page.blocks
    text = page.text.tobytes()
    begin, end, kind = blocks.begin[kept].tolist(), blocks.end[kept].tolist(), blocks.kind[kept].tolist()
    bullet, ordinal = blocks.bullet[kept].tolist(), blocks.ordinal[kept].tolist()
    row, cell = blocks.row[kept].tolist(), blocks.cell[kept].tolist()
    cells = list(zip(row, cell, strict=True))
    layout = {this[0] for this, last in zip(cells[1:], cells, strict=False) if this == last}
    parts: list[str] = []
    before_row = before_bullet = 0
    for i in range(len(begin)):
        piece = text[begin[i] : end[i]].decode("utf-8", "replace")
        if "&" in piece:
            piece = html.unescape(piece)
        table = row[i] if row[i] not in layout else 0
        if kind[i] != PREFORMATTED:
            piece = piece.strip()
        if bullet[i]:
            mark = f"{ordinal[i]}. " if ordinal[i] else "- "
            piece = "  " * (bullet[i] - 1) + mark + piece
        if not parts:
            pass
        elif table and table == before_row:
            parts.append(" | ")
            piece = piece.replace("\n", " ")
        elif (table and before_row) or (bullet[i] and before_bullet):
            parts.append(_CLOSE)
        else:
            parts.append(_FAR)
        parts.append(piece)
        before_row, before_bullet = table, bullet[i]
    return _SURROGATES.sub("\ufffd", "".join(parts))
