"""Bitmaps of sets: what they rule out is unlike, and they rule most of that out."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.kernels.bitmaps import WORDS, may_be_like, toggled
from tasks.kernels.buffers import utf8
from tasks.kernels.minhash import signed
from tasks.kernels.shingles import SHINGLES

BITS = 64 * WORDS
# Small values fall on the same bits as some large ones.
SETS = st.lists(st.frozensets(st.integers(0, 99) | st.integers(BITS, BITS + 99), min_size=1), min_size=1, max_size=12)


def bitmaps(sets: list) -> np.ndarray:
    rows = np.empty((len(sets), WORDS), np.uint64)
    for row, one in zip(rows, sets, strict=True):
        toggled(np.array(sorted(one), np.uint64), 0, len(one), row)
    return rows


def jaccard(one: frozenset, other: frozenset) -> float:
    return len(one & other) / len(one | other)


def asked(sets: list[frozenset], buckets: list[list[int]], given_sets: int, least: float, most: int) -> list[bool]:
    members = np.array([i for bucket in buckets for i in bucket], np.int64)
    sizes = np.array([len(one) for one in sets], np.int64)
    ends = np.cumsum([len(bucket) for bucket in buckets])
    return may_be_like(bitmaps(sets), sizes, members, ends, given_sets, least, most).tolist()


@settings(deadline=None)  # the first example compiles
@given(sets=SETS)
def test_bits_are_toggled_by_each_value(sets):
    for row, one in zip(bitmaps(sets), sets, strict=True):
        plain = 0
        for value in one:
            plain ^= 1 << (value % BITS)
        assert sum(word << (64 * i) for i, word in enumerate(row.tolist())) == plain


@settings(deadline=None)
@given(sets=SETS, data=st.data(), least=st.sampled_from([0.2, 0.5, 0.8, 1.0]), given_sets=st.integers(0, 5))
def test_no_pair_that_is_alike_is_ruled_out(sets, data, least, given_sets):
    some = st.sets(st.integers(0, len(sets) - 1), min_size=2) if len(sets) > 1 else st.nothing()
    buckets = [sorted(bucket) for bucket in data.draw(st.lists(some, max_size=4) if len(sets) > 1 else st.just([]))]
    most = data.draw(st.sampled_from([2, 3, 100]))
    found = asked(sets, buckets, given_sets, least, most)
    for bucket in buckets:
        for j in bucket:
            assert found[j] or len(bucket) <= most
            for i in bucket:
                if i < j and j >= given_sets and jaccard(sets[i], sets[j]) >= least:
                    assert found[i] and found[j]
    in_buckets = {i for bucket in buckets for i in bucket}
    assert not any(found[i] for i in range(len(sets)) if i not in in_buckets)


@pytest.mark.parametrize(("words", "similarity", "ruled_out"), [(500, 0.7, 1.0), (500, 0.5, 1.0), (500, 0.85, 0.0)])
def test_most_that_is_unlike_is_ruled_out(words, similarity, ruled_out):
    rng = np.random.default_rng(1)
    common = round(2 * words * similarity / (1 + similarity))
    sets = []
    for _ in range(200):
        values = rng.integers(0, 1 << 63, 2 * words - common).tolist()
        sets += [frozenset(values[:words]), frozenset(values[:common] + values[words:])]
    found = asked(sets, [[2 * i, 2 * i + 1] for i in range(200)], 0, 0.8, 128)
    assert 1 - np.mean(found) == pytest.approx(ruled_out, abs=0.02)


def test_sets_of_unlike_sizes_are_ruled_out_however_many_values_share_a_bit():
    one = frozenset(range(0, 40 * BITS, BITS))
    other = frozenset([*one, *range(40 * BITS, 80 * BITS, BITS)])
    assert bitmaps([one, other]).tolist() == [[0] * WORDS] * 2
    assert asked([one, other], [[0, 1]], 0, 0.8, 128) == [False, False]
    assert asked([one, other], [[0, 1]], 0, 0.5, 128) == [True, True]


def test_earlier_sets_are_not_held_against_each_other():
    sets = [frozenset(range(9))] * 2 + [frozenset(range(100, 109))]
    assert asked(sets, [[0, 1, 2]], 2, 0.8, 128) == [False, False, False]
    assert asked(sets, [[0, 1, 2]], 1, 0.8, 128) == [True, True, False]


def test_documents_are_signed_with_the_bitmaps_of_their_sets():
    texts = utf8(pa.array(["", "a", "one two three four", " ".join(f"w{i}" for i in range(3_000))]))
    values, ends = SHINGLES["words"](*texts, 2)
    sets = [values[a:b].tolist() for a, b in zip(ends[:-1], ends[1:], strict=True)]
    assert signed(*texts, 2, "words", 8, 1).bitmap.tolist() == bitmaps(sets).tolist()
