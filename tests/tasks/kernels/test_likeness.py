"""Similarity to a few sets against the same sets compared one by one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.kernels.buffers import utf8
from tasks.kernels.likeness import likeness
from tasks.kernels.shingles import SHINGLES

TEXTS = st.lists(st.text("abc é", min_size=0, max_size=40), min_size=1, max_size=8)


@pytest.mark.parametrize("unit", ["words", "characters"])
@settings(deadline=None)  # the first example compiles
@given(texts=TEXTS, others=TEXTS, seed=st.integers(0, 99))
def test_it_is_the_similarity_of_the_sets(unit, texts, others, seed):
    others = [f"a {other}" for other in others]  # a set that is asked for has a shingle
    which = np.random.default_rng(seed).integers(len(others), size=len(texts))
    values, bounds = SHINGLES[unit](*utf8(pa.array(others)), 2)
    hashes, offsets = SHINGLES[unit](*utf8(pa.array(texts)), 2)
    each = [set(hashes[a:b].tolist()) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    asked = [set(values[a:b].tolist()) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]
    expected = [len(one & asked[k]) / len(one | asked[k]) for one, k in zip(each, which, strict=True)]
    assert likeness(*utf8(pa.array(texts)), 2, unit, which, values, bounds).tolist() == expected
