"""Tables that no line is drawn for, and text in columns that is none: placed by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.pdf.document import read
from tests.tasks.pdf.writing import lines, pdf

BEFORE = lines(["A paragraph before the table, and it is as wide as the text of this page is."], top=740)
AFTER = lines(["Another one follows the table, and it is as wide as the text of this page, too."], top=300)
XS = (60, 200, 340)


def placed(rows, step, pad):
    """Cells of lines of text; `step`: from line to line; `pad`: more from row to row."""
    found, top = [], 700
    for row in rows:
        for x, cell in zip(XS, row, strict=False):
            found += [(x, top - step * k, 10, line) for k, line in enumerate(cell)]
        top -= step * max(map(len, row)) + pad
    return found


def text(segments):
    parts = read(pdf([[*BEFORE, *segments, *AFTER]]), False)["text"].split("\n\n")
    assert parts[0] == BEFORE[0][3] and parts[-1] == AFTER[0][3]
    return "\n\n".join(parts[1:-1])


def written(rows):
    return "\n".join(f"| {' | '.join(' '.join(cell) for cell in row)} |" for row in rows)


def test_cells_over_several_lines():
    rows = [
        [["mill", "house"], ["wheel"], ["stones of", "granite"]],
        [["dam"], ["gate and", "bridge", "of oak"], ["book"]],
        [["rye"], ["oats"], ["wheat and", "barley"]],
    ]
    assert text(placed(rows, 12, 8)) == written(rows)


def test_two_rows_and_a_cell_that_is_empty():
    assert (
        text(placed([[["a"], ["b"], ["c"]], [["dam"], ["gate"], ["book"]]], 16, 0))
        == "| a | b | c |\n| dam | gate | book |"
    )
    rows = [[["mill"], ["stone"], ["oats"]], [["dam"], [], ["book"]], [["rye"], ["gate"], ["wheat"]]]
    assert text(placed(rows, 16, 0)) == written(rows)


def test_a_short_line_of_a_paragraph_above_is_none_of_its_rows():
    rows = [[["a"], ["b"], ["c"]], [["dam"], ["gate"], ["book"]]]
    made = pdf([[*BEFORE, (60, 728, 10, "So it ends."), *placed(rows, 16, 0), *AFTER]])
    found = read(made, False)["text"].split("\n\n")
    assert found == [BEFORE[0][3] + " So it ends.", written(rows), AFTER[0][3]]


LEFT = [
    "The water of the mill runs",
    "over a wheel of oak that is",
    "older than the house and",
    "turns all day and all night",
]
RIGHT = [
    "while the miller sleeps and",
    "dreams of bread and of the",
    "harvest that is to come in",
    "the days of late summer.",
]


@pytest.mark.parametrize("gap", [0, 10])
def test_prose_in_two_columns_is_no_table(gap):
    """Also where both columns have their paragraphs at one height."""
    both = [
        (x, 700 - 12 * k - gap * (k // 2), 10, each)
        for x, side in ((60, LEFT), (300, RIGHT))
        for k, each in enumerate(side)
    ]
    assert "|" not in text(both)


def test_contents_beside_prose_are_no_table():
    contents = [
        (60, 700 - 12 * k, 10, each)
        for k, each in enumerate(["Mills . . . . . . .", "Stones", "Dams", "Bread . . . . . . ."])
    ]
    contents += [(270, 700 - 12 * k, 10, str(k + 1)) for k in range(4)]
    prose = [(300, 700 - 12 * k, 10, each) for k, each in enumerate(RIGHT)]
    assert "|" not in text([*contents, *prose])


def test_lists_with_marks_apart_are_no_tables():
    for marks in (["1.", "2.", "3.", "4."], ["-", "-", "-", "-"], ["[1]", "[2]", "[3]", "[4]"]):
        listed = [(60, 700 - 14 * k, 10, mark) for k, mark in enumerate(marks)]
        listed += [(90, 700 - 14 * k, 10, word) for k, word in enumerate(["oats", "rye", "wheat", "barley"])]
        assert "|" not in text(listed)


WORDS = st.sampled_from(["a", "mill", "stones of granite", "the water of the mill runs over a wheel", "12", "(3)"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(2, 50), st.integers(4, 70), WORDS), min_size=4, max_size=40))
def test_text_at_any_place_is_kept_whole(given_places):
    made = [(10 * x, 10 * y, 10, word) for x, y, word in given_places]
    found = read(pdf([made]), False)
    # a number by itself at the foot of a page is its number, which is dropped
    assert set("".join(word for *_, word in made)) - set(" 12") == set(found["text"]) - set(" \n|-12")
