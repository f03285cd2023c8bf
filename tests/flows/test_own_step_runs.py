"""A user's step in finished runs: in the ledger, replayed, and its code in the key of what lies behind it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import new_step
from gristmill.flows.reports.dropped import dropped
from gristmill.flows.reports.whatif import whatif

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["The mill stands by the river.", "Lorem est in the mill.", "lorem ipsum dolor LOREM Ipsum mill"]
RUN = """
import json, sys
from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.tasks.engine.executors import executor
from tests.corpora import context

if __name__ == "__main__":
    recipe, home, kind = sys.argv[1:]
    with executor(kind, 2) as workers:
        *_, last = curate(context(home, workers), load(recipe))
    print(json.dumps([[stage.name, stage.key, stage.reused] for stage in last.left.stages]))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with `steps/latin_step.py` on the path of modules, `own.yaml` and its source."""
    new_step.write("latin", tmp_path / "steps")
    for name in ("a", "b"):
        lines = (json.dumps({"text": f"{text} {name}"}) + "\n" for text in TEXTS)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    recipe = {
        "name": "own",
        "sources": [{"name": "web", "jsonl": [f"{tmp_path}/*.jsonl"]}],
        "steps": [{"step": "extract"}, {"step": "content_dedup"}, {"step": "latin_step:Latin", "max_hits": 1}],
        "mixture": {"weights": {"web": 1}},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(recipe))
    (tmp_path / "run.py").write_text(RUN)
    monkeypatch.setenv("GRISTMILL_STEPS", "latin_step")
    monkeypatch.syspath_prepend(str(tmp_path / "steps"))
    yield tmp_path
    sys.modules.pop("latin_step", None)


def run(place: Path, kind: str) -> dict[str, tuple[str, bool]]:
    """The key of each stage, and whether it was found finished, of a run in a process of its own."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{place / 'steps'}"}
    command = [sys.executable, str(place / "run.py"), str(place / "own.yaml"), str(place / "home"), kind]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: (key, reused) for name, key, reused in json.loads(done.stdout.splitlines()[-1])}


@pytest.mark.extended
def test_it_runs_on_workers_is_in_the_ledger_replayed_and_made_again_when_edited(place):
    first = run(place, "local")
    assert not any(reused for _, reused in first.values())
    home = str(place / "home")
    shown = list(dropped(home, "dropped", "latin.hits", 9))
    assert [(found.row["value"], found.row["threshold"]) for found in shown] == [(4, 1), (4, 1)]
    assert all(found.text.startswith("lorem ipsum") for found in shown)
    replay = whatif(place / "own.yaml", {"latin.max_hits": 0}, MachineSettings(home=home))
    assert [count["drops"] for count in replay.replayed] == [{"hits": 4}]

    assert run(place, "serial") == {name: (key, True) for name, (key, _) in first.items()}

    step = place / "steps" / "latin_step.py"
    step.write_text(step.read_text().replace("text.lower()", "text.casefold()"))
    edited = run(place, "serial")
    # its signals are as before: what decides by them is not made again
    assert {name for name, (_, reused) in edited.items() if not reused} == {"signals"}
    assert {name for name in first if first[name][0] != edited[name][0]} == {"signals"}
