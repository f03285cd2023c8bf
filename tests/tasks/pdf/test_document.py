"""What a PDF document becomes: files written by hand, whose text and places are known."""

import re
import zlib

import pytest

from gristmill.tasks.extraction.extract import SIGNALS
from gristmill.tasks.pdf.document import read
from tests.tasks.pdf.writing import lines, pdf

STORY = (
    "The old mill stands where the river leaves the for-",
    "est, and its wheel has not been still for two hundred",
    "years. Every morning the miller opens the gate, lis-",
    "tens to the stones and writes the level of the water",
    "into a book that his father began in a cold winter.",
)
WHOLE = (
    "The old mill stands where the river leaves the forest, and its wheel has not been still for two hundred years. "
    "Every morning the miller opens the gate, listens to the stones and writes the level of the water into a book "
    "that his father began in a cold winter."
)
OTHER = (
    "In dry summers the village waits for rain because",
    "without the mill there is no bread in any of its",
    "houses and the children are told to be patient and",
    "to listen for the sound of water under the bridge",
    "until the clouds come over the hills in September.",
)


def text(*pages, markdown=False):
    return read(pdf(pages), markdown)["text"]


def test_words_are_joined_over_the_ends_of_lines():
    assert text(lines(STORY)) == WHOLE


def test_a_hyphen_of_the_word_itself_stays():
    written = ("A well-known miller is well-known here, and he is well-", "known in the village too.")
    assert text(lines(written)).endswith("he is well-known in the village too.")


def test_columns_are_read_one_after_the_other():
    # the content of both columns alternates line by line, as some programs write it
    placed = [each for pair in zip(lines(STORY, 40), lines(OTHER, 320), strict=True) for each in pair]
    title = [
        (40, 750, 10, "A title over both of the columns that goes from the left one to the right one of this page")
    ]
    assert text(title + placed).split("\n\n")[1:] == [WHOLE, " ".join(OTHER)]


def test_running_heads_and_page_numbers_go_and_paragraphs_go_on_over_pages():
    pages = []
    for number in range(4):
        head = [(60, 770, 9, f"Of mills {number + 1}"), (400, 770, 9, "Chapter 2"), (300, 30, 9, f"{number + 11}")]
        pages.append(
            head + lines([f"This is what page {'abcd'[number]} has to say about mills and", "that continues to the"])
        )
    found = text(*pages)
    assert "Of mills" not in found and "Chapter" not in found and "11" not in found
    for letter in "abcd":
        assert f"page {letter} has" in found
    on = text(lines([*STORY[:4], "into a book with a"]), lines(["green cover and a lock, and then he reads in it."]))
    assert on.endswith("into a book with a green cover and a lock, and then he reads in it.")


def test_headings_lists_and_tables():
    page = [
        *lines(["Of mills"], top=750, size=18),
        *lines(STORY, top=700),
        *lines(["\u2022 a wheel of oak", "\u2022 two stones"], top=600),
        *[(60 + 120 * c, 540 - 14 * r, 10, f"{'abc'[c]}{r}") for r in range(4) for c in range(3)],
    ]
    assert text(page, markdown=True).split("\n\n") == [
        *("# Of mills", WHOLE, "- a wheel of oak", "- two stones"),
        "| a0 | b0 | c0 |\n| --- | --- | --- |\n| a1 | b1 | c1 |\n| a2 | b2 | c2 |\n| a3 | b3 | c3 |",
    ]
    assert text(page).startswith("Of mills\n\n")


def marked(text, x, y, *letters):
    """A mark with the text for letters that are drawn one by one, at places 8 points apart."""
    drawn = b"".join(b"BT /F 10 Tf %d %d Td (%s) Tj ET " % (x + 8 * k, y, c.encode()) for k, c in enumerate(letters))
    return b"\n/Span<</ActualText<FEFF%s>>>BDC %sEMC " % (text.encode("utf-16-be").hex().encode(), drawn)


def plain(text, x, y):
    return b"BT /F 10 Tf %d %d Td (%s) Tj ET " % (x, y, text.encode())


def test_what_stands_for_drawn_glyphs_is_read_once_where_they_are():
    # three syllables of three glyphs each, close together, then a gap of a word
    word = b"".join(marked(syllable, x, 700, "m", "m", "m") for syllable, x in (("मा", 50), ("न्वी", 74), ("को", 98)))
    found = read(pdf([[]], extra=word + plain("end", 126, 700)), False)
    assert found["text"] == "मान्वीको end"
    assert found["pdf_garbled"] == 0
    # a syllable whose glyphs are marked one by one with the whole of it, as typst does
    doubled = marked("লা", 50, 700, "m") + marked("লা", 51, 703, "i") + marked("লা", 58, 700, "m")
    assert read(pdf([[]], extra=doubled), False)["text"] == "লালা"


@pytest.mark.parametrize("drawn", ["to the left", "to the right", "by words"])
def test_words_that_run_to_the_left_are_read_by_their_places(drawn):
    # from the right: a word, a number, a word, Latin words; each letter 6 points wide, words 5 apart
    words = ["שלום", "1948", "עולם", "see page 27"]
    placed, right = [], 400
    for word in words:
        leftwards = word[0] > "\u0590"
        placed.append([(c, right - 6 * (k + 1 if leftwards else len(word) - k)) for k, c in enumerate(word)])
        right -= 6 * len(word) + 5
    if drawn == "by words":
        placed = placed[::-1]
    letters = [each for word in placed for each in word]
    if drawn == "to the right":
        letters.sort(key=lambda each: each[1])
    content = b"".join(marked(c, x, 700, "n") if c != " " else b"" for c, x in letters)
    assert read(pdf([[]], extra=content), False)["text"] == " ".join(words)


def test_letters_that_go_down_the_line_are_garbled():
    slope = b"".join(marked("ב", 500 - 8 * k, 700 - 3 * (k % 4), "m") for k in range(40))
    level = b"".join(marked("ב", 300 - 8 * k, 600, "m") for k in range(20))
    assert read(pdf([[]], extra=slope + level), False)["pdf_garbled"] == 1
    assert read(pdf([[]], extra=level * 2), False)["pdf_garbled"] == 0


@pytest.mark.parametrize("matrix", ["0 1 -1 0", "0 -1 1 0"])
@pytest.mark.parametrize("rotate", [0, 90, 270])
def test_pages_whose_text_lies_on_its_side(matrix, rotate):
    # lines run up from the right to the left, or down from the left to the right
    up = matrix.startswith("0 1")
    content = b"".join(
        b"\nBT /F 10 Tf %s %d %d Tm (%s) Tj ET"
        % (matrix.encode(), *((100 + 12 * k, 100) if up else (500 - 12 * k, 700)), line.encode())
        for k, line in enumerate(STORY)
    )
    made = pdf([[(60, 40, 7, "an upright note")]], extra=content)
    found = read(made.replace(b"/MediaBox", b"/Rotate %d/MediaBox" % rotate), False)["text"]
    assert found == WHOLE


@pytest.mark.parametrize("rotate", [90, 180, 270])
def test_a_page_that_is_shown_rotated_is_read_whole(rotate):
    made = pdf([lines(STORY, top=780) + lines(OTHER, top=100)])
    assert read(made.replace(b"/MediaBox", b"/Rotate %d/MediaBox" % rotate), False)["text"] == read(made, False)["text"]


def test_headings_with_a_number_are_no_page_numbers():
    pages = [[*lines([f"Article {number}"], top=770), *lines(STORY)] for number in (3, 5, 9)]
    found = text(*pages)
    assert [line for line in found.split("\n\n") if "Article" in line] == ["Article 3", "Article 5", "Article 9"]
    feet = [[(60, 20, 9, f"Of mills, page {number}"), *lines(STORY)] for number in (12, 13, 14)]
    assert "page" not in text(*feet)


def test_a_page_number_goes_also_where_margins_are_large_but_no_number_of_the_text():
    page = [*lines(STORY), (300, 105, 10, "1")]
    assert text(page) == WHOLE
    close = [*lines([*STORY[:4], "into the book of the winter of the year"], top=150), (60, 90, 10, "1984")]
    assert text(close).endswith("year 1984")


def test_entries_of_a_table_of_contents_are_no_headings_and_no_table():
    bold = [(60, 700 - 30 * k, 10, f"{k + 1} Of mills") for k in range(3)] + [
        (500, 700 - 30 * k, 10, f"{3 * k + 2}") for k in range(3)
    ]
    contents = [(60, 500, 10, "1"), (90, 500, 10, "Wheels"), (500, 500, 10, "4")]
    contents += [(60, 470, 10, "2"), (90, 470, 10, "Stones"), (500, 470, 10, "7")]
    contents += [(60, 440, 10, "3"), (90, 440, 10, "Dams"), (500, 440, 10, "7")]
    made = pdf([bold + contents]).replace(b"/Helvetica/", b"/Helvetica-Bold/")
    found = read(made, True)["text"]
    assert not [line for line in found.split("\n") if line.startswith(("#", "|"))]


def test_what_the_document_says_of_itself():
    info = "/Title(Of mills)/Author(A. Miller)/Producer(by hand)/CreationDate(D:20240229120000Z)"
    found = read(pdf([lines(STORY)], info=info, catalog="/Lang(en-GB)"), False)
    said = {"title": "Of mills", "published": "2024-02-29", "pdf_author": "A. Miller", "pdf_producer": "by hand"}
    assert found | said | {"pdf_language": "en-GB", "pdf_pages": 1, "pdf_truncated": False} == found
    assert {signal.name for signal in SIGNALS} <= {*found}
    assert read(pdf([lines(STORY)], info="/CreationDate(D:20249999)"), False)["published"] is None


def test_pages_without_text_and_documents_that_are_cut():
    image = b"\nq 600 0 0 800 0 0 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x00 EI Q\n"
    scan = pdf([[], []], extra=image)
    assert read(scan, False) == {"rule": "no_text_layer", "detail": "2 of 2 pages are images, none has text"}
    assert read(pdf([[]]), False)["detail"] == "0 of 1 pages are images, none has text"
    half = read(pdf([lines(STORY), []], extra=image), False)
    assert (half["pdf_scanned"], half["pdf_pages"]) == (0.5, 2)
    whole = pdf([lines(STORY)] * 40)
    cut = read(whole[: len(whole) * 3 // 4], False)
    left = whole[: len(whole) * 3 // 4].count(b"/Type/Page/")
    assert (cut["pdf_truncated"], cut["pdf_pages"]) == (True, left)
    assert cut["text"].startswith(WHOLE)
    assert read(b"%PDF-1.7 and nothing", False)["rule"] == "damaged_pdf"


def packed(made: bytes) -> bytes:
    """The file with the objects that have no stream in one that is compressed, ahead of all others."""
    objects = re.findall(rb"(\d+) 0 obj\n(.*?)\nendobj", made, re.DOTALL)
    inside = [(number, body) for number, body in objects if b"stream" not in body]
    places, bodies = [], b""
    for number, body in inside:
        places.append(b"%s %d" % (number, len(bodies)))
        bodies += body + b"\n"
    head = b" ".join(places) + b"\n"
    data = zlib.compress(head + bodies)
    stream = b"90 0 obj\n<</Type/ObjStm/N %d/First %d/Length %d/Filter/FlateDecode>>stream\n%s\nendstream\nendobj\n"
    stream %= (len(inside), len(head), len(data), data)
    others = [b"%s 0 obj\n%s\nendobj\n" % each for each in objects if b"stream" in each[1]]
    return b"%PDF-1.5\n" + stream + b"".join(others)


def test_a_document_that_is_cut_whose_pages_are_in_a_compressed_stream():
    whole = pdf([lines(STORY), lines(OTHER), lines(STORY)])
    cut = read(packed(whole)[:-40], False)
    assert (cut["pdf_truncated"], cut["pdf_pages"]) == (True, 3)
    assert cut["text"].startswith(f"{WHOLE}\n\n{' '.join(OTHER)}")
    # what is no stream of objects, and one that is not whole
    damaged = packed(whole)
    for wrong in (damaged.replace(b"/First ", b"/First 9"), damaged[:220]):
        assert read(wrong, False)["rule"] == "damaged_pdf"


def test_garbled_pages_are_counted():
    made = pdf([lines(["abcdefgh" * 5] * 4), lines(STORY)])
    assert read(made, False)["pdf_garbled"] == 0
    # a map of the font's characters that leads to private ones, which mean nothing
    cmap = (
        b"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00><FF> endcodespacerange "
        b"1 beginbfrange <00><FF><E000> endbfrange endcmap end"
    )
    stream = b"19 0 obj\n<</Length %d>>stream\n%s\nendstream\nendobj\n" % (len(cmap), cmap)
    mapped = made.replace(b"/WinAnsiEncoding>>", b"/WinAnsiEncoding/ToUnicode 19 0 R>>")
    mapped = mapped[: mapped.rindex(b"xref\n0")] + stream + b"trailer\n<</Root 1 0 R>>\n%%EOF\n"
    assert read(mapped, False)["pdf_garbled"] == 1


@pytest.mark.parametrize("markdown", [False, True])
def test_the_same_bytes_give_the_same_text(markdown):
    made = pdf([lines(STORY), lines(OTHER)])
    assert read(made, markdown) == read(made, markdown)
