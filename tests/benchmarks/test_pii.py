"""Personal data: what is found in real pages and in code, and how fast; prints, asserts nothing about time.

GRISTMILL_TEST_DATA names the folder with the real pages (warc/web). Whether a hit is a false one only a reader can say:
the hits go with their surroundings, a line each, into a file whose name is printed. Sorted by kind they are read
quickly.
"""

import os
import sysconfig
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from warcio.archiveiterator import ArchiveIterator

from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.extraction.engines import plain
from gristmill.tasks.pii.step import KINDS, Pii
from tests.planted import Plan, texts
from tests.planted.text import joined

pytestmark = pytest.mark.bench
STEP = Pii()
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
# What would cost most if anything were looked at more than a fixed number of times.
HOSTILE = {
    "at signs": "@",
    "short addresses": "a@a.",
    "addresses": "jane@planted.org ",
    "digits": "1",
    "quads without an end": "1.",
    "IP addresses": "83.12.44.99 ",
    "versions": "4.1.2.3\n",
    "phone numbers": "+44 20 7946 0123 ",
    "other numbers": "2024-01-02\n",
    "hexadecimal groups": "2a2b:",
    "account numbers": "DE89370400440532013000 ",
    "beginnings of account numbers": "DE89 ",
    "card numbers": "4539578763621486\n",
    "beginnings of keys": "sk-",
    "beginnings of tokens": "eyJ",
    "beginnings of private keys": "-----BEGIN PRIVATE KEY-----\n",
    "their beginnings in small letters": "-----begin ",
    "their beginnings after more hyphens": "------BEGIN PRIVATE KEY-----\n",
    "names of secrets": "access_key=",
    "logins": "://a:b@",
    "integers": "31415 9265 358979 ",
    "decimals": "3.141592,653.58979,0.5\n",
    "digits and hyphens": "3141-59265-",
    "digits beyond ASCII": "٠١٢٣ ",
}


def timed(documents):
    """(edits, seconds) of the step for documents, a megabyte of them at a time, as in a pass."""
    work_of(STEP).edit(STEP, table(["Write to a@planted.org or phone 2125550123."]))
    found, seconds, at = [], 0.0, 0
    bounds = np.flatnonzero(np.diff(np.cumsum([len(text) for text in documents]) // 1_000_000)) + 1
    for stop in (*bounds.tolist(), len(documents)):
        batch = table(documents[at:stop])
        start = time.thread_time()
        edits, _ = work_of(STEP).edit(STEP, batch)
        seconds += time.thread_time() - start
        found += zip(edits.rule.tolist(), (edits.document + at).tolist(), edits.start, edits.stop, strict=True)
        at = stop
    return found, seconds


def table(documents):
    return Batch(pa.table({"text": pa.array(documents, pa.large_string())}))


def megabytes(documents):
    return sum(len(text.encode()) for text in documents) / 1e6


def report(name, documents, folder, capsys):
    found, seconds = timed(documents)
    path = folder / f"{name}.tsv"
    with open(path, "w") as out:
        for kind, document, start, stop in sorted(found):
            text = documents[document].encode()
            parts = (text[max(0, start - 60) : start], text[start:stop], text[stop : stop + 30])
            before, value, after = (repr(part.decode("utf-8", "ignore"))[1:-1] for part in parts)
            print(KINDS[kind], document, f"{before}<<{value}>>{after}", sep="\t", file=out)
    size = megabytes(documents)
    counts = np.bincount([kind for kind, *_ in found], minlength=len(KINDS))
    with capsys.disabled():
        print(f"\n{name}: {len(documents):,} documents, {size:.0f} MB, {size / seconds:.0f} MB/s; hits in {path}")
        for kind, n in zip(KINDS, counts.tolist(), strict=True):
            print(f"  {kind:12} {n:6,}, {1000 * n / len(documents):8.2f} in 1,000 documents")


def test_real_pages(tmp_path, capsys):
    if "GRISTMILL_TEST_DATA" not in os.environ:
        pytest.skip("GRISTMILL_TEST_DATA names no folder with real pages")
    documents = []
    for path in sorted((Path(os.environ["GRISTMILL_TEST_DATA"]) / "warc" / "web").glob("*.warc.gz")):
        with open(path, "rb") as f:
            for record in ArchiveIterator(f):
                if record.rec_type == "response":
                    page = record.content_stream().read().decode("utf-8", "replace")
                    documents.append(plain(page))
    report("pages", documents, tmp_path, capsys)


def sources(pattern, most):
    found = sorted(Path(sysconfig.get_path("purelib")).rglob(pattern))
    return [path.read_text("utf-8", "replace") for path in found if path.is_file() and path.stat().st_size < most]


def test_code(tmp_path, capsys):
    report("code", sources("*.py", 200_000)[::4], tmp_path, capsys)


def test_documentation(tmp_path, capsys):
    documents = [text for pattern in ("*.md", "*.rst", "*.txt", "METADATA") for text in sources(pattern, 1_000_000)]
    report("documentation", documents, tmp_path, capsys)


def test_clean_english(tmp_path, capsys):
    plan = Plan.clean(pages=3000, languages=(("en", 1.0),))
    report("english", [joined(text.blocks) for _, _, text in texts(plan)], tmp_path, capsys)


def test_time_is_linear_in_the_length_of_a_document(capsys):
    text = "\n".join(sources("*.md", 1_000_000) + sources("*.rst", 1_000_000))
    text *= -(-SIZES[-1] // len(text))
    with capsys.disabled():
        print("\nMB/s of one document of", ", ".join(f"{size:,}" for size in SIZES), "characters")
        for name, repeated in {"documentation": text, **HOSTILE}.items():
            speeds = []
            for size in SIZES[:3] if name in HOSTILE else SIZES:
                document = (repeated * (size // len(repeated) + 1))[:size]
                speeds.append(megabytes([document]) / timed([document])[1])
            print(f"  {name:30}", *(f"{speed:8.2f}" for speed in speeds))
