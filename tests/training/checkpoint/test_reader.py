"""Layouts of checkpoints are decoded without calling anything: torch's as torch reads them, others not at all."""

import hashlib
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from gristmill.storage import checked_json, files
from gristmill.training.checkpoint.keeping import COMMIT, verify_checkpoints
from gristmill.training.checkpoint.reader import METADATA, CheckpointReader, read_layout
from gristmill.training.hub.weights import averaged, open_model
from gristmill.training.run.loop import train

pytestmark = pytest.mark.extended

TENSORS = {
    "model.a": torch.arange(12.0).reshape(4, 3),
    "optimizer.step": torch.tensor(7),
    "model.b": torch.ones(2, dtype=torch.bfloat16),
}


@pytest.fixture
def written(tmp_path) -> Path:
    dcp.save(TENSORS, checkpoint_id=tmp_path / "one", no_dist=True)
    return tmp_path / "one"


def test_a_layout_of_torch_is_read_as_torch_reads_it(written):
    ours, theirs = read_layout(written / METADATA), dcp.FileSystemReader(written).read_metadata()
    assert ours.state_dict_metadata == theirs.state_dict_metadata
    assert ours.storage_data == theirs.storage_data and ours.version == theirs.version
    empty = {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}
    dcp.load(empty, storage_reader=CheckpointReader(written), no_dist=True)
    assert all(torch.equal(empty[name], tensor) for name, tensor in TENSORS.items())


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_layout_of_another_python_is_read(written, protocol):
    metadata = dcp.FileSystemReader(written).read_metadata()
    (written / METADATA).write_bytes(pickle.dumps(metadata, protocol=protocol))
    assert read_layout(written / METADATA).storage_data == metadata.storage_data


def layout(name: str = "__0_0.distcp", offset: int = 0, chunks: int = 1, repeated: int = 1) -> Metadata:
    parts = [ChunkStorageMetadata(torch.Size([0]), torch.Size([1]))] * chunks
    tensor = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size([1]), parts)
    places = {MetadataIndex("model.a", torch.Size([0]), 0): _StorageInfo(name, offset, 8)}
    return Metadata({f"model.{i}": tensor for i in range(repeated)}, None, places)


class Calls:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mknod, (str(self.path),)


def hostile_copy(checkpoint: Path, root: Path, victim: Path) -> Path:
    """A checkpoint whose layout is a program, and whose COMMIT has the digests of that."""
    copy = root / "checkpoints" / checkpoint.name
    shutil.copytree(checkpoint, copy)
    (copy / METADATA).write_bytes(pickle.dumps(Calls(victim)))
    commit = checked_json.read(str(copy / COMMIT))
    commit["files"][METADATA] = files.checksum(str(copy / METADATA))
    commit["metadata_sha256"] = hashlib.sha256((copy / METADATA).read_bytes()).hexdigest()
    checked_json.write(str(copy / COMMIT), commit)
    return copy


def test_no_way_to_a_checkpoint_runs_what_it_holds(run_small, make_run, tmp_path):
    victim = tmp_path / "called"
    copy = hostile_copy(run_small.out / "checkpoints" / "step-00000020", tmp_path / "run", victim)
    checked_json.write(str(copy.parent.parent / "run.json"), run_small.model_dump(mode="json"))
    match = (
        "is not the layout of a checkpoint: it refers to \\w+.mknod, which is not part of a layout.*Nothing in it was"
    )
    with pytest.raises(ValueError, match=match):
        open_model(copy).load()
    with pytest.raises(ValueError, match=match):
        averaged([copy])
    with pytest.raises(ValueError, match=match):
        train(make_run(tmp_path / "other", resume_from=copy))
    assert not victim.exists()
    pickle.loads((copy / METADATA).read_bytes())
    assert victim.exists(), "another reader would have run it"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "EOFError"),
        (pickle.dumps(layout())[:-20], "."),
        (pickle.dumps({"a": 1}), "it has another object instead of Metadata"),
        (pickle.dumps(layout("../../../etc/passwd")), "which is not in its folder"),
        (pickle.dumps(layout("/etc/passwd")), "which is not in its folder"),
        (pickle.dumps(layout("..")), "which is not in its folder"),
        (pickle.dumps(layout(offset=-1)), "a number is not a size"),
        (pickle.dumps(layout(chunks=2)), "more parts than are stored"),
        (pickle.dumps(layout(chunks=1_000, repeated=1_000)), "more parts than are stored"),
        (b"\x80\x04cos\nsystem\n.", "an instruction that no layout has"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "it refers to os.system, which is not part of a layout"),
        (b"\x80\x04\x8c\x05torch\x8c\x0eSize.__class__\x93.", "it refers to torch.Size.__class__, which is not part"),
        (b"\x80\x04\x8c\x05torch\x8c\x04Size\x93}b.", "it gives a state to something that is not an object"),
        (b"\x80\x04]r\xff\xff\xff\x7f.", "an instruction that no layout has"),
        (b"\x80\x04Pid\n.", "an instruction that no layout has"),
        (b"\x80\x04])R.", "it calls something that is not a class"),
        (b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b".", "another object"),
    ],
)  # fmt: skip
def test_what_is_not_a_layout_is_an_error(tmp_path, content, reason):
    (tmp_path / METADATA).write_bytes(content)
    with pytest.raises(ValueError, match=f"{METADATA} is not the layout of a checkpoint: .*(?:{reason})"):
        read_layout(tmp_path / METADATA)


def test_a_layout_that_is_too_large_is_not_decoded(tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.training.checkpoint.reader.MAX_BYTES", 1000)
    (tmp_path / METADATA).write_bytes(pickle.dumps(layout(repeated=100)))
    with pytest.raises(ValueError, match="it is larger than 1,000 bytes"):
        read_layout(tmp_path / METADATA)


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-1] if how == "cut" else bytes([content[0] ^ 1]) + content[1:])


@pytest.mark.parametrize("how", ["flip", "cut", "missing"])
@pytest.mark.parametrize("name", [METADATA, "__0_0.distcp", COMMIT])
def test_verifying_finds_every_damage(run_small, tmp_path, name, how):
    shutil.copytree(run_small.out / "checkpoints", tmp_path / "checkpoints")
    sound = list(verify_checkpoints(str(tmp_path)))
    assert [one.folder.rpartition("/")[2] for one in sound] == ["step-00000020", "step-00000040"]
    assert all(one.files == 2 and not one.damages for one in sound)
    assert sound[0].bytes == sum(path.stat().st_size for path in (tmp_path / "checkpoints/step-00000020").glob("[._]*"))
    damage(tmp_path / "checkpoints/step-00000020" / name, how)
    first, second = verify_checkpoints(str(tmp_path))
    assert not second.damages
    trouble = "is missing" if how == "missing" else "is not what was written"
    assert [(Path(each.path).name, each.trouble) for each in first.damages] == [(name, trouble)]
