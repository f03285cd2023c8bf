"""Processes of a run killed at random moments, by the real command: the same bytes come out, and nothing is left.

GRISTMILL_KILLS: how many processes are killed, one a run.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from storage import layout

KILLS = int(os.environ.get("GRISTMILL_KILLS", "5"))
# What the command line of a process has in it; of the flow, nothing: it is the one that is started.
VICTIMS = {
    "flow": "",
    "worker": "spawn_main",
    "guard child": "tasks.guard.child",
    "agent": "torch.distributed.run",
    "rank": "training.launch",
}
COMMAND = "import sys; from flows.cli import main; sys.argv[0] = 'gristmill'; main()"


def started(runs, home: str, recipe: Path) -> subprocess.Popen:
    environment = runs.environment(home)
    with open(runs.folder / f"{home}.log", "a") as log:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, "run", str(recipe)],
            env=environment,
            cwd=runs.folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def of_home(home: Path) -> list[psutil.Process]:
    """The processes that have the home in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("GRISTMILL_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def victim(flow: subprocess.Popen, home: Path, kind: str, draw: random.Random) -> psutil.Process | None:
    """A process of the kind at a random moment of its life; None if the run ends before."""
    if kind == "flow":
        moment = time.monotonic() + draw.uniform(0, 30)
        while time.monotonic() < moment and flow.poll() is None:
            time.sleep(0.01)
        return psutil.Process(flow.pid) if flow.poll() is None else None
    while flow.poll() is None:
        lines = [(process, " ".join(_line(process))) for process in of_home(home)]
        # the agent has the ranks' module on its line, too
        there = [p for p, line in lines if VICTIMS[kind] in line and (kind != "rank" or VICTIMS["agent"] not in line)]
        if there:
            time.sleep(draw.uniform(0, 2))
            return draw.choice(there)
        time.sleep(0.01)
    return None


def _line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def contents(stages: dict[str, Path]) -> dict[str, dict]:
    """What all stages have written, but for how fast it was."""
    found = {}
    for name, folder in stages.items():
        for part in layout.parts(str(folder), layout.manifest(str(folder))):
            found |= {f"{name}/{file}": facts for file, facts in part.files.items() if file != "timing.jsonl"}
    return found


@pytest.mark.slow
@pytest.mark.timeout(60 + 180 * KILLS)
def test_random_kills(undisturbed, runs, recipe):
    expected = contents(undisturbed.stages("undisturbed"))
    assert len(expected) > 50 and any(name.endswith("model.safetensors") for name in expected)
    path, draw = runs.write(recipe), random.Random(23)
    kinds = [kind for _ in range(KILLS) for kind in VICTIMS][:KILLS]
    home, killed = "kills_0", []
    while kinds or killed[-1] is not None:
        flow = started(runs, home, path)
        kind = kinds[0] if kinds else None
        chosen = victim(flow, runs.home(home), kind, draw) if kind else None
        if chosen is not None:
            try:
                chosen.kill()
                kinds.pop(0)
            except psutil.NoSuchProcess:
                chosen = None
        code = flow.wait(300)
        killed.append(kind if chosen is not None else None)
        print(f"{home}: {killed[-1] or 'nobody'} killed, the run ended with {code}", flush=True)
        assert chosen is not None or code == 0, runs.log(home)
        _, left = psutil.wait_procs(of_home(runs.home(home)), timeout=20)
        assert not left, [(kind, process.cmdline()) for process in left]
        if code == 0:
            assert contents(runs.stages(home)) == expected
            home = f"kills_{len(killed)}"
            killed.append(None)
