"""Proxy runs as stages: found or trained, several at once, and what a kill leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import psutil
import pytest

from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.proxy import ProxyConfig, load_proxy
from gristmill.flows.run.runner import build_at_once
from gristmill.flows.stages.proxy import ProxyResult, ProxyRun, at_once, devices_of, train_proxies
from gristmill.storage import parquet
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import StageResult, find_or_make
from gristmill.tasks.engine.phases import Silent
from tests.corpora import build_in

ROOT = Path(__file__).resolve().parents[3]
STEPS = 30
PROXY = ProxyConfig(
    name="tiny",
    model={"dim": 16, "layers": 1, "heads": 2, "seq_len": 32},
    training={"batch": 4, "warmup_steps": 3},
    tokens=STEPS * 4 * 32,
    learning_rates=(0.003, 0.01),
)


def run(corpus: Path, pair: int, rate: float = 0.01, **rest) -> ProxyRun:
    mixture = StageResult("mixture", "planted", str(corpus.parent), {"contents": "planted"}, reused=True)
    return ProxyRun(PROXY, mixture, pair, rate, PROXY.tokens, **rest)


def context(home: Path, runs: int) -> RunContext:
    """Several at once as a flow makes them, without Prefect's records."""

    def make(spec, check):
        return find_or_make(str(home), spec, Threads(1, None), lambda: nullcontext(Silent()), check)

    settings = MachineSettings(home=str(home), proxy_runs=runs)
    return RunContext(
        settings,
        build_in(str(home)),
        at_once=lambda specs, most, jobs: build_at_once(make, specs, min(most(), len(specs))),
    )


def trainings(home: Path) -> dict[str, int]:
    """How often each run has begun to train."""
    return {
        path.parent.name: sum(line.startswith("step  1/") for line in path.read_text().splitlines())
        for path in home.glob("stages/proxy-*/training.log")
    }


def same(ours: ProxyResult, other: ProxyResult) -> bool:
    arrays = ("bits", "sizes", "set_of")
    return (ours.key, ours.metrics, ours.tokens) == (other.key, other.metrics, other.tokens) and all(
        np.array_equal(getattr(ours, name), getattr(other, name)) for name in arrays
    )


def written(home: Path) -> dict[str, bytes]:
    """What a stage's manifest answers for."""
    names = ("document_losses.parquet", "metrics.jsonl", "model.safetensors", "manifest.json")
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for name in names
        for path in sorted(home.glob(f"stages/proxy-*/{name}"))
    }


@pytest.mark.extended
def test_a_run_is_trained_once_and_found_again(corpus, tmp_path):
    home = context(tmp_path, runs=2)
    first, twin = train_proxies(home, [run(corpus, pair=3), run(corpus, pair=3)])
    (again,) = train_proxies(home, [run(corpus, pair=3)])
    assert list(trainings(tmp_path).values()) == [1]
    assert same(first, twin) and same(first, again) and again.reused and not first.reused
    table = parquet.read_table(f"{first.folder}/document_losses.parquet").to_pydict()
    assert first.sets == ("web", "books") and [first.sets[i] for i in first.set_of] == table["set"]
    assert first.bits.tolist() == table["bits"] and first.sizes.tolist() == table["bytes"]
    assert first.tokens == PROXY.tokens and first.seconds > 0
    sources = json.loads(corpus.read_text())["sources"]
    assert sum(first.epochs[source["name"]] * source["tokens"] for source in sources) == pytest.approx(PROXY.tokens)
    # the loss of all documents, as the run's own evaluation of windows across them has it, within what a beginning
    # behind the end of text makes
    whole = first.bits.sum() / first.sizes.sum()
    assert whole == pytest.approx(first.metrics["heldout/bits_per_byte"], rel=0.02)
    assert not (Path(first.folder) / "checkpoints").exists()


def test_what_decides_a_run_is_in_its_key_and_nothing_else(corpus, tmp_path):
    from gristmill.flows.stages.proxy import proxy_spec

    def key(given: ProxyRun, slot: int = 0) -> str:
        return proxy_spec(MachineSettings(home=str(tmp_path)), given, slot).key

    one = run(corpus, pair=1)
    assert key(one) == key(run(corpus, pair=1), slot=1)
    others = [run(corpus, 2), run(corpus, 1, 0.003), run(corpus, 1, salt=1)]
    assert len({key(one), *map(key, others)}) == 4


@pytest.mark.slow
def test_how_many_at_once_changes_no_loss(corpus, tmp_path):
    given = [run(corpus, pair, rate) for pair in (0, 1) for rate in PROXY.learning_rates]
    serial = train_proxies(context(tmp_path / "serial", runs=1), given)
    beside = train_proxies(context(tmp_path / "beside", runs=3), given)
    assert all(map(same, serial, beside))
    assert written(tmp_path / "serial") == written(tmp_path / "beside")
    assert len({result.bits.tobytes() for result in serial}) == 4


def in_a_process_of_their_own(monkeypatch) -> None:
    monkeypatch.setattr("gristmill.flows.stages.proxy.preloaded", lambda environment: nullcontext(""))


@pytest.mark.slow
def test_a_forked_run_has_the_bytes_of_one_that_was_started(corpus, tmp_path, monkeypatch):
    given = [run(corpus, pair, rate) for pair in (0, 1) for rate in PROXY.learning_rates]
    train_proxies(context(tmp_path / "forked", runs=2), given)
    in_a_process_of_their_own(monkeypatch)
    train_proxies(context(tmp_path / "started", runs=2), given)
    assert written(tmp_path / "forked") == written(tmp_path / "started")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="runs are forked on Linux alone")
def test_without_the_process_that_forks_them_runs_are_started(corpus, tmp_path):
    """It is killed while two run, which die with it: they go on from checkpoints or anew, and the others begin."""
    given = [run(corpus, pair) for pair in range(4)]
    expected = tmp_path / "undisturbed"
    train_proxies(context(expected, runs=2), given)
    with ThreadPoolExecutor(1) as thread:
        results = thread.submit(train_proxies, context(tmp_path / "home", runs=2), given)
        until = time.monotonic() + 240
        while not any(trainings(tmp_path / "home").values()):
            assert time.monotonic() < until and not results.done()
            time.sleep(0.02)
        [parent] = parents()
        parent.kill()
        results.result()
    assert written(tmp_path / "home") == written(expected)
    assert parents() == [] and ranks(tmp_path) == []


@pytest.mark.slow
def test_a_proxy_of_two_processes_in_bf16_with_a_long_warm_up_runs(corpus, tmp_path):
    """500 warm-up steps, of 520: more than the steps that a training has by default."""
    file = tmp_path / "own.yaml"
    file.write_text(
        "name: own\n"
        "model: {dim: 16, layers: 1, heads: 2, seq_len: 16}\n"
        "training: {steps: 520, warmup_steps: 500, batch: 2, micro_batch: 1, precision: bf16}\n"
        "learning_rates: [0.003, 0.01]\n"
        "processes: 2\n"
    )
    proxy = load_proxy(file)
    mixture = StageResult("mixture", "planted", str(corpus.parent), {"contents": "planted"}, reused=True)
    (found,) = train_proxies(context(tmp_path, runs=1), [ProxyRun(proxy, mixture, 1, 0.01, proxy.tokens)])
    lines = [json.loads(line) for line in (Path(found.folder) / "metrics.jsonl").read_text().splitlines()]
    rates = [line["train/learning_rate"] for line in lines]
    assert len(rates) == 520 and rates.index(max(rates)) == 499
    assert json.loads((Path(found.folder) / "run.json").read_text())["training"]["precision"] == "bf16"
    assert found.tokens == 520 * 2 * 16 and np.isfinite(found.bits).all()
    assert ranks(tmp_path) == [] and not (Path(found.folder) / "checkpoints").exists()


@pytest.mark.parametrize(
    ("slot", "processes", "known", "devices"),
    [
        (0, 1, (), ""),
        (1, 1, ("4", "7"), "7"),
        (2, 1, ("4", "7"), "4"),
        (0, 2, ("0", "1", "2", "3"), "0,1"),
        (1, 2, ("0", "1", "2", "3"), "2,3"),
        (1, 2, ("0", "1", "2"), "2,0"),
    ],
)
def test_runs_beside_each_other_have_gpus_of_their_own(slot, processes, known, devices):
    assert devices_of(slot, processes, known) == devices


def test_more_processes_than_gpus_are_refused():
    with pytest.raises(ValueError, match="has 4 processes, with one GPU each, but this machine has 2: lower"):
        devices_of(0, 4, ("0", "1"))


def test_fewer_runs_of_several_processes_are_trained_at_once(monkeypatch):
    settings = MachineSettings(home="nowhere")
    monkeypatch.setattr("gristmill.flows.stages.proxy.gpus", lambda: ("0", "1", "2", "3", "4"))
    assert [at_once(settings, processes) for processes in (1, 2, 4, 8)] == [5, 2, 1, 1]
    assert at_once(MachineSettings(home="nowhere", proxy_runs=3), 2) == 3


DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.training.run.test_proxy_runs import context, run
from gristmill.flows.stages.proxy import train_proxies
train_proxies(context(Path(sys.argv[2]), runs=2), [run(Path(sys.argv[3]), pair) for pair in range(4)])
"""


def start(home: Path, corpus: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", DRIVER, str(ROOT), str(home), str(corpus)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)


def ranks(home: Path) -> list[psutil.Process]:
    """The processes of runs, forked or not: those whose output a run's log is. The agent of several is one, too."""
    found = []
    for process in psutil.process_iter():
        try:
            output = os.readlink(f"/proc/{process.pid}/fd/1")
        except OSError:  # another user's, or it ended while we looked
            continue
        if output.startswith(str(home.resolve())) and output.endswith("training.log"):
            found.append(process)
    return found


def log_of(rank: psutil.Process) -> str:
    return os.readlink(f"/proc/{rank.pid}/fd/1")


def parents() -> list[psutil.Process]:
    """Processes that have loaded training, for runs of ours to be forked from."""
    ours = psutil.Process().children(recursive=True)
    return [process for process in ours if "gristmill.training.run.preloaded" in process.cmdline() and _serves(process)]


def _serves(process: psutil.Process) -> bool:
    return os.readlink(f"/proc/{process.pid}/fd/0").startswith("socket:")


def wait_for(process: subprocess.Popen, condition) -> None:
    until = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="parent-death signals are Linux's")
def test_kill_9_of_a_run_then_of_all_and_the_same_command_again(corpus, tmp_path):
    undisturbed, home = tmp_path / "undisturbed", tmp_path / "home"
    assert start(undisturbed, corpus).wait(600) == 0
    assert sorted(trainings(undisturbed).values()) == [1, 1, 1, 1]

    process = start(home, corpus)
    wait_for(process, lambda: any(trainings(home).values()))
    began = next(name for name, count in trainings(home).items() if count)
    for rank in ranks(home):
        if began in log_of(rank):
            rank.send_signal(signal.SIGKILL)  # it is trained again, within the same command
    wait_for(process, lambda: len(list(home.glob("stages/proxy-*/manifest.json"))) == 2 and len(ranks(home)) == 2)
    process.kill()
    process.wait()
    until = time.monotonic() + 30
    while ranks(home) and time.monotonic() < until:
        time.sleep(0.05)
    assert ranks(home) == []
    finished = {path: path.stat().st_mtime_ns for path in home.glob("stages/proxy-*/manifest.json")}
    before = trainings(home)

    assert start(home, corpus).wait(600) == 0
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert all(trainings(home)[path.parent.name] == before[path.parent.name] for path in finished)
    assert written(home) == written(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT])
def test_a_signal_ends_all_runs(corpus, tmp_path, number):
    process = start(tmp_path, corpus)
    wait_for(process, lambda: any(trainings(tmp_path).values()))
    process.send_signal(number)
    process.wait(60)
    assert process.returncode != 0 and "KeyboardInterrupt" in process.stderr.read()
    assert ranks(tmp_path) == []


@pytest.mark.slow
def test_a_run_that_fails_ends_the_others_with_a_sentence(corpus, tmp_path):
    wrong = ProxyRun(
        **{
            **vars(run(corpus, 0)),
            "mixture": StageResult("mixture", "none", str(tmp_path / "no"), {"contents": "none"}, True),
        }
    )
    with pytest.raises(
        RuntimeError,
        match=r"the proxy run .*/proxy-\w+ ended: rank 0: FileNotFoundError: .*; more is in .*training\.log",
    ):
        train_proxies(context(tmp_path, runs=2), [wrong, run(corpus, 1)])
    assert ranks(tmp_path) == []
