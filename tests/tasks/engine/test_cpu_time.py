"""CPU time of jobs: that of their child processes counts, that of sleep does not."""

import subprocess
import sys
import time

import pytest
from pydantic import BaseModel, ConfigDict

from gristmill.storage import files, layout
from gristmill.tasks.engine.executors import executor
from gristmill.tasks.engine.job_costs import cpu_seconds
from gristmill.tasks.engine.make import find, find_or_make
from gristmill.tasks.engine.phases import Silent
from gristmill.tasks.engine.spec import StageSpec

BURN = "import time\nwhile time.process_time() < .3: pass"


class Progress(Silent):
    def __enter__(self):
        return self

    def __exit__(self, *ending): ...


class Record(BaseModel):
    model_config = ConfigDict(frozen=True)


def burn(folder, number):
    """CPU seconds of a child, and as many of its own."""
    subprocess.run([sys.executable, "-c", BURN], check=True)
    began = time.process_time()
    while time.process_time() - began < 0.2:
        pass
    time.sleep(0.3)
    files.write_bytes(layout.part(folder, number, "bin"), b"made")
    return {"made": number}


def body(phases, record, places):
    """Burn."""
    return {"made": len(phases.map("burn", burn, {0: {}, 1: {}}))}


def test_a_running_child_counts():
    began = cpu_seconds()
    with subprocess.Popen([sys.executable, "-c", BURN + "\nprint(flush=True)\ninput()"], stdin=-1, stdout=-1) as child:
        child.stdout.readline()
        # the system counts in hundredths, of which each of the two figures may lack one
        assert cpu_seconds() - began > 0.25
        child.kill()


@pytest.mark.extended
def test_a_stage_knows_what_its_jobs_took_also_those_of_an_earlier_try(tmp_path):
    spec = StageSpec(name="burnt", version=1, body=body, record=Record(), inputs={})
    with executor("serial") as here:
        made = find_or_make(str(tmp_path), spec, here, Progress)
        assert 1.0 <= made.cpu_seconds < 3.0
        (tmp_path / "stages" / f"burnt-{spec.key}" / "manifest.json").unlink()
        again = find_or_make(str(tmp_path), spec, here, Progress)
    assert not again.reused and again.cpu_seconds == made.cpu_seconds
    assert again.manifest == made.manifest, "the manifest is the same whatever the jobs took"
    assert find(str(tmp_path), spec).cpu_seconds == made.cpu_seconds
    files.remove(f"{made.folder}/cost.json")
    assert find(str(tmp_path), spec).cpu_seconds is None
