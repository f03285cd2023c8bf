"""Damaged and hostile PDF documents in the guarded process: each costs itself and nothing else."""

import random
import zlib
from collections import Counter
from collections.abc import Iterator

import pytest

from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.texts import page_guard
from gristmill.tasks.guard.parent import Limits
from tests.tasks.pdf.writing import lines, pdf

MEMORY = 100 << 20
RULES = {"damaged_pdf", "encrypted_pdf", "no_text_layer", "page_memory", "page_timeout", "page_crash", "content_type"}
WHOLE = pdf([lines([f"Page {k} of the mill has a line, and another", "that says more of it."]) for k in range(6)])


def mutated(seed: int) -> bytes:
    """A document with something wrong in it: bytes flipped, cut, parts of it elsewhere or twice, numbers changed."""
    chance = random.Random(seed)
    data = bytearray(WHOLE)
    for _ in range(chance.randint(1, 4)):
        at, other = chance.randrange(9, len(data)), chance.randrange(9, len(data))
        match chance.randrange(6):
            case 0:
                for _ in range(chance.randint(1, 60)):
                    data[chance.randrange(5, len(data))] = chance.randrange(256)
            case 1:
                del data[max(at, 40) :]
            case 2:
                data[at:at] = data[other : other + chance.randint(1, 400)]
            case 3:
                del data[at : at + chance.randint(1, 400)]
            case 4:
                data[at:at] = chance.choice([b"<<" * 900, b"[" * 5000, b"(" * 900, b"5 0 R " * 90, b"endobj\n"])
            case _:
                place = data.find(chance.choice([b"/Count ", b"/Length ", b"/Size ", b"/Kids["]))
                data[place + 7 : place + 8] = chance.choice([b"2147483647", b"-1", b"99999999", b"2 0 R"])
    return bytes(data)


def hostile() -> dict[str, bytes]:
    """Documents that ask for much."""
    bomb = zlib.compress(zlib.compress(bytes(150 << 20), 9), 9)
    doubled = b"<</Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n%s\nendstream" % (len(bomb), bomb)
    content = WHOLE.index(b"<</Length")
    end = WHOLE.index(b"endstream", content) + 9
    itself = WHOLE.replace(b"/Kids[5 0 R", b"/Kids[2 0 R")
    deep = b"q " * 30_000 + b"BT /F 9 Tf 50 50 Td (a) Tj ET " * 20_000
    return {
        "bomb": WHOLE[:content] + doubled + WHOLE[end:],
        "pages of itself": itself,
        "pages": WHOLE.replace(b"/Count 6", b"/Count 2147483647"),
        "nested": WHOLE.replace(b"/Kids[", b"/Kids" + b"[" * 20_000),
        "dictionaries": WHOLE.replace(b"/Count 6", b"/X" + b"<</X" * 20_000),
        "much text": pdf([lines(["a"])], extra=b"\n" + deep),
        "large page": WHOLE.replace(b"[0 0 600 800]", b"[0 0 9e9 9e9]"),
    }


def outcomes(documents: Iterator[bytes]) -> Counter[str]:
    extract = Extract(types=("html", "text", "pdf"), limits=Limits(page_seconds=3, page_memory=MEMORY))
    calls = ((each, "application/pdf", None, "", "blocks", "plain", extract.types) for each in documents)
    found: Counter[str] = Counter()
    with page_guard(extract) as guard:
        for result in guard.map(calls):
            assert "rule" in result or result["text"].strip()
            found[result.get("rule", "text")] += 1
    return found


@pytest.mark.extended
def test_each_damaged_document_is_a_text_or_a_drop():
    documents = [*map(mutated, range(40)), *hostile().values()]
    found = outcomes(iter([*documents, WHOLE]))
    assert found.total() == len(documents) + 1
    assert found["text"] > 10 and found["damaged_pdf"] > 0
    assert not {*found} - {"text", *RULES}, found


@pytest.mark.slow
def test_5000_damaged_documents():
    found = outcomes(mutated(seed) for seed in range(5000))
    print(found)
    assert found.total() == 5000
    assert not {*found} - {"text", *RULES}, found
