"""Speed of the heuristic rules in MB of text per second of one core; prints, asserts nothing about time."""

import random
import sysconfig
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tasks.rules.gopher_quality import GopherQuality
from tasks.rules.gopher_repetition import GopherRepetition
from tasks.rules.textbook import Textbook

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


def installed_text(size):
    """The beginning of all text files and package metadata in site-packages, one after the other."""
    root = Path(sysconfig.get_path("purelib"))
    paths = sorted(p for pattern in ("*.txt", "*.md", "*.rst", "METADATA", "LICENSE*") for p in root.rglob(pattern))
    parts, length = [], 0
    for path in paths:
        if path.is_file() and path.stat().st_size < 2_000_000 and length < size:
            parts.append(path.read_text("utf-8", "ignore"))
            length += len(parts[-1])
    text = "".join(parts)
    return text * -(-size // len(text))


def cut(text, sizes):
    """A table of documents of the next size each, until the text ends."""
    documents, at = [], 0
    while at < len(text):
        size = next(sizes)
        documents.append(text[at : at + size])
        at += size
    return pa.table({"text": pa.array(documents, pa.large_string())})


def speed(step, documents):
    """MB/s by the thread's own processor time, the best of five."""
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()
        step.measure(documents)
        best = min(best, time.thread_time() - start)
    return documents.nbytes / 1e6 / best


@pytest.mark.bench
@pytest.mark.parametrize("step", [GopherQuality(), GopherRepetition(), Textbook()], ids=lambda s: s.step)
def test_speed(step, capsys):
    text = installed_text(10_000_000)[:10_000_000]
    step.measure(cut(text[:1000], iter([1000])))
    draw = random.Random(0)
    mixed = speed(step, cut(text, iter(lambda: draw.randint(2_000, 20_000), None)))
    by_size = {size: speed(step, cut(text, iter(lambda size=size: size, None))) for size in SIZES}
    with capsys.disabled():
        print(f"\n{step.step}: {mixed:.0f} MB/s on documents of 2 to 20 kB; ", end="")
        print(", ".join(f"{size:,} B {value:.0f}" for size, value in by_size.items()))
