"""Noise, rates and starts of the proxies for a GPU that is lent for minutes: A/A pairs until a time is over.

    B="-m tests.benchmarks.gpu_noise"
    python $B prepare FOLDER recipe.yaml --judge-per-source 100 --tokens 4000000 --pairs 12
    python $B train FOLDER --seconds 540 --at-once 8 --results FOLDER/results-1.jsonl
    python $B train FOLDER --seconds 540 --at-once 8 --results FOLDER/results-2.jsonl
    python $B collect FOLDER

`prepare` makes token shards and evaluation documents as `gristmill decide ablate` makes them, and copies them into
FOLDER with the settings of every run. `train` needs torch and this checkout, no Prefect and no Dask. It begins no run
that would not end within `--seconds`, writes a line for each finished one, and leaves out those that any
`FOLDER/results-*.jsonl` has: so the next call resumes, on another machine too. `collect` writes the runs, without their
weights, into the home FOLDER/home, and prints rates, starts, and the command `gristmill decide noise` for that home.
Pairs come first in the order of the runs, so that a cut series still has whole pairs of each proxy.
"""

import argparse
import json
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from gristmill.storage import checked_json, ledger, parquet
from gristmill.training.config import DOCUMENT_LOSSES, RunConfig, TrainingConfig
from gristmill.training.decoder import flops_per_token
from gristmill.training.evaluate.heldout import SCHEMA
from gristmill.training.model_config import ModelConfig
from gristmill.training.run import launch
from gristmill.training.run.preloaded import preloaded
from gristmill.training.run.tracking import TIMING
from tests.benchmarks.gpu_ranks import RUNS, THREAD, named_stages

MARGIN = 1.2  # of the median run of a proxy: with less time left, no run begins


def prepare(given: argparse.Namespace) -> None:

    # isort: split
    from gristmill.flows.experiments.decisions.arm_data import proxy_data
    from gristmill.flows.recipe.forms import RecipeLike
    from gristmill.flows.recipe.proxy import load_proxy
    from gristmill.flows.recipe.recipe import load
    from gristmill.flows.run.flow import recorded_flow
    from gristmill.flows.run.runner import run_context
    from gristmill.flows.stages.proxy import run_record
    from gristmill.flows.stats.protocol import requests

    loaded = load(given.recipe)
    runs: list[dict[str, Any]] = []

    @recorded_flow(name="gpu_noise", persist_result=False)
    def prepared(recipe: RecipeLike) -> None:
        with run_context(recipe) as context:
            for name in given.proxies:
                proxy = load_proxy(name)
                changed = {"evaluation_documents": given.judge_per_source} if given.judge_per_source else {}
                proxy = proxy.model_copy(update=changed)
                data = proxy_data(context, proxy, {recipe.name: recipe}, given.tokens, repeat=True)
                for run in requests(recipe.name, range(1, given.pairs + 1), proxy.learning_rates, data.budget_tokens):
                    stage = data.mixture(run.arm, run.pair)
                    record = run_record(proxy, run.tokens, run.learning_rate, run.pair, run.salt)
                    place = f"{proxy.name}-{run.pair}-{run.learning_rate:g}-{run.salt}"
                    runs.append({"place": place, "proxy": name, "vocabulary": proxy.vocab_size} | vars(run))
                    runs[-1] |= {"mixture": [stage.name, stage.key, stage.contents]}
                    runs[-1] |= {"record": record.model_dump(mode="json")}
                    for folder in (Path(stage.folder), *named_stages(Path(stage.folder))):
                        shutil.copytree(folder, given.folder / folder.name, dirs_exist_ok=True)
                judged = Path(data.evaluation.folder)
                shutil.copytree(judged, given.folder / "home" / "stages" / judged.name, dirs_exist_ok=True)

    prepared(loaded)
    runs.sort(key=lambda run: run["pair"])
    (given.folder / RUNS).write_text(json.dumps(runs))
    print(f"{len(runs)} runs")


def finished(folder: Path) -> dict[str, dict[str, Any]]:
    """The lines of all results, by the place of the run; a line that was cut is left out."""
    found = {}
    for path in sorted(folder.glob("results-*.jsonl")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                one = json.loads(line)
                found[one["place"]] = one
    return found


def train(given: argparse.Namespace) -> int:
    """How many runs ended with an error."""
    began, lock, failed = time.monotonic(), threading.Lock(), []
    seconds: dict[str, list[float]] = {}
    there = finished(given.folder)
    runs = [run for run in json.loads((given.folder / RUNS).read_text()) if run["place"] not in there]
    out = given.folder / "out"
    shutil.rmtree(out, ignore_errors=True)

    def left() -> float:
        return given.seconds - (time.monotonic() - began)

    def check() -> None:
        if left() < 0:
            raise TimeoutError("no time is left")

    def one(run: dict[str, Any], address: str) -> None:
        needed = MARGIN * statistics.median(seconds.get(run["proxy"], [0.0]))
        if left() <= needed or failed:
            return
        start = time.monotonic()
        try:
            result = trained(given.folder, out / run["place"], run, address, check, given.steps)
        except TimeoutError:
            print(f"{run['place']}: ended after {time.monotonic() - start:.0f} s, since no time is left", flush=True)
            return
        except RuntimeError as error:
            failed.append(run["place"])
            print(f"{run['place']}: {error}", flush=True)
            return
        with lock, open(given.results, "a") as file:
            seconds.setdefault(run["proxy"], []).append(result["seconds"])
            file.write(json.dumps(result) + "\n")
        print(f"{run['place']}: {result['seconds']:.1f} s, start {result['start']:.1f} s", flush=True)

    with preloaded(THREAD) as address:
        # one of each proxy by itself: it compiles for the others, and its start is that of a first run
        firsts = list({run["proxy"]: run for run in reversed(runs)}.values())
        for run in firsts:
            one(run, address)
        with ThreadPoolExecutor(given.at_once) as pool:
            list(pool.map(lambda run: one(run, address), [run for run in runs if run not in firsts]))
    print(f"{len(finished(given.folder) | finished(Path(given.results).parent))} runs are finished", flush=True)
    return len(failed)


def trained(
    folder: Path, out: Path, run: dict[str, Any], address: str, check: Callable[[], None], steps: int | None
) -> dict[str, Any]:
    """The line of a run. `steps`: so many of one sequence, to try the script. Raises RuntimeError with the end of its
    log."""
    training = TrainingConfig.model_validate(run["record"]["training"])
    if steps:
        own = {"steps": steps, "warmup_steps": 1, "eval_every": steps, "checkpoint_every": steps}
        training = training.model_copy(update=own | {"monitor_every": steps + 1, "batch": 1, "micro_batch": 1})
    name, key, _ = run["mixture"]
    its = RunConfig(
        model=ModelConfig.model_validate(run["record"]["model"]),
        training=training,
        data=folder / f"{name}-{key}" / "mixture.json",
        out=out,
        document_losses=True,
    )
    out.mkdir(parents=True)
    checked_json.write(str(out / "run.json"), its.model_dump(mode="json"))
    start = time.monotonic()
    code = launch.launch(out / "run.json", 1, out / "training.log", env=THREAD, poll=check, preloaded=address)
    seconds = time.monotonic() - start
    if code:
        raise RuntimeError(f"code {code}\n{(out / 'training.log').read_text()[-2000:]}")
    lines = [json.loads(line) for line in (out / TIMING).read_text().splitlines()]
    speed = statistics.median(line["train/tokens_per_second"] for line in lines[1:] or lines)
    result = json.loads((out / "result.json").read_text())
    losses = parquet.read_table(str(out / DOCUMENT_LOSSES))
    shutil.rmtree(out)
    return {
        "place": run["place"],
        "seconds": seconds,
        "tokens_per_second": speed,
        "start": seconds - result["tokens"] / speed,
        "tokens": result["tokens"],
        "losses": {name: losses[name].to_pylist() for name in SCHEMA.names},
    }


def collect(given: argparse.Namespace) -> None:

    # isort: split
    from contextlib import nullcontext
    from dataclasses import replace

    from gristmill.flows.machine.settings import MachineSettings
    from gristmill.flows.recipe.proxy import PROXIES, load_proxy
    from gristmill.flows.stages.proxy import ProxyRun, proxy_spec
    from gristmill.tasks.engine.executors import Threads
    from gristmill.tasks.engine.make import StageResult, find_or_make
    from gristmill.tasks.engine.phases import Silent

    runs, found = json.loads((given.folder / RUNS).read_text()), finished(given.folder)
    settings = MachineSettings(home=str(given.folder / "home"))
    print(
        "| proxy | runs | s a run | start, first | start, later | tokens/s | GFLOP/s |\n|---|---|---|---|---|---|---|"
    )
    for name in dict.fromkeys(run["proxy"] for run in runs):
        proxy = load_proxy(name)
        own = [(run, found[run["place"]]) for run in runs if run["proxy"] == name and run["place"] in found]
        for run, result in own:
            kind, key, contents = run["mixture"]
            mixture = StageResult(kind, key, str(given.folder / f"{kind}-{key}"), {"contents": contents}, reused=True)
            asked = ProxyRun(proxy, mixture, run["pair"], run["learning_rate"], run["tokens"], run["salt"])
            spec = replace(proxy_spec(settings, asked, 0), body=_collected, places=json.dumps(result))
            find_or_make(settings.home, spec, Threads(1, None), lambda: nullcontext(Silent()))
        if own:
            print(_row(name, [result for _, result in own], proxy))
    for name in dict.fromkeys(run["proxy"] for run in runs):
        print(f"GRISTMILL_HOME={settings.home} gristmill decide noise {PROXIES / name}.yaml --runs '...'")


def _collected(phases: Any, record: Any, places: str) -> dict[str, Any]:
    """Take up the losses of a run that was trained elsewhere."""
    result = json.loads(places)
    parquet.write_table(f"{phases.folder}/{DOCUMENT_LOSSES}", pa.table(result["losses"], schema=SCHEMA))
    phases.once("record", ledger.record_files, {"names": [DOCUMENT_LOSSES], "logs": []})
    return {"tokens": result["tokens"], "metrics": {}}


def _row(name: str, results: Sequence[dict[str, Any]], proxy: Any) -> str:
    speed = statistics.median(each["tokens_per_second"] for each in results)
    rate = speed * float(flops_per_token(proxy.model, proxy.vocab_size)) / 1e9
    later = statistics.median(each["start"] for each in results[1:] or results)
    taken = statistics.median(each["seconds"] for each in results)
    first = results[0]["start"]
    return f"| {name} | {len(results)} | {taken:.1f} | {first:.1f} | {later:.1f} | {speed:,.0f} | {rate:,.1f} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("prepare")
    one.add_argument("folder", type=Path)
    one.add_argument("recipe")
    one.add_argument("--proxies", nargs="+", default=["3m", "15m"])
    one.add_argument("--judge-per-source", type=int, help="evaluation documents of each source, not the proxy's number")
    one.add_argument("--tokens", type=int, default=4_000_000)
    one.add_argument("--pairs", type=int, default=12)
    one.set_defaults(run=prepare)
    two = commands.add_parser("train")
    two.add_argument("folder", type=Path)
    two.add_argument("--seconds", type=float, default=540, help="of all runs together")
    two.add_argument("--at-once", type=int, default=8)
    two.add_argument("--steps", type=int, help="so many of one sequence each, to try the script")
    two.add_argument("--results", type=Path, required=True, help="FOLDER/results-NAME.jsonl, or where to bring it from")
    two.set_defaults(run=train)
    three = commands.add_parser("collect")
    three.add_argument("folder", type=Path)
    three.set_defaults(run=collect)
    given = parser.parse_args(arguments)
    given.folder = given.folder.resolve()
    given.folder.mkdir(exist_ok=True)
    return given.run(given) or 0


if __name__ == "__main__":
    from tests.benchmarks import gpu_noise  # whose functions have the name of this module

    raise SystemExit(gpu_noise.main())
