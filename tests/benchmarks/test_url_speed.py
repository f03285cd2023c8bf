"""Speed of the URL step with a blocklist as large as RefinedWeb's, and of text normalization; asserts no times."""

import os
import random
import resource
import string
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fastwarc.stream_io import GzipReader
from fastwarc.warc import ArchiveIterator
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding

from gristmill.tasks.documents.normalize import Normalize, rewrite
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.url.step import Url, load

DOMAINS = 4_600_000  # RefinedWeb (Penedo et al. 2023), appendix G.1
PATHS = 100_000


@pytest.fixture(scope="module")
def crawl() -> list[tuple[str, bytes]]:
    """URL and payload of each response of the sample of real pages."""
    if not (data := os.environ.get("GRISTMILL_TEST_DATA")):
        pytest.skip("GRISTMILL_TEST_DATA does not name the folder of the data sets")
    path = Path(data) / "warc" / "web" / "DEMO-00001.warc.gz"
    found = []
    for record in ArchiveIterator(GzipReader(str(path))):
        if record.headers.get("WARC-Type") == "response":
            found.append((record.headers["WARC-Target-URI"], record.reader.read()))
    return found


def varied(urls: list[str], count: int) -> pa.Table:
    """Many URLs from few: on every second a new subdomain, on a third of them a query."""
    draw = random.Random(0)
    made = []
    for i in range(count):
        scheme, _, rest = urls[i % len(urls)].partition("://")
        host = f"w{draw.randrange(10**6)}." if i % 2 else ""
        query = draw.choice(("?id={}&utm_source=x", "?p={}", "?a=%20b{}#top")).format(i) if i % 3 == 0 else ""
        made.append(f"{scheme}://{host}{rest}{query}")
    return pa.table({"id": pa.array(map(str, range(count))), "url": made})


def best(work, times: int = 5) -> float:
    """Seconds of this thread's processor time, the least of some runs."""
    taken = []
    for _ in range(times):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return min(taken)


def write_lists(folder: Path) -> None:
    draw = random.Random(1)
    (folder / "big").mkdir()
    with open(folder / "big" / "domains", "w") as f:
        for i in range(DOMAINS):
            name = "".join(draw.choices(string.ascii_lowercase, k=draw.randint(3, 12)))
            f.write(f"{name}{i:x}.{draw.choice(('com', 'net', 'org', 'co.uk', 'ru'))}\n")
    (folder / "big" / "urls").write_text("".join(f"site{i % 5000}.example/path/{i}\n" for i in range(PATHS)))


@pytest.mark.bench
def test_url_speed(crawl, tmp_path, capsys):
    write_lists(tmp_path)
    documents = varied([url for url, _ in crawl], 100_000)
    listed = Url(blocklists=(str(tmp_path),))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    keys = load(listed).blocklists.keys
    took = time.perf_counter() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    held = (keys.hashes.nbytes + keys.numbers.nbytes) / 2**20
    batches = [documents.slice(i, 512) for i in range(0, len(documents), 512)]
    with capsys.disabled():
        print(f"\n{len(keys):,} entries: loaded in {took:.1f} s, {held:.0f} MiB held, peak {peak:.0f} MiB more")
        for name, step in (("no lists", Url()), ("with them", listed)):
            whole = len(documents) / best(lambda step=step: work_of(step).measure(step, documents))
            parts = len(documents) / best(lambda step=step: [work_of(step).measure(step, batch) for batch in batches])
            print(f"{name}: {whole:,.0f} URLs/s, in batches of 512 {parts:,.0f}")


@pytest.mark.bench
def test_normalize_speed(crawl, capsys):
    pages = [bytes_to_str(payload, detect_encoding(payload)) for _, payload in crawl]
    found = pa.array([extract_plain_text(page, main_content=True) for page in pages], pa.large_string())
    tidy = rewrite(Normalize(), found)
    ascii_only = tidy.filter(pc.string_is_ascii(tidy))
    cases = {"clean ASCII": ascii_only, "clean": tidy, "as extracted": found}
    with capsys.disabled():
        print()
        for name, texts in cases.items():
            seconds = best(lambda texts=texts: rewrite(Normalize(), texts))
            repaired = best(lambda texts=texts: rewrite(Normalize(mojibake=True), texts), 1)
            changed = pc.sum(pc.not_equal(texts, rewrite(Normalize(), texts))).as_py()
            print(
                f"{name}: {texts.nbytes / 1e6:.1f} MB in {len(texts):,} texts, {changed:,} change: "
                f"{texts.nbytes / 1e6 / seconds:.0f} MB/s, with mojibake {texts.nbytes / 1e6 / repaired:.1f}"
            )
