"""What is like a given text: against every pair compared as sets of words, not hashed."""

import numpy as np
import pyarrow as pa
import pytest

from tasks.dedup.near.settings import Shingling
from tasks.evaluation.similar import given, most_similar
from tests.corpora import plain_jaccard

WORDS = [f"w{i}" for i in range(12)]


def column(texts: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.large_string())])


def edited(rng: np.random.Generator, text: str) -> str:
    words = text.split()
    for _ in range(rng.integers(0, 4)):
        words[rng.integers(len(words))] = str(rng.choice(WORDS))
    words += [str(w) for w in rng.choice(WORDS, rng.integers(0, 6))]
    return " ".join(words[: rng.integers(1, len(words) + 1)] if rng.random() < 0.2 else words)


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.0])
def test_every_pair_above_the_threshold_is_found_and_no_other(threshold):
    rng = np.random.default_rng(1)
    known = [" ".join(rng.choice(WORDS, rng.integers(1, 40))) for _ in range(60)]
    known += [*known[:5], "", "... !"]
    texts = [edited(rng, known[rng.integers(60)]) for _ in range(300)] + ["", "?!", *known[:3]]
    best, similarity = most_similar(given(column(known), Shingling(), threshold), column(texts))
    hits = 0
    for text, found, jaccard in zip(texts, best, similarity, strict=True):
        truth = [plain_jaccard(text, one) if text.strip("?! .") and one.strip("?! .") else 0.0 for one in known]
        if max(truth) >= threshold:
            hits += 1
            assert (found, jaccard) == (int(np.argmax(truth)), max(truth))
        else:
            assert (found, jaccard) == (-1, 0)
    assert 10 < hits < 290


def test_nothing_is_like_nothing():
    for known, texts in ([], ["a text"]), (["a text"], []), (["..."], ["..."]):
        best, similarity = most_similar(given(column(known), Shingling(), 0.8), column(texts))
        assert best.tolist() == [-1] * len(texts) and not similarity.any()
