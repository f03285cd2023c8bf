"""Wall-clock of `gristmill decide whatif` over a million rows of stored signals, Python's start included; prints,
asserts nothing about time."""

import os
import re
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest
import yaml

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.steps import BUILT_IN, thresholds_of
from gristmill.storage import layout, ledger, parquet
from gristmill.storage.schema import DOCUMENTS, LEDGER
from gristmill.tasks.documents.measure import schema
from gristmill.tasks.documents.step import Bound, DocumentStep
from gristmill.tasks.documents.where import Where
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.extraction.shard import BATCH
from gristmill.tasks.url.step import Url
from tests.corpora import build_in

ROWS = 1_000_000
SHARDS = 20


def judging() -> list[type[DocumentStep]]:
    """All steps that decide by signals and need no settings, the language first."""
    known = [s for s in BUILT_IN.values() if issubclass(s, DocumentStep) and s not in (Url, Where)]
    found = [s for s in known if not any(field.is_required() for field in s.model_fields.values())]
    return sorted(found, key=lambda step: step.model_fields["step"].default != "language")


def drawn(field: pa.Field, rules: list, draw: np.random.Generator, n: int) -> pa.Array:
    """Values of a signal of which one in fifty fails each of its rules."""
    fails = draw.random(n) < 0.02
    rule = next((rule for rule in rules if rule.signal == field.name), None)
    if pa.types.is_string(field.type):
        return pa.array(np.where(fails, "xx", rule.allowed[0] if rule else "en"), field.type)
    low, high = (rule.low, rule.high) if isinstance(rule, Bound) else (0, None)
    low = low if low is not None else min(0, high if high is not None else 0) - 1
    high = high if high is not None else low + max(1, 10 * abs(low))
    values = low + (high - low) * draw.random(n)
    outside = rule is not None and isinstance(rule, Bound)
    values[fails & outside] = high + 1 if outside and rule.high is not None else low - 1
    if pa.types.is_integer(field.type):
        return pa.array(np.ceil(values) if high - low > 1 else np.full(n, np.ceil(low)), pa.float64()).cast(field.type)
    return pa.array(values, pa.float64()).cast(field.type)


def write_documents(folder: str, shard: int, steps: tuple[DocumentStep, ...], n: int) -> dict:
    """A shard as the extraction writes it, in batches; the texts are short, since nobody reads them here."""
    fields = [field for step in steps for field in schema(step)]
    rules = [rule for step in steps for rule in step.decisions()]
    draw = np.random.default_rng(shard)
    ids = pa.array([bytes(row).hex() for row in draw.integers(0, 256, (n, 16), np.uint8)])
    given = {"id": ids, "source": pa.repeat("web", n), "characters": pa.repeat(40, n), "text": pa.repeat("x" * 40, n)}
    columns = [given.get(f.name, pa.nulls(n)).cast(f.type) for f in DOCUMENTS]
    table = pa.table(
        [*columns, *(drawn(field, rules, draw, n) for field in fields)], schema=pa.schema([*DOCUMENTS, *fields])
    )
    with parquet.create(layout.part(folder, shard), table.schema) as out:
        for start in range(0, n, BATCH):
            out.write_table(table.slice(start, BATCH))
    ledger.write_ledger(folder, shard, LEDGER.empty_table())
    count = ledger.count("extract", n, None, LEDGER.empty_table(), 40 * n)
    return {"rows_in": n, "rows_out": n, "steps": [count]}


@pytest.mark.bench
def test_a_million_rows(tmp_path, capsys):
    for i in range(SHARDS):
        (tmp_path / f"web-{i:05d}.warc.gz").write_bytes(b"%d" % i)
    written = {
        "name": "million",
        "sources": [{"name": "web", "warc": [f"{tmp_path}/web-*.warc.gz"]}],
        "steps": [{"step": "extract"}, *({"step": s.model_fields["step"].default} for s in judging())],
        "mixture": {"weights": {"web": 1}},
    }
    (tmp_path / "million.yaml").write_text(yaml.safe_dump(written))
    recipe = load(tmp_path / "million.yaml")
    settings = MachineSettings(home=str(tmp_path / "home"))

    def plant(spec: StageSpec) -> StageResult:
        if spec.name != "documents":
            return build_in(settings.home)(spec)
        folder = spec.folder(settings.home)
        records = [write_documents(folder, i, recipe.after, ROWS // SHARDS) for i in range(SHARDS)]
        parts = [layout.Part("extract", i, record, {}) for i, record in enumerate(records)]
        source = {
            "records": ROWS,
            "documents": ROWS,
            "drops": {},
            "types": {},
            "engines": {},
            "relabeled": {},
            "dates": {"none": 0, "unread": 0, "examples": []},
            "empty_files": [],
        }
        result = {"sources": {"web": source}, "own": []}
        manifest = layout.write_manifest(folder, {**spec.identity, "key": spec.key, "result": result}, parts)
        return StageResult(spec.name, spec.key, folder, manifest, reused=False)

    list(curate(RunContext(settings, plant), recipe))
    thresholds = ((s.step, f, v) for s in recipe.after[1:] for f, v in s if f in thresholds_of(s))
    lowest = (f"{step}.{name}={2 * value}" for step, name, value in thresholds if name.startswith("min_") and value)
    change = next(lowest)
    command = [
        sys.executable,
        "-c",
        "from gristmill.flows.cli import main; main()",
        "decide",
        "whatif",
        str(tmp_path / "million.yaml"),
    ]
    environment = os.environ | {"GRISTMILL_HOME": settings.home, "PYTHONPATH": os.getcwd(), "COLUMNS": "160"}
    took = []
    for _ in range(4):
        before, started = os.times(), time.perf_counter()
        ran = subprocess.run([*command, "--set", change], env=environment, capture_output=True, text=True)
        after = os.times()
        processor = sum(after[2:4]) - sum(before[2:4])
        took.append((time.perf_counter() - started, processor))
        assert ran.returncode == 0, ran.stderr
    counted = [int(n.replace(",", "")) for n in re.findall(r"→ ([\d,]+)", ran.stdout)]
    assert f"{ROWS:,}" in ran.stdout and 0 < min(counted) < ROWS
    columns = len({rule.signal for step in recipe.after for rule in step.decisions()})
    with capsys.disabled():
        print(f"\nwhatif {change} over {ROWS:,} rows of {columns} signals in {SHARDS} shards:", end=" ")
        print(", ".join(f"{wall:.1f} s ({processor:.1f} s of processors)" for wall, processor in took))
