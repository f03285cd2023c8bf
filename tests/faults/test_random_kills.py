"""Processes of a run killed at random moments, by the real command: the same bytes come out, and nothing is left.

GRISTMILL_TEST_KILLS: how many processes are killed, one a run; GRISTMILL_TEST_KILLS_SEED: which moments are drawn.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gristmill.storage import files, layout

KILLS = int(os.environ.get("GRISTMILL_TEST_KILLS", "5"))
SEED = int(os.environ.get("GRISTMILL_TEST_KILLS_SEED", "23"))
# What the command line of a process has in it; of the flow, nothing: it is the one that is started.
VICTIMS = {
    "flow": "",
    "worker": "spawn_main",
    "guard child": "gristmill.tasks.guard.child",
    "agent": "gristmill.training.run.agent",
    "rank": "gristmill.training.run.launch",
}
COMMAND = "import sys; from gristmill.flows.cli import main; sys.argv[0] = 'gristmill'; main()"
# They name the home and MLflow's run, or say how fast it was.
OF_ONE_RUN = ("run.json", "timing.jsonl")


def started(runs, home: str, recipe: Path) -> subprocess.Popen:
    temporary = runs.folder / f"{home}.tmp"
    temporary.mkdir(exist_ok=True)
    with open(runs.folder / f"{home}.log", "a") as log:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, "run", str(recipe)],
            env=runs.environment(home) | {"TMPDIR": str(temporary)},
            cwd=runs.folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def of_home(home: Path) -> list[psutil.Process]:
    """The processes that have the home in their environment, orphans included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("GRISTMILL_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def living(flow: subprocess.Popen, kind: str) -> list[psutil.Process]:
    """The processes of a kind below the flow."""
    if kind == "flow":
        return [psutil.Process(flow.pid)] if flow.poll() is None else []
    found = []
    try:
        for process in psutil.Process(flow.pid).children(recursive=True):
            line = " ".join(_line(process))
            # the agent has the ranks' module on its line, too
            if VICTIMS[kind] in line and (kind != "rank" or VICTIMS["agent"] not in line):
                found.append(process)
    except psutil.NoSuchProcess:
        pass  # the flow has ended
    return found


def _line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def watched(flow: subprocess.Popen) -> Iterator[float]:
    """The seconds since now, again and again until the flow has ended."""
    start = time.monotonic()
    while flow.poll() is None:
        yield time.monotonic() - start
        time.sleep(0.05)


def lifetimes(flow: subprocess.Popen) -> dict[str, float]:
    """How many seconds there are processes of each kind, from the first to the last, in a run that ends by itself."""
    seen: dict[str, list[float]] = {kind: [] for kind in VICTIMS}
    for now in watched(flow):
        for kind in VICTIMS:
            if living(flow, kind):
                seen[kind].append(now)
    assert all(seen.values()), f"a run without some kind of process: {seen.keys()}"
    return {kind: moments[-1] - moments[0] for kind, moments in seen.items()}


def victim(flow: subprocess.Popen, kind: str, seconds: float, draw: random.Random) -> psutil.Process | None:
    """A process of the kind, at a moment within the seconds after its first; None if there is none any more."""
    moment = draw.uniform(0, seconds)
    first = None
    for now in watched(flow):
        there = living(flow, kind)
        if there and first is None:
            first = now
        if there and first is not None and now - first >= moment:
            return draw.choice(there)
    return None


def at_stage(home: Path) -> str:
    """The stage that is being made, or the one that was finished last."""
    folders = sorted(home.glob("stages/*"), key=lambda folder: folder.stat().st_ctime)
    begun = [folder.name.rpartition("-")[0] for folder in folders if not (folder / "manifest.json").exists()]
    if begun:
        return f"in {begun[-1]}"
    return f"after {folders[-1].name.rpartition('-')[0]}" if folders else "before all"


def contents(stages: dict[str, Path]) -> dict[str, str]:
    """The digests of all files that the stages' jobs have written."""
    return {
        f"{label}/{name}": files.checksum(str(folder / name))
        for label, folder in stages.items()
        for part in layout.parts(str(folder), layout.manifest(str(folder)))
        for name in part.files
        if name not in OF_ONE_RUN
    }


def left_behind(runs, home: str) -> list[Path]:
    """Leases and temporary files in a home, and what lies among temporary files, but for what torch keeps there."""
    below, temporary = runs.home(home), runs.folder / f"{home}.tmp"
    there = set(temporary.rglob("*")) - set(temporary.glob("torchinductor_*"))
    return [*below.rglob("lease"), *below.rglob(".*.tmp"), *there]


@pytest.mark.slow
@pytest.mark.timeout(120 + 240 * KILLS)
def test_random_kills(runs, recipe):
    path, draw = runs.write(recipe), random.Random(SEED)
    first = started(runs, "unkilled", path)
    seconds = lifetimes(first)
    assert first.wait() == 0, runs.log("unkilled")
    expected = contents(runs.stages("unkilled"))
    assert len(expected) > 50 and any(name.endswith("model.safetensors") for name in expected)
    assert not left_behind(runs, "unkilled")
    print(f"\nunkilled: {len(expected)} files; seconds with {seconds}", flush=True)

    kinds = [kind for _ in range(KILLS) for kind in VICTIMS][:KILLS]
    number, code = 0, 1
    while kinds or code:
        home = f"kills_{number}"
        flow = started(runs, home, path)
        chosen, kind, where = None, "nobody", ""
        if kinds and (chosen := victim(flow, kinds[0], seconds[kinds[0]], draw)):
            where = at_stage(runs.home(home))
            chosen.kill()
            kind = kinds.pop(0)
        code = flow.wait(300)
        print(f"{home} | {kind} | {where} | ended with {code}", flush=True)
        assert chosen is not None or code == 0, runs.log(home)
        assert "temporary server" not in runs.log(home), "Prefect has started a server of its own"
        _, alive = psutil.wait_procs(of_home(runs.home(home)), timeout=20)
        assert not alive, [(kind, process.cmdline()) for process in alive]
        if code == 0:
            assert contents(runs.stages(home)) == expected
            assert not left_behind(runs, home), f"{kind} was killed {where}"
            number += 1
