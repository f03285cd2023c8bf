"""Near-duplicate removal as a whole against its definition in plain Python, on planted corpora.

The definition's bands are those of datasketch on shingles in plain Python, so nothing of ours is on its side.
"""

from collections.abc import Callable
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from datasketch import MinHash as Datasketch

from gristmill.tasks.dedup.near.settings import MinHash, s_curve
from gristmill.tasks.engine.executors import executor
from tests.benchmarks.near_corpus import CUT, LONGER, REPLACED, SAME, Planted, grams, ids_of, jaccard, number_of
from tests.benchmarks.near_run import near_duplicates, write_corpus
from tests.tasks.dedup.near.test_signatures import shingle_hash, shingled

THRESHOLD = 0.8


@cache
def documents(planted: Planted) -> dict[str, str]:
    numbers = np.arange(planted.documents)
    return dict(zip(ids_of(numbers).to_pylist(), planted.texts(numbers).to_pylist(), strict=True))


@cache
def sets(planted: Planted) -> dict[str, set]:
    return {name: shingled(text, 5) for name, text in documents(planted).items()}


@cache
def hashed(planted: Planted) -> list[list[int]]:
    """The upper halves of the hashes of the shingles, as MinHash takes them."""
    return [[shingle_hash(shingle) >> 32 for shingle in found] for found in sets(planted).values()]


def signatures(planted: Planted, settings: MinHash) -> dict[str, list[int]]:
    given = {"num_perm": settings.permutations, "seed": settings.seed, "scheme": "affine32"}
    return {
        name: made.hashvalues.tolist()
        for name, made in zip(sets(planted), Datasketch.bulk(hashed(planted), hashfunc=int, **given), strict=True)
    }


def defined(planted: Planted, settings: MinHash, rank: Callable[[str], tuple]) -> dict[str, tuple[str, float]]:
    """Who is dropped, for whom, and how similar they are, as `MinHash` says it."""
    signed = signatures(planted, settings)
    bands = {
        name: {(b, *values[b * settings.rows : (b + 1) * settings.rows]) for b in range(settings.bands)}
        for name, values in signed.items()
    }
    kept, dropped = [], {}
    for name in sorted(signed, key=rank):
        for other in kept:
            if bands[name] & bands[other]:
                similarity = jaccard(sets(planted)[name], sets(planted)[other])
                if similarity >= settings.threshold:
                    dropped[name] = other, similarity
                    break
        else:
            kept.append(name)
    return dropped


def found(planted: Planted, settings: MinHash, folder) -> dict[str, tuple[str, float]]:
    with executor("serial") as pool:
        corpus = write_corpus(str(folder), planted, pool, shard=150)
        rows = near_duplicates(str(folder), corpus, settings, pool).dropped()
    return {row["id"]: (row["representative"], row["value"]) for row in rows}


@pytest.mark.extended
def test_copies_are_as_similar_as_planned_and_every_shard_can_be_made_alone(tmp_path):
    planted = Planted(600, seed=5, copies=0.4)
    whole = planted.texts(np.arange(600)).to_pylist()
    assert Planted(600, seed=5, copies=0.4).texts(np.array([577, 3])).to_pylist() == [whole[577], whole[3]]
    assert len(set(planted.base)) == 600 * 0.6
    # a short text has few grams, and so few similarities
    long = np.flatnonzero((planted.words[planted.base] > 300) & (planted.base != np.arange(600)))
    shingles = planted.words[planted.base] - 4
    d = planted.changes
    wanted = {
        SAME: shingles / shingles,
        REPLACED: (shingles - 5 * d) / (shingles + 5 * d),
        CUT: (shingles - d) / shingles,
        LONGER: shingles / (shingles + d),
    }
    assert set(planted.how[long]) == set(wanted)
    for i in long:
        measured = jaccard(grams(whole[i]), grams(whole[planted.base[i]]))
        # a copy of a copy is none, but the base may be longer or shorter than planned by a repeated gram
        assert measured == pytest.approx(wanted[planted.how[i]][i], abs=0.01)


@pytest.mark.parametrize(
    ("settings", "rank"),
    [
        (MinHash(threshold=THRESHOLD, partitions=3), lambda texts: lambda name: (-len(texts[name]), name)),
        pytest.param(
            MinHash(threshold=0.5, bands=32, rows=4, seed=9, keep=("oldest",), partitions=2),
            lambda texts: lambda name: (number_of(name) % 28, name),
            marks=pytest.mark.extended,
        ),
    ],
)
def test_the_dropped_are_those_of_the_definition(tmp_path, settings, rank):
    planted = Planted(300, seed=11, copies=0.7, mean=150)
    dropped = defined(planted, settings, rank(documents(planted)))
    assert found(planted, settings, tmp_path) == dropped
    assert len(dropped) > 50
    # what sets the definition apart: documents that a chain of links would have taken along stay
    linked = {
        name
        for one, other in combinations(sets(planted), 2)
        if jaccard(sets(planted)[one], sets(planted)[other]) >= settings.threshold
        for name in (one, other)
    }
    assert len(linked - set(dropped) - {other for other, _ in dropped.values()}) > 0


def test_nothing_below_the_threshold_is_dropped_and_recall_follows_the_curve(tmp_path):
    settings = MinHash(threshold=0.3, partitions=2)
    planted = Planted(4_000, seed=3, copies=0.5, largest=2, mean=150)
    dropped = found(planted, settings, tmp_path)
    pairs = [(i, j, similarity) for i, j, similarity in planted.pairs(settings.threshold)]
    exact = {frozenset((i, j)): similarity for i, j, similarity in pairs}
    for name, (representative, value) in dropped.items():
        assert value == exact[frozenset((number_of(name), number_of(representative)))] >= settings.threshold

    names = {number_of(name) for name in dropped}
    similarity = np.array([s for _, _, s in pairs])
    hit = np.array([i in names or j in names for i, j, _ in pairs])
    chance = np.array([s_curve(settings.bands, settings.rows, s) for s in similarity])
    bins = np.minimum(similarity * 10, 9).astype(int)
    assert set(bins) == set(range(3, 10))
    for b in range(3, 10):
        within = chance[bins == b]
        allowed = 4 * np.sqrt((within * (1 - within)).sum()) + 1
        assert abs(hit[bins == b].sum() - within.sum()) < allowed, f"at {b / 10}"
