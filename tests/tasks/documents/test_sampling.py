"""Choices by keyed hash: uniform, fixed by seed, purpose and id alone."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gristmill.tasks.documents.selection import Heldout, uniform


def column(ids: list[str], chunk: int = 1 << 20) -> pa.ChunkedArray:
    chunks = [ids[i : i + chunk] for i in range(0, len(ids), chunk)]
    return pa.chunked_array([pa.array(c, pa.string()) for c in chunks], pa.string())


IDS = [f"document-{i}" for i in range(20_000)]


@pytest.mark.parametrize("seed", range(3))
def test_draws_are_uniform(seed):
    draws = uniform(column(IDS), seed, "test")
    assert draws.shape == (len(IDS),) and draws.dtype == np.float64
    assert 0 <= draws.min() and draws.max() < 1
    observed = np.histogram(draws, bins=50, range=(0, 1))[0]
    # a fair generator fails this for one seed in a million; the seeds are fixed
    assert stats.chisquare(observed).pvalue > 1e-6


def test_the_largest_hash_is_below_one():
    assert (np.uint64(2**64 - 1) >> np.uint64(11)) * 2.0**-53 < 1


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=10), max_size=30), st.integers(1, 9))
def test_a_draw_depends_on_its_id_alone(ids, chunk):
    alone = [uniform(column([i]), 1, "test")[0] for i in ids]
    assert uniform(column(ids), 1, "test").tolist() == alone
    assert uniform(column(ids, chunk), 1, "test").tolist() == alone
    assert uniform(column(ids[::-1]), 1, "test").tolist() == alone[::-1]


@pytest.mark.parametrize("other", [(1, "b"), (2, "a")])
def test_seeds_and_purposes_draw_independently(other):
    here, there = uniform(column(IDS), 1, "a"), uniform(column(IDS), *other)
    assert not (here == there).any()
    assert abs(stats.pearsonr(here, there).statistic) < 0.05
    both = ((here < 0.1) & (there < 0.1)).sum()
    assert abs(both - 200) < 5 * 200**0.5


def test_heldout_is_a_share_that_only_grows():
    documents = pa.table({"id": IDS, "source": ["web"] * len(IDS)})
    few, more = (Heldout(fractions={"web": f}).mask(documents) for f in (0.05, 0.1))
    assert abs(few.sum() - 1000) < 5 * 1000**0.5
    assert (few <= more).all()
    assert Heldout(fractions={"web": 0.1}).without(documents)["id"].to_pylist() == [
        i for i, out in zip(IDS, more, strict=True) if not out
    ]


def test_each_source_has_a_share_of_its_own():
    sources = ["web", "books"] * (len(IDS) // 2)
    mixed = pa.chunked_array([pa.array(sources[:7]), pa.array(sources[7:])])
    drawn = Heldout(fractions={"web": 0.05, "books": 0.5, "none": 0}).mask(pa.table({"id": IDS, "source": mixed}))
    for name, fraction in (("web", 0.05), ("books", 0.5)):
        of = pa.table({"id": [i for i, source in zip(IDS, sources, strict=True) if source == name]})
        alone = Heldout(fractions={name: fraction}).mask(of.append_column("source", pa.repeat(name, len(of))))
        assert drawn[[source == name for source in sources]].tolist() == alone.tolist()
    with pytest.raises(ValueError, match="source was not read: read it"):
        Heldout(fractions={"web": 0.1}).mask(pa.table({"id": ["a"]}))
    with pytest.raises(KeyError, match="unknown"):
        Heldout(fractions={"web": 0.1}).mask(pa.table({"id": ["a"], "source": ["unknown"]}))


def test_what_is_held_out_does_not_depend_on_what_became_of_a_text():
    given = {"id": IDS[:50], "source": ["web"] * 50}
    one, other = (Heldout(fractions={"web": 0.5}).mask(pa.table(given | {"text": [t] * 50})) for t in "ab")
    assert (one == other).all() and 0 < one.sum() < 50


def test_no_ids():
    assert uniform(column([]), 1, "a").shape == (0,)
    nothing = pa.table({"id": column([]), "source": column([])})
    assert len(Heldout(fractions={"web": 0.5}).without(nothing)) == 0
