"""What each document of a synthetic crawl is: whose copy, in which language, how long, of which host."""

from dataclasses import dataclass

import numpy as np
import xxhash

from gristmill.tasks.kernels.shingles import MIX_1, MIX_2

# Shares of Common Crawl's pages by its own statistics of languages (CC-MAIN-2024-33), of those that WORDS has.
LANGUAGES = {"en": 0.60, "ru": 0.08, "de": 0.08, "zh": 0.06, "es": 0.06, "fr": 0.06, "pl": 0.03, "ko": 0.02, "ar": 0.01}
# Of documents, how many are copies: 30 to 40% of a snapshot go by MinHash (RefinedWeb, arXiv 2306.01116, figure 2).
COPIES = 0.35
EXACT = 0.4  # of the copies
EDITED = 0.06  # most words of a copy that are others
# A cluster, or host, has the rank n * u^a for u uniform in [0, 1): sizes fall as rank^(1/a - 1).
CLUSTER_POWER, HOST_POWER = 3.0, 4.0
DOCUMENTS_A_CLUSTER, DOCUMENTS_A_HOST = 10, 25
WORDS, SPREAD = 200, 1.0  # the median of a page, and the deviation of its logarithm
FEWEST, MOST = 3, 20_000


@dataclass(frozen=True)
class Pages:
    """Documents by number. `text`: which text it has, the same for all copies; `edited`: the share of its words that
    are its own, 0 of an original and of an exact copy; `language`: number in LANGUAGES; `words`: how many; `host`."""

    number: np.ndarray
    text: np.ndarray
    edited: np.ndarray
    language: np.ndarray
    words: np.ndarray
    host: np.ndarray


def pages(documents: int, first: int, behind: int, seed: int, median: float = WORDS) -> Pages:
    """The documents from `first` up to `behind`, of a crawl of so many. `median`: of their words. Holds 60 bytes for
    each."""
    number = np.arange(first, behind)
    clusters = 1 + documents // DOCUMENTS_A_CLUSTER
    copied = draw(number, seed, "copied") < COPIES
    cluster = (clusters * draw(number, seed, "cluster") ** CLUSTER_POWER).astype(np.int64)
    text = np.where(copied, cluster, clusters + number)
    exact = ~copied | (draw(number, seed, "exact") < EXACT)
    edited = np.where(exact, 0.0, EDITED * draw(number, seed, "edited"))
    shares = np.array([*LANGUAGES.values()])
    language = np.searchsorted(np.cumsum(shares)[:-1] / shares.sum(), draw(text, seed, "language"), side="right")
    # a sum of uniform numbers is nearly normal (Irwin-Hall of twelve)
    normal = sum(draw(text, seed, f"length {i}") for i in range(12)) - 6
    words = np.clip(median * np.exp(SPREAD * normal), FEWEST, MOST).astype(np.int64)
    hosts = 1 + documents // (DOCUMENTS_A_HOST * len(LANGUAGES))
    host = (hosts * draw(number, seed, "host") ** HOST_POWER).astype(np.int64) * len(LANGUAGES) + language
    return Pages(number, text, edited, language, words, host)


def draw(numbers: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """A number in [0, 1) for each, float64, fixed by the seed, the purpose and the number."""
    return (keyed(numbers, seed, purpose) >> np.uint64(11)) * 2.0**-53


def keyed(numbers: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """A hash, uint64, of each number: SplitMix64's finaliser of its place in a sequence of the purpose."""
    start = np.uint64(xxhash.xxh3_64_intdigest(f"{seed}:{purpose}".encode()))
    x = numbers.astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9) + start
    for shift, factor in ((30, MIX_1), (27, MIX_2), (31, MIX_1), (29, MIX_2)):
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    return x ^ (x >> np.uint64(32))
