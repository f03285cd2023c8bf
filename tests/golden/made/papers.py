"""Small PDF documents: columns, headings, running heads, tables, hyphens, pages without text, damage."""

from collections.abc import Sequence

from tests.golden.made.words import paragraph

Placed = tuple[float, float, float, str]  # left, baseline, size of the font, text in Latin letters


def pdf(pages: Sequence[Sequence[Placed]], *, info: str = "", extra: str = "") -> bytes:
    """A file with pages of 600 by 800 points, their text in Helvetica, nothing compressed. `extra`: is drawn, too."""
    count = len(pages)
    kids = " ".join(f"{5 + 2 * k} 0 R" for k in range(count))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {count}>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
        f"<<{info}>>".encode("latin-1"),
    ]
    for k, placed in enumerate(pages):
        drawn = "\n".join(f"BT /F {size} Tf {x} {y} Td ({_escaped(text)}) Tj ET" for x, y, size, text in placed)
        content = f"{drawn}\n{extra}".encode("cp1252")
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F 3 0 R>>>>"
            f"/Contents {6 + 2 * k} 0 R>>".encode()
        )
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(content), content))
    made = bytearray(b"%PDF-1.5\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    made += b"".join(b"%010d 00000 n \n" % place for place in places)
    made += b"trailer\n<</Size %d/Root 1 0 R/Info 4 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(made)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def lines(text: Sequence[str], left: float = 60, top: float = 700, size: float = 10, step: float = 12) -> list[Placed]:
    return [(left, top - k * step, size, line) for k, line in enumerate(text)]


def _wrapped(text: str, width: int) -> list[str]:
    found, line = [], ""
    for word in text.split():
        if len(line) + len(word) >= width:
            found.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return [*found, line]


def papers() -> list[bytes]:
    body = [_wrapped(paragraph(f"paper {at}", 6), 80) for at in range(6)]
    head: list[Placed] = [(60, 740, 18, "The mill at the river"), (60, 715, 13, "1 Introduction")]
    columns = [
        *lines(_wrapped(paragraph("left", 9), 38), 60, 690),
        *lines(_wrapped(paragraph("right", 9), 38), 320, 690),
    ]
    running = [
        [
            (60, 780, 8, "Journal of Mills"),
            (520, 780, 8, str(at + 1)),
            *lines(body[at], 60, 720),
            (280, 30, 8, f"Page {at + 1} of 5"),
        ]
        for at in range(5)
    ]
    table: list[Placed] = [
        (
            60 + 120 * column,
            600 - 14 * row,
            10,
            f"{'Year' if not row else 1900 + row}" if not column else f"{row * 7 + column}",
        )
        for row in range(6)
        for column in range(4)
    ]
    hyphened = lines(
        [
            "The mil-",
            "ler and his well-",
            "known wheel turn at the riv-",
            "er. So it is,",
            "",
            "A new paragraph begins here.",
        ]
    )
    indented = [
        *lines(body[0], 60, 700),
        *lines(body[1][:1], 80, 700 - 12 * len(body[0])),
        *lines(body[1][1:], 60, 688 - 12 * len(body[0])),
    ]
    dots = lines([f"{at} Chapter {'.' * 40} {at * 7}" for at in range(1, 9)])
    found = [
        pdf([[*head, *lines(body[0], 60, 690)]], info="/Title(A paper)/CreationDate(D:20200102030405Z)"),
        pdf([columns, columns[:8]]),
        pdf(running),
        pdf([[*lines(body[1][:3], 60, 700), *table, *lines(body[2][:3], 60, 500)]]),
        pdf([hyphened, indented]),
        pdf([dots, [], lines(body[3])]),
        pdf([[]]),
        pdf([[(60, 700, size, f"Size {size} of words") for size in (8, 10, 12, 14)]]),
        pdf(
            [
                [
                    *lines(body[4], 60, 700),
                    *lines(["1. one thing", "2. another thing", "   of two lines", "- a bullet", "o a ring"], 70, 500),
                ]
            ]
        ),
        pdf(
            [
                [
                    (100, 400, 10, "(brackets) and \\ back"),
                    (100, 412, 10, "caf\u00e9 \u2014 \u201cq\u201d"),
                    (300, 400, 10, "beside"),
                ]
            ]
        ),
    ]
    return [*found, found[0][:-200], b"%PDF-1.7\nnothing", found[1].replace(b"endobj", b"endxxx")]
