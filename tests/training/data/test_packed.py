"""Rows of packed documents: what the model reads and what it is asked for, token by token."""

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.samples.order import Order
from gristmill.storage import checked_json, files
from gristmill.storage.damage import MissingFileError
from gristmill.storage.training_manifest import load_training_manifest, write_rows
from gristmill.tasks.tokens.plan import packed
from gristmill.training.batches import check_digests, fingerprint
from gristmill.training.decoder import document_mask, rotate
from gristmill.training.loss import IGNORE, inputs_and_targets
from gristmill.training.run.loop import train
from tests.training.data.test_order import check_near

SEQ_LEN = 128


@pytest.fixture(scope="module")
def packed_corpus(corpus, tmp_path_factory):
    """The corpus with its documents packed: the first source in two files of rows, the second in one."""
    folder = tmp_path_factory.mktemp("packed")
    shutil.copytree(corpus.parent, folder, dirs_exist_ok=True)
    mixture = checked_json.read(str(corpus))
    for number, source in enumerate(mixture["sources"]):
        runs = [[shard] for shard in source["shards"]] if number == 0 else [source["shards"]]
        source["rows"], begin = [], 0
        for part, run in enumerate(runs):
            ids = np.concatenate([np.fromfile(folder / shard["path"], "<u2") for shard in run])
            lengths = np.diff(np.flatnonzero(ids == mixture["end_of_text"]), prepend=-1)
            found = packed(lengths, SEQ_LEN)
            path = folder / f"rows-{number}-{part}.bin"
            digest = write_rows(str(path), found.first, found.start + begin, found.length)
            entry = {"path": path.name, "rows": found.rows, "pieces": len(found.start), "digest": digest}
            source["rows"].append(entry)
            begin += len(ids)
    mixture["row_length"] = SEQ_LEN
    checked_json.write(str(folder / corpus.name), mixture)
    return folder / corpus.name


@pytest.fixture
def order(packed_corpus):
    return Order(load_training_manifest(packed_corpus), seq_len=SEQ_LEN, batch=7, seed=3)


def documents(order: Order, source: int, end: int) -> list[tuple[int, ...]]:
    ids = order.tokens[source].read(0, len(order.tokens[source])).tolist()
    ends = [at + 1 for at, token in enumerate(ids) if token == end]
    return [tuple(ids[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


def test_an_epoch_reads_each_document_once_and_cuts_none_that_fits(order, packed_corpus):
    """From the rows alone: they are cut again at the ends of texts, and compared with the documents of the shards."""
    end = load_training_manifest(packed_corpus).end_of_text
    places = order.windows_of(range(4 * sum(order.windows)))
    for source, rows in enumerate(order.windows):
        given = documents(order, source, end)
        whole = sorted(document for document in given if len(document) <= SEQ_LEN)
        assert 0 < len(whole) < len(given)
        turns = [window for of, epoch, window in places if of == source and epoch == 0]
        assert sorted(turns) == list(range(rows))
        found: list[tuple[int, ...]] = []
        pieces: list[tuple[int, ...]] = []
        asked = 0
        for window in turns:
            row = order.read[source](window)
            padding = row == ~end
            assert not padding[: np.argmin(padding)].any() and (np.diff(padding.astype(int)) >= 0).all()
            ids = np.where(row < 0, ~row, row)[~padding].tolist()
            asked += np.count_nonzero(row[1:] >= 0)
            ends = [at + 1 for at, token in enumerate(ids) if token == end and at]
            cut = [tuple(ids[a:b]) for a, b in zip([1, *ends], [*ends, len(ids)], strict=False) if a < b]
            found += [piece for piece in cut if piece in set(whole)]
            pieces += [piece for piece in cut if piece not in set(whole)]
        assert sorted(found) == whole
        long = [document for document in given if len(document) > SEQ_LEN]
        expected = [d[at : at + SEQ_LEN] for d in long for at in range(0, len(d), SEQ_LEN)]
        # an end of text alone looks like padding where it is no target
        assert sorted(set(pieces) - {(end,)}) == sorted(set(expected) - {(end,)})
        assert len(expected) - expected.count((end,)) == len(pieces) - pieces.count((end,))
        lost = len(order.tokens[source]) - asked
        assert 0 <= lost <= len(long)  # first tokens of ends of long documents that begin no row


def test_each_token_is_asked_for_behind_the_one_before_it_in_its_document(order, packed_corpus):
    end = load_training_manifest(packed_corpus).end_of_text
    pairs = {
        pair for source in (0, 1) for d in documents(order, source, end) for pair in zip((end, *d), d, strict=False)
    }
    inputs, targets = inputs_and_targets(torch.from_numpy(order.batch(2)), 8)
    assert inputs.shape == targets.shape == (8, SEQ_LEN) and inputs.min() >= 0
    real = targets != IGNORE
    assert {*zip(inputs[real].tolist(), targets[real].tolist(), strict=True)} <= pairs
    assert (inputs[:7][~real[:7]] == end).all() and not real[7].any()


@pytest.mark.parametrize("world", [2, 3, 8])
def test_ranks_share_the_batch_of_one_process(order, world):
    for step in (0, 5, 10**9):
        whole = order.batch(step)
        parts = np.empty_like(whole)
        for rank in range(world):
            parts[rank::world] = order.batch(step, rank, world)
        assert (parts == whole).all()


def test_shares_are_of_tokens_not_of_rows(order):
    """Both sources have padding, but not equally much of it."""
    counts = order.schedule.counts(10**7)
    fills = [len(tokens) / rows for tokens, rows in zip(order.tokens, order.windows, strict=True)]
    tokens = [count * fill for count, fill in zip(counts, fills, strict=True)]
    assert fills[0] != fills[1]
    for source, count in zip(order.sources, tokens, strict=True):
        assert count / sum(tokens) == pytest.approx(source.share, abs=1e-6)


def test_another_context_and_damaged_rows_are_refused(packed_corpus, corpus, tmp_path):
    manifest = load_training_manifest(packed_corpus)
    with pytest.raises(ValueError, match="packed for a context of 128 tokens, the model has seq_len 16"):
        Order(manifest, seq_len=16, batch=7, seed=0)
    assert fingerprint(manifest) != fingerprint(load_training_manifest(corpus))
    shutil.copytree(packed_corpus.parent, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "rows-1-0.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\1")
    assert files.checksum(str(path)) != files.digest(content)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match="rows-1-0.bin is not what was written"):
            check_digests(load_training_manifest(tmp_path / packed_corpus.name))
        path.unlink()
        with pytest.raises(MissingFileError, match="rows-1-0.bin is missing"):
            check_digests(load_training_manifest(tmp_path / packed_corpus.name))
    finally:
        torch.distributed.destroy_process_group()
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="rows-1-0.bin: .* bytes"):
        Order(load_training_manifest(tmp_path / packed_corpus.name), seq_len=SEQ_LEN, batch=7, seed=0)


@pytest.mark.slow
def test_a_model_learns_from_packed_rows(make_run, packed_corpus, tmp_path):
    settings = {"document_mask": True, "sample_tokens": 0}
    result = train(make_run(tmp_path, model={"seq_len": SEQ_LEN}, training=settings, data=packed_corpus))
    assert result["heldout/loss"] < result["unigram/loss"]
    assert 0.9 * 40 * 7 * SEQ_LEN < result["tokens"] < 40 * 7 * SEQ_LEN


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 3))
def test_positions_that_begin_anew_with_each_document_change_nothing(seed, count):
    """Under a document mask: rotary attention knows distances within a document alone."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, 9, (1, 24), generator=generator)
    tokens[0, torch.randint(1, 24, (count,), generator=generator)] = 2
    begins = [0, *(at for at in range(1, 24) if tokens[0, at] == 2)]
    position = torch.tensor([at - max(begin for begin in begins if begin <= at) for at in range(24)])
    q, k, v = torch.randn(3, 1, 2, 24, 8, generator=generator, dtype=torch.float64)
    mask = document_mask(tokens, 2)

    def attended(positions: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(positions.float(), 10_000.0 ** (-torch.arange(0, 8, 2) / 8))
        turned = (rotate(x, angles.cos(), angles.sin()) for x in (q, k))
        return torch.nn.functional.scaled_dot_product_attention(*turned, v, mask)

    assert torch.allclose(attended(torch.arange(24)), attended(position), atol=1e-4)


def test_tokens_are_in_the_rows_near_them(order):
    check_near(order)
