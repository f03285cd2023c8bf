"""What is like a given text, or contains it: against every pair compared as sets of words, not hashed."""

import numpy as np
import pyarrow as pa
import pytest

from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.evaluation.similar import index_of, likest, overlaps
from tests.corpora import plain_set

WORDS = [f"w{i}" for i in range(12)]


def column(texts: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.large_string())])


def edited(rng: np.random.Generator, text: str) -> str:
    words = text.split()
    for _ in range(rng.integers(0, 4)):
        words[rng.integers(len(words))] = str(rng.choice(WORDS))
    words += [str(w) for w in rng.choice(WORDS, rng.integers(0, 6))]
    if rng.random() < 0.3:  # a page around it
        words = [str(w) for w in rng.choice(WORDS, 30)] + words + [str(w) for w in rng.choice(WORDS, 30)]
    return " ".join(words[: rng.integers(1, len(words) + 1)] if rng.random() < 0.2 else words)


@pytest.fixture(scope="module")
def texts() -> tuple[list[str], list[str]]:
    """Given ones, and others that were made from them."""
    rng = np.random.default_rng(1)
    known = [" ".join(rng.choice(WORDS, rng.integers(1, 40))) for _ in range(60)]
    known += [*known[:5], "", "... !"]
    return known, [edited(rng, known[rng.integers(60)]) for _ in range(300)] + ["", "?!", *known[:3]]


def sets(texts: list[str]) -> list[frozenset]:
    return [frozenset(plain_set(text)) if text.strip("?! .") else frozenset() for text in texts]


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_every_pair_above_the_threshold_is_found_and_no_other(texts, threshold):
    known, others = texts
    truth, of_known = {}, sets(known)
    for i, a in enumerate(sets(others)):
        for j, b in enumerate(of_known):
            if b and len(a & b) / len(b) >= threshold:
                truth[i, j] = (len(a & b) / len(a | b), len(a & b) / len(b))
    found = overlaps(index_of(column(known), Shingling()), column(others), threshold)
    pairs = list(zip(found.text.tolist(), found.reference.tolist(), strict=True))
    assert dict(zip(pairs, zip(found.jaccard, found.containment, strict=True), strict=True)) == truth
    assert pairs == sorted(truth) and 50 < len(truth) < 5000


@pytest.mark.parametrize(("threshold", "least"), [(0.5, 1), (0.8, 1), (0.8, 12), (1.0, 12), (0.8, 100)])
def test_what_is_like_a_text_comes_before_what_contains_one_and_short_ones_are_not_contained(texts, threshold, least):
    known, others = texts
    fewest = np.where(np.arange(len(known)) % 2, least, 20)
    found = likest(index_of(column(known), Shingling()), column(others), threshold, fewest)
    seen, of_known = {"like": 0, "contains": 0, "neither": 0}, sets(known)
    for a, at, value, like in zip(sets(others), found.reference, found.value, found.like, strict=True):
        alike = [len(a & b) / len(a | b) if a and b else 0.0 for b in of_known]
        within = [len(a & b) / len(b) if b and len(b) >= few else 0.0 for b, few in zip(of_known, fewest, strict=True)]
        kind = "like" if max(alike) >= threshold else "contains" if max(within) >= threshold else "neither"
        seen[kind] += 1
        if kind == "neither":
            assert (at, value, like) == (-1, 0, False)
        else:
            truth = alike if kind == "like" else within
            assert (at, value, like) == (int(np.argmax(truth)), max(truth), kind == "like")
    assert seen["neither"] > 10 and (seen["like"] > 10 or threshold == 1.0)
    assert seen["contains"] > 10 or least == 100


def test_nothing_is_like_nothing():
    for known, texts in ([], ["a text"]), (["a text"], []), (["..."], ["..."]):
        found = likest(index_of(column(known), Shingling()), column(texts), 0.8, np.zeros(len(known), int))
        assert found.reference.tolist() == [-1] * len(texts) and not found.value.any()
