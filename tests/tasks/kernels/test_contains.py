"""Whether a word stands in a text, beside Python's `in`."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.kernels.phrases import contains


def found(data: bytes, word: bytes) -> bool:
    return bool(contains(np.frombuffer(data, np.uint8), np.frombuffer(word, np.uint8)))


@settings(deadline=None)  # the first call compiles
@given(st.text("ab<", max_size=40), st.text("ab<", min_size=1, max_size=7))
def test_as_python_says(data, word):
    assert found(data.encode(), word.encode()) == (word in data)


def test_at_every_place_around_the_end_of_a_piece():
    filler = b"abcabdabe" * 1000
    for at in (0, *range(4085, 4100), len(filler)):
        assert found(filler[:at] + b"needle" + filler[at:], b"needle")
        assert not found(filler[:at] + b"nee_le" + filler[at:], b"needle")
    assert found(filler + b"needle", b"needle")
    assert not found(filler + b"needl", b"needle")
    assert not found(b"", b"a")
