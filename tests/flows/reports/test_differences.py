"""Two texts by their words: what one has alone is marked, and every word is shown or counted."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gristmill.flows.reports.marking import Passage, Stretch, first_difference, side_by_side
from tests.corpora import fresh


def shown_words(side: list[Stretch]) -> int:
    return sum(len(stretch.text.split()) + stretch.folded for stretch in side)


def test_the_words_of_one_text_alone_are_marked():
    one, other = side_by_side("the mill grinds the grain slowly", "the old mill grinds the corn slowly")
    assert [stretch.text for stretch in one if stretch.alone] == ["grain"]
    assert [stretch.text for stretch in other if stretch.alone] == ["old", "corn"]
    assert " ".join(stretch.text for stretch in one) == "the mill grinds the grain slowly"
    assert " ".join(stretch.text for stretch in other) == "the old mill grinds the corn slowly"


def test_every_word_is_shown_or_counted():
    rng = np.random.default_rng(2)
    common = fresh(rng, 3000)
    changed = [*common[:700], "new", "words", *common[720:]]
    texts = ["", "a", " ".join(common), " ".join(changed), " ".join(fresh(rng, 2000)), " ".join(common[:100])]
    for one in texts:
        for other in texts:
            sides = side_by_side(one, other)
            assert [shown_words(side) for side in sides] == [len(one.split()), len(other.split())]
            assert all(sum(len(s.text.split()) for s in side) <= 240 for side in sides)
            if one == other:
                assert not any(stretch.alone for side in sides for stretch in side)
    left, right = side_by_side(texts[2], texts[3])
    assert [stretch.text for stretch in right if stretch.alone] == ["new words"]
    assert len(next(stretch for stretch in left if stretch.alone).text.split()) == 20
    assert left[0].folded == 700 - 8 and not left[0].text


def alone(side: Passage) -> list[str]:
    return [stretch.text for stretch in side.stretches if stretch.alone]


def text(side: Passage) -> str:
    return " ".join(stretch.text for stretch in side.stretches)


def test_the_first_passage_that_differs():
    common = " ".join(f"c{i}" for i in range(100))
    ours, theirs = first_difference(f"{common} red {common}", f"{common} green blue\n{common}")
    assert (alone(ours), alone(theirs)) == (["red"], ["green blue"])
    assert text(ours).startswith("c92 ") and "c99 red c0" in text(ours) and "c99 green blue c0" in text(theirs)
    assert ours.begins_within and ours.ends_within and len(text(ours).split()) == 40
    ours, theirs = first_difference("a b c", "a c")
    assert (text(ours), alone(ours), alone(theirs)) == ("a b c", ["b"], [""])
    assert not ours.begins_within and not ours.ends_within
    assert first_difference("a b", "a\n b") is None


WORDS = st.lists(st.sampled_from("abc"), max_size=8)


@given(WORDS, WORDS)
def test_without_what_is_alone_two_short_texts_are_equal(ours, theirs):
    found = first_difference(" ".join(ours), " ".join(theirs))
    if found is None:
        assert ours == theirs
        return
    assert [text(side).split() for side in found] == [ours, theirs]
    one, other = ([s.text for s in side.stretches if not s.alone] for side in found)
    assert one == other and ours != theirs
