"""Ranks of recipes by the proxies for a GPU: made ready where the pipeline is, trained where a GPU is, read anywhere.

    B="-m tests.benchmarks.gpu_ranks"
    .venv/bin/python $B prepare FOLDER raw.yaml gopher.yaml --clean articles.jsonl --tokens 4000000
    python $B train FOLDER --at-once 8
    .venv/bin/python $B show FOLDER

`prepare` makes token shards and evaluation documents of all recipes as `gristmill decide ablate` makes them, and copies
them into FOLDER with the settings of every run. `train` needs torch and this checkout, no Prefect and no Dask, and
writes what each evaluation document cost every run beside them. `show` prints bits per byte by recipe, proxy and
learning rate, over pairs of runs, and how much runs of one recipe differ. Proxies keep shape, optimizer and rates;
`--tokens` is what every run reads, with repetition as far as the recipes allow, so that a small corpus can be tried.
"""

import argparse
import json
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from gristmill.storage import checked_json, files, parquet
from gristmill.training.config import DOCUMENT_LOSSES, RunConfig, TrainingConfig
from gristmill.training.model_config import ModelConfig
from gristmill.training.run import launch
from gristmill.training.run.preloaded import preloaded

RUNS = "runs.json"
THREAD = {"OMP_NUM_THREADS": "1"}  # as the stage of a proxy has


def prepare(given: argparse.Namespace) -> None:

    # isort: split
    from gristmill.flows.experiments.decisions.arm_data import proxy_data
    from gristmill.flows.recipe.forms import RecipeLike
    from gristmill.flows.recipe.proxy import load_proxy
    from gristmill.flows.recipe.recipe import load
    from gristmill.flows.run.flow import recorded_flow
    from gristmill.flows.run.runner import run_context
    from gristmill.flows.stages.proxy import run_record

    recipes = {recipe.name: recipe for recipe in map(load, given.recipes)}
    runs: list[dict[str, Any]] = []

    @recorded_flow(name="gpu_ranks", persist_result=False)
    def prepared(recipe: RecipeLike) -> None:
        with run_context(recipe) as context:
            for name in given.proxies:
                proxy = load_proxy(name)
                # one batch for all, since a small corpus gives few steps of large ones
                proxy = proxy.model_copy(
                    update={"training": proxy.training.model_copy(update={"batch": given.batch, "micro_batch": 32})}
                )
                data = proxy_data(context, proxy, recipes, given.tokens, clean=given.clean, repeat=True)
                for arm, rate, pair in product(recipes, proxy.learning_rates, range(given.pairs)):
                    mixture = Path(data.mixture(arm, pair).folder)
                    record = run_record(proxy, data.budget_tokens, rate, pair, 0)
                    place = f"{name}-{arm}-{rate:g}-{pair}"
                    runs.append({"proxy": name, "arm": arm, "rate": rate, "pair": pair, "place": place})
                    runs[-1] |= {"mixture": mixture.name, "record": record.model_dump(mode="json")}
                    for folder in (mixture, *named_stages(mixture)):
                        shutil.copytree(folder, given.folder / folder.name, dirs_exist_ok=True)

    prepared(given.recipes[0])
    (given.folder / RUNS).write_text(json.dumps(runs))
    print(f"{len(runs)} runs of {runs[0]['record']['training']['steps']} steps")


def named_stages(mixture: Path) -> list[Path]:
    """The folders of the stages whose files a mixture names."""
    manifest = checked_json.read(str(mixture / "mixture.json"))
    entries = [manifest["tokenizer"]]
    entries += [shard for part in (*manifest["sources"], *manifest["heldout"]) for shard in part["shards"]]
    return sorted({(mixture / entry["path"]).resolve().parent for entry in entries})


def train(given: argparse.Namespace) -> None:
    runs = json.loads((given.folder / RUNS).read_text())
    began = time.perf_counter()

    def one(run: dict[str, Any], address: str) -> None:
        out = given.folder / "out" / run["place"]
        out.mkdir(parents=True)
        its = RunConfig(
            model=ModelConfig.model_validate(run["record"]["model"]),
            training=TrainingConfig.model_validate(run["record"]["training"]),
            data=given.folder / run["mixture"] / "mixture.json",
            out=out,
            document_losses=True,
        )
        checked_json.write(str(out / "run.json"), its.model_dump(mode="json"))
        start = time.perf_counter()
        code = launch.launch(out / "run.json", 1, out / "training.log", env=THREAD, preloaded=address)
        seconds = time.perf_counter() - start
        print(f"{run['place']}: code {code}, {seconds:.1f} s", flush=True)
        if code:
            print((out / "training.log").read_text()[-2000:], flush=True)
            return
        losses = parquet.read_table(str(out / DOCUMENT_LOSSES))
        table = {name: losses[name].to_pylist() for name in ("set", "bits", "bytes")}
        (given.folder / "losses" / f"{run['place']}.json").write_text(json.dumps(table | {"seconds": seconds}))
        shutil.rmtree(out)

    (given.folder / "losses").mkdir(exist_ok=True)
    shutil.rmtree(given.folder / "out", ignore_errors=True)
    with preloaded(THREAD) as address:
        # one of each proxy alone first: it compiles for the others
        firsts = list({run["proxy"]: run for run in reversed(runs)}.values())
        for run in firsts:
            one(run, address)
        with ThreadPoolExecutor(given.at_once) as pool:
            list(pool.map(lambda run: one(run, address), [run for run in runs if run not in firsts]))
    print(f"{len(runs)} runs in {time.perf_counter() - began:.0f} s")


def show(given: argparse.Namespace) -> None:
    runs = json.loads((given.folder / RUNS).read_text())
    found: dict[tuple[str, str, float, str], dict[int, float]] = {}
    seconds: dict[str, list[float]] = {}
    for run in runs:
        path = given.folder / "losses" / f"{run['place']}.json"
        if not path.exists():
            print(f"{run['place']}: no losses")
            continue
        table = files.read_json(str(path))
        seconds.setdefault(run["proxy"], []).append(table["seconds"])
        for name in dict.fromkeys(table["set"]):
            rows = [i for i, its in enumerate(table["set"]) if its == name]
            figure = sum(table["bits"][i] for i in rows) / sum(table["bytes"][i] for i in rows)
            found.setdefault((name, run["proxy"], run["rate"], run["arm"]), {})[run["pair"]] = figure
    print("| judged by | proxy | rate | recipe | bits per byte | sd of a run |")
    print("|---|---|---|---|---|---|")
    for (name, proxy, rate, arm), pairs in sorted(found.items(), key=lambda item: (item[0][:3], min(item[1].values()))):
        figures = list(pairs.values())
        spread = f"{statistics.stdev(figures):.4f}" if len(figures) > 1 else "-"
        print(f"| {name} | {proxy} | {rate:g} | {arm} | {statistics.mean(figures):.4f} | {spread} |")
    for proxy, taken in seconds.items():
        print(f"{proxy}: {statistics.median(taken):.1f} s a run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("prepare")
    one.add_argument("folder", type=Path)
    one.add_argument("recipes", nargs="+")
    one.add_argument("--clean", help="texts that are an evaluation set of their own")
    one.add_argument("--proxies", nargs="+", default=["3m", "15m"])
    one.add_argument("--tokens", type=int, default=4_000_000)
    one.add_argument("--batch", type=int, default=32)
    one.add_argument("--pairs", type=int, default=4)
    one.set_defaults(run=prepare)
    two = commands.add_parser("train")
    two.add_argument("folder", type=Path)
    two.add_argument("--at-once", type=int, default=8)
    two.set_defaults(run=train)
    three = commands.add_parser("show")
    three.add_argument("folder", type=Path)
    three.set_defaults(run=show)
    given = parser.parse_args()
    given.folder = given.folder.resolve()
    given.folder.mkdir(exist_ok=True)
    given.run(given)


if __name__ == "__main__":
    main()
