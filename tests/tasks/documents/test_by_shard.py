"""What stages have by shard, as folders and runs: the same items as the tuples that they stand for."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.storage import layout
from gristmill.tasks.documents.by_shard import Names, Parts, PartsOfSeveral, Shards

NAMES = st.lists(st.sampled_from("abc"), max_size=30)


def same(found, wanted: list) -> None:
    assert [*found] == wanted and len(found) == len(wanted)
    assert [found[i] for i in range(len(wanted))] == wanted and list(found[1:-1]) == wanted[1:-1]
    if wanted:
        assert found[-1] == wanted[-1]
    with pytest.raises(IndexError):
        found[len(wanted)]
    again = pickle.loads(pickle.dumps(found))
    assert again == found and [*again] == wanted


@given(NAMES, st.sets(st.sampled_from("abcd")))
def test_names_and_the_shards_that_have_them(names, wanted):
    found = Names.of(names)
    same(found, names)
    assert Names.of(found) is found and found.distinct() == list(dict.fromkeys(names))
    having = [number for number, name in enumerate(names) if name in wanted]
    shards = found.shards(wanted)
    same(shards, having)
    assert [number in shards for number in range(31)] == [number in having for number in range(31)]
    same(Parts("home", shards), [layout.part("home", number) for number in having])
    both = [(layout.part("one", number), layout.part("two", number)) for number in having]
    same(PartsOfSeveral(("one", "two"), shards), both)
    assert all(end < begin for (_, end), (begin, _) in zip(shards.runs, shards.runs[1:], strict=False))


def test_runs_are_few_however_many_shards_there_are():
    names = Names.of(["a"] * 50_000 + ["b"] * 50_000)
    assert names.shards(("a", "b")) == Shards(((0, 100_000),)) and len(pickle.dumps(names)) < 200
