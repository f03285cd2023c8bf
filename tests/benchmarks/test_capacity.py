"""What capacity foretells by a short run, beside what longer runs took: CPU seconds of each stage.

GRISTMILL_TEST_CAPACITY: documents of the short run (4000), which has four files; the others have 4 and 16 times as
many.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from rich.table import Table

from gristmill.flows.experiments.planning.capacity import SHORTEST, capacity
from gristmill.flows.experiments.planning.options import CrawlOptions
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.run import Report
from tools.harvest.__main__ import main as harvest

DOCUMENTS = int(os.environ.get("GRISTMILL_TEST_CAPACITY", 4000))
FILES = 4
TIMES = (1, 4, 16)
WITHIN = 0.3
COMMAND = """
import sys
from gristmill.flows.cli import main
sys.argv = ["gristmill", "run", "--tokens-only", sys.argv[1]]
main()
"""
STEPS = ("extract", "language", "gopher_quality", "c4", "content_dedup", "minhash", "pii", "line_dedup")


def plant(folder: Path, times: int) -> Path:
    """A crawl of so many times the documents and files, and its recipe."""
    crawl = folder / f"crawl{times}"
    size = ["--documents", str(DOCUMENTS * times), "--files", str(FILES * times)]
    harvest(["parquet", str(crawl), *size, "--processes", "2"])
    source = {"name": "web", "parquet": [f"{crawl}/*.parquet"], "url_column": "url", "date_column": "date"}
    recipe = {
        "name": f"times{times}",
        "sources": [source | {"shard_bytes": 1}],
        "steps": [{"step": step} | ({"engine": "plain"} if step == "extract" else {}) for step in STEPS],
        "tokenizer": {"vocab_size": 2000},
        "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.02},
    }
    path = folder / f"times{times}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def took(report: Report) -> dict[str, float]:
    """CPU seconds of each stage, by its folder's name; `rules` is there twice."""
    stages = [*report.data.stages, *filter(None, [report.group_losses])]
    return {stage.folder: stage.cpu_seconds for stage in stages}


@pytest.mark.bench
@pytest.mark.timeout(2 * 3600)
def test_a_short_run_foretells_longer_ones(tmp_path, capsys):
    home = {"GRISTMILL_HOME": str(tmp_path / "home"), "GRISTMILL_LOCAL": str(tmp_path / "local")}
    recipes = [plant(tmp_path, times) for times in TIMES]
    for recipe in recipes:
        subprocess.run([sys.executable, "-c", COMMAND, str(recipe)], env=os.environ | home, check=True)
    settings = MachineSettings(home=home["GRISTMILL_HOME"])
    short, *longer = (finished(str(recipe), settings) for recipe in recipes)
    far = []
    for times, report in zip(TIMES[1:], longer, strict=True):
        documents = DOCUMENTS * times
        found = capacity(short, CrawlOptions(documents, DOCUMENTS // FILES, cores=2))
        table = Table("stage", "foretold, CPU s", "measured", "", title=f"{DOCUMENTS:,} to {documents:,} documents")
        for stage, measured in zip(found.stages, took(report).values(), strict=True):
            told = stage.core_hours * 3600
            # what the short run measured of it is more than noise
            known = sum(phase.growing for phase in stage.phases) >= SHORTEST
            off = told / measured - 1
            table.add_row(stage.stage, f"{told:.2f}", f"{measured:.2f}", f"{off:+.0%}" if known else "too short")
            if known and abs(off) > WITHIN:
                far.append((times, stage.stage, off))
        with capsys.disabled():
            Console().print(table)
    assert not far
