"""The table `training` against a walk over all steps, in a home of the last release."""

import tarfile
from collections import defaultdict
from pathlib import Path

import pytest

import gristmill
from gristmill.flows.explore.search.reading_order import write_reading_order
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.provenance.figures import answers
from gristmill.flows.reports.run import Run, sql
from gristmill.samples.order import Order, batch_number
from gristmill.storage import parquet
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.config import TrainingConfig
from gristmill.training.step.guard import Event, windows_left_out
from tests.public.surface import HOME


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    with tarfile.open(HOME) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def run(folder) -> Run:
    return gristmill.open(folder / "recipe.yaml", home=str(folder / "home"))


@pytest.mark.parametrize("windows", [[], [(0, 1)], [(1, 3)], [(0, 2), (3, 9)]])
def test_steps_and_samples_of_a_source_are_those_of_its_batches(run, monkeypatch, windows):
    events = [Event(step=4, what="rollback", why="outlier", to=1, window=window) for window in windows]
    monkeypatch.setattr(sql, "read_events", lambda path: events)
    record = run.trained.model.manifest["record"]
    training, seq_len = TrainingConfig.model_validate(record["training"]), record["model"]["seq_len"]
    manifest = load_training_manifest(Path(run.data.mixture.folder) / "mixture.json")
    order = Order(manifest, seq_len=seq_len, batch=training.batch, seed=training.data_seed)
    steps, samples = defaultdict(set), defaultdict(int)
    for step in range(1, training.steps + 1):
        for source, *_ in order.windows_of(order.samples(batch_number(step - 1, windows_left_out(events)))):
            steps[manifest.sources[source].name].add(step)
            samples[manifest.sources[source].name] += 1
    rows = run.sql("select source, samples, first_step, last_step from training").fetchall()
    assert {(name, count, first, last) for name, count, first, last in rows if count} == {
        (name, samples[name], min(found), max(found)) for name, found in steps.items()
    }
    assert all(first is None and last is None for _, count, first, last in rows if not count)


@pytest.mark.extended
def test_papers_have_the_steps_that_the_reading_order_has(folder, run, tmp_path):
    order = write_reading_order(
        str(folder / "recipe.yaml"), str(tmp_path / "order"), MachineSettings(home=str(folder / "home"))
    )
    read = parquet.read_table(str(tmp_path / "order/data/part-00000.parquet")).to_pandas()
    figures = answers(run)
    assert figures["steps"].value == order.steps[1] == read["step"].max()
    expected = read.groupby("source")["step"].agg(["min", "max"])
    assert {row["source"]: (row["first_step"], row["last_step"]) for row in figures["training"].value} == {
        source: (row["min"], row["max"]) for source, row in expected.iterrows()
    }
