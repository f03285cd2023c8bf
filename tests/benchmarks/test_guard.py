"""What the guard costs: pages through it against the same function in a bare loop; prints, asserts nothing about time.

The pages are those of the crawl's WARC files in the folder that GRISTMILL_TEST_DATA names.
"""

import os
import statistics
import sys
import time
from itertools import islice
from pathlib import Path

import psutil
import pytest
from fastwarc.stream_io import GzipReader
from fastwarc.warc import ArchiveIterator, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding

from gristmill.tasks.guard import parent
from gristmill.tasks.guard.parent import Guard, Limits

PAGES = 2000
ROUND = 200
# the function of this module, with all that an extraction with kernels imports
WORK = """
import numba
import pyarrow.parquet
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding


def extract(payload):
    page = bytes_to_str(payload, detect_encoding(payload, from_html_meta=True) or "utf-8")
    return {"text": extract_plain_text(page, main_content=True, alt_texts=False)}


def die(payload):
    import os
    os.abort()
"""


def extract(payload):
    page = bytes_to_str(payload, detect_encoding(payload, from_html_meta=True) or "utf-8")
    return {"text": extract_plain_text(page, main_content=True, alt_texts=False)}


def html_pages(folder):
    """Payloads of 2 to 250 kB of all HTML responses."""
    for path in sorted(Path(folder).glob("warc/web/*.warc.gz")):
        for record in ArchiveIterator(GzipReader(str(path)), record_types=WarcRecordType.response):
            payload = record.reader.read() if "html" in (record.http_content_type or "") else b""
            if 2_000 <= len(payload) <= 250_000:
                yield payload


@pytest.fixture(scope="module")
def pages():
    folder = os.environ.get("GRISTMILL_TEST_DATA")
    if not folder:
        pytest.skip("GRISTMILL_TEST_DATA names no folder with crawled pages")
    return list(islice(html_pages(folder), PAGES))


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guard")
    (folder / "bench_work.py").write_text(WORK)
    sys.path.append(str(folder))
    yield "bench_work"
    sys.path.remove(str(folder))


@pytest.fixture(params=[1, 2], ids=lambda n: f"{n}-cores")
def cores(request):
    everything = os.sched_getaffinity(0)
    if len(everything) < request.param:
        pytest.skip(f"fewer than {request.param} cores")
    os.sched_setaffinity(0, sorted(everything)[: request.param])
    yield request.param
    os.sched_setaffinity(0, everything)


@pytest.mark.bench
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this kernel pins no process to a core")
def test_cost(pages, work, cores, capsys):
    """In turns of 200 pages, so that a machine with other work slows both down alike."""
    parent._leave()  # a zygote keeps the cores of its start
    parent._zygotes.clear()
    start = time.perf_counter()
    with Guard(f"{work}:extract", Limits()) as guard:
        started = time.perf_counter() - start
        list(guard.map((page,) for page in pages[:ROUND]))
        worker = psutil.Process(guard._worker.process)
        bare, guarded, ours, theirs = [], [], [], []
        for _ in range(3):
            for first in range(0, len(pages), ROUND):
                turn = pages[first : first + ROUND]
                worked = sum(worker.cpu_times()[:2])
                start, cpu_start = time.perf_counter(), time.process_time()
                expected = [extract(page) for page in turn]
                middle, cpu_middle = time.perf_counter(), time.process_time()
                found = list(guard.map((page,) for page in turn))
                end, cpu_end = time.perf_counter(), time.process_time()
                assert found == expected
                bare.append(middle - start)
                guarded.append(end - middle)
                ours.append(cpu_middle - cpu_start)
                theirs.append(cpu_end - cpu_middle + sum(worker.cpu_times()[:2]) - worked)
    n = 3 * len(pages)
    with capsys.disabled():
        print(
            f"\n{len(pages)} pages of {statistics.mean(map(len, pages)) / 1e3:.0f} kB on {cores} core(s): "
            f"bare {n / sum(bare):.0f} pages/s ({sum(bare) / n * 1e3:.2f} ms a page), "
            f"guarded {n / sum(guarded):.0f} pages/s, {sum(guarded) / sum(bare):.3f} of its time; processor time of "
            f"a page {sum(ours) / n * 1e6:.0f} us bare, {sum(theirs) / n * 1e6:.0f} us guarded, "
            f"{sum(theirs) / sum(ours):.3f} of it; first start {started:.2f} s"
        )


@pytest.mark.bench
def test_restart(work, capsys):
    times = []
    with Guard(f"{work}:die", Limits()) as guard:
        for _ in range(20):
            start = time.perf_counter()
            assert [r["rule"] for r in guard.map([(b"",)])] == ["page_crash"]
            times.append(time.perf_counter() - start)
    with capsys.disabled():
        # a crash is tried twice
        print(f"\na page that crashes costs two workers, {statistics.median(times) * 1e3:.0f} ms")
