"""Packing against a packer that looks at every bin, and against documents that are followed one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.tasks.tokens.plan import best_fit, concatenated_cuts, packed

LENGTHS = st.lists(st.integers(1, 90), min_size=1, max_size=60).map(np.array)
SEQ_LEN = st.integers(1, 40)


def fills_by_brute_force(sizes: list[int], capacity: int) -> list[int]:
    """Best-fit decreasing, an item at a time over all bins."""
    rooms: list[int] = []
    for size in sorted(sizes, reverse=True):
        fitting = [(room, at) for at, room in enumerate(rooms) if room >= size]
        if fitting:
            rooms[min(fitting)[1]] -= size
        else:
            rooms.append(capacity - size)
    return sorted(capacity - room for room in rooms)


@given(st.integers(1, 40), st.data())
def test_bins_are_filled_as_by_one_item_after_the_other(capacity, data):
    sizes = np.array(data.draw(st.lists(st.integers(1, capacity), max_size=80)), int)
    bins = best_fit(sizes, capacity)
    fills = np.bincount(bins, sizes).astype(int) if len(bins) else np.array([])
    assert sorted(fills.tolist()) == fills_by_brute_force(sizes.tolist(), capacity)


def test_bins_of_many_items_are_filled_as_by_one_item_after_the_other():
    sizes = np.minimum(np.random.default_rng(0).lognormal(4.5, 1.2, 3000).astype(int) + 1, 512)
    fills = np.bincount(best_fit(sizes, 512), sizes).astype(int)
    assert sorted(fills.tolist()) == fills_by_brute_force(sizes.tolist(), 512)


@given(LENGTHS, SEQ_LEN)
def test_every_token_stands_in_one_row_and_no_document_is_cut_without_need(lengths, seq_len):
    found = packed(lengths, seq_len)
    begins = np.cumsum([0, *lengths])
    seen = np.zeros(begins[-1], int)
    pieces: dict[int, int] = {}
    for begin, end in zip(found.first[:-1], found.first[1:], strict=True):
        assert 0 < found.length[begin:end].sum() <= seq_len
        for start, length in zip(found.start[begin:end], found.length[begin:end], strict=True):
            seen[start : start + length] += 1
            document = int(np.searchsorted(begins, start, side="right")) - 1
            assert start + length <= begins[document + 1]
            pieces[document] = pieces.get(document, 0) + 1
    assert (seen == 1).all()
    assert [pieces[document] for document in range(len(lengths))] == [-(-length // seq_len) for length in lengths]
    assert found.cut == sum(length > seq_len for length in lengths)


@given(LENGTHS, SEQ_LEN)
def test_documents_that_concatenation_cuts_are_those_with_targets_in_two_windows(lengths, seq_len):
    document = np.repeat(np.arange(len(lengths)), lengths)
    window = (np.arange(len(document)) - 1) // seq_len
    windows = [set(window[1:][document[1:] == one]) for one in range(len(lengths))]
    assert concatenated_cuts(lengths, 0, seq_len) == sum(len(each) > 1 for each in windows)
    later = len(lengths) // 2
    counted = concatenated_cuts(lengths[later:], int(lengths[:later].sum()), seq_len)
    assert counted == sum(len(each) > 1 for each in windows[later:])


def test_packing_wastes_little_and_cuts_what_concatenation_cuts_no_more():
    lengths = np.random.default_rng(1).lognormal(6, 1.1, 20_000).astype(int) + 1
    found = packed(lengths, 2048)
    assert 1 - lengths.sum() / (found.rows * 2048) < 0.001
    assert found.cut < concatenated_cuts(lengths, 0, 2048) / 2


@pytest.mark.parametrize("lengths", [[], [5], [4, 4], [9, 1]])
def test_corpora_of_few_documents(lengths):
    found = packed(np.array(lengths, int), 4)
    assert found.rows == -(-sum(lengths) // 4) and len(found.start) == len(found.length) == found.first[-1]
