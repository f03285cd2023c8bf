"""Phrases in spans of text, against `in`; pieces of text put together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.kernels import phrases
from gristmill.tasks.kernels.pieces import characters, pieces

FIVE = ("a", "ab", "aab", "Ba b", "é", "[b]", "a" * 40, "b" * 30, "é" * 32)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([*"aAbB é[]É", "a" * 39, "b" * 30, "é" * 31]), max_size=12).map("".join), max_size=5
    ),
    st.integers(1, len(FIVE)),
)
def test_found_is_in(texts, count):
    bounds = np.cumsum([0, *(len(text.encode()) for text in texts)])
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    found = phrases.found(data, bounds[:-1], bounds[1:], FIVE[:count])
    assert found.shape == (len(texts), count)

    def lower(text):  # of ASCII only
        return text.encode().lower()

    assert found.tolist() == [[lower(phrase) in lower(text) for phrase in FIVE[:count]] for text in texts]


@pytest.mark.parametrize("phrase", ["", "x" * 65, "é" * 33])
def test_a_phrase_has_1_to_64_bytes(phrase):
    with pytest.raises(ValueError, match="1 to 64"):
        phrases.found(np.zeros(1, np.uint8), np.array([0]), np.array([1]), (phrase,))


def test_pieces_and_places():
    texts = ["aé漢", "", "😀b"]
    data = np.frombuffer("".join(texts).encode(), np.uint8)
    offsets = np.array([0, 6, 6, 11])
    assert pieces(data, np.array([1, 0, 6, 6]), np.array([6, 3, 6, 11])).to_pylist() == ["é漢", "aé", "", "😀b"]
    document, place = np.array([0, 0, 0, 2, 2, 2]), np.array([0, 3, 6, 6, 10, 11])
    assert characters(data, offsets, document, place).tolist() == [0, 2, 3, 0, 1, 2]
