"""What node 0 offers is what another machine gets, whatever its folders are called."""

import json
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError
from gristmill.training.config import RunConfig, TrackingConfig
from gristmill.training.run import joining

DIGESTED = "model.safetensors"


@pytest.fixture
def run(make_run, corpus, tmp_path) -> RunConfig:
    """That of node 0, with first weights and tasks in folders that no other machine has."""
    own = tmp_path / "node-0"
    shutil.copytree(corpus.parent, own / "cache" / "mixture-1")
    for name, text in (("weights/model.safetensors", "w"), ("weights/tokenizer.model", "t"), ("tasks/own.jsonl", "{}")):
        files.write_bytes(str(own / name), text.encode())
    files.write_bytes(str(own / "weights" / "config.json"), json.dumps({}).encode())
    return make_run(
        own / "model-1",
        training={"init_from": str(own / "weights"), "eval_tasks": str(own / "tasks")},
        init_digests={DIGESTED: files.checksum(str(own / "weights" / DIGESTED))},
        data=own / "cache" / "mixture-1" / "mixture.json",
        store=f"file://{tmp_path}/home/stages/model-1/checkpoints",
        tracking=TrackingConfig(run_id="1"),
    )


def test_a_machine_gets_settings_weights_and_tasks_by_the_home_alone(run, tmp_path):
    folder, said = f"file://{tmp_path}/home/stages/model-1", []
    out, mixtures = tmp_path / "node-1", []

    def mixture(address: str) -> Path:
        mixtures.append(address)
        return tmp_path / "local" / "mixture.json"

    with joining.offered(run, folder, said.append):
        assert said[0].endswith(f"gristmill train join {folder}/join.json")
        shutil.rmtree(run.out.parent)  # another machine sees nothing of it
        for _ in range(2):
            path = joining.accepted(folder, mixture, out)
        given = next(path for path in sorted((tmp_path / "home/stages/model-1/given").iterdir()))
    assert mixtures == [f"file://{tmp_path}/home/stages/mixture-1"] * 2
    ours = RunConfig.model_validate(checked_json.read(str(path)))
    placed = {"init_from": str(out / "given/init_from"), "eval_tasks": str(out / "given/eval_tasks")}
    assert ours == run.model_copy(
        update={
            "training": run.training.model_copy(update=placed),
            "data": tmp_path / "local" / "mixture.json",
            "out": out,
            "tracking": None,
        }
    )
    found = {path.name: path.read_text() for folder in placed.values() for path in Path(folder).iterdir()}
    assert found == {"model.safetensors": "w", "tokenizer.model": "t", "own.jsonl": "{}", "config.json": "{}"}
    assert not files.exists(f"{folder}/join.json") and not given.exists()
    joining.left(out)
    assert [path.name for path in out.iterdir()] == ["run.json"]


def test_a_file_that_is_not_what_was_given_is_refused(run, tmp_path):
    folder = f"file://{tmp_path}/home/stages/model-1"
    with pytest.raises(DamagedFileError, match=f"given/{run.init_digests[DIGESTED]} is not what was written"):
        with joining.offered(run, folder, lambda line: None):
            files.write_bytes(f"{folder}/given/{run.init_digests[DIGESTED]}", b"x")
            joining.accepted(folder, Path, tmp_path / "node-1")
    assert not files.exists(f"{folder}/join.json") and files.exists(f"{folder}/given")


@pytest.mark.parametrize(
    ("name", "digest"), [("init_from/../../out", "a" * 32), ("other/x", "a" * 32), ("init_from/..", "a" * 32),
                         ("init_from/x", "../x"), ("init_from/x", "")],
)  # fmt: skip
def test_names_that_would_leave_their_folder_are_refused(run, name, digest):
    with pytest.raises(ValidationError, match="given"):
        joining.Offer(run=run, mixture="mixture-1", given={name: digest})
