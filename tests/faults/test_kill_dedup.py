"""Near-duplicate removal, killed at random points: the kept documents are the same bytes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gristmill.storage import layout
from tests.benchmarks.near_corpus import Planted

SHARDS, PARTITIONS = 8, 4
PLANTED = Planted(8_000, seed=4, template=1_500, largest=20)
# done markers of the phases sign, gather, split; match, verify; label, verdicts; and of those that merge by twos, in
# two passes the files of sign and gather, in one those of verify
MARKERS = SHARDS * 3 + PARTITIONS * 2 + 2 + 2 * (4 + 2) + 2

SCRIPT = f"""
import sys
from types import SimpleNamespace

from gristmill.flows.stages.dedup import near_duplicates
from gristmill.flows.stages.corpus import Corpus
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.engine.executors import executor
from tests.corpora import context, planted_stage

exchange.FAN_IN = exchange.MIN_FAN_IN = 2

if __name__ == "__main__":
    home, texts, workers = sys.argv[1:]
    built = planted_stage("documents", texts)
    corpus = Corpus(("web",) * {SHARDS}, built, built, (), (built,))
    recipe = SimpleNamespace(sources=[SimpleNamespace(name="web")])
    with executor("local", int(workers)) as pool:
        step = MinHash(partitions={PARTITIONS})
        print(near_duplicates.minhash(context(home, pool), recipe, corpus, step).kept.folder)
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    each = PLANTED.documents // SHARDS
    for shard in range(SHARDS):
        PLANTED.write(layout.part(str(folder), shard), shard * each, (shard + 1) * each)
    return folder


def start(folder: Path, home: Path, texts: Path, workers: int = 2) -> subprocess.Popen:
    script = folder / "dedup.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script), str(home), str(texts), str(workers)],
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kept(process: subprocess.Popen) -> dict[str, bytes]:
    """The parts and ledgers of the finished stage, by name."""
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    folder = Path(out.splitlines()[-1])
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("part-*.parquet"))}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, texts) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    found = kept(start(folder, folder / "home", texts))
    assert len(found) == 2 * SHARDS
    return found


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 4])
def test_another_number_of_workers_gives_the_same_bytes(tmp_path, texts, undisturbed, workers):
    assert kept(start(tmp_path, tmp_path / "home", texts, workers)) == undisturbed


def wait_for(process: subprocess.Popen, home: Path, markers: int) -> None:
    while process.poll() is None:
        if len(list(home.glob("stages/*/done/*.json"))) >= markers:
            return
        time.sleep(0.0005)
    raise AssertionError(f"it ended before {markers} jobs were done")


POINTS = random.Random(11).sample(range(MARKERS - 1), 10)


@pytest.mark.slow
@pytest.mark.parametrize("markers", POINTS)
def test_kill_9_of_the_flow_and_again(tmp_path, texts, undisturbed, markers):
    process = start(tmp_path, tmp_path / "home", texts)
    wait_for(process, tmp_path / "home", markers)
    children = psutil.Process(process.pid).children(recursive=True)
    time.sleep(random.Random(markers).uniform(0, 0.05))
    process.kill()
    process.wait()
    for child in children:
        child.kill()
    psutil.wait_procs(children, timeout=60)
    assert kept(start(tmp_path, tmp_path / "home", texts)) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("markers", POINTS)
def test_kill_9_of_a_worker(tmp_path, texts, undisturbed, markers):
    process = start(tmp_path, tmp_path / "home", texts)
    wait_for(process, tmp_path / "home", markers)
    workers = [
        child for child in psutil.Process(process.pid).children(recursive=True) if "spawn_main" in str(child.cmdline())
    ]
    assert workers
    time.sleep(random.Random(markers).uniform(0, 0.05))
    os.kill(random.Random(markers).choice(workers).pid, signal.SIGKILL)
    assert kept(process) == undisturbed
