"""Signatures a second, ours against datasketch's fastest own path, on the same documents in one run."""

import re
import time

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from datasketch import MinHash as Datasketch

from tasks.dedup.minhash import MinHash
from tasks.kernels import minhash, shingles
from tasks.kernels.buffers import utf8

DOCUMENTS = 5_000
WORDS = 500
ROUNDS = 3

WORD = re.compile(r"[^\W_]+")


def corpus() -> list[str]:
    """Documents of 400 to 600 words with Zipf's frequencies and the lengths of English words, 3 kB each."""
    rng = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlcumwfgypbvk"))
    vocabulary = np.array(["".join(rng.choice(letters, n)) for n in rng.integers(2, 10, 30_000)])
    texts = []
    for _ in range(DOCUMENTS):
        words = vocabulary[(rng.zipf(1.2, rng.integers(0.8 * WORDS, 1.2 * WORDS)) - 1) % len(vocabulary)]
        texts.append(". ".join(" ".join(words[i : i + 17]).capitalize() for i in range(0, len(words), 17)) + ".")
    return texts


def plain_shingles(texts: list[str], n: int) -> list[list[bytes]]:
    made = []
    for text in texts:
        words = WORD.findall(text.lower())
        made.append([" ".join(words[i : i + n]).encode() for i in range(max(len(words) - n + 1, 1))])
    return made


def best(work) -> tuple[float, object]:
    """The fewest seconds of some rounds, and what the last one gave."""
    fewest = np.inf
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = work()
        fewest = min(fewest, time.perf_counter() - start)
    return fewest, result


@pytest.mark.bench
def test_signatures_per_second_against_datasketch(capsys):
    settings = MinHash()
    texts = corpus()
    key = {"num_perm": settings.permutations, "seed": settings.seed}

    def ours() -> np.ndarray:
        data, offsets = utf8(pa.array(texts, pa.large_string()))
        values, ends = shingles.shingle_sets(data, offsets, settings.shingle)
        return minhash.signatures(values, ends, settings.permutations, settings.seed)

    values, ends = shingles.shingle_sets(*utf8(pa.array(texts, pa.large_string())), settings.shingle)
    minhash.signatures(values, ends, settings.permutations, settings.seed)  # compiled before the clock starts

    t_all, signed = best(ours)
    t_signing, _ = best(lambda: minhash.signatures(values, ends, settings.permutations, settings.seed))
    t_making, made = best(lambda: plain_shingles(texts, settings.shingle))
    t_bulk, _ = best(lambda: Datasketch.bulk(made, hashfunc=xxhash.xxh32_intdigest, **key))

    # The same sets: as many shingles in each, and so the same signatures once datasketch is given our hash.
    assert [len(set(m)) for m in made] == np.diff(ends).tolist()
    folded = minhash.fold(values)
    same_hash = Datasketch.bulk(
        (folded[a:b].tolist() for a, b in zip(ends, ends[1:], strict=False)), hashfunc=int, **key
    )
    assert np.array_equal(signed, [m.hashvalues for m in same_hash])

    operations = len(values) * settings.permutations
    with capsys.disabled():
        print(
            f"\n{DOCUMENTS} documents, {len(values) / DOCUMENTS:.0f} shingles each,"
            f" {settings.permutations} permutations, one thread, best of {ROUNDS}; documents/s:\n"
            f"  ours, strings to signatures      {DOCUMENTS / t_all:9.0f}\n"
            f"  ours, shingle sets to signatures {DOCUMENTS / t_signing:9.0f}"
            f"   ({operations / t_signing / 1e9:.1f}e9 multiply-adds/s)\n"
            f"  datasketch, strings to signatures{DOCUMENTS / (t_making + t_bulk):9.0f}"
            "   (shingles by re in Python)\n"
            f"  datasketch, shingles to signatures{DOCUMENTS / t_bulk:8.0f}   (MinHash.bulk, xxh32)\n"
            f"  ratio, strings to signatures      {(t_making + t_bulk) / t_all:8.1f}\n"
            f"  ratio, its time without shingling {t_bulk / t_all:8.1f}   (ours with it)\n"
            f"  ratio, signatures alone           {t_bulk / t_signing:8.1f}"
        )
