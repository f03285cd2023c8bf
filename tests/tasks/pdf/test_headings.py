"""Levels of headings: of documents whose source is known."""

import pytest

from gristmill.tasks.pdf.document import read
from gristmill.tasks.pdf.objects import Entry
from gristmill.tasks.pdf.paragraphs import Heading, with_levels
from tests.tasks.pdf.writing import lines, pdf

TEXT = [
    "Every morning the miller opens the gate and listens to the",
    "stones, and then he writes the level of the water.",
]


def with_objects(made: bytes, *objects: str, root: int = 1) -> bytes:
    """The file with objects that take the place of others of their numbers."""
    added = "".join(f"{each}\nendobj\n" for each in objects).encode("latin-1")
    return made[: made.rindex(b"xref\n0")] + added + b"trailer\n<</Root %d 0 R>>\n%%%%EOF\n" % root


def chapters(catalog: str = "") -> bytes:
    """Three chapters, sections in letters of the same size and weight, and a title."""
    pages = []
    for number in range(3):
        page = lines(["Of mills"], top=760, size=24) if not number else []
        page += lines([f"Chapter {'ABC'[number]}"], top=700, size=15) + lines(TEXT, top=670)
        page += lines([f"Section {'DEF'[number]}"], top=600, size=15) + lines(TEXT, top=570)
        pages.append(page)
    return pdf(pages, catalog=catalog)


def heads(data: bytes) -> list[str]:
    return [line for line in read(data, True)["text"].split("\n\n") if line.startswith("#")]


def test_levels_by_the_size_of_letters():
    assert heads(chapters())[:3] == ["# Of mills", "## Chapter A", "## Section D"]


def test_levels_by_the_outline_and_the_title_above_it():
    marks = [
        "30 0 obj<</Type/Outlines/First 31 0 R/Last 33 0 R/Count 3>>",
        *(
            f"{31 + k} 0 obj<</Title({k + 1}. Chapter {'ABC'[k]})/Parent 30 0 R/Dest[{5 + 2 * k} 0 R/Fit]"
            f"/First {41 + k} 0 R/Last {41 + k} 0 R/Count 1" + (f"/Next {32 + k} 0 R>>" if k < 2 else ">>")
            for k in range(3)
        ),
        *(
            f"{41 + k} 0 obj<</Title(SECTION {'DEF'[k]})/Parent {31 + k} 0 R/Dest[{5 + 2 * k} 0 R/Fit]>>"
            for k in range(3)
        ),
    ]
    found = heads(with_objects(chapters("/Outlines 30 0 R"), *marks))
    assert found[:3] == ["# Of mills", "## Chapter A", "### Section D"]
    assert found[3:] == ["## Chapter B", "### Section E", "## Chapter C", "### Section F"]


def test_an_outline_that_leads_back_to_itself_ends():
    marks = [
        "30 0 obj<</First 31 0 R/Last 31 0 R>>",
        "31 0 obj<</Title(Chapter A)/First 31 0 R/Next 30 0 R/Dest[5 0 R/Fit]>>",
    ]
    assert heads(with_objects(chapters("/Outlines 30 0 R"), *marks))[1] == "## Chapter A"


def test_levels_by_tags():
    # two paragraphs of one size, of which the second is tagged as a heading of level 3
    texts = (("P", 0, 700, "A paragraph of the mill."), ("H3", 1, 660, "Of stones"), ("P", 2, 640, "It turns."))
    drawn = "".join(f"\n/{tag}<</MCID {k}>>BDC BT /F 10 Tf 60 {y} Td ({t}) Tj ET EMC" for tag, k, y, t in texts)
    made = pdf([[]], catalog="/MarkInfo<</Marked true>>/StructTreeRoot 20 0 R", extra=drawn.encode())
    elements = [
        f"{21 + k} 0 obj<</Type/StructElem/S/{kind}/P 20 0 R/Pg 5 0 R/K {k}>>"
        for k, kind in enumerate(("P", "H3", "P"))
    ]
    tree = "20 0 obj<</Type/StructTreeRoot/K[21 0 R 22 0 R 23 0 R]/ParentTree<</Nums[0[21 0 R 22 0 R 23 0 R]]>>>>"
    tagged = with_objects(made.replace(b"/Type/Page/Parent", b"/Type/Page/StructParents 0/Parent"), tree, *elements)
    assert read(tagged, True)["text"].split("\n\n") == ["A paragraph of the mill.", "### Of stones", "It turns."]


@pytest.mark.parametrize("number", range(3))
def test_a_style_that_occurs_once_makes_no_level(number):
    sizes = [[24, 15, 12, 15, 12], [15, 12, 15, 12, 12], [15, 13.2, 15, 12, 12, 11, 11]][number]
    levels = [[1, 2, 3, 2, 3], [1, 2, 1, 2, 2], [1, 1, 1, 2, 2, 3, 3]][number]
    assert with_levels([Heading("a", 0, size, True) for size in sizes], ()) == levels


def test_a_heading_that_the_outline_lacks_is_like_those_that_look_so():
    sizes = {"One": 15, "Two": 12, "Three": 15, "Four": 12, "Five": 10}
    found = with_levels(
        [Heading(t, 0, s, True) for t, s in sizes.items()], [Entry("One", 1, 0), Entry("2.1 Two", 2, 0)]
    )
    assert found == [1, 2, 1, 2, 3]
