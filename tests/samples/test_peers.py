"""Loaders of other trainers give the batches of our own loop, in an environment of their own.

python -m venv PEERS
PEERS/bin/pip install --constraint constraints.txt torch ai2-olmo-core==3.0.0 grain
GRISTMILL_TEST_PEERS=PEERS/bin/python python -m pytest -m bench -s tests/samples/test_peers.py
"""

import hashlib
import os
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from gristmill.samples import SampleSource
from gristmill.samples.formats.export import TokenExport
from gristmill.samples.formats.folder import write_export
from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.loss import inputs_and_targets
from tests.samples.mixed_corpus import BATCH, END, SEED, SEQ_LEN, write

ROOT = Path(__file__).resolve().parents[2]
PEERS = os.environ.get("GRISTMILL_TEST_PEERS")
STEPS, RESUME = 100, 50
EXPORTED = 1_250  # steps of 8 windows


def has(module: str) -> bool:
    if PEERS is None:
        return False
    command = [PEERS, "-c", f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"]
    return subprocess.run(command, capture_output=True).returncode == 0


def digests(inputs: np.ndarray, labels: np.ndarray, documents: np.ndarray) -> list[str]:
    """SHA-256 of each batch."""
    return [
        hashlib.sha256(b"".join(np.ascontiguousarray(each[step]).astype("<i8").tobytes() for each in given)).hexdigest()
        for given in [(inputs, labels, documents)]
        for step in range(len(inputs))
    ]


def trained(manifest: Path, with_documents: bool) -> list[str]:
    """Of what our own loop reads; without documents their lengths are 0."""
    order = Order(load_training_manifest(manifest), seq_len=SEQ_LEN, batch=BATCH, seed=SEED)
    inputs, labels, documents = [], [], np.zeros((STEPS, BATCH, SEQ_LEN), np.int64)
    for step in range(STEPS):
        read, targets = inputs_and_targets(torch.from_numpy(order.batch(step)), BATCH)
        inputs.append(read.numpy())
        labels.append(targets.numpy())
        for row in range(BATCH if with_documents else 0):
            number = (read[row] == END).cumsum(0)
            lengths = torch.unique_consecutive(number, return_counts=True)[1]
            documents[step, row, : len(lengths)] = lengths.numpy()
    return digests(np.stack(inputs), np.stack(labels), documents)


def together(folder: Path, world: int, prefix: str = "") -> list[str]:
    """Of the ranks' rows: row j of rank r is row j * world + r of the batch."""
    parts = [np.load(folder / f"{rank}-of-{world}.npz") for rank in range(world)]
    whole = []
    for name in ("inputs", "labels", "documents"):
        rows = [part[prefix + name] for part in parts]
        array = np.empty((len(rows[0]), BATCH, rows[0].shape[-1]), np.int64)
        for rank, own in enumerate(rows):
            array[:, rank::world] = own
        whole.append(array)
    return digests(*whole)


@pytest.mark.bench
@pytest.mark.parametrize("packing", [False, True], ids=["windows", "packed"])
@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("kind", ["olmo_core", "grain", "torchtitan"])
def test_batches_are_those_of_our_own_loop(tmp_path, kind, world, packing):
    if not has(kind):
        pytest.skip(f"GRISTMILL_TEST_PEERS names no Python that has {kind}")
    manifest = write(tmp_path, packing=packing, steps=120)
    command = [PEERS, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    command += [str(Path(__file__).with_name("peer_batches.py")), kind, str(manifest), str(tmp_path)]
    command += [str(SEQ_LEN), str(BATCH), str(SEED)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = trained(manifest, with_documents=kind != "torchtitan")
    assert len(set(expected)) == STEPS
    assert together(tmp_path, world) == expected
    assert together(tmp_path, world, "resumed_") == expected[RESUME:]
    print(f"\n{kind}, {world} processes: {STEPS} batches, and {STEPS - RESUME} after a resume, equal by SHA-256")


@pytest.mark.bench
@pytest.mark.parametrize("manifest", ["shares", "phases", "packed"])
@pytest.mark.parametrize(
    ("trainer", "module"),
    [("olmo-core", "olmo_core"), ("mosaic", "streaming"), ("litgpt", "litdata"), ("megatron", "megatron.core")],
)
def test_exported_tokens_are_read_by_the_trainers_own_readers(tmp_path, trainer, module, manifest):
    if not has(module.partition(".")[0]):
        pytest.skip(f"GRISTMILL_TEST_PEERS names no Python that has {module}")
    written = write(tmp_path, packing=manifest == "packed", phases=manifest != "shares", steps=EXPORTED)
    source = SampleSource(written, SEQ_LEN, BATCH, SEED)
    export = TokenExport("peers", "0123456789abcdef", "", source, load_training_manifest(written))
    folder = tmp_path / "out"
    write_export(export, trainer, str(folder))
    command = [PEERS, str(Path(__file__).with_name("peer_reads.py")), trainer, str(folder), str(SEQ_LEN + 1)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    read = np.load(folder.with_suffix(".npy")).astype(np.int64)
    rows = np.stack([source.row(index) for index in range(len(source))])
    rows = np.where(rows < 0, ~rows, rows)
    if trainer == "megatron":
        if manifest == "shares":
            shards = [shard for each in export.data.sources for shard in each.shards]
            assert read.tolist() == np.concatenate([np.fromfile(shard.path, "<u2") for shard in shards]).tolist()
        else:
            assert read.reshape(-1, SEQ_LEN).tolist() == rows[: EXPORTED * 7 // 12 * BATCH, 1:].tolist()
    elif trainer == "olmo-core" and manifest == "shares":
        # OLMo-core shuffles: the windows are those of the sources, and each source has its share of them
        assert read.shape == (len(rows), SEQ_LEN)
        counts = Counter(owner(window, export) for window in read)
        for each in export.data.sources:
            assert counts[each.name] / len(rows) == pytest.approx(each.share, abs=0.02)
    else:
        assert (read == rows).all()
    print(f"\n{trainer}, {manifest}: {len(read)} read as written")


@pytest.mark.bench
def test_megatrons_own_blend_has_the_shares(tmp_path):
    """Megatron's builder, given the exported arguments, draws samples of each source in its share; what it reads of a
    source are that source's tokens."""
    if not has("megatron.core"):
        pytest.skip("GRISTMILL_TEST_PEERS names no Python that has megatron.core")
    written = write(tmp_path, phases=False, steps=EXPORTED)
    source = SampleSource(written, SEQ_LEN, BATCH, SEED)
    export = TokenExport("peers", "0123456789abcdef", "", source, load_training_manifest(written))
    folder = tmp_path / "out"
    write_export(export, "megatron", str(folder))
    command = [PEERS, str(Path(__file__).with_name("peer_reads.py")), "megatron-blend", str(folder), str(SEQ_LEN + 1)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    of = np.load(folder.with_suffix(".npy"))
    assert len(of) == EXPORTED * BATCH
    far = 0.0
    for number, each in enumerate(export.data.sources):
        far = max(far, abs((of == number).mean() - each.share))
    assert far <= 1e-3
    ids = [{*np.concatenate([pairs_of(shard.path) for shard in each.shards])} for each in export.data.sources]
    for number, window in zip(of[::10], np.load(f"{folder}-samples.npy"), strict=True):
        # documents are shuffled: within one, ids follow each other as in the source
        inner = [pair for pair, first in zip(pairs(window), window[:-1], strict=True) if first != END]
        assert all(pair in ids[number] for pair in inner)
    print(f"\nmegatron's blend: {len(of):,} samples, shares within {far:.1e}")


def pairs(ids: np.ndarray) -> np.ndarray:
    """Each id with the one behind it, as one number."""
    return ids[:-1].astype(np.int64) << 32 | ids[1:].astype(np.int64)


def pairs_of(path: str) -> np.ndarray:
    return pairs(np.fromfile(path, "<u2"))


def owner(window: np.ndarray, export: TokenExport) -> str:
    """The source whose tokens hold a window, from the start of one of its shards on at a stride of SEQ_LEN."""
    for each in export.data.sources:
        for shard in each.shards:
            ids = np.fromfile(shard.path, "<u2")
            if (ids[: len(ids) // SEQ_LEN * SEQ_LEN].reshape(-1, SEQ_LEN) == window).all(1).any():
                return each.name
        whole = np.concatenate([np.fromfile(shard.path, "<u2") for shard in each.shards])
        if (whole[: len(whole) // SEQ_LEN * SEQ_LEN].reshape(-1, SEQ_LEN) == window).all(1).any():
            return each.name
    raise AssertionError("a window of no source")
