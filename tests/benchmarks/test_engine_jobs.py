"""What a job costs beside its work: CPU and memory of the flow, in whose process the scheduler of a local cluster is.

GRISTMILL_TEST_JOBS: how many jobs a phase has, of several sizes, separated by commas. A job does nothing, and has the
arguments of one that measures documents: its shard's paths, and the steps of a recipe, which all jobs of a phase share.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SIZES = [int(size) for size in os.environ.get("GRISTMILL_TEST_JOBS", "200,2000,20000").split(",")]
ROOT = Path(__file__).resolve().parents[2]

WORK = """
def nothing(folder, number, documents, kept, measured, steps):
    return {"rows_in": 1, "documents": len(documents), "steps": len(steps)}
"""

# One phase in a process of its own: CPU in seconds before and after, and MB at most.
PHASE = """
import resource, sys, time
from pathlib import Path

import gristmill_nothing
from gristmill.flows.recipe.recipe import load
from gristmill.tasks.engine.code_version import code_version
from gristmill.tasks.engine.executors import executor
from gristmill.tasks.engine.jobs import Code
from gristmill.tasks.engine.phases import Each, PhaseRunner, Silent

folder, jobs = sys.argv[1], int(sys.argv[2])
rules = [{"step": name} for name in ("extract", "gopher_quality", "gopher_repetition", "c4", "fineweb_quality")]
recipe = load({"name": "nothing", "sources": [{"name": "web", "jsonl": ["a.jsonl"]}], "steps": rules})
part = "/a/home/of/some/length/stages/{}-0123456789abcdef/part-{:05d}.parquet"


def arguments(number):
    paths = [part.format(name, number) for name in ("documents", "rules", "signals")]
    return {"documents": paths[0], "kept": paths[1], "measured": tuple(paths[2:])}


with executor("local", 2) as running:
    code = Code(("gristmill_nothing",), code_version(("gristmill_nothing",)))
    phases = PhaseRunner(folder, code, running, Silent(), lambda: None)
    steps = {"steps": recipe.after}
    phases.map("first", gristmill_nothing.nothing, Each(range(20), arguments), common=steps)
    before, began = time.process_time(), time.monotonic()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = phases.map("nothing", gristmill_nothing.nothing, Each(range(jobs), arguments), common=steps)
    used, seconds = time.process_time() - before, time.monotonic() - began
    assert len(done) == jobs
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    print(1e3 * used / jobs, 1e3 * seconds / jobs, more / 1e3)
"""


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_jobs_that_do_nothing(tmp_path, capsys):
    (tmp_path / "gristmill_nothing.py").write_text(WORK)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    for jobs in SIZES:
        command = [sys.executable, "-c", PHASE, str(tmp_path / str(jobs)), str(jobs)]
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        used, seconds, memory = map(float, done.stdout.split())
        with capsys.disabled():
            print(
                f"\n{jobs:,} jobs: {used:.2f} ms of CPU in flow and scheduler for each, {seconds:.1f} ms of time;",
                end="",
            )
            print(f" {memory:.0f} MB more of the flow's memory at most", end="", flush=True)
