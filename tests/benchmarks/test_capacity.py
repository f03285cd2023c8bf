"""What capacity says of crawls four times as large as a run, beside what runs over these took: CPU seconds.

Crawls of odd shape: few files, one, hundreds to a thousand, of very different sizes, of other scripts, one worker to
eight. A range holds what the larger run took, or nothing is said. GRISTMILL_TEST_CAPACITY names some of the shapes.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from rich.table import Table

from gristmill.flows.curation import processing
from gristmill.flows.experiments.options import CrawlOptions
from gristmill.flows.experiments.planning.capacity import Capacity, capacity
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.run import Run

TIMES = 4
HARVEST = """
import json, sys
from tools.harvest import pages
from tools.harvest.__main__ import main
if languages := json.loads(sys.argv[1]):
    pages.LANGUAGES.clear()
    pages.LANGUAGES.update(languages)
for arguments in json.loads(sys.argv[2]):
    main(arguments)
"""
COMMAND = """
import sys
from gristmill.flows.cli import main
sys.argv = ["gristmill", "run", "--tokens-only", sys.argv[1]]
main()
"""
STEPS = ("extract", "language", "gopher_quality", "c4", "content_dedup", "minhash", "pii", "line_dedup")


@dataclass(frozen=True)
class Shape:
    """`groups`: documents and files of each group of files of one size; `grow`: whether the larger crawl has larger
    files rather than more of them."""

    groups: tuple[tuple[int, int], ...]
    workers: int = 2
    kind: str = "warc"
    languages: tuple[tuple[str, float], ...] = ()
    grow: bool = False


SHAPES = {
    "three unequal files": Shape(((1500, 1), (1400, 1), (40, 1))),
    "three equal files": Shape(((3000, 3),)),
    "one file": Shape(((3000, 1),), grow=True),
    "250 tiny files": Shape(((1000, 250),)),
    "twelve files": Shape(((2400, 12),)),
    "eight workers": Shape(((3000, 24),), workers=8),
    "one worker": Shape(((2000, 1), (600, 1), (40, 1)), workers=1),
    "one large beside small": Shape(((1500, 1), (600, 40))),
    "sizes in powers of two": Shape(tuple((50 << step, 1) for step in range(7))),
    "other scripts": Shape(((2400, 12),), languages=(("zh", 0.4), ("ko", 0.3), ("ar", 0.3))),
    "texts in Parquet": Shape(((6000, 8), (300, 4)), kind="parquet"),
}


def steps_of(shape: Shape) -> list[dict]:
    """Texts have been extracted, and rules for English drop all texts of other scripts."""
    steps = [{"step": step} for step in STEPS if shape.kind == "warc" or step != "extract"]
    if not shape.languages:
        return steps
    others = [step for step in steps if step["step"] not in ("language", "gopher_quality", "c4")]
    return [others[0], {"step": "language", "keep": [name for name, _ in shape.languages]}, *others[1:]]


def plant(folder: Path, name: str, shape: Shape, times: int) -> tuple[Path, int, int]:
    """A crawl of so many times the documents: its recipe, documents and files."""
    groups = [(size * times, files if shape.grow else files * times) for size, files in shape.groups]
    crawl = folder / f"crawl{times}"
    calls = [
        [shape.kind, f"{crawl}/{number}", "--documents", f"{size}", "--files", f"{files}", "--processes", "1"]
        + ["--seed", f"{number + 100 * times}"]
        for number, (size, files) in enumerate(groups)
    ]
    languages = json.dumps(dict(shape.languages))
    subprocess.run([sys.executable, "-c", HARVEST, languages, json.dumps(calls)], check=True, capture_output=True)
    source = {"name": "web", shape.kind: [f"{crawl}/*/*.{'parquet' if shape.kind == 'parquet' else 'warc.gz'}"]}
    if shape.kind == "parquet":
        source |= {"url_column": "url", "date_column": "date"}
    recipe = {
        "name": f"{name}_{times}",
        "sources": [source | {"shard_bytes": 1}],
        "steps": steps_of(shape),
        "tokenizer": {"vocab_size": 2000},
        "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.02},
    }
    path = folder / f"times{times}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path, sum(size for size, _ in groups), sum(files for _, files in groups)


def took(report: Run) -> dict[str, float]:
    """CPU seconds of each stage, by its folder."""
    return {stage.folder: stage.cpu_seconds for stage in processing(report.built)}


def row(name: str, shape: Shape, result: Capacity, measured: dict[str, float], seconds: float) -> tuple[list[str], int]:
    """A row of the table, and how many ranges do not hold what the larger run took: of the sum and of stages."""
    whole, wrong = sum(measured.values()), 0
    told = "not known: " + ", ".join(f"{phase.label} ({phase.basis.gap})" for phase in result.gaps)
    if (hours := result.core_hours) is not None:
        told = hours.times(3600).text(1)
        wrong += not hours.low <= whole / 3600 <= hours.high
    known = [
        (stage.core_hours, each / 3600)
        for stage, each in zip(result.stages, measured.values(), strict=True)
        if stage.core_hours is not None and stage.core_hours.is_known
    ]
    holding = sum(of.low <= each <= of.high for of, each in known)
    files = sum(count for _, count in shape.groups)
    stages = f"{holding} of {len(known)}"
    return [name, f"{files:,}", f"{shape.workers}", f"{seconds:.1f}", told, f"{whole:.1f}", stages], wrong


@pytest.mark.slow
@pytest.mark.bench
@pytest.mark.timeout(2 * 3600)
def test_ranges_hold_what_larger_runs_took(tmp_path, capsys):
    wanted = os.environ.get("GRISTMILL_TEST_CAPACITY", "").split(",")
    columns = ("shape", "files", "workers", "run, CPU s", "4 times, CPU s", "measured", "stages that hold")
    table, wrong, known = Table(*columns), 0, 0
    for number, (name, shape) in enumerate(SHAPES.items()):
        if wanted != [""] and name not in wanted:
            continue
        folder = tmp_path / f"{number}"
        folder.mkdir()
        home = {"GRISTMILL_HOME": f"{folder}/home", "GRISTMILL_LOCAL": f"{tmp_path}/local"}
        reports = []
        for times in (1, TIMES):
            recipe, documents, files = plant(folder, f"shape{number}", shape, times)
            environment = os.environ | home | {"GRISTMILL_WORKERS": f"{shape.workers}"}
            done = subprocess.run([sys.executable, "-c", COMMAND, str(recipe)], env=environment, capture_output=True)
            assert done.returncode == 0, done.stderr[-2000:]
            reports.append(finished(str(recipe), MachineSettings(home=home["GRISTMILL_HOME"])))
        small, large = reports
        result = capacity(small, CrawlOptions(documents, max(1, documents // files), cores=shape.workers))
        cells, misses = row(name, shape, result, took(large), sum(took(small).values()))
        known += result.core_hours is not None
        wrong += misses
        table.add_row(*cells)
        with capsys.disabled():
            print(*cells, sep=" | ", flush=True)
    with capsys.disabled():
        Console(width=200).print(table)
    assert not wrong
    assert known or wanted != [""], "of all shapes some are known"
