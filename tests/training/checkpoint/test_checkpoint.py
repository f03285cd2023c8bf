"""Resuming: the same end as without a break, and never from something half-written or foreign."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.checkpoint import keeping
from gristmill.training.checkpoint.commit import commit_of, load_checkpoint, run_fingerprint
from gristmill.training.run.loop import train
from gristmill.training.run.tracking import METRICS


def resumed(make_run, source, out, step, **changes):
    """A new run directory that starts with one checkpoint of another run, trained to its end."""
    name = f"step-{step:08d}"
    shutil.copytree(source / "checkpoints" / name, out / "checkpoints" / name)
    run = make_run(out, **changes)
    return run, train(run)


@pytest.mark.extended
def test_middle_checkpoint_leads_to_the_same_end(run_small, make_run, tmp_path):
    kept = list(keeping.committed(run_small.out / "checkpoints"))
    assert kept == [20, 40]  # the middle and the end
    _, result = resumed(make_run, run_small.out, tmp_path, 20)
    before = json.loads((run_small.out / "result.json").read_text())
    assert {k: v for k, v in result.items() if k not in ("checkpoint", "weights")} == {
        k: v for k, v in before.items() if k not in ("checkpoint", "weights")
    }
    weights, expected = (load_file(out / "model.safetensors") for out in (tmp_path, run_small.out))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)
    later = (run_small.out / METRICS).read_text().splitlines()[20:]
    assert (tmp_path / METRICS).read_text().splitlines() == later


@pytest.mark.extended
def test_resume_from_another_directory(run_small, make_run, tmp_path):
    source = run_small.out / "checkpoints" / "step-00000020"
    train(make_run(tmp_path, resume_from=source))
    later = (run_small.out / METRICS).read_text().splitlines()[20:]
    assert (tmp_path / METRICS).read_text().splitlines() == later


def test_nanochat_and_muon_resume_to_the_same_bits(make_run, tmp_path):
    settings = {
        "model": {"block": "nanochat", "qk_norm": True, "tie_embeddings": False, "logit_softcap": 15.0},
        "training": {"optimizer": "muon", "learning_rate": None, "steps": 12, "warmup_steps": 2, "checkpoint_every": 4},
    }
    train(make_run(tmp_path / "whole", **settings))
    _, result = resumed(make_run, tmp_path / "whole", tmp_path / "resumed", 4, **settings)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "resumed"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert result["steps"] == 12


def test_a_finished_run_is_not_trained_again(run_small):
    before = {name: (run_small.out / name).read_bytes() for name in ("result.json", METRICS, "model.safetensors")}
    train(run_small)
    for name, content in before.items():
        assert (run_small.out / name).read_bytes() == content, name


@pytest.mark.extended
def test_uncommitted_is_ignored_and_replaced(run_small, make_run, tmp_path):
    root = tmp_path / "checkpoints"
    source = run_small.out / "checkpoints" / "step-00000020"
    shutil.copytree(source, root / "step-00000020")
    shutil.copytree(source, root / "step-00000030", ignore=shutil.ignore_patterns("COMMIT"))
    shutil.copytree(source, root / "step-00000035.tmp")
    assert keeping.latest(root) == root / "step-00000020"
    with pytest.raises(ValueError, match="no COMMIT"):
        load_checkpoint(root / "step-00000030", {}, {})
    train(make_run(tmp_path))
    assert list(keeping.committed(root)) == [20, 40]
    expected = load_file(run_small.out / "model.safetensors")
    weights = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_another_run_is_refused_and_both_values_are_named(run_small, make_run, tmp_path):
    with pytest.raises(ValueError, match="learning_rate: checkpoint 0.01, this run 0.02"):
        resumed(make_run, run_small.out, tmp_path / "a", 20, training={"learning_rate": 0.02})
    with pytest.raises(ValueError, match="model.rope_theta: checkpoint 10000.0, this run 500.0"):
        resumed(make_run, run_small.out, tmp_path / "b", 20, model={"rope_theta": 500.0})


@pytest.mark.extended
def test_a_setting_that_a_checkpoint_does_not_name_had_its_default(run_small, make_run, tmp_path):
    """As of a version before the setting: such a run goes on to the same end, and with another value it does not."""
    older = tmp_path / "older" / "step-00000020"
    shutil.copytree(run_small.out / "checkpoints" / older.name, older)
    commit = checked_json.read(str(older / "COMMIT"))
    new = ("training.embedding_rate", "training.momentum", "training.z_loss", "model.block")
    commit["fingerprint"] = {n: v for n, v in commit["fingerprint"].items() if n not in new}
    checked_json.write(str(older / "COMMIT"), commit)
    with pytest.raises(ValueError, match="training.momentum: checkpoint 0.95, this run 0.9"):
        train(make_run(tmp_path / "momentum", resume_from=older))
    same = {"training": {"momentum": 0.95}}  # which AdamW does not read
    train(make_run(tmp_path / "same", resume_from=older, **same))
    later = (run_small.out / METRICS).read_text().splitlines()[20:]
    assert (tmp_path / "same" / METRICS).read_text().splitlines() == later
    with pytest.raises(ValueError, match="training.embedding_rate: checkpoint 1.0, this run 3.0"):
        train(make_run(tmp_path / "other", resume_from=older, training={"momentum": 0.95, "embedding_rate": 3.0}))


def test_the_precision_that_was_used_is_that_of_the_checkpoint(run_small, make_run, corpus, tmp_path):
    """`auto` is another one on other hardware. The guard's budget may change: with less the run would not be there."""
    run = make_run(tmp_path, training={"guard": {"max_rollbacks": 9}})
    manifest = load_training_manifest(corpus)
    commit = commit_of(keeping.latest(run_small.out / "checkpoints"))
    assert commit.fingerprint == run_fingerprint(run, manifest, torch.device("cpu"))
    assert commit.fingerprint["training.precision"] == '"fp32"'
    with pytest.raises(ValueError, match='precision: checkpoint "fp32", this run "bf16"'):
        resumed(make_run, run_small.out, tmp_path, 20, training={"precision": "bf16"})


def test_other_data_is_refused(run_small, make_run, corpus, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(corpus.parent, data)
    shard = data / "web-0.bin"
    shard.write_bytes(b"\5\0" + shard.read_bytes()[2:])
    with pytest.raises(DamagedFileError, match=f"{shard} is not what was written; remove"):
        resumed(make_run, run_small.out, tmp_path / "damaged", 20, data=data / corpus.name)
    mixture = checked_json.read(str(data / corpus.name))
    mixture["sources"][0]["shards"][0]["digest"] = files.checksum(str(shard))
    checked_json.write(str(data / corpus.name), mixture)
    with pytest.raises(ValueError, match=r"data: checkpoint [0-9a-f]{64}, this run [0-9a-f]{64}"):
        resumed(make_run, run_small.out, tmp_path / "out", 20, data=data / corpus.name)


@pytest.mark.extended
def test_what_only_changes_rounding_may_change(run_small, make_run, tmp_path):
    _, result = resumed(make_run, run_small.out, tmp_path, 20, training={"micro_batch": 7, "eval_every": 5})
    before = json.loads((run_small.out / "result.json").read_text())
    assert result["train/loss"] == pytest.approx(before["train/loss"], abs=1e-4)


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", "COMMIT"])
def test_a_damaged_checkpoint_is_refused(run_small, make_run, tmp_path, name):
    copy = tmp_path / "checkpoints" / "step-00000020"
    shutil.copytree(run_small.out / "checkpoints" / "step-00000020", copy)
    content = (copy / name).read_bytes()
    for damaged in (content[:-1], content[: len(content) // 2] + b"\xff" + content[len(content) // 2 + 1 :]):
        (copy / name).write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name} is not what was written; remove the checkpoint {copy}"):
            train(make_run(tmp_path))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("__0_0.distcp", flip),
        ("__0_0.distcp", lambda path: os.truncate(path, path.stat().st_size - 1)),
        ("__0_0.distcp", Path.unlink),
        ("COMMIT", flip),
    ],
)
def test_a_damaged_newest_checkpoint_is_set_aside(run_small, make_run, tmp_path, caplog, name, damage):
    """Kept under another name, and the run ends with the weights of the undisturbed one."""
    root = shutil.copytree(run_small.out / "checkpoints", tmp_path / "checkpoints")
    damage(root / "step-00000040" / name)
    there = {path.name: path.read_bytes() for path in (root / "step-00000040").iterdir()}
    train(make_run(tmp_path))
    aside = root / "damaged-step-00000040"
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == there
    (line,) = [each.getMessage() for each in caplog.records if "set aside" in each.getMessage()]
    assert line.startswith(f"{root}/step-00000040/{name} is not what was written: ") and str(aside) in line
    ours, expected = (load_file(out / "model.safetensors") for out in (tmp_path, run_small.out))
    assert all(torch.equal(ours[each], expected[each]) for each in expected)
    assert list(keeping.committed(root)) == [20, 40]


def test_pruning_keeps_the_newest_and_the_middle(tmp_path):
    for step in range(10, 110, 10):
        folder = tmp_path / f"step-{step:08d}"
        folder.mkdir()
        (folder / keeping.COMMIT).touch()
        keeping.prune(tmp_path, keeping.kept_steps(keeping.committed(tmp_path), 2, 100))
        kept = list(keeping.committed(tmp_path))
        assert kept == sorted({*range(10, step + 1, 10)} & {step, step - 10, min(step, 50)})
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-{s:08d}" for s in (50, 90, 100)]


@pytest.mark.extended
def test_divergence_stops_before_the_weights_are_touched(make_run, tmp_path):
    with pytest.raises(FloatingPointError, match="not finite"):
        train(make_run(tmp_path, training={"learning_rate": 1e30, "warmup_steps": 0, "clip_norm": 1e30}))
    assert not (tmp_path / "result.json").exists()
    assert keeping.latest(tmp_path / "checkpoints") is None
