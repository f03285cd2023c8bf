"""The reading order against the rows that the loader gives to a training."""

import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.explore.search import reading_order
from gristmill.flows.explore.search.reading_order import read_pieces, write_reading_order
from gristmill.flows.machine.settings import MachineSettings
from gristmill.samples.order import Order, batch_number
from gristmill.samples.source import SampleSource
from gristmill.storage import parquet
from gristmill.storage.training_manifest import load_training_manifest
from tests.public.surface import HOME
from tests.samples import mixed_corpus
from tests.samples.mixed_corpus import BATCH, END, SEED, SEQ_LEN, STEPS


@pytest.mark.parametrize("packing", [False, True])
def test_the_tokens_of_the_pieces_are_those_of_the_batches(packing, tmp_path, monkeypatch):
    path = mixed_corpus.write(tmp_path, packing)
    source = SampleSource(path, SEQ_LEN, BATCH, SEED)
    tokens, documents = {}, {}
    for shard in (each for one in source.manifest.sources for each in one.shards):
        ids = np.fromfile(shard.path, "<u2")
        ends = np.flatnonzero(ids == END) + 1
        begins = np.array([0, *ends[:-1]])
        names = [f"{shard.path.stem}/{number}" for number in range(len(begins))]
        parquet.write_table(
            str(shard.path.with_suffix(".parquet")),
            pa.table({"id": names, "offset": begins, "length": ends - begins}),
        )
        documents |= {name: ids[begin:end] for name, begin, end in zip(names, begins, ends, strict=True)}
        tokens["/".join(shard.path.parts[-2:])] = ids
    order = Order(load_training_manifest(path), seq_len=SEQ_LEN, batch=BATCH, seed=SEED)
    left_out = [(5, 9), (20, 21)]  # batches that a guard skipped
    steps = range(1, STEPS - 4)
    opened = Counter()
    read_table = parquet.read_table

    def counting(shard: str, columns: list[str]) -> pa.Table:
        opened[shard] += 1
        return read_table(shard, columns)

    monkeypatch.setattr(parquet, "read_table", counting)
    monkeypatch.setattr(reading_order, "BATCH_ROWS", 100)  # so that a shard is in many batches
    rows = pa.Table.from_batches(read_pieces(order, steps, left_out)).to_pylist()
    assert {*opened.values()} == {1} and len(opened) == sum(len(one.shards) for one in source.manifest.sources)
    assert rows == sorted(rows, key=lambda row: (row["step"], row["sample"], row["position"]))
    assert {row["source"] for row in rows} == {"web", "books", "code"}
    read: dict[int, np.ndarray] = {}
    for row in rows:
        piece = documents[row["id"]][row["begin"] : row["begin"] + row["length"]]
        np.testing.assert_array_equal(piece, tokens[row["shard"]][row["offset"] : row["offset"] + row["length"]])
        sample = read.setdefault(row["sample"], np.full(SEQ_LEN + 1, -1))
        assert len(piece) == row["length"] and (sample[row["position"] : row["position"] + row["length"]] == -1).all()
        sample[row["position"] : row["position"] + row["length"]] = piece
        number = batch_number(row["step"] - 1, left_out)
        assert number * BATCH <= row["sample"] < (number + 1) * BATCH
    for step in steps:
        number = batch_number(step - 1, left_out)
        for place, expected in enumerate(order.batch(number)):
            sample = read.pop(number * BATCH + place)
            # what packing fills in belongs to no document
            np.testing.assert_array_equal(
                np.where(sample < 0, END, sample), np.where(expected < 0, ~expected, expected)
            )
    assert not read


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    with tarfile.open(HOME) as packed:
        packed.extractall(folder, filter="data")
    return folder


def test_an_export_has_all_steps_and_continues(home, tmp_path, monkeypatch):
    settings = MachineSettings(home=str(home / "home"))
    recipe = str(home / "recipe.yaml")
    whole = write_reading_order(recipe, str(tmp_path / "whole"), settings)
    expected = parquet.read_table(str(tmp_path / "whole/data/part-00000.parquet"))
    assert whole.parts == 1 and whole.rows == len(expected) > 0
    monkeypatch.setattr(reading_order, "PART_TOKENS", 50)
    written: list[str] = []

    def stop(line: str) -> None:
        written.append(line)
        if len(written) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_reading_order(recipe, str(tmp_path / "parts"), settings, stop)
    assert json.loads((tmp_path / "parts/reading-order.json").read_text())["rows"] is None
    found = write_reading_order(recipe, str(tmp_path / "parts"), settings, written.append)
    assert found.parts == len(written) > 2 and found.rows == whole.rows
    parts = sorted((tmp_path / "parts/data").iterdir())
    assert pa.concat_tables([parquet.read_table(str(each)) for each in parts]).equals(expected)
    assert json.loads((tmp_path / "parts/reading-order.json").read_text())["rows"] == whole.rows
    with pytest.raises(FileExistsError, match="other files"):
        write_reading_order(recipe, str(home), settings)


def test_the_command_prints_what_it_wrote(home, tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(home / "home"))
    arguments = ["export", "reading-order", str(home / "recipe.yaml"), "--to", str(tmp_path / "order")]
    ran = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert ran.exit_code == 0 and "rows for the steps 1 to" in ran.stdout
    shutil.copytree(home, tmp_path / "copy", ignore=shutil.ignore_patterns("model-*"))
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "copy/home"))
    ran = CliRunner().invoke(app, [*arguments[:-1], str(tmp_path / "none")])
    assert ran.exit_code and "is not finished: run `gristmill run" in f"{ran.exception}"
