"""A stage of very many tiny shards on Dask by address: what flow, scheduler and markers cost a shard, and their memory.

GRISTMILL_SHARDS: how many. Flow, scheduler, two workers and the store share the cores of one machine.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from storage import layout
from tests import services as servers

SHARDS = int(os.environ.get("GRISTMILL_SHARDS", "2000"))
COMMAND = "import sys; from flows.cli import main; sys.argv = ['gristmill', 'corpus', sys.argv[1]]; main()"


def plant(folder: Path) -> Path:
    """So many files of one document each; the path of their recipe."""
    crawl = folder / "crawl"
    crawl.mkdir()
    for number in range(SHARDS):
        text = f"Shard {number} has one document, of this one sentence, which nobody else has written down."
        (crawl / f"{number:05d}.jsonl").write_text(json.dumps({"text": text}))
    recipe = {
        "name": "many",
        "sources": [{"name": "web", "jsonl": [f"{crawl}/*.jsonl"]}],
        "steps": [{"step": "extract", "engine": "plain"}],
    }
    (folder / "many.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "many.yaml"


def timed(services: servers.Services, recipe: Path, home: str) -> tuple[float, list[tuple[int, int]]]:
    """Seconds of a run, and the resident memory of flow and scheduler, in bytes, once a second."""
    environment = services.environment | {"GRISTMILL_HOME": home, "GRISTMILL_LOCAL": str(recipe.parent / "local")}
    log = open(recipe.parent / "flow.log", "a")
    began = time.monotonic()
    flow = subprocess.Popen([sys.executable, "-c", COMMAND, str(recipe)], env=environment, stdout=log, stderr=log)
    watched = [psutil.Process(flow.pid), psutil.Process(services.processes["dask-scheduler"].pid)]
    memory = []
    while flow.poll() is None:
        one, other = (process.memory_info().rss for process in watched)
        memory.append((one, other))
        time.sleep(1)
    assert flow.returncode == 0, (recipe.parent / "flow.log").read_text()[-4000:]
    return time.monotonic() - began, memory


@pytest.mark.bench
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("store", ["folder", "s3"])
def test_many_tiny_shards(tmp_path, capsys, monkeypatch, store):
    with servers.begun(tmp_path / "services") as services:
        home = str(tmp_path / "home")
        if store == "s3":
            servers.start_s3(services)
            for name in services.environment.keys() - os.environ.keys():
                monkeypatch.setenv(name, services.environment[name])
            home = "s3://gristmill/many"
        servers.start_dask(services, 2)
        recipe = plant(tmp_path)
        seconds, memory = timed(services, recipe, home)
        again, _ = timed(services, recipe, home)
        [label] = [line.split("stages/")[1].split(",")[0] for line in said(recipe) if ": made in" in line]
        assert sum(f"reused {home}/stages/{label}" in line for line in said(recipe)) == 1
        manifest = layout.manifest(f"{home}/stages/{label}")
        assert manifest is not None and manifest["counts"]["rows_out"] == SHARDS
        with capsys.disabled():
            print(f"\n{store}: {SHARDS} shards, {seconds / SHARDS:.4f} s a shard, again in {again:.1f} s")
            for name, column in zip(("flow", "scheduler"), zip(*memory, strict=True), strict=True):
                at = [column[len(column) * part // 10] / 1e6 for part in range(10)]
                print(f"  {name}, MB over time: {', '.join(f'{each:.0f}' for each in at)}, {column[-1] / 1e6:.0f}")


def said(recipe: Path) -> list[str]:
    return (recipe.parent / "flow.log").read_text().splitlines()
