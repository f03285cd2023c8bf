"""The engine alone beside trafilatura, and the whole pass over a crawl's file (read, decode, extract, write Parquet)
beside its peers, on the same file.

Each measurement of the whole pass is a process of its own, held to the cores that it says.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trafilatura
from fastwarc.warc import ArchiveIterator, WarcRecordType

from gristmill.tasks.extraction.classifier import main_text
from gristmill.tasks.reading import charset

pytestmark = pytest.mark.bench

# Times as fast as datatrove: what the README promises.
LEAST = 4
# Times as fast as trafilatura with its defaults, the engine alone: 6.8 on a loaded machine.
LEAST_ALONE = 6

OURS = """
import json, os, resource, sys, time
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.engine.executors import executor
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.shard import extract_shard
from gristmill.tasks.reading.listing import Shard
engine, out, paths = sys.argv[1], sys.argv[2], sys.argv[4:]
workers = int(sys.argv[3])

def one(job):
    number, path = job
    shard = Shard("archive", path, os.path.basename(path))
    return extract_shard(out, number, "web", (shard,), None, (), Extract(engine=engine), None, ())

if workers:
    with executor("local", workers) as pool:
        # a worker's first pass imports and starts its guard
        list(pool.map(one, [(1000 + i, paths[-1]) for i in range(workers)]))
        began = time.perf_counter()
        made = [record for _, record in pool.map(one, list(enumerate(paths[:-1])))]
        seconds = time.perf_counter() - began
else:
    one((1000, paths[-1]))
    began = time.perf_counter()
    made = [one(job) for job in enumerate(paths[:-1])]
    seconds = time.perf_counter() - began
peaks = [resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
from gristmill.tasks.guard import parent
for zygote in parent._zygotes.values():
    zygote.close()
parent._zygotes.clear()
peaks[1] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(json.dumps({"pages": sum(m["rows_in"] for m in made), "seconds": seconds, "peaks": peaks}))
"""

BARE = """
import json, sys, time
from fastwarc.warc import ArchiveIterator, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding
began, pages = time.perf_counter(), 0
for path in sys.argv[1:]:
    for record in ArchiveIterator(path, record_types=WarcRecordType.response, parse_http=True):
        payload = record.reader.read()
        extract_plain_text(bytes_to_str(payload, detect_encoding(payload)), main_content=True)
        pages += 1
print(json.dumps({"pages": pages, "seconds": time.perf_counter() - began}))
"""

DATATROVE = """
import json, os, sys, time
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.extractors import Trafilatura
from datatrove.pipeline.readers import WarcReader
from datatrove.pipeline.writers import ParquetWriter
if __name__ == "__main__":
    out, path = sys.argv[1:]
    steps = [
        WarcReader(os.path.dirname(path), glob_pattern=os.path.basename(path)),
        Trafilatura(favour_precision=True, timeout=1),  # as in FineWeb
        ParquetWriter(out, compression="zstd"),
    ]
    began = time.perf_counter()
    LocalPipelineExecutor(pipeline=steps, logging_dir=out + "-log", tasks=1, workers=1).run()
    print(json.dumps({"seconds": time.perf_counter() - began}))
"""


@pytest.fixture(scope="module")
def archive() -> str:
    data = os.environ.get("GRISTMILL_TEST_DATA")
    if not data:
        pytest.skip("set GRISTMILL_TEST_DATA to a folder with warc/web/*.warc.gz")
    (path,) = sorted(Path(data, "warc", "web").glob("*.warc.gz"))[:1]
    return str(path)


@pytest.fixture(scope="module")
def small(archive, tmp_path_factory) -> str:
    """A few records, for warming up."""
    path = tmp_path_factory.mktemp("small") / "small.warc.gz"
    path.write_bytes(Path(archive).read_bytes()[:200_000])
    return str(path)


def measured(script: str, folder: Path, cores: set[int], *arguments: str) -> dict:
    path = folder / "script.py"
    path.write_text(script)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    command = ["taskset", "-c", ",".join(map(str, sorted(cores))), sys.executable, str(path), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_engine_alone_against_trafilatura(archive, capsys):
    """CPU time over three eighths of the pages of HTML, one after the other; all engines in turn on each page, once."""
    records = ArchiveIterator(archive, record_types=WarcRecordType.response, parse_http=True)
    read = ((record.reader.read(), record) for record in records if "html" in (record.http_content_type or ""))
    pages = [charset.decode(p, charset.detect(p, record.http_charset, True)) for p, record in read]
    engines = {
        "ours": main_text,
        "trafilatura, its defaults": trafilatura.extract,
        "trafilatura, fast": lambda page: trafilatura.extract(page, fast=True),
    }
    for engine in engines.values():  # compiles kernels, imports
        for page in pages[7:160:8]:
            engine(page)
    passes = []
    for part in (0, 2, 4):
        seconds = dict.fromkeys(engines, 0.0)
        for page in pages[part::8]:
            for name, engine in engines.items():
                began = time.process_time()
                engine(page)
                seconds[name] += time.process_time() - began
        passes.append(seconds)
    with capsys.disabled():
        print(f"\n{len(pages) // 8} pages, three times, of {Path(archive).name}, CPU time of one process")
        for name in engines:
            times = statistics.median(seconds[name] / seconds["ours"] for seconds in passes)
            took = statistics.median(seconds[name] for seconds in passes) / (len(pages) // 8)
            print(f"  {name:26} {1000 * took:7.2f} ms a page, {1 / took:5.0f} pages/s, {times:5.1f}x ours")
    default = [seconds["trafilatura, its defaults"] / seconds["ours"] for seconds in passes]
    assert statistics.median(default) >= LEAST_ALONE


def test_one_core_against_a_bare_loop_and_datatrove(archive, small, tmp_path, capsys):
    found = {"bare fastwarc + resiliparse, writes nothing": measured(BARE, tmp_path, {0}, archive)}
    for engine in ("resiliparse", "blocks"):
        found[f"ours, {engine}"] = measured(OURS, tmp_path, {0}, engine, str(tmp_path / engine), "0", archive, small)
    missing = subprocess.run(
        [sys.executable, "-c", "import cchardet, datatrove, lxml.html.clean, magic"], capture_output=True, check=False
    ).returncode
    if not missing:
        found["datatrove, WarcReader + Trafilatura"] = measured(
            DATATROVE, tmp_path, {0}, str(tmp_path / "datatrove"), archive
        )
    pages = found["ours, blocks"]["pages"]
    with capsys.disabled():
        print(f"\n{pages} pages of {Path(archive).name}, one core")
        for name, run in found.items():
            print(f"  {name:44} {run['seconds']:7.1f} s {pages / run['seconds']:7.0f} pages/s")
        bare = found["bare fastwarc + resiliparse, writes nothing"]["seconds"]
        print(f"  ours with resiliparse: {bare / found['ours, resiliparse']['seconds']:.2f}x the bare loop")
        if missing:
            print("  datatrove was not measured: pip install -e '.[bench]'; python-magic needs libmagic")
        else:
            theirs = found["datatrove, WarcReader + Trafilatura"]["seconds"]
            print(f"  ours by default: {theirs / found['ours, blocks']['seconds']:.1f}x datatrove")
            assert theirs / found["ours, blocks"]["seconds"] >= LEAST


def test_two_workers_against_one(archive, small, tmp_path, capsys):
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("this machine has one core")
    paths = [archive, archive, archive, archive, small]
    one = measured(OURS, tmp_path, {cores[0]}, "blocks", str(tmp_path / "one"), "1", *paths)
    two = measured(OURS, tmp_path, set(cores), "blocks", str(tmp_path / "two"), "2", *paths)
    with capsys.disabled():
        print(
            f"\nfour files: one worker on one core {one['seconds']:.1f} s, two on two {two['seconds']:.1f} s: "
            f"{one['seconds'] / two['seconds']:.2f}x"
        )


def test_memory_does_not_grow_with_the_file(archive, small, tmp_path, capsys):
    lines = []
    for times in (1, 4):
        path = tmp_path / f"x{times}.warc.gz"
        path.write_bytes(Path(archive).read_bytes() * times)
        run = measured(OURS, tmp_path, {0}, "blocks", str(tmp_path / f"out{times}"), "0", str(path), small)
        size = path.stat().st_size >> 20
        worker, child = run["peaks"]
        lines.append(f"  {size:4} MiB: worker {worker:.0f} MiB, guarded child {child:.0f} MiB at their peaks")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
