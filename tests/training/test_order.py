"""The i-th sample is the same for everyone, comes in the right proportion, and once per epoch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import checked_json
from storage.training_manifest import load_training_manifest
from training.data import Tokens, fingerprint
from training.order import Order, Schedule, permute

SHARES = st.lists(st.floats(1e-4, 1), min_size=1, max_size=12).map(lambda s: [x / sum(s) for x in s])


@given(SHARES, st.integers(0, 10**12))
def test_counts_stay_within_two_of_the_shares(shares, samples):
    counts = Schedule(shares).counts(samples)
    assert sum(counts) == samples
    for share, count in zip(shares, counts, strict=True):
        assert abs(count - samples * share / sum(shares)) < 2 + samples * 1e-15


@given(SHARES)
def test_draws_number_themselves_one_after_the_other(shares):
    schedule, seen = Schedule(shares), [0] * len(shares)
    for sample in range(300):
        source, k = schedule.draw(sample)
        assert k == seen[source]
        seen[source] += 1
        assert seen == schedule.counts(sample + 1)


def test_a_source_without_a_share_is_never_drawn():
    assert Schedule([0.0, 0.5, 0.0, 0.5]).counts(1000) == [0, 500, 0, 500]


@given(st.integers(1, 3000), st.binary(max_size=20))
def test_permute_is_a_bijection(size, key):
    assert sorted(permute(np.arange(size), size, key)) == list(range(size))


@given(st.integers(1, 1 << 50), st.binary(max_size=8), st.data())
def test_permute_stays_in_range_and_ignores_the_company(size, key, data):
    index = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20)))
    together = permute(index, size, key)
    assert ((0 <= together) & (together < size)).all()
    assert [int(permute(index[i : i + 1], size, key)[0]) for i in range(len(index))] == together.tolist()


def test_permute_looks_random():
    """Neighbours end up far apart and position tells nothing: both would fail for a stride or a shift."""
    size = 10_000
    out = permute(np.arange(size), size, b"key")
    assert abs(np.corrcoef(np.arange(size), out)[0, 1]) < 0.05
    assert abs(np.corrcoef(out[:-1], out[1:])[0, 1]) < 0.05
    assert len(np.unique(np.diff(out))) > size / 3
    assert (out != permute(np.arange(size), size, b"another")).mean() > 0.99


@pytest.fixture
def order(corpus):
    return Order(load_training_manifest(corpus), seq_len=32, batch=7, seed=3)


@pytest.mark.parametrize("world", [2, 3, 4, 9])
def test_ranks_share_the_batch_of_one_process(order, world):
    for step in range(5):
        whole = order.batch(step)
        assert whole.shape == (7, 33) and whole.dtype == np.int64
        parts = np.empty_like(whole)
        for rank in range(world):
            parts[rank::world] = order.batch(step, rank, world)
        assert (parts == whole).all()


def test_windows_come_once_an_epoch_in_another_order(order):
    places = order.windows_of(np.arange(3 * sum(order.windows)))
    for source, windows in enumerate(order.windows):
        mine = [place for place in places if place[0] == source]
        first, second = mine[:windows], mine[windows : 2 * windows]
        assert {p[1] for p in first} == {0}
        assert sorted(p[2] for p in first) == list(range(windows))
        assert {p[1] for p in second} <= {1}
        assert [p[2] for p in first[: len(second)]] != [p[2] for p in second]


def test_a_window_spans_shards(order, corpus):
    raw = checked_json.read(str(corpus))["sources"][0]["shards"]
    tokens = np.concatenate([np.fromfile(corpus.parent / shard["path"], "<u2") for shard in raw])
    seam = raw[0]["tokens"]
    assert (order.tokens[0].read(seam - 5, seam + 5) == tokens[seam - 5 : seam + 5]).all()
    assert (order.tokens[0].read(0, len(tokens)) == tokens).all()
    row = [place[:1] + place[2:] for place in order.windows_of(np.arange(2000))]
    across = row.index((0, seam // 32))
    batch, line = divmod(across, 7)
    start = seam // 32 * 32
    assert (order.batch(batch)[line] == tokens[start : start + 33]).all()


def test_the_seed_changes_the_order(corpus, order):
    other = Order(load_training_manifest(corpus), seq_len=32, batch=7, seed=4)
    assert (other.batch(0) != order.batch(0)).any()


def test_more_epochs_than_the_cap_are_refused(order):
    fits = int(4 * min(w / s.share for w, s in zip(order.windows, order.sources, strict=True)) / 7)
    order.check_epochs(fits)
    with pytest.raises(ValueError, match="cap is 4.0 epochs"):
        order.check_epochs(fits + 20)


def test_a_damaged_shard_is_named(corpus, tmp_path):
    mixture = load_training_manifest(corpus)
    shard = mixture.sources[0].shards[0]
    short = tmp_path / "short.bin"
    short.write_bytes(shard.path.read_bytes()[:-2])
    with pytest.raises(ValueError, match="short.bin: .* bytes, but the mixture says"):
        Tokens((shard.model_copy(update={"path": short}),), mixture.vocab_size)
    with pytest.raises(ValueError, match="another tokenizer"):
        Tokens((shard,), 5).read(0, shard.tokens)


def test_fingerprint_follows_the_data_and_not_the_place(corpus, tmp_path):
    for path in corpus.parent.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert fingerprint(load_training_manifest(tmp_path / corpus.name)) == fingerprint(load_training_manifest(corpus))
    mixture = checked_json.read(str(tmp_path / corpus.name))
    mixture["sources"][0]["shards"][1]["digest"] = "0" * 32
    checked_json.write(str(tmp_path / corpus.name), mixture)
    assert fingerprint(load_training_manifest(tmp_path / corpus.name)) != fingerprint(load_training_manifest(corpus))


def test_an_inconsistent_mixture_names_file_and_field(corpus, tmp_path):
    raw = checked_json.read(str(corpus))
    raw["sources"][0]["share"] = 0.9
    path = tmp_path / "wrong.json"
    checked_json.write(str(path), raw)
    with pytest.raises(ValueError, match=r"wrong.json: .*\n?.*shares \[0.9, 0.3\] do not sum to 1"):
        load_training_manifest(path)
