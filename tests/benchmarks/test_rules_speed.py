"""Speed of the rules in MB of text per second of one core, and how their cost grows with the length of a document.

The scan of the texts is part of every figure, and each figure is one pass; the first pages, which are in none, load and
compile what each needs once. Prints, and asserts a ratio. GRISTMILL_TEST_DATA names the
folder with `warc/web`, whose pages are the documents.
"""

import os
import random
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding

from gristmill.tasks.documents.measure import measured
from gristmill.tasks.documents.step import DocumentStep
from gristmill.tasks.rules.c4 import C4
from gristmill.tasks.rules.ccnet import CCNet
from gristmill.tasks.rules.fineweb_quality import FineWebQuality
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.rules.gopher_repetition import GopherRepetition
from gristmill.tasks.rules.refinedweb import RefinedWebLines
from gristmill.tasks.rules.textbook import Textbook

# Times as fast as datatrove's filters. One pass of each was 92; the best of five of ours, to one of theirs, was 128.
LEAST = 80

FINEWEB = [GopherRepetition(), GopherQuality(), C4(), FineWebQuality()]
# Pages that nothing is measured on, and those that datatrove gets.
FIRST, SOME = 50, 300
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)

pytestmark = pytest.mark.bench


@pytest.fixture(scope="module")
def texts() -> list[str]:
    if not (data := os.environ.get("GRISTMILL_TEST_DATA")):
        pytest.skip("GRISTMILL_TEST_DATA does not name the folder of the data sets")
    (path,) = sorted(Path(data, "warc", "web").glob("*.warc.gz"))[:1]
    found = []
    with open(path, "rb") as stream:
        for record in ArchiveIterator(stream, record_types=WarcRecordType.response, parse_http=True):
            payload = record.reader.read()
            page = bytes_to_str(payload, detect_encoding(payload))
            found.append(extract_plain_text(page, main_content=True))
    return [text for text in found if text]


def table(texts: list[str]) -> pa.Table:
    ids = [str(i) for i in range(len(texts))]
    return pa.table({"id": ids, "text": pa.array(texts, pa.large_string())})


def seconds(documents: pa.Table, steps: list) -> float:
    """The thread's own processor time."""
    start = time.thread_time()
    measured(documents, steps)
    return time.thread_time() - start


def label(step: DocumentStep) -> str:
    return f"{step.step} {getattr(step, 'definition', '')}".strip()


def megabytes(texts: list[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def datatrove_seconds(first: list[str], texts: list[str]) -> float:
    """FineWeb's four filters, one after the other on every document, whatever the one before says; of `texts`, after
    the `first`."""
    pytest.importorskip("datatrove", reason="pip install 'gristmill[bench]'")
    from datatrove.data import Document
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    filters = [
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        C4QualityFilter(filter_no_terminal_punct=False),
        FineWebQualityFilter(),
    ]

    def run(text: str) -> None:
        document = Document(text=text, id="")
        for each in filters:
            try:
                each.filter(document)
            except ZeroDivisionError:
                pass  # no words or lines are left

    for text in first:
        run(text)
    start = time.thread_time()
    for text in texts:
        run(text)
    return time.thread_time() - start


@pytest.mark.filterwarnings("ignore")
def test_rule_sets_and_datatrove(texts, capsys):
    first, some, rest = texts[:FIRST], texts[FIRST : FIRST + SOME], texts[FIRST:]
    gopher = [kind(definition=code) for code in ("datatrove", "dclm") for kind in (GopherQuality, GopherRepetition)]
    alone = [*gopher, C4(), FineWebQuality(), RefinedWebLines(), Textbook(), CCNet()]
    for step in [*alone, *FINEWEB]:
        seconds(table(first), [step])
    seconds(table(first), FINEWEB)
    ours, theirs = megabytes(some) / seconds(table(some), FINEWEB), megabytes(some) / datatrove_seconds(first, some)
    documents, size = table(rest), megabytes(rest)
    lines = [f"{len(rest)} pages, {size:.1f} MB; MB/s of one core:"]
    lines += [f"{label(step):28}{size / seconds(documents, [step]):6.0f}" for step in alone]
    together = size / seconds(documents, FINEWEB)
    lines.append(
        f"{'the four of FineWeb':28}{together:6.0f}; of {len(some)} pages {ours:.0f}, datatrove's {theirs:.2f}"
    )
    lines.append(f"{ours / theirs:.0f} times as fast as datatrove's filters")
    with capsys.disabled():
        print("", *lines, sep="\n")
    assert ours / theirs >= LEAST


def shuffled(sentences: list[str], size: int, draw: random.Random) -> str:
    parts, length = [], 0
    while length < size:
        parts.append(draw.choice(sentences) + draw.choice(" \n"))
        length += len(parts[-1])
    return "".join(parts)[:size]


def repeated(part: str, size: int) -> str:
    return (part * (size // len(part) + 1))[:size]


def test_cost_by_length(texts, capsys):
    draw = random.Random(1)
    sentences = [s for text in texts for line in text.splitlines() for s in line.split(". ") if s.isascii()]
    kinds = {
        "sentences of the pages, shuffled": lambda size: shuffled(sentences, size, draw),
        "one word": lambda size: repeated("mill ", size),
        "equal lines": lambda size: repeated("The mill turns by the river.\n", size),
        "words all different": lambda size: " ".join(map(hex, range(size // 6)))[:size],
        "no white space": lambda size: repeated("mill", size),
        "symbols": lambda size: repeated("# - ... ?! ", size),
    }
    lines = [f"MB/s of the four rule sets on documents of {', '.join(f'{size:,}' for size in SIZES)} bytes:"]
    for name, make in kinds.items():
        costs = []
        for size in SIZES:
            documents = table([make(size) for _ in range(max(1, 4_000_000 // size))])
            costs.append(seconds(documents, FINEWEB) / len(documents))
        slope = np.polyfit(np.log(SIZES), np.log(costs), 1)[0]
        speeds = "".join(f"{size / cost / 1e6:7.1f}" for size, cost in zip(SIZES, costs, strict=True))
        lines.append(f"{name:34}{speeds}   cost ~ length^{slope:.2f}")
    with capsys.disabled():
        print("", *lines, sep="\n")
