"""Exported tokens, read by readers that know the trainers' formats and nothing of ours."""

import hashlib
import json
import pickle
import struct
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import yaml

from gristmill.samples import SampleSource
from gristmill.samples.formats.export import TokenExport
from gristmill.samples.formats.folder import TRAINERS, write_export
from gristmill.storage.tokenizer_files import load_tokenizer
from gristmill.storage.training_manifest import load_training_manifest
from tests.samples.mixed_corpus import BATCH, END, PHASE, SEED, SEQ_LEN, STEPS, VOCABULARY, write

MANIFESTS = {
    "shares": {"phases": False},
    "phases": {},
    "packed": {"packing": True},
    "wide": {"phases": False, "vocabulary": 70_000},
}


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> dict[str, TokenExport]:
    found = {}
    for name, settings in MANIFESTS.items():
        manifest = write(tmp_path_factory.mktemp(name), **settings)
        source = SampleSource(manifest, SEQ_LEN, BATCH, SEED, verify=False)
        found[name] = TokenExport(name, "0123456789abcdef", "name: x", source, load_training_manifest(manifest))
    return found


@pytest.fixture
def exported(exports, tmp_path, request):
    """(export, folder) by the parameters (trainer, manifest)."""
    trainer, name = request.param
    assert write_export(exports[name], trainer, str(tmp_path / "out"))
    return exports[name], tmp_path / "out"


def samples(export: TokenExport) -> tuple[np.ndarray, np.ndarray]:
    """(ids, targets) of all samples, (samples, seq_len + 1), as the loop is given them one by one."""
    rows = np.stack([export.source.row(index) for index in range(len(export.source))])
    return np.where(rows < 0, ~rows, rows), rows >= 0


def heldout(export: TokenExport) -> list[int]:
    [part] = export.data.heldout
    return np.concatenate([np.fromfile(shard.path, export.dtype) for shard in part.shards]).tolist()


def of(trainer: str, *names: str):
    return pytest.mark.parametrize("exported", [(trainer, name) for name in names], indirect=True, ids=names)


@of("nanogpt", "shares", "phases", "packed")
def test_nanogpt_has_the_samples_in_order(exported):
    export, folder = exported
    data = np.memmap(folder / "train.bin", np.uint16, "r")  # as train.py opens it
    settings: dict = {}
    exec((folder / "train_gristmill.py").read_text(), settings)
    assert (settings["block_size"], settings["batch_size"], settings["max_iters"]) == (SEQ_LEN, BATCH, STEPS)
    assert (data.reshape(-1, settings["block_size"] + 1) == samples(export)[0]).all()
    assert np.memmap(folder / "val.bin", np.uint16, "r").tolist() == heldout(export)
    assert pickle.loads((folder / "meta.pkl").read_bytes())["vocab_size"] == VOCABULARY


def test_nanogpt_refuses_ids_that_it_cannot_read(exports, tmp_path):
    with pytest.raises(ValueError, match="nanoGPT reads only uint16 ids"):
        write_export(exports["wide"], "nanogpt", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@of("nanogpt", "packed")
def test_the_lines_of_the_card_read_nanogpt_in_order(exported):
    """get_batch as the card changes it."""
    import torch

    export, folder = exported
    lines = [line[4:] for line in (folder / "README.md").read_text().splitlines() if line.startswith("    ")]
    code = "\n".join(line for line in lines if not line.startswith("python"))
    ids = samples(export)[0]
    for iter_num, micro_step in ((0, 0), (7, 1), (29, 1)):
        given = {
            "np": np, "torch": torch, "data": np.memmap(folder / "train.bin", np.uint16, "r"), "block_size": SEQ_LEN,
            "batch_size": 8, "gradient_accumulation_steps": 2, "iter_num": iter_num, "micro_step": micro_step,
        }  # fmt: skip
        exec(code, given)
        first = (iter_num * 2 + micro_step) * 8
        assert given["x"].tolist() == ids[first : first + 8, :-1].tolist()
        assert given["y"].tolist() == ids[first : first + 8, 1:].tolist()


def indexed_dataset(prefix: Path) -> list[np.ndarray]:
    """The documents, by the layout of Megatron's `_IndexReader`: header, then lengths, pointers, document indices."""
    data = prefix.with_suffix(".idx").read_bytes()
    assert data[:9] == b"MMIDIDX\x00\x00"
    version, code, count, documents = struct.unpack("<QBQQ", data[9:34])
    assert version == 1
    dtype = {4: np.int32, 8: np.uint16}[code]
    lengths = np.frombuffer(data, "<i4", count, 34)
    pointers = np.frombuffer(data, "<i8", count, 34 + 4 * count)
    indices = np.frombuffer(data, "<i8", documents, 34 + 12 * count)
    assert len(data) == 34 + 12 * count + 8 * documents
    assert indices.tolist() == list(range(count + 1))
    content = prefix.with_suffix(".bin").read_bytes()
    found = [np.frombuffer(content, dtype, n, at) for n, at in zip(lengths, pointers, strict=True)]
    assert sum(len(each) for each in found) * np.dtype(dtype).itemsize == len(content)
    return found


@of("megatron", "shares", "wide")
def test_megatron_has_the_documents_of_each_source_and_their_shares(exported):
    export, folder = exported
    arguments = dict(line.split(" ", 1) for line in (folder / "megatron.args").read_text().splitlines())
    words = arguments["--train-data-path"].split()
    for source, weight, prefix in zip(export.data.sources, words[::2], words[1::2], strict=True):
        assert float(weight) == source.share
        found = indexed_dataset(folder / prefix)
        ids = np.concatenate([np.fromfile(shard.path, export.dtype) for shard in source.shards])
        assert np.concatenate(found).tolist() == ids.tolist()
        assert all(each[-1] == END and END not in each[:-1] for each in found)
    assert arguments["--train-samples"] == str(STEPS * BATCH)
    own = [indexed_dataset(folder / prefix) for prefix in arguments["--valid-data-path"].split()]
    assert np.concatenate(own[0]).tolist() == heldout(export)


@of("megatron", "phases", "packed")
def test_megatron_gets_the_samples_of_each_phase(exported):
    export, folder = exported
    found = [np.stack(indexed_dataset(folder / f"phase-{phase:03d}")) for phase in (0, 1)]
    assert [len(each) for each in found] == [PHASE * BATCH, (STEPS - PHASE) * BATCH]
    assert (np.concatenate(found) == samples(export)[0][:, 1:]).all()
    ends = []
    for phase, name in enumerate(("megatron.args", "megatron-1.args")):
        arguments = dict(line.split(" ", 1) for line in (folder / name).read_text().splitlines())
        assert arguments["--train-data-path"] == f"1 phase-{phase:03d}"
        ends.append(int(arguments["--train-samples"]))
    assert ends == [PHASE * BATCH, STEPS * BATCH]


def mds(folder: Path) -> list[dict[str, np.ndarray]]:
    """The samples, by the layout that MDSReader reads: offsets from the head, columns of fixed sizes."""
    found = []
    index = json.loads((folder / "index.json").read_text())
    assert index["version"] == 2
    for shard in index["shards"]:
        assert (shard["format"], shard["compression"], shard["zip_data"]) == ("mds", None, None)
        path = folder / shard["raw_data"]["basename"]
        data = path.read_bytes()
        assert len(data) == shard["raw_data"]["bytes"]
        [count] = np.frombuffer(data, "<u4", 1)
        assert count == shard["samples"]
        offsets = np.frombuffer(data, "<u4", count + 1, 4)
        for begin, end in zip(offsets, offsets[1:], strict=False):
            sample, at = {}, int(begin)
            for name, encoding, size in zip(
                shard["column_names"], shard["column_encodings"], shard["column_sizes"], strict=True
            ):
                kind, dtype, shape = encoding.split(":")
                assert kind == "ndarray"
                sample[name] = np.frombuffer(data[at : at + size], dtype).reshape(int(shape))
                at += size
            assert at == end
            found.append(sample)
    return found


@of("mosaic", "shares", "phases", "packed", "wide")
def test_mosaic_has_the_samples_in_order(exported, monkeypatch):
    export, folder = exported
    ids, targets = samples(export)
    found = mds(folder / "train")
    assert (np.stack([sample["tokens"] for sample in found]) == ids).all()
    if export.data.row_length:
        assert (np.stack([sample["targets"] for sample in found]) == targets).all() and not targets.all()
    assert yaml.safe_load((folder / "train_loader.yaml").read_text())["train_loader"]["dataset"]["shuffle"] is False


@of("olmo-core", "phases", "packed")
def test_olmo_core_has_the_samples_in_order(exported):
    export, folder = exported
    ids, targets = samples(export)
    instances = json.loads((folder / "instances.json").read_text())
    [documents] = instances["sources"]
    data = np.concatenate([np.fromfile(folder / path, documents["dtype"]) for path in documents["source_paths"]])
    assert (data.reshape(-1, instances["sequence_length"]) == ids).all()
    if export.data.row_length:
        masks = np.concatenate([np.fromfile(folder / path, bool) for path in documents["label_mask_paths"]])
        assert (masks.reshape(ids.shape) == targets).all()
    loader = json.loads((folder / "loader.json").read_text())
    assert loader["shuffle"] is False and loader["global_batch_size"] == BATCH * (SEQ_LEN + 1)


@of("olmo-core", "shares", "wide")
def test_olmo_core_has_the_shards_and_their_shares(exported):
    export, folder = exported
    instances = json.loads((folder / "instances.json").read_text())
    for source, spec in zip(export.data.sources, instances["source_specs"], strict=True):
        [documents] = spec["source"]["sources"]
        assert spec["ratio"] == source.share and spec["max_repetition_factor"] >= max(1, source.epochs)
        for shard, path in zip(source.shards, documents["source_paths"], strict=True):
            assert (folder / path).read_bytes() == shard.path.read_bytes()


def chunks(folder: Path, block: int) -> np.ndarray:
    """Blocks, by the layout that litdata's TokensLoader reads: behind a head of 4 bytes for each item and two more."""
    index = json.loads((folder / "index.json").read_text())
    assert index["config"]["item_loader"] == "TokensLoader"
    [[kind, code]] = [each.split(":") for each in index["config"]["data_format"]]
    dtype = {"20": np.uint16, "16": np.int32}[code]
    found = []
    for chunk in index["chunks"]:
        data = (folder / chunk["filename"]).read_bytes()
        assert len(data) == chunk["chunk_bytes"]
        head = (1 + chunk["chunk_size"] + 1) * 4
        assert np.frombuffer(data, "<u4", chunk["chunk_size"] + 2)[1] == head
        ids = np.frombuffer(data, dtype, offset=head)
        assert len(ids) == chunk["dim"]
        found.append(ids[: len(ids) // block * block].reshape(-1, block))
    return np.concatenate(found)


@of("litgpt", "shares", "packed", "wide")
def test_litgpt_has_the_samples_in_order(exported):
    export, folder = exported
    assert (chunks(folder / "train", SEQ_LEN + 1) == samples(export)[0]).all()
    assert chunks(folder / "val", 1)[:, 0].tolist() == heldout(export)
    assert yaml.safe_load((folder / "pretrain.yaml").read_text())["train"]["max_seq_length"] == SEQ_LEN


@of("nanochat", "phases", "packed")
def test_nanochat_has_each_document_where_its_beginning_is_read(exported):
    """Against the ends of texts in the samples: a document begins behind each one that a sample reads."""
    export, folder = exported
    decode = load_tokenizer(export.data.tokenizer.path).decode
    shards = sorted((folder / "base_data_climbmix").glob("*.parquet"))
    texts = [text for path in shards[:-1] for text in pyarrow.parquet.read_table(path)["text"].to_pylist()]
    expected = []
    for index in range(len(export.source)):
        ids, targets = samples_of(export, index)
        sample = export.source[index]
        entries = next(source.shards for source in export.data.sources if source.name == sample.source)
        whole = np.concatenate([np.fromfile(shard.path, "<u2") for shard in entries])
        firsts = np.cumsum([0] + [shard.tokens for shard in entries])
        place = {at + j: firsts[shard] + offset + j for at, shard, offset, n in sample.spans for j in range(n)}
        starts = [
            place[at]
            for at in range(SEQ_LEN + 1)
            if at in place and (place[at] == 0 or whole[place[at] - 1] == END) and targets[at]
        ]
        if not export.data.row_length:
            starts = [start for start in starts if start != place[SEQ_LEN]]  # is read as the first of another window
        for start in starts:
            end = start + int(np.flatnonzero(whole[start:] == END)[0])
            expected.append(decode(whole[start:end].tolist()))
    assert texts == expected
    assert len(pyarrow.parquet.read_table(shards[-1])) == heldout(export).count(END)


def samples_of(export: TokenExport, index: int) -> tuple[np.ndarray, np.ndarray]:
    row = export.source.row(index)
    return np.where(row < 0, ~row, row), row >= 0


@of("torchtitan", "phases")
def test_torchtitan_has_the_same_documents(exported, exports, tmp_path):
    export, folder = exported
    write_export(exports["phases"], "nanochat", str(tmp_path / "other"))
    own, other = sorted((folder / "train").iterdir()), sorted((tmp_path / "other" / "base_data_climbmix").iterdir())
    assert [path.read_bytes() for path in own] == [path.read_bytes() for path in other[:-1]]
    assert "--training.seq_len 32" in (folder / "torchtitan.args").read_text().splitlines()


@pytest.mark.parametrize("trainer", sorted(TRAINERS))
def test_the_same_tokens_give_the_same_bytes_and_digests_are_right(exports, tmp_path, trainer):
    export = exports["packed"]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        assert write_export(export, trainer, str(folder))
    contents = [{p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders]
    assert contents[0] == contents[1]
    sums = dict(line.split("  ")[::-1] for line in (folders[0] / "SHA256SUMS").read_text().splitlines())
    found = {str(n): hashlib.sha256(data).hexdigest() for n, data in contents[0].items() if n.name != "SHA256SUMS"}
    assert sums == found
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folders[0], check=True)
    assert "mixture-0123456789abcdef" in contents[0][Path("README.md")].decode()


def test_a_second_run_writes_nothing_and_mends_what_is_damaged(exports, tmp_path):
    export, folder = exports["packed"], tmp_path / "out"
    write_export(export, "mosaic", str(folder))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert not write_export(export, "mosaic", str(folder))
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    shard = folder / "train" / "shard.00000.mds"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert write_export(export, "mosaic", str(folder))
    assert shard.read_bytes() == whole


def test_a_run_that_was_stopped_goes_on(exports, tmp_path):
    export, whole, folder = exports["phases"], tmp_path / "whole", tmp_path / "out"
    write_export(export, "megatron", str(whole))

    class Stopped(Exception):
        pass

    def stop(name: str, size: int) -> None:
        if name == "phase-001.bin":
            raise Stopped

    with pytest.raises(Stopped):
        write_export(export, "megatron", str(folder), stop)
    assert (folder / "phase-000.idx").exists() and not (folder / "phase-001.bin").exists()
    assert not (folder / "SHA256SUMS").exists()
    kept = (folder / "phase-000.bin").stat().st_mtime_ns
    assert write_export(export, "megatron", str(folder))
    assert (folder / "phase-000.bin").stat().st_mtime_ns == kept
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {p.name: p.read_bytes() for p in whole.iterdir()}


def test_a_folder_of_something_else_is_left_alone(exports, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="contains files that are not an export of tokens"):
        write_export(exports["shares"], "nanogpt", str(tmp_path))
    write_export(exports["shares"], "nanogpt", str(tmp_path / "out"))
    with pytest.raises(FileExistsError, match="has a different export, of trainer nanogpt: choose another folder"):
        write_export(exports["shares"], "mosaic", str(tmp_path / "out"))


def test_files_are_cut_where_they_are_long(exports, tmp_path, monkeypatch):
    """Formats of several files: the second one begins where the first ends."""
    monkeypatch.setattr("gristmill.samples.formats.export.FILE_BYTES", 10_000)
    monkeypatch.setattr("gristmill.samples.formats.mosaic.SHARD_BYTES", 10_000)
    monkeypatch.setattr("gristmill.samples.formats.texts.FILE_TOKENS", 10_000)
    export = exports["packed"]
    for trainer in ("mosaic", "olmo-core", "litgpt", "nanochat"):
        write_export(export, trainer, str(tmp_path / trainer))
    ids, targets = samples(export)
    assert len(list((tmp_path / "mosaic" / "train").glob("*.mds"))) > 2
    assert (np.stack([sample["tokens"] for sample in mds(tmp_path / "mosaic" / "train")]) == ids).all()
    assert (chunks(tmp_path / "litgpt" / "train", SEQ_LEN + 1) == ids).all()
    [documents] = json.loads((tmp_path / "olmo-core" / "instances.json").read_text())["sources"]
    assert len(documents["source_paths"]) > 2
    read = [np.fromfile(tmp_path / "olmo-core" / path, bool) for path in documents["label_mask_paths"]]
    assert (np.concatenate(read).reshape(ids.shape) == targets).all()
    assert len(list((tmp_path / "nanochat" / "base_data_climbmix").iterdir())) == 3
