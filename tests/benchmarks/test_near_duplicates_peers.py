"""The near-duplicate step beside datatrove's four MinHash stages and text-dedup's MinHash, on the same documents.

Prints wall seconds from Parquet parts to the end, two processes each, ours with the start of its workers, and what the
planted truth says of the documents removed:

- recall: of the pairs with an exact Jaccard similarity of 0.8 or more, those of which at least one was removed;
- precision: of the removed documents, those that are at 0.8 or more with a document that stays.

`NEAR_PEERS_DOCUMENTS`: how many documents (200,000); `NEAR_TEXT_DEDUP`: the Python of an environment with text-dedup.
"""

import os
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

import pyarrow as pa
import pytest

from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.engine.executors import executor
from tests.benchmarks.near_corpus import Planted, number_of
from tests.benchmarks.near_run import Watch, near_duplicates, warm, write_corpus

# Times as fast as either peer: what the README promises.
LEAST = 5

pytestmark = [pytest.mark.bench, pytest.mark.timeout(4 * 3600)]

DOCUMENTS = int(os.environ.get("NEAR_PEERS_DOCUMENTS", 200_000))
THRESHOLD, BANDS, MORE_BANDS, ROWS, WORDS = 0.8, 16, 20, 8, 5
PROCESSES, SHARDS = 2, 4


@dataclass(frozen=True)
class Outcome:
    """Seconds by phase, the CPU seconds of this process and its children, and the numbers of the documents removed."""

    seconds: dict[str, float]
    cpu: float
    removed: set[int]

    @property
    def wall(self) -> float:
        return sum(self.seconds.values())


class Judge:
    """What is right to remove, by the exact similarity of all planted pairs."""

    def __init__(self, planted: Planted):
        self.pairs = [(i, j) for i, j, _ in planted.pairs(THRESHOLD)]
        self.like = defaultdict(list)
        for i, j in self.pairs:
            self.like[i].append(j)
            self.like[j].append(i)

    def told(self, name: str, outcome: Outcome) -> str:
        removed = outcome.removed
        found = sum(i in removed or j in removed for i, j in self.pairs)
        right = sum(any(other not in removed for other in self.like[i]) for i in removed)
        recall, precision = found / len(self.pairs), right / max(len(removed), 1)
        phases = ", ".join(f"{phase} {s:.1f}" for phase, s in outcome.seconds.items() if s >= 0.05)
        return (
            f"  {name:10} {outcome.wall:8.1f} s, of CPU {outcome.cpu:8.1f} s   {len(removed):7,} removed   recall "
            f"{recall:.4f}   precision {precision:.4f}\n      ({phases})"
        )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    planted = Planted(DOCUMENTS, seed=7)
    home = tmp_path_factory.mktemp("near")
    with executor("local", PROCESSES) as pool:
        documents = write_corpus(str(home), planted, pool, shard=-(-DOCUMENTS // SHARDS))
    yield planted, home, documents
    rmtree(home)


@pytest.fixture(scope="module")
def judge(corpus) -> Judge:
    return Judge(corpus[0])


@pytest.fixture(scope="module")
def ours(corpus) -> Outcome:
    return our_step(corpus, BANDS)


def our_step(corpus, bands: int) -> Outcome:
    _, home, documents = corpus
    settings = MinHash(shingle=WORDS, permutations=bands * ROWS, bands=bands, rows=ROWS, threshold=THRESHOLD)
    with executor("local", PROCESSES) as pool:
        warm(settings, pool)
    started = time.perf_counter()
    with Watch() as watch, executor("local", PROCESSES) as pool:
        run = near_duplicates(str(home), documents, settings, pool)
    run.seconds["start and end"] = time.perf_counter() - started - run.wall
    return Outcome(run.seconds, watch.cpu, {number_of(row["id"]) for row in run.dropped()})


def beside(capsys, judge: Judge, ours: Outcome, name: str, theirs: Outcome) -> float:
    """How many times as long the other took."""
    with capsys.disabled():
        print(f"\n{DOCUMENTS:,} documents, {len(judge.pairs):,} pairs at {THRESHOLD} or more, {PROCESSES} processes")
        print(judge.told("ours", ours))
        print(judge.told(name, theirs))
        print(f"  ratio {theirs.wall / ours.wall:.1f}, of CPU time {theirs.cpu / ours.cpu:.1f}")
    return theirs.wall / ours.wall


def test_more_bands(corpus, judge, ours, capsys):
    """Each pair is verified, so more bands give more recall at no less precision; what they cost is time."""
    beside(capsys, judge, ours, f"{MORE_BANDS} bands", our_step(corpus, MORE_BANDS))


def test_datatrove(corpus, judge, ours, tmp_path, capsys):
    pytest.importorskip("datatrove.pipeline.dedup", reason="pip install -e '.[bench]'", exc_type=ImportError)
    outcome = datatrove_stages(corpus[2].documents.folder, tmp_path, len(corpus[2].sources))
    rmtree(tmp_path)
    assert beside(capsys, judge, ours, "datatrove", outcome) >= LEAST


def datatrove_stages(folder: str, out: Path, tasks: int) -> Outcome:
    """As its examples/fineweb.py has them, without the counting of tokens and the PII."""
    import orjson
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
    )
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers.jsonl import JsonlWriter
    from datatrove.utils.hashing import HashConfig
    from datatrove.utils.typeshelper import Languages

    # FineWeb's hash; its xxhash does not work with xxhash 4
    hashing = HashConfig(precision=64, hash_fc="sha1")
    config = MinhashConfig(n_grams=WORDS, num_buckets=BANDS, hashes_per_bucket=ROWS, hash_config=hashing)
    reader = ParquetReader(folder, glob_pattern="part-*.parquet", text_key="text", id_key="id")
    steps = {
        "signature": (
            tasks,
            [
                reader,
                MinhashDedupSignature(f"{out}/signatures", config=config, language=Languages.english),
            ],
        ),
        "buckets": (BANDS, [MinhashDedupBuckets(f"{out}/signatures", f"{out}/buckets", config=config)]),
        "cluster": (1, [MinhashDedupCluster(f"{out}/buckets", f"{out}/remove", config=config)]),
        "filter": (
            tasks,
            [
                reader,
                MinhashDedupFilter(f"{out}/remove", exclusion_writer=JsonlWriter(f"{out}/removed", compression=None)),
                JsonlWriter(f"{out}/kept"),
            ],
        ),
    }
    seconds = {}
    with Watch() as watch:
        for name, (count, pipeline) in steps.items():
            started = time.perf_counter()
            LocalPipelineExecutor(pipeline, tasks=count, workers=PROCESSES, logging_dir=f"{out}/logs/{name}").run()
            seconds[name] = time.perf_counter() - started
    lines = (line for path in (out / "removed").glob("*.jsonl") for line in path.read_bytes().splitlines())
    return Outcome(seconds, watch.cpu, {number_of(orjson.loads(line)["id"]) for line in lines})


def test_text_dedup(corpus, judge, ours, tmp_path, capsys):
    python = os.environ.get("NEAR_TEXT_DEDUP")
    if not python:
        pytest.skip("set NEAR_TEXT_DEDUP to the Python of an environment with text-dedup 0.4")
    outcome = text_dedup(python, corpus[2].documents.folder, tmp_path)
    rmtree(tmp_path)
    assert beside(capsys, judge, ours, "text-dedup", outcome) >= LEAST


def text_dedup(python: str, folder: str, out: Path) -> Outcome:
    """Its command `text_dedup.minhash`, with the faster of its hashes."""
    options = {
        "path": "parquet",
        "data_files": f"{folder}/part-*.parquet",
        "split": "train",
        "cache_dir": out / "cache",
        "output": out / "kept",
        "column": "text",
        "batch_size": 10_000,
        "num_perm": BANDS * ROWS,
        "b": BANDS,
        "r": ROWS,
        "ngram": WORDS,
        "threshold": THRESHOLD,
        "hash_func": "xxh3",
        "num_proc": PROCESSES,
    }
    command = [python, "-m", "text_dedup.minhash", *(f"--{name}={value}" for name, value in options.items())]
    given = {"HF_HOME": str(out / "hub"), "HF_HUB_OFFLINE": "1"}
    started = time.perf_counter()
    with Watch() as watch:
        done = subprocess.run(command, env=os.environ | given, cwd=out, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    assert done.returncode == 0, done.stderr[-3000:]
    kept = set()
    for path in (out / "kept").glob("data-*.arrow"):
        with pa.memory_map(str(path)) as f:
            kept |= {number_of(name) for name in pa.ipc.open_stream(f).read_all()["id"].to_pylist()}
    return Outcome({"all": seconds}, watch.cpu, set(range(DOCUMENTS)) - kept)
