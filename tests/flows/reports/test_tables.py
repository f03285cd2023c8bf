"""Tables as they are described: forms of numbers, intervals, and pictures, which only pages show."""

import io

import pytest
from markupsafe import Markup
from rich.console import Console

from gristmill.flows.cli.terminal import print_table
from gristmill.flows.reports.tables import Table, cell

TABLE = Table(
    ("recipe", "#effect|+.3f", "#90% interval|+.1f", "", "picture", "#of a|b|.1%", "note"),
    [("a|b", 0.25, (0.1, 0.4), None, Markup("<svg/>"), 0.5, "x\ny"), ("c", None, (None, None), None, None, 1, True)],
)


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (1234567, "", "1,234,567"), (0.123456, "", "0.1235"), (2, ".1f", "2.0"), (True, "d", "True"), (None, "d", ""),
        ((1, 2), ".0%", "100% to 200%"), ((None, None), "d", ""), ("a" * 301, "", "a" * 300 + "…"),
    ],
)  # fmt: skip
def test_a_value_is_written_in_its_form(value, form, text):
    assert cell(value, form) == text


def test_pictures_are_for_pages_only():
    columns, rows = TABLE.texts()
    assert [one.name for one in columns] == ["recipe", "effect", "90% interval", "of a|b", "note"]
    assert [one.is_number for one in columns] == [False, True, True, True, False]
    assert rows == [["a|b", "+0.250", "+0.1 to +0.4", "50.0%", "x\ny"], ["c", "", "", "100.0%", "True"]]
    _, rule, first, _ = TABLE.markdown().splitlines()
    assert rule == "| --- | ---: | ---: | ---: | --- |" and first == "| a/b | +0.250 | +0.1 to +0.4 | 50.0% | x y |"


@pytest.mark.parametrize(("width", "lines"), [(80, 4), (20, 9)])
def test_a_table_that_is_too_wide_is_printed_in_blocks(width, lines):
    out = io.StringIO()
    print_table(TABLE, Console(file=out, width=width))
    printed = [line for line in out.getvalue().splitlines() if line.strip()]
    assert len(printed) == lines and "x\\ny" in out.getvalue() and "…" not in out.getvalue()
