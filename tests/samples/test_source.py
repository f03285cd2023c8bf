"""`gristmill.samples`: the samples of our own training, by numpy alone."""

import json
import os
import pickle
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from gristmill.samples import SampleSource, order
from gristmill.samples.order import Order, permute, permute_one
from gristmill.samples.torch_batches import RankBatches, collate
from gristmill.storage.damage import DamagedFileError, MissingFileError
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training import batches
from gristmill.training.decoder import document_mask
from gristmill.training.loss import inputs_and_targets
from tests.samples.mixed_corpus import BATCH, END, PHASE, SEED, SEQ_LEN, STEPS, write

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=["windows", "packed"])
def manifest(request, tmp_path_factory) -> Path:
    return write(tmp_path_factory.mktemp(request.param), packing=request.param == "packed")


@pytest.fixture(scope="module")
def source(manifest) -> SampleSource:
    return SampleSource(manifest, SEQ_LEN, BATCH, SEED)


@pytest.fixture(scope="module")
def trained(manifest) -> Order:
    """What the loop makes of the manifest."""
    return Order(load_training_manifest(manifest), seq_len=SEQ_LEN, batch=BATCH, seed=SEED)


def test_samples_are_those_of_the_training_loop_in_all_phases_and_epochs(source, trained):
    assert len(source) == STEPS * BATCH
    epochs = {place[1] for place in trained.windows_of(range(len(source)))}
    assert len(epochs) > 1
    for step in range(0, STEPS, 3):
        inputs, targets = inputs_and_targets(torch.from_numpy(trained.batch(step)), BATCH)
        for row in range(BATCH):
            sample = source[step * BATCH + row]
            assert sample.input_ids.tolist() == inputs[row].tolist()
            assert sample.labels.tolist() == targets[row].tolist()
    assert {source[i].source for i in range(PHASE * BATCH, len(source))} == {"web", "books"}
    assert {source[i].source for i in range(PHASE * BATCH)} == {"web", "books", "code"}


def test_documents_are_those_that_the_mask_keeps_apart(source):
    for index in range(0, len(source), 7):
        sample = source[index]
        assert sample.document_lengths.min() > 0 and sample.document_lengths.sum() == SEQ_LEN
        number = np.repeat(np.arange(len(sample.document_lengths)), sample.document_lengths)
        mask = document_mask(torch.from_numpy(sample.input_ids)[None], END)[0, 0].numpy()
        assert (mask == ((number[:, None] == number) & np.tri(SEQ_LEN, dtype=bool))).all()


def test_each_token_is_where_it_says(source):
    ids_of = cache(lambda path: np.fromfile(path, "<u2"))
    for index in range(0, len(source), 97):
        sample = source[index]
        shards, offsets = sample.places()
        known = {entry.name: entry.shards for entry in source.manifest.sources}[sample.source]
        for token, (shard, offset) in enumerate(zip(shards.tolist(), offsets.tolist(), strict=True)):
            found = source.place(index, token)
            if shard < 0:
                assert found is None and sample.input_ids[token] == END
                continue
            ids = ids_of(known[shard].path)
            assert ids[offset] == sample.input_ids[token]
            # documents of the shard by a count of those that end before it
            ends = np.flatnonzero(ids == END)
            document = int(np.count_nonzero(ends < offset))
            begin = int(ends[document - 1]) + 1 if document else 0
            assert found == (known[shard].path, offset, document, offset - begin)


def test_packing_fills_in_what_is_nowhere(tmp_path):
    """Else the test of places has nothing to find nowhere."""
    source = SampleSource(write(tmp_path, packing=True), SEQ_LEN, BATCH, SEED)
    assert any((source[index].places()[0] < 0).any() for index in range(20))


@pytest.mark.parametrize("index", [-1, 10**9, STEPS * BATCH])
def test_a_number_outside_of_the_run_is_an_error(source, index):
    with pytest.raises(IndexError, match=f"no sample {index:,}: the run has {STEPS * BATCH:,}"):
        source[index]
    with pytest.raises(IndexError):
        source.__getitems__([0, index])
    with pytest.raises(IndexError):
        source.place(index, 0)


def test_a_slice_is_an_error(source):
    with pytest.raises(TypeError):
        source[:3]


def test_several_at_once_are_the_same(source):
    for one, other in zip(source.__getitems__([5, 400, 17, 5]), (source[i] for i in (5, 400, 17, 5)), strict=True):
        assert one.input_ids.tolist() == other.input_ids.tolist() and one.spans == other.spans


def test_a_pickled_source_holds_paths_and_gives_the_same(source):
    data = pickle.dumps(source)
    assert len(data) < 2000
    again = pickle.loads(data)
    assert len(again) == len(source) and again.fingerprint == source.fingerprint
    assert again[133].input_ids.tolist() == source[133].input_ids.tolist()


def test_a_pickle_does_not_open_another_manifest(tmp_path):
    data = pickle.dumps(SampleSource(write(tmp_path / "a"), SEQ_LEN, BATCH, SEED))
    (tmp_path / "a").rename(tmp_path / "b")
    write(tmp_path / "a", phases=False)
    with pytest.raises(DamagedFileError, match="has changed since the source was made"):
        pickle.loads(data)


def test_the_fingerprint_follows_what_decides_the_samples(manifest, source):
    def other(seed=SEED, seq_len=SEQ_LEN, **rest) -> str:
        return SampleSource(manifest, seq_len, BATCH, seed, verify=False, **rest).fingerprint

    assert other() == source.fingerprint
    assert len({other(), other(seed=6), other(steps=20)}) == 3


def test_damage_is_found_before_it_is_read(tmp_path):
    manifest = write(tmp_path, packing=True)
    shard = manifest.parents[1] / "tokens-0123456789abcdef" / "train-00003.bin"
    for path in (shard, manifest.parent / "rows-00001.bin"):
        whole = path.read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        with pytest.raises(DamagedFileError, match=f"{path.name} is not what was written; remove the stage's folder"):
            SampleSource(manifest, SEQ_LEN, BATCH, SEED)
        lazy = SampleSource(manifest, SEQ_LEN, BATCH, SEED, verify=False)
        found = 0
        for rank in range(4):  # each file is compared by one of four ranks
            try:
                lazy.check(rank, 4)
            except DamagedFileError:
                found += 1
        assert found == 1
        path.write_bytes(whole)
    manifest.write_bytes(manifest.read_bytes().replace(b'"share": 0.3', b'"share": 0.4'))
    with pytest.raises(DamagedFileError, match="mixture.json is not what was written"):
        SampleSource(manifest, SEQ_LEN, BATCH, SEED)
    manifest.unlink()
    with pytest.raises(MissingFileError):
        SampleSource(manifest, SEQ_LEN, BATCH, SEED)


def test_a_run_that_the_tokens_do_not_fill_is_refused(manifest):
    with pytest.raises(ValueError, match="its limit is"):
        SampleSource(manifest, SEQ_LEN, BATCH, SEED, steps=10 * STEPS)
    with pytest.raises(ValueError, match="not a whole number of steps of"):
        SampleSource(manifest, SEQ_LEN, 10**6, SEED)


def test_a_store_gives_the_same(manifest, source, tmp_path):
    import fsspec

    store = fsspec.filesystem("memory")
    home = manifest.parents[2]
    for path in home.rglob("*"):
        if path.is_file():
            store.pipe(f"/home/{path.relative_to(home)}", path.read_bytes())
    address = f"memory://home/{manifest.relative_to(home)}"
    stored = SampleSource(address, SEQ_LEN, BATCH, SEED, cache=tmp_path)
    assert stored.fingerprint == source.fingerprint
    assert stored[244].input_ids.tolist() == source[244].input_ids.tolist()


ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root not in ("numpy", "xxhash", "gristmill") and root not in sys.stdlib_module_names and root[0] != "_":
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Refuse())
from gristmill.samples import SampleSource
source = SampleSource(sys.argv[1], *map(int, sys.argv[2:]))
sample = source[123]
print(sample.input_ids.tolist(), source.place(123, 5).offset, "torch" in sys.modules, "pydantic" in sys.modules)
try:
    import pydantic
except ImportError:
    print("blocked")
"""


def test_it_needs_only_numpy_and_xxhash(manifest, source):
    command = [sys.executable, "-c", ALONE, str(manifest), str(SEQ_LEN), str(BATCH), str(SEED)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected = f"{source[123].input_ids.tolist()} {source.place(123, 5).offset} False False"
    assert done.stdout.splitlines() == [expected, "blocked"]


@given(st.integers(1, 1 << 50), st.binary(max_size=8), st.data())
def test_one_index_goes_where_many_go(size, key, data):
    index = data.draw(st.integers(0, size - 1))
    assert permute_one(index, size, key) == permute(np.array([index]), size, key)[0]


def test_the_loop_reads_by_the_same_order():
    assert batches.Order is order.Order is Order


@pytest.mark.parametrize(("world", "workers"), [(1, 0), (3, 1)])
def test_a_loader_of_torch_gives_each_rank_its_rows(source, trained, world, workers):
    """Also of a batch that the ranks do not divide, and from a later step on."""
    for rank in range(world):
        batches = RankBatches(source, rank, world, first=STEPS - 3)
        loader = DataLoader(source, batch_sampler=batches, collate_fn=collate, num_workers=workers)
        assert len(loader) == 3
        for step, batch in enumerate(loader, start=STEPS - 3):
            rows = len(range(rank, BATCH, world))
            inputs, targets = inputs_and_targets(torch.from_numpy(trained.batch(step, rank, world)), rows)
            assert (batch["input_ids"] == inputs).all() and (batch["labels"] == targets).all()
            assert batch["document_lengths"].sum(1).tolist() == [SEQ_LEN] * rows


def test_a_rank_without_rows_is_refused(source):
    with pytest.raises(ValueError, match="rank 8 of 9 has no rows of batches of 8; use fewer ranks"):
        RankBatches(source, 8, 9)


@pytest.mark.slow
@pytest.mark.parametrize("seq_len", [256, 2048, 8192])
def test_tokens_a_second(tmp_path, seq_len):
    """Printed: python -m pytest -m slow -s tests/samples/test_source.py -k second"""
    rng = np.random.default_rng(0)
    path = write(tmp_path)
    read = json.loads(path.read_text())
    from gristmill.storage import checked_json, files

    for number, entry in enumerate(read["sources"]):
        shard = path.parents[1] / "tokens-0123456789abcdef" / f"large-{number}.bin"
        ids = rng.integers(0, 500, 20_000_000).astype("<u2")
        ids[:: 700 + number] = END
        ids.tofile(shard)
        shards = [{"path": str(shard), "tokens": len(ids), "digest": files.checksum(str(shard))}]
        entry |= {"shards": shards, "tokens": len(ids), "epochs": 1.0}
    del read["checksum"], read["file"]
    checked_json.write(str(path), read)
    samples = min(8000, 20_000_000 // seq_len)
    source = SampleSource(path, seq_len, BATCH, SEED, steps=samples // BATCH)
    samples = len(source)
    for ask in ("one by one", "in batches"):
        began = time.perf_counter(), time.process_time()
        if ask == "one by one":
            for index in range(samples):
                source[index]
        else:
            for index in range(0, samples, 64):
                source.__getitems__(range(index, min(index + 64, samples)))
        seconds, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
        print(
            f"\n{seq_len} tokens, {ask}: {samples * seq_len / seconds / 1e6:.1f} million a second, "
            f"{samples * seq_len / cpu / 1e6:.1f} a second of CPU, {cpu / samples * 1e6:.0f} us a sample"
        )
