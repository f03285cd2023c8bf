"""Tables of data as rows that read like Markdown's; tables that only lay a page out are told apart."""

from gristmill.tasks.extraction.nesting import Tables
from gristmill.tasks.extraction.rendering.inline import inline
from gristmill.tasks.extraction.rendering.source import Source
from gristmill.tasks.extraction.vocabulary import ENDS, OTHER, E

_TABLE, _TR, _TD, _TH, _CAPTION, _PRE = E["table"], E["tr"], E["td"], E["th"], E["caption"], E["pre"]
_THEAD, _TFOOT = E["thead"], E["tfoot"]
_PARTS = tuple(E[name] for name in ("tr", "tbody", "thead", "tfoot", "table"))
# At the edges of these a span of rows ends (HTML standard, 4.9.12).
_GROUPS = tuple(code for name in ("tbody", "thead", "tfoot") for code in (E[name], ENDS - E[name]))
# A cell of data is short: bytes, with headers and without.
_MAX_CELL_WITH_HEADER, _MAX_CELL = 3000, 500
# The standard's limits of spans are 1000 and 65534; no row of text has so many columns.
_MAX_COLUMNS, _MAX_ROWS = 100, 1000
_CELLS = 200_000


def is_data(source: Source, node: int, tables: Tables) -> bool:
    """Whether a table holds data: rows and columns of short cells, no table inside, nothing that says it is layout."""
    headed = tables.headers[node] > 0
    if tables.inner[node] or tables.columns[node] < 2 or tables.rows[node] < (1 if headed else 2):
        return False
    if tables.filled[node] < 2 or tables.longest[node] > (_MAX_CELL_WITH_HEADER if headed else _MAX_CELL):
        return False
    if not headed and 4 * tables.crowded[node] > tables.filled[node]:
        return False
    first, last = int(source.page.nodes.first[node]), int(source.page.nodes.last[node])
    if source.attribute(first, "role") in ("presentation", "none"):
        return False
    # what a table has in `pre` alone is code that it frames
    return 2 * source.element[first:last].count(_PRE) < tables.rows[node] or not _of_lines(source, first, last)


def _of_lines(source: Source, first: int, last: int) -> bool:
    """Whether a `pre` between two tags has several lines."""
    ends = source.ends(first, last)
    return any(
        source.element[k] == _PRE and source.data.find(b"\n", source.end[k], source.begin[end_tag]) >= 0
        for k, end_tag in ends.items()
    )


def rows(source: Source, first: int, last: int, markdown: bool) -> tuple[list[str], list[list[str]]]:
    """(caption and what else stands outside of cells, the cells row by row) between the tags of a table.

    All rows are equally long. A cell that spans several columns or rows has its text in the first of each; the others
    are empty. Rows and columns without any text are left out. The rows of the first `thead` come first and those of the
    first `tfoot` last, wherever they are in the source, as browsers show them (CSS 2.2, 17.2).
    """
    outside: list[str] = []
    grid: list[list[str]] = []
    row: list[str] | None = None
    below: dict[int, int] = {}  # of each column, how many more rows a cell from above reaches into
    last_tag, cell, size = first, -1, 0
    in_row = False  # a row has begun, and no cell of it
    following = first + 1  # the tag behind a hidden part
    parts: list[tuple[int, int]] = []  # the tags of groups of rows, and where these begin in `grid`
    for k in range(first + 1, last + 1):
        if k < following:
            continue
        tag = source.element[k] if k < last else ENDS - _TABLE
        if not _bounds(tag):
            continue
        text = ""
        if k > last_tag + 1:
            text = " ".join(inline(source, last_tag, k, markdown).split())
        elif source.begin[k] > source.end[last_tag]:
            text = " ".join(source.text(source.end[last_tag], source.begin[k]).split())
        if cell >= 0 and source.element[cell] != _CAPTION:
            if row is None:
                row, in_row = [], False
                grid.append(row)
            spans = size < _CELLS
            size += _place(source, cell, text.replace("|", "\\|") if "|" in text else text, row, below, spans)
        elif text:
            outside.append(text)
        if k in source.hidden:
            following = source.hidden[k]
            last_tag, cell, tag = following, -1, OTHER
        else:
            last_tag, cell = k, k if tag in (_TD, _TH, _CAPTION) else -1
        if tag in _PARTS or (tag < 0 and ENDS - tag in _PARTS):
            if row is not None or in_row:
                _reach([] if row is None else row, below)
            row, in_row = None, tag == _TR
            if tag in _GROUPS:
                below.clear()
                parts.append((tag, len(grid)))
    return outside, _even([row for row in _as_shown(grid, parts) if any(row)], size)


def _as_shown(grid: list[list[str]], parts: list[tuple[int, int]]) -> list[list[str]]:
    """The rows in the order in which they are shown; `parts`: the tags of groups of rows, and before which row."""
    ends = [*(row for _, row in parts[1:]), len(grid)][: len(parts)]
    spans = {tag: (begin, end) for (tag, begin), end in reversed(list(zip(parts, ends, strict=True)))}
    head, foot = spans.get(_THEAD, (0, 0)), spans.get(_TFOOT, (len(grid), len(grid)))
    if not head[0] and foot[1] == len(grid):
        return grid
    rest = [row for i, row in enumerate(grid) if not (head[0] <= i < head[1] or foot[0] <= i < foot[1])]
    return [*grid[slice(*head)], *rest, *grid[slice(*foot)]]


def _bounds(tag: int) -> bool:
    """Whether a tag begins or ends a cell."""
    own = tag if tag >= 0 else ENDS - tag
    return own in (_TD, _TH, _CAPTION) or own in _PARTS


def _reach(row: list[str], below: dict[int, int]) -> None:
    while below.get(len(row), 0) > 0:
        below[len(row)] -= 1
        row.append("")


def _place(source: Source, cell: int, text: str, row: list[str], below: dict[int, int], spans: bool) -> int:
    """Put a cell into its row; how many columns it takes."""
    _reach(row, below)
    wide = _span(source, cell, "colspan", _MAX_COLUMNS) if spans else 1
    high = _span(source, cell, "rowspan", _MAX_ROWS) if spans else 1
    for column in range(wide):
        if high > 1:
            below[len(row)] = high - 1
        row.append("" if column else text)
    return wide


def _span(source: Source, cell: int, name: str, most: int) -> int:
    if b"span" not in source.tag(cell).lower():
        return 1
    digits = (source.attribute(cell, name) or "").strip()
    return max(1, min(int(digits[:6]), most)) if digits.isdecimal() else 1


def _even(grid: list[list[str]], cells: int) -> list[list[str]]:
    """The rows filled up to the same length, without the columns that are empty in all."""
    width = max((len(row) for row in grid), default=0)
    if width * len(grid) > 100_000 + 20 * cells:
        return grid  # a row or two that are far too long are no reason to fill up all others
    used = [column for column in range(width) if any(column < len(row) and row[column] for row in grid)]
    return [[row[column] if column < len(row) else "" for column in used] for row in grid]


def is_column(grid: list[list[str]]) -> bool:
    """Whether no two cells with text stand beside each other: then the table was none."""
    return all(sum(map(bool, row)) < 2 for row in grid)


def lines(grid: list[list[str]], markdown: bool) -> list[str]:
    """A line for each row; in Markdown the first is the header."""
    table_lines = ["| " + " | ".join(row) + " |" for row in grid]
    if markdown and table_lines:
        table_lines.insert(1, "|" + " --- |" * len(grid[0]))
    return table_lines
