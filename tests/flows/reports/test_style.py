"""The one stylesheet of all pages: contrast as WCAG 2.2 asks for AA, computed from its colours."""

import re
from pathlib import Path

import pytest

from gristmill.flows.reports import pages
from gristmill.flows.reports.pages import charts
from gristmill.flows.reports.pages.charts import Axis, Layer

ROOMS = Path(pages.__file__).parents[2]
# Text on what it stands on, 4.5 to 1; parts of plots and edges of fields, 3 to 1.
TEXT = [
    ("text", "paper"), ("text", "panel"), ("soft", "paper"), ("soft", "panel"), ("link", "paper"), ("link", "panel"),
    ("cut", "paper"), ("cut", "panel"), ("marked", "mark"), ("text", "gone"), ("text", "new"), ("text", "line"),
    ("paper", "part"),
]  # fmt: skip
PARTS = [("part", "paper"), ("part", "panel"), ("part", "line"), ("cut", "paper"), ("cut", "line"), ("field", "paper"),
         ("field", "panel"), ("soft", "paper"), ("link", "paper"),
         *((name, "paper") for name in charts.SERIES)]  # fmt: skip


def luminance(colour: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    long = "".join(2 * each for each in colour[1:]) if len(colour) == 4 else colour[1:]
    channels = [int(long[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def colours(scheme: str) -> dict[str, str]:
    blocks = re.findall(r":root \{(.*?)\}", pages.resource("style.css"), re.S)
    assert len(blocks) == 2
    return dict(re.findall(r"--(\w+): (#[0-9a-f]+);", blocks[scheme == "dark"]))


def test_the_measure_is_that_of_the_recommendation():
    assert contrast("#000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#fff") == pytest.approx(
        4.48, abs=0.005
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_enough(scheme):
    there = colours(scheme)
    assert there.keys() == colours("light").keys()
    found = {(one, on): contrast(there[one], there[on]) for one, on in (*TEXT, *PARTS)}
    assert not {pair: ratio for pair, ratio in found.items() if ratio < (4.5 if pair in TEXT else 3)}


def test_every_colour_that_is_used_is_one_of_these():
    used = set(re.findall(r"var\(--(\w+)\)", pages.resource("style.css")))
    assert used == set(colours("light"))
    outside = re.sub(r":root \{.*?\}", "", pages.resource("style.css"), flags=re.S)
    assert not re.findall(r"#[0-9a-fA-F]{3,6}\b", outside)
    style = pages.resource("style.css")
    for name in (*charts.SERIES, "light", "cut", "line", "kept", "arrived", "fails", "mark", "tick", "language"):
        [color] = set(re.findall(rf"\.{name}\b[^{{}}]*\{{ color: var\(--(\w+)\)", style))
        drawn = charts.plot("a plot", Axis("x"), Axis("y"), Layer("line", [0, 1], [0, 1], name))
        assert f'class="{name}" color="{colours("light")[color]}"' in drawn, name


def test_no_page_has_a_style_of_its_own():
    pages = [path for path in ROOMS.rglob("*.html")]
    assert len(pages) > 15 and [path.name for path in ROOMS.rglob("*.css")] == ["style.css"]
    having = {str(path.relative_to(ROOMS)): path.read_text() for path in pages}
    assert {name for name, text in having.items() if "<style" in text} == {
        "reports/pages/page.html",
    }
    assert not [name for name, text in having.items() if "style=" in text]
    for name, text in having.items():
        assert not re.search(r"<svg", text), name  # plots come from plots/, so they are the same everywhere


def test_heads_of_tables_say_what_they_are_heads_of():
    for path in ROOMS.rglob("*.html"):
        assert not re.search(r"<th(?![^>]*scope=)[ >]", path.read_text()), path
