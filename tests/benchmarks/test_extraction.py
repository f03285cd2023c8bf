"""Quality and speed of main-content extraction: every engine beside trafilatura with its default settings, one table.

GRISTMILL_TEST_DATA names the folder with the archives extraction_aeb_181, extraction_cleaneval_dev_58 and
extraction_wcxb_dev_148 (.tar.gz), or with these sets unpacked. "held" is the half of each set that the classifier has
not learned from; "all" is left out for the engine that it is part of. The metrics are those of the sets
(tools/train_blocks/gold.py).
"""

import os
import tarfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import trafilatura

from gristmill.tasks.extraction.engines import ENGINES
from tools.train_blocks import gold

ARCHIVES = ("extraction_aeb_181.tar.gz", "extraction_cleaneval_dev_58.tar.gz", "extraction_wcxb_dev_148.tar.gz")
LEARNED = ("blocks",)
WORST = 20
DRAWS = 10_000


def default_trafilatura(page):
    return trafilatura.extract(page) or ""


def without_comments(page):
    return trafilatura.extract(page, include_comments=False) or ""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    if "GRISTMILL_TEST_DATA" not in os.environ:
        pytest.skip("GRISTMILL_TEST_DATA names no folder with the gold sets")
    folder = Path(os.environ["GRISTMILL_TEST_DATA"])
    if (folder / ARCHIVES[0]).exists():
        unpacked = tmp_path_factory.mktemp("gold")
        for name in ARCHIVES:
            with tarfile.open(folder / name) as archive:
                archive.extractall(unpacked, filter="data")
        folder = unpacked
    return [page for page in gold.read(folder) if page.set in gold.SETS]


def texts_and_speed(engine, pages):
    """(texts, pages per second of the thread's own time for each set), after one page that compiles kernels."""
    engine(pages[0].html)
    texts, seconds = [], defaultdict(float)
    for page in pages:
        start = time.thread_time()
        text = engine(page.html)
        seconds[page.set] += time.thread_time() - start
        texts.append(text)
    return texts, {name: sum(page.set == name for page in pages) / seconds[name] for name in gold.SETS}


def line(texts, pages, name, chosen):
    both = zip(texts, pages, strict=True)
    found = gold.score(name, [(text, page.text) for text, page in both if page.set == name and chosen(page)])
    return f"{found.f1:.3f} ({found.precision:.3f} {found.recall:.3f})"


def difference(ours, theirs, pages, chosen):
    """The mean of our F1 of words less theirs on the same pages that are held out, and its interval of 95% by bootstrap
    over pages."""
    f1 = [
        gold.word_f1(mine, page.text).f1 - gold.word_f1(other, page.text).f1
        for mine, other, page in zip(ours, theirs, pages, strict=True)
        if not page.trains and chosen(page)
    ]
    drawn = np.random.default_rng(0).choice(f1, (DRAWS, len(f1))).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{np.mean(f1):+.3f} [{low:+.3f} {high:+.3f}] of {len(f1)} pages"


@pytest.mark.bench
def test_extraction(pages, capsys):
    engines = {
        "trafilatura()": default_trafilatura,
        "  no comments": without_comments,
        **{name: engine.read for name, engine in ENGINES.items()},
    }
    kinds = sorted({page.kind for page in pages} - {""})
    with capsys.disabled():
        held = [page for page in pages if not page.trains]
        print(f"\n{len(pages)} pages, {len(held)} held out; F1 (precision recall)")
        print(f"{'':14}" + "".join(f"{name + ' held':22}{name + ' all':22}" for name in gold.SETS))
        speeds, rows = {}, {}
        for name, engine in engines.items():
            texts, speeds[name] = texts_and_speed(engine, pages)
            rows[name] = texts
            cells = []
            for each in gold.SETS:
                cells.append(line(texts, pages, each, lambda page: not page.trains))
                cells.append("" if name in LEARNED else line(texts, pages, each, lambda page: True))
            print(f"{name:14}" + "".join(f"{cell:22}" for cell in cells), flush=True)
        print(f"\nWCXB by page type, F1, held out\n{'':14}" + "".join(f"{kind:>15}" for kind in kinds))
        for name, texts in rows.items():
            cells = [
                line(texts, pages, "wcxb", lambda p, kind=kind: p.kind == kind and not p.trains)[:5] for kind in kinds
            ]
            print(f"{name:14}" + "".join(f"{cell:>15}" for cell in cells))
        print("\nblocks less trafilatura(), F1 of words, held out, and its interval of 95%")
        compared = {name: lambda p, name=name: p.set == name for name in gold.SETS}
        compared |= {f"  {kind}": lambda p, kind=kind: p.kind == kind for kind in kinds}
        for name, chosen in compared.items():
            print(f"{name:18}{difference(rows['blocks'], rows['trafilatura()'], pages, chosen)}")
        print(f"\npages/s of one core\n{'':14}" + "".join(f"{name:>12}" for name in gold.SETS))
        for name, speed in speeds.items():
            print(f"{name:14}" + "".join(f"{speed[each]:12.0f}" for each in gold.SETS))
        print(f"\nthe {WORST} held-out pages on which blocks does worst: F1, trafilatura's, page")
        worst = []
        for page, ours, theirs in zip(pages, rows["blocks"], rows["trafilatura()"], strict=True):
            if not page.trains:
                mine, other = (gold.score(page.set, [(text, page.text)]).f1 for text in (ours, theirs))
                worst.append((mine, other, f"{page.set}/{page.name[:16]} {page.kind} {page.url[:80]}"))
        for mine, other, where in sorted(worst)[:WORST]:
            print(f"{mine:.3f} {other:.3f} {where}")
