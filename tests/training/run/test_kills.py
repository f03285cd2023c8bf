"""Training killed by SIGKILL at random moments, gone on with by other numbers of ranks: nothing is lost or repeated.

GRISTMILL_TEST_TRAINING_KILLS: how many kills; GRISTMILL_TEST_TRAINING_KILLS_SEED: which processes and moments are
drawn.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from gristmill.storage import checked_json, files
from gristmill.training.checkpoint.keeping import COMMIT, committed
from gristmill.training.run.tracking import METRICS

KILLS = int(os.environ.get("GRISTMILL_TEST_TRAINING_KILLS", "5"))
SEED = int(os.environ.get("GRISTMILL_TEST_TRAINING_KILLS_SEED", "7"))
ROOT = Path(__file__).resolve().parents[3]
KINDS = ("rank", "agent", "launcher", "saving")
STEPS, EVERY = 100, 5
TOLERANCE = 1e-4
LAUNCHER = (
    "import sys; from gristmill.training.run.launch import launch\n"
    "sys.exit(launch(sys.argv[1], int(sys.argv[2]), sys.argv[3]))"
)


def started(out: Path, size: int) -> subprocess.Popen:
    with open(out / "launcher.txt", "a") as log:
        return subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, out / "run.json", str(size), out / "log.txt"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
        )


def living(launcher: subprocess.Popen) -> dict[str, list[psutil.Process]]:
    """The processes of a launch by kind."""
    found: dict[str, list[psutil.Process]] = {"launcher": [psutil.Process(launcher.pid)], "agent": [], "rank": []}
    for process in psutil.Process(launcher.pid).children(recursive=True):
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if "gristmill.training.run.agent" in line:
            found["agent"].append(process)
        elif "gristmill.training.run.launch" in line:
            found["rank"].append(process)
    return found


def lines(out: Path) -> int:
    return (out / METRICS).read_bytes().count(b"\n") if (out / METRICS).exists() else 0


def writing(out: Path) -> bool:
    return any(not (path / COMMIT).exists() for path in (out / "checkpoints").glob("step-*"))


def steps(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / METRICS).read_text().splitlines()]


def assert_whole(checkpoint: Path) -> None:
    """Every file has the digest that COMMIT has of it."""
    digests = checked_json.read(str(checkpoint / COMMIT))["files"]
    assert digests.keys() == {path.name for path in checkpoint.iterdir()} - {COMMIT}
    assert all(files.checksum(str(checkpoint / name)) == digest for name, digest in digests.items())


def assert_same_training(out: Path, expected: list[dict]) -> None:
    """Each step once, with the loss of its own samples: no other step's is as near."""
    found = steps(out)
    assert [line["step"] for line in found] == list(range(1, STEPS + 1))
    assert [line["train/tokens"] for line in found] == [line["train/tokens"] for line in expected]
    for line, truth in zip(found, expected, strict=True):
        assert line == pytest.approx(truth, rel=TOLERANCE, abs=TOLERANCE)
    between = [abs(a["train/loss"] - b["train/loss"]) for a, b in zip(expected, expected[1:], strict=False)]
    assert statistics.median(between) > 50 * TOLERANCE


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="parent-death signals are Linux's")
@pytest.mark.timeout(200 + 60 * KILLS)
def test_kills_at_random_moments(make_run, tmp_path):
    settings = {"steps": STEPS, "checkpoint_every": EVERY, "eval_every": 25, "learning_rate": 0.002, "sample_tokens": 0}

    def new(name: str) -> Path:
        run = make_run(tmp_path / name, training=settings)
        run.out.mkdir()
        checked_json.write(str(run.out / "run.json"), run.model_dump(mode="json"))
        return run.out

    unkilled = new("unkilled")
    began = time.monotonic()
    whole = started(unkilled, 2)
    while whole.poll() is None and not lines(unkilled):
        time.sleep(0.01)
    first = time.monotonic() - began
    assert whole.wait() == 0, (unkilled / "log.txt").read_text()
    training = time.monotonic() - began - first
    expected = steps(unkilled)
    draw, seen, sizes = random.Random(SEED), Counter(), []
    out, runs, before = new("run-1"), 1, 0
    while seen.total() < KILLS:
        kind = KINDS[seen.total() % len(KINDS)]
        size = draw.choice([n for n in (1, 2, 3) if not sizes or n != sizes[-1]])
        sizes.append(size)
        launcher = started(out, size)
        starting = draw.random() < 0.1  # so early that no step is done
        delay = draw.uniform(0, first if starting else min(training, 3))
        step = lines(out)
        while launcher.poll() is None and not starting and lines(out) == step:
            time.sleep(0.005)
        if kind == "saving":
            until = time.monotonic() + delay
            while launcher.poll() is None and (time.monotonic() < until or not writing(out)):
                time.sleep(0.001)
            time.sleep(draw.uniform(0, 0.02))
        else:
            time.sleep(delay)
        victims = living(launcher) if launcher.poll() is None else {}
        chosen = victims.get(draw.choice(["rank", "launcher"]) if kind == "saving" else kind, [])
        everyone = [process for each in victims.values() for process in each]
        if chosen and launcher.poll() is None:
            half = writing(out)
            draw.choice(chosen).kill()
            seen[kind] += 1
            seconds, step = time.monotonic() - began, lines(out)
            print(f"{seconds:.0f} s: {seen.total()}, {kind} of {size} at step {step}, half written: {half}", flush=True)
        code = launcher.wait(120)
        assert not psutil.wait_procs(everyone, timeout=30)[1], "a process is left"
        there = committed(out / "checkpoints")
        assert max(there, default=0) >= before, "a checkpoint was lost"
        before = max(there, default=0)
        for path in there.values():
            assert_whole(path)
        if code == 0:
            assert_same_training(out, expected)
            runs, before = runs + 1, 0
            out = new(f"run-{runs}")
        elif (out / "result.json").exists():  # it was killed between its result and its end
            assert before == STEPS
    while before < STEPS or not (out / "result.json").exists():
        assert started(out, draw.choice([1, 2, 3])).wait(120) == 0, (out / "log.txt").read_text()
        before = max(committed(out / "checkpoints"))
    assert_same_training(out, expected)
    print(f"{seen.total()} kills {dict(seen)} in {runs} runs, sizes {dict(Counter(sizes))}")
