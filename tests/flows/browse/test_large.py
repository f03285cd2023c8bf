"""Ten million documents: what the pages hold, and how large the static page is. Times are printed."""

import re
import resource
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest

from gristmill.flows.explore.browse.opened import open_recipe
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.whatif import whatif
from tests.flows.browse.large import plant

SHARDS, EACH, TIMES = 200, 50, 1000
RUN = "from gristmill.flows.cli import main; main()"


@pytest.mark.slow
def test_planted_counts_are_those_of_its_rows(tmp_path):
    recipe = plant(tmp_path, 3, 20, 4)
    opened = open_recipe(recipe, MachineSettings(home=str(tmp_path / "home")))
    assert opened.steps[0].row.documents_in == 3 * 20 * 4
    found = whatif(recipe, {"gopher_quality.min_words": 12}, opened.settings)  # decided anew, from the rows
    counted = [{name: one[name] for name in ("step", "rows_in", "rows_out", "drops")} for one in found.replayed]
    assert found.unchanged
    assert counted == [{name: one[name] for name in counted[0]} for one in found.recorded]


@pytest.mark.slow
def test_ten_million_documents(tmp_path, monkeypatch):
    recipe = plant(tmp_path, SHARDS, EACH, TIMES)
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    for name, (seconds, memory, size) in measure(recipe, str(tmp_path / "page.html")).items():
        print(f"{name:>12} {seconds:6.2f} s {memory / 1e6:6.0f} MB {size:>9,} bytes")
        assert memory < 1e9, name
        assert size < 5_000_000, name


def measure(recipe: str, to: str) -> dict[str, tuple[float, int, int]]:
    """Of each page, and of the static one: seconds, the most memory the process has held, and the bytes of the page."""
    found = {}
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", RUN, "browse", recipe], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            address = child.stdout.readline().strip()
            process = psutil.Process(child.pid)
            found["start"] = (time.perf_counter() - began, _most(process), 0)
            funnel = urllib.request.urlopen(address, timeout=60).read().decode()
            assert "documents kept" in funnel
            step = next(key for key in re.findall(r'href="step\?step=([^"]+)"', funnel) if "gopher_quality" in key)
            asked = {
                "funnel": "", "step": f"step?step={step}", "rule": f"rule?step={step}&rule=words",
                "documents": "documents?seed=7", "expression": "documents?" + urlencode({"where": "characters > 200"}),
                "replay": f"replay?step={step}&setting=min_words&value=20",
            }  # fmt: skip
            for name, page in asked.items():
                began = time.perf_counter()
                with urllib.request.urlopen(address + page, timeout=600) as answer:
                    size = len(answer.read())
                found[name] = (time.perf_counter() - began, _most(process), size)
        finally:
            child.terminate()
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", RUN, "browse", recipe, "--to", to], check=True, stdout=subprocess.DEVNULL)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    found["static"] = (time.perf_counter() - began, memory, Path(to).stat().st_size)
    return found


def _most(process: psutil.Process) -> int:
    """The most memory that a process has held, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024
