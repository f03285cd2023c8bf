"""PDF files written by hand, so that what stands where is known without any renderer."""

import zlib
from collections.abc import Sequence

Placed = tuple[float, float, float, str]  # left, baseline, size of the font, text in Latin letters


def pdf(pages: Sequence[Sequence[Placed]], *, info: str = "", catalog: str = "", extra: bytes = b"") -> bytes:
    """A file with pages of 600 by 800 points, their text in Helvetica. `info`, `catalog`: more entries of these."""
    count = len(pages)
    kids = " ".join(f"{5 + 2 * k} 0 R" for k in range(count))
    objects = [
        f"<</Type/Catalog/Pages 2 0 R{catalog}>>".encode(),
        f"<</Type/Pages/Kids[{kids}]/Count {count}>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
        f"<<{info}>>".encode("latin-1"),
    ]
    for k, placed in enumerate(pages):
        content = "\n".join(f"BT /F {size} Tf {x} {y} Td ({_escaped(text)}) Tj ET" for x, y, size, text in placed)
        packed = zlib.compress(content.encode("cp1252") + extra)
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F 3 0 R>>>>"
            f"/Contents {6 + 2 * k} 0 R>>".encode()
        )
        objects.append(b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(packed), packed))
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
