"""The i-th sample is the same for everyone, comes in the right proportion, and once per epoch."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.samples.batch_plan import BatchPlan
from gristmill.samples.order import Order, Phases, Schedule, batch_number, index_of, permute, step_of
from gristmill.samples.shards import Tokens
from gristmill.storage import checked_json
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.training_manifest import (
    HeldoutSet,
    PhaseShares,
    ShardEntry,
    SourceShare,
    TokenizerEntry,
    TrainingManifest,
    load_training_manifest,
)
from gristmill.training.batches import fingerprint

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


@given(SHARES, st.lists(st.integers(1, 200), max_size=3).map(sorted), st.integers(0, 5))
def test_a_draw_is_found_back(shares, later, left_out):
    """In phases, whose shares are rotated, and one of which has a source without a share."""
    firsts = [0, *dict.fromkeys(later)]
    phases = [[*shares[at % len(shares) :], *shares[: at % len(shares)]] for at in range(len(firsts))]
    if len(shares) > 1:
        phases[-1][left_out % len(shares)] = 0.0
    schedule = Phases(firsts, phases)
    for sample in range(300):
        assert schedule.sample(*schedule.draw(sample)) == sample


@given(st.integers(1, 9), st.lists(st.tuples(st.integers(1, 900), st.integers(2, 5)), max_size=3), st.integers(0, 500))
def test_a_sample_is_in_its_batch_and_a_batch_in_its_step(batch, stages, sample):
    plan = BatchPlan(batch, 8, [(sum(s[0] for s in stages[: i + 1]), times) for i, (_, times) in enumerate(stages)])
    number = plan.number_of(sample)
    assert plan.first(number) <= sample < plan.first(number + 1)
    left_out = [(3, 6), (5, 8), (20, 22)]
    assert [step_of(batch_number(step, left_out), left_out) for step in range(60)] == [*range(60)]
    assert [number for number in range(30) if step_of(number, left_out) is None] == [3, 4, 5, 6, 7, 20, 21]


def test_a_source_without_a_share_is_never_drawn():
    assert Schedule([0.0, 0.5, 0.0, 0.5]).counts(1000) == [0, 500, 0, 500]


@given(st.integers(1, 3000), st.binary(max_size=20))
def test_permute_is_a_bijection(size, key):
    places = permute(np.arange(size), size, key).tolist()
    assert sorted(places) == list(range(size))
    assert [index_of(place, size, key) for place in places] == list(range(size))


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
    with pytest.raises(ValueError, match="but its limit is 4.0 epochs"):
        order.check_epochs(fits + 20)


def test_a_damaged_shard_is_named(corpus, tmp_path):
    mixture = load_training_manifest(corpus)
    shard = mixture.sources[0].shards[0]
    short = tmp_path / "short.bin"
    short.write_bytes(shard.path.read_bytes()[:-2])
    with pytest.raises(DamagedFileError, match="short.bin has .* bytes instead of .*; remove"):
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


SOURCES = (("web", 0.61803, 80_000), ("books", 0.28197, 7_000), ("code", 0.1, 90_000))
MIXED = 10_000_000  # positions of WINDOW tokens


def synthetic(folder, phases=()) -> TrainingManifest:
    """Sources of which training reads no token: their shards are holes in files."""
    sources = []
    for name, share, windows in SOURCES:
        path = folder / f"{name}.bin"
        with path.open("wb") as file:
            file.truncate(2 * (4 * windows + 1))
        shard = ShardEntry(path=path, tokens=4 * windows + 1, digest="")
        sources.append(SourceShare(name=name, share=share, tokens=shard.tokens, epochs=100, shards=(shard,)))
    held_out = tuple(HeldoutSet(name=each.name, shards=each.shards) for each in sources)
    return TrainingManifest(
        vocab_size=3, tokenizer=TokenizerEntry(path=folder / "tokenizer.model", digest=""), end_of_text=2,
        token_bytes=(0, 0, 0), sources=tuple(sources), heldout=held_out, phases=phases,
    )  # fmt: skip


_SHARES = [(0, tuple(share for _, share, _ in SOURCES)), (240_000, (0.2, 0.5, 0.3)), (360_000, (0.0, 1.0, 0.0))]
PHASES = tuple(PhaseShares(first=first, shares=shares) for first, shares in _SHARES)


@pytest.fixture
def phased(tmp_path):
    """Three phases: samples 0 to 60,000, to 90,000, and the rest, in which books alone are read."""
    return Order(synthetic(tmp_path, PHASES), seq_len=4, batch=7, seed=1)


def test_shares_of_ten_million_positions_are_met_within_a_thousandth(tmp_path):
    """Drawn one by one at 20,000 places, and by the closed form at the end; the epochs are those of the shares."""
    order = Order(synthetic(tmp_path), seq_len=4, batch=8, seed=1)
    counts = order.schedule.counts(MIXED)
    for (_, share, windows), count in zip(SOURCES, counts, strict=True):
        assert abs(count / MIXED - share) < 0.001 * share
        assert abs(count / windows - share * MIXED / windows) < 1
    stretch = [order.schedule.draw(sample)[0] for sample in range(MIXED - 20_000, MIXED)]
    before = order.schedule.counts(MIXED - 20_000)
    assert [stretch.count(source) for source in range(3)] == [b - a for a, b in zip(before, counts, strict=True)]


def test_each_window_is_read_as_often_as_planned_give_or_take_one(phased):
    """Over the ends of phases, too: a source goes on where it was."""
    reads = np.zeros(SOURCES[1][2], int)
    end = 92_000
    planned = phased.schedule.counts(end)[1] / len(reads)
    total = phased.schedule.counts(end)[1]
    for epoch in range(-(-total // len(reads))):
        turns = np.arange(min(len(reads), total - epoch * len(reads)))
        reads[permute(turns, len(reads), f"1\0books\0{epoch}".encode())] += 1
    assert planned > 4 and np.abs(reads - planned).max() < 1
    samples = range(89_900, 90_100)
    places = [place for place in phased.windows_of(samples) if place[0] == 1]
    k = phased.schedule.counts(samples.start)[1]
    for _, epoch, window in places:
        turn = np.array([k % len(reads)])
        assert (epoch, window) == (k // len(reads), permute(turn, len(reads), f"1\0books\0{epoch}".encode())[0])
        k += 1
    assert phased.schedule.counts(samples.stop)[1] == k


def test_the_first_batches_of_phases(phased, tmp_path):
    """Phases begin with the samples 60,000 and 90,000; batches have 7."""
    begun = [step for step in range(13_000) if phased.begins_phase(step, ())]
    assert begun == [60_000 // 7, 90_000 // 7]
    # 20 batches before them are left out, then those that have the beginning itself
    assert phased.begins_phase(60_000 // 7 - 20, [(0, 20)]) and not phased.begins_phase(60_000 // 7, [(0, 20)])
    # a branch at step 1,000 reads the mixture from its beginning
    branch = Order(synthetic(tmp_path, PHASES), seq_len=4, batch=7, seed=1, offset=7_000)
    assert [step for step in range(1_001, 10_000) if branch.begins_phase(step, ())] == [67_000 // 7]
    around = (60_000 // 7 - 5, 60_000 // 7 + 5)
    assert [step for step in range(9_000) if phased.begins_phase(step, [around])] == [around[0]]


@pytest.mark.parametrize("consumers", [1, 2, 3, 8])
def test_phases_give_the_same_sequence_to_any_consumers_and_after_a_resume(phased, consumers):
    for first in (0, 59_990, 89_990, 10**9):
        whole = phased.windows_of(range(first, first + 40))
        parts = [phased.windows_of(range(first + one, first + 40, consumers)) for one in range(consumers)]
        assert [parts[n % consumers][n // consumers] for n in range(40)] == whole
        assert phased.windows_of(range(first + 13, first + 40)) == whole[13:]
    assert {place[0] for place in phased.windows_of(range(90_000, 90_050))} == {1}


def test_a_late_sample_takes_no_more_calls_than_the_first(phased):
    def calls(sample: int) -> int:
        seen = [0]
        sys.setprofile(lambda frame, event, arg: seen.__setitem__(0, seen[0] + (event == "call")))
        try:
            phased.schedule.draw(sample)
        finally:
            sys.setprofile(None)
        return seen[0]

    most = max(calls(sample) for sample in range(90_000 - 50, 90_000))
    assert max(calls(10**9 + n) for n in range(50)) <= most


def congruential(index: np.ndarray, size: int) -> np.ndarray:
    """The order that a full-period linear-congruential step gives: a bijection that looks shuffled."""
    step = 5
    while math.gcd(step, size) > 1:
        step += 2
    return (index * step + 12345) % size


def serial_correlation(places: np.ndarray, lag: int) -> float:
    """In standard errors of a random order."""
    return abs(np.corrcoef(places[:-lag], places[lag:])[0, 1]) * math.sqrt(len(places) - lag)


def run_excess(places: np.ndarray) -> float:
    """How far the number of ascending and descending runs is from that of a random order, in standard errors (Wald and
    Wolfowitz 1943: mean (2n - 1) / 3, variance (16n - 29) / 90)."""
    up = np.diff(places) > 0
    n, runs = len(places), 1 + np.count_nonzero(up[1:] != up[:-1])
    return abs(runs - (2 * n - 1) / 3) / math.sqrt((16 * n - 29) / 90)


@pytest.mark.parametrize("size", [10**3, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9])
def test_the_order_passes_tests_that_a_linear_congruential_one_fails(size):
    length = min(size, 100_000)
    index = np.arange(length)
    for places, good in ((permute(index, size, b"key"), True), (congruential(index, size), False)):
        correlated = max(serial_correlation(places, lag) for lag in (1, 2, 3))
        assert (correlated < 4.5) == good and (run_excess(places) < 4.5) == good
        assert len(np.unique(places)) == length and places.min() >= 0 and places.max() < size


@pytest.mark.slow
@pytest.mark.parametrize("size", [10**6, 10**7])
def test_permute_of_millions_is_a_bijection(size):
    seen = np.zeros(size, bool)
    for start in range(0, size, 1 << 20):
        seen[permute(np.arange(start, min(size, start + (1 << 20))), size, b"key")] = True
    assert seen.all()


@pytest.mark.parametrize("offset", [0, 60])
def test_the_samples_of_a_window_are_all_that_read_it(corpus, offset):
    order = Order(load_training_manifest(corpus), seq_len=16, batch=4, seed=3, offset=offset)
    end = offset + 5 * sum(order.windows)
    read = {}
    for sample, (source, _, window) in zip(range(offset, end), order.windows_of(range(offset, end)), strict=True):
        read.setdefault((source, window), []).append(sample)
    assert max(map(len, read.values())) > 2  # several epochs
    for source, windows in enumerate(order.windows):
        for window in range(0, windows, 7):
            assert [*order.samples_of(source, window, end)] == read.get((source, window), [])


def test_tokens_are_in_the_windows_near_them_and_in_no_others(corpus):
    order = Order(load_training_manifest(corpus), seq_len=16, batch=4, seed=3)
    check_near(order)


def check_near(order: Order) -> None:
    for source, read in enumerate(order.read):
        starts = order.tokens[source].starts
        holding: dict[int, set[int]] = {}
        for window in range(len(read)):
            for span in read.spans(window):
                for token in range(starts[span.shard] + span.offset, starts[span.shard] + span.offset + span.length):
                    holding.setdefault(token, set()).add(window)
        for token in range(0, len(order.tokens[source]), 11):
            assert holding.get(token, set()) <= set(read.near(token, token + 1))
        assert set(read.near(5, 200)) >= set().union(*(holding.get(token, set()) for token in range(5, 200)))
