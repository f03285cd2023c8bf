"""Tables that ruling lines show, drawn by hand."""

from gristmill.tasks.pdf.document import read
from tests.tasks.pdf.writing import lines, pdf

XS, YS = (60, 160, 260, 400), (700, 660, 620, 580)
BEFORE = lines(["A paragraph before the table, and it is as wide as the text of this page is."], top=740)
AFTER = lines(["Another one follows the table, and it is as wide as the text of this page, too."], top=520)
# the text of each cell, line by line
CELLS = [
    [["mill", "house"], ["wheel"], ["stones of", "granite"]],
    [["dam"], ["gate"], ["book"]],
    [["rye"], ["oats and", "barley"], ["wheat"]],
]
ROWS = [[" ".join(cell) for cell in row] for row in CELLS]


def stroke(*ends: tuple[float, float, float, float]) -> bytes:
    return b"\n" + b"".join(b"%g %g m %g %g l S\n" % each for each in ends)


def cells(given=CELLS):
    return [
        (XS[c] + 4, YS[r] - 14 - 12 * k, 10, line)
        for r, row in enumerate(given)
        for c, cell in enumerate(row)
        for k, line in enumerate(cell)
    ]


def table(placed, drawn):
    parts = read(pdf([[*BEFORE, *placed, *AFTER]], extra=drawn), False)["text"].split("\n\n")
    assert parts[0].startswith("A paragraph") and parts[-1].startswith("Another")
    return ["".join(parts[1:-1])] if not parts[1].startswith("|") else parts[1].split("\n")


def written(rows):
    return [f"| {' | '.join(row)} |" for row in rows]


ACROSS = [(XS[0], y, XS[-1], y) for y in YS]
DOWN = [(x, YS[0], x, YS[-1]) for x in XS]


def test_cells_between_lines_with_several_lines_of_text():
    assert table(cells(), stroke(*ACROSS, *DOWN)) == written(ROWS)


def test_borders_that_are_thin_rectangles_of_each_cell():
    boxes = b"\n" + b"".join(
        b"%g %g %g 0.7 re f %g %g 0.7 %g re f\n" % (x, y, z - x - 1, x, y - 39, 39)
        for y in YS[:-1]
        for x, z in zip(XS, XS[1:], strict=False)
    )
    boxes += stroke(ACROSS[-1], DOWN[-1])
    assert table(cells(), boxes) == written(ROWS)


def test_merged_cells_stand_once_in_the_first_of_them():
    down = [
        DOWN[0],
        DOWN[-1],
        (XS[2], YS[0], XS[2], YS[-1]),
        (XS[1], YS[0], XS[1], YS[1]),
        (XS[1], YS[2], XS[1], YS[3]),
    ]
    across = [ACROSS[0], ACROSS[1], ACROSS[3], (XS[0], YS[2], XS[2], YS[2])]
    # the second row's first two cells are one, and so are the last cells of the second and the third row
    given = [CELLS[0], [["dam and gate"], [], ["book of wheat"]], [CELLS[2][0], CELLS[2][1], []]]
    found = table(cells(given), stroke(*across, *down))
    assert found == written([ROWS[0], ["dam and gate", "", "book of wheat"], ["rye", "oats and barley", ""]])


def test_rows_between_lines_across():
    assert table(cells(), stroke(*ACROSS)) == written(ROWS)
    # no line above the first row
    assert table(cells(), stroke(*ACROSS[1:])) == written(ROWS)


def test_cells_of_a_table_that_runs_to_the_left_begin_at_the_right():
    letters = [("אב", "גד", "הו"), ("זח", "טי", "כל")]
    drawn = b"".join(
        b"\n/Span<</ActualText<FEFF%s>>>BDC BT /F 10 Tf %d %d Td (nn) Tj ET EMC"
        % (cell.encode("utf-16-be").hex().encode(), XS[2 - c] + 4, YS[r] - 14)
        for r, row in enumerate(letters)
        for c, cell in enumerate(row)
    )
    found = read(pdf([[]], extra=drawn + stroke(*ACROSS[:3], *DOWN)), False)["text"]
    assert found.split("\n") == written(letters)


def test_words_close_to_each_other_are_parted_by_a_line():
    placed = [(XS[0] + 4, YS[r] - 14, 10, "n" * 17) for r in range(3)] + [
        (XS[1] + 2, YS[r] - 14, 10, "right") for r in range(3)
    ]
    grid = [*DOWN[:3], *((XS[0], y, XS[2], y) for y in YS)]
    assert table(placed, stroke(*grid)) == written([["n" * 17, "right"]] * 3)


def test_a_box_and_the_grid_of_a_diagram_are_no_tables():
    box = stroke(ACROSS[0], ACROSS[-1], DOWN[0], DOWN[-1])
    assert not table(cells([[["a text in a box"], [], []], [["and more of it"], [], []]]), box)[0].startswith("|")
    grid = [(60, 700 - 10 * k, 400, 700 - 10 * k) for k in range(13)] + [
        (60 + 20 * k, 700, 60 + 20 * k, 580) for k in range(18)
    ]
    assert not table([(100, 650, 10, "most"), (300, 600, 10, "least")], stroke(*grid))[0].startswith("|")
