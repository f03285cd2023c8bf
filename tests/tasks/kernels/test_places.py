"""Where a word stands in a text, beside Python's `startswith`."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.kernels.phrases import places


@settings(deadline=None)  # the first call compiles
@given(st.text("abA<", max_size=40), st.text("ab<", min_size=1, max_size=7))
def test_as_python_says(data, word):
    each = range(len(data))
    assert places(data.encode(), word.encode()) == [i for i in each if data.startswith(word, i)]
    lower = data.lower()
    assert places(data.encode(), word.encode(), any_case=True) == [i for i in each if lower.startswith(word, i)]


def test_at_every_place_around_the_end_of_a_piece():
    filler = b"abcabdabe" * 1000
    for at in (0, *range(240, 270), len(filler)):
        assert places(filler[:at] + b"needle" + filler[at:], b"needle") == [at]
        assert not places(filler[:at] + b"nee_le" + filler[at:], b"needle")
    assert places(filler, b"abe") == [*range(6, len(filler), 9)]
    assert not places(filler + b"needl", b"needle")
    assert not places(b"", b"a")
