"""Shingle sets and signatures against plain Python and against datasketch."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash as Datasketch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.dedup.minhash import MinHash, s_curve
from tasks.dedup.signatures import signatures
from tasks.kernels import minhash, shingles
from tasks.kernels.buffers import utf8

WRAP = (1 << 64) - 1
# Letters with and without a one-letter lower case, marks, digits of other scripts, separators of 1 to 4
# bytes.
LETTERS = st.sampled_from("aAbBzÄäßẞİıΣσς\u0301\u0903\u20dd٣Ⅷ½日本𝒳𞤀𞤢'-_ \n\t\u00a0\u2028。—$€😀\u200b\x00")
TEXTS = st.one_of(st.text(LETTERS, max_size=200), st.text(max_size=80))


def words(text: str) -> list[str]:
    lower = ""
    for c in text:
        if not c.isspace() and unicodedata.category(c)[0] in "LMN":
            lower += c.lower() if len(c.lower()) == 1 else c
        else:
            lower += " "
    return [w for w in lower.split(" ") if w]


def shingled(text: str, n: int) -> set[tuple[str, ...]]:
    w = words(text)
    return {tuple(w[i : i + n]) for i in range(max(len(w) - n + 1, 1))} if w else set()


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WRAP
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WRAP
    return x ^ (x >> 31)


def shingle_hash(shingle: tuple[str, ...]) -> int:
    total = 0
    for word in shingle:
        h = 0x243F6A8885A308D3
        for c in word:
            h = ((h ^ ord(c)) * 0x9E3779B97F4A7C15) & WRAP
        total = (total * 0xD1342543DE82EF95 + mix(h)) & WRAP
    return mix(total)


def kernel_sets(texts: list[str], n: int) -> list[np.ndarray]:
    values, ends = shingles.shingle_sets(*utf8(pa.array(texts, pa.large_string())), n)
    return [values[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]


@settings(max_examples=150, deadline=None)
@given(st.lists(TEXTS, max_size=5), st.integers(1, 7))
def test_shingle_sets_equal_the_plain_ones(texts, n):
    for text, found in zip(texts, kernel_sets(texts, n), strict=True):
        plain = shingled(text, n)
        assert found.tolist() == sorted(shingle_hash(s) for s in plain)
        assert len(found) == len(plain)


@pytest.mark.parametrize(
    ("text", "size"),
    [("", 0), ("... — !", 0), ("one", 1), ("One, two; three. FOUR", 1), ("a b c d e", 1), ("a b c d e f", 2)],
)
def test_short_documents_have_one_shingle_and_wordless_ones_none(text, size):
    assert len(kernel_sets([text], 5)[0]) == size


def test_documents_that_repeat_themselves_are_sorted_as_well():
    texts = ["a b " * 50_000, "x " * 10_000, " ".join(f"w{i % 40}" for i in range(30_000))]
    for text, found in zip(texts, kernel_sets(texts, 5), strict=True):
        assert found.tolist() == sorted(shingle_hash(s) for s in shingled(text, 5))


def test_a_slice_of_a_column_gives_the_same_sets():
    texts = ["Ein Öl, zwei Öle", "drei", "vier fünf sechs sieben acht neun zehn", ""]
    column = pa.array(["left out, of course", *texts, "and this"], pa.large_string())[1:5]
    values, ends = shingles.shingle_sets(*utf8(column), 3)
    plain, plain_ends = shingles.shingle_sets(*utf8(pa.array(texts, pa.large_string())), 3)
    assert values.tolist() == plain.tolist() and ends.tolist() == plain_ends.tolist()


def test_shingle_hashes_are_spread_evenly_and_do_not_collide():
    texts = [" ".join(f"w{i}" for i in range(200_000))]
    values = kernel_sets(texts, 5)[0]
    assert len(np.unique(minhash.fold(values))) > 200_000 - 4 - 4 * 200_000**2 / 2**33
    for shift in range(0, 64, 8):
        counts = np.bincount((values >> np.uint64(shift)).astype(np.uint8), minlength=256)
        chi2 = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert chi2 < 255 + 6 * np.sqrt(2 * 255)


@pytest.mark.parametrize(("permutations", "seed"), [(128, 1), (37, 1), (256, 12345)])
def test_signatures_of_random_hashes_are_those_of_datasketch(permutations, seed):
    rng = np.random.default_rng(7)
    sizes = [0, 1, 2, 7, 8, 9, 16, 500]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    values = rng.integers(0, 2**64, ends[-1], np.uint64, endpoint=False)
    found = minhash.signatures(values, ends, permutations, seed)
    folded = [[int(v) >> 32 for v in values[a:b]] for a, b in zip(ends[:-1], ends[1:], strict=True)]
    bulk = Datasketch.bulk(folded, num_perm=permutations, seed=seed, hashfunc=int)
    assert found.dtype == bulk[0].hashvalues.dtype
    assert np.array_equal(found, [m.hashvalues for m in bulk])


def test_signatures_of_documents_are_those_of_datasketch_with_our_shingle_hash():
    texts = [
        unicodedata.__doc__ * 3,
        "kurz",
        "",
        np.ndarray.__doc__,
        pa.Table.__doc__,
        "été Été ÉTÉ 日本 " * 9,
    ]
    table = signatures(pa.table({"id": list("abcdef"), "text": texts}), MinHash())
    for text, found in zip(texts, table["signature"].to_pylist(), strict=True):
        sketch = Datasketch(num_perm=128, seed=1, hashfunc=lambda shingle: shingle_hash(shingle) >> 32)
        for shingle in shingled(text, 5):
            sketch.update(shingle)
        assert np.array_equal(np.frombuffer(found, "<u4"), sketch.hashvalues)


def test_band_hashes_are_equal_where_and_only_where_all_rows_of_the_band_are():
    rng = np.random.default_rng(3)
    signed = rng.integers(0, 3, (400, 12), np.uint32)
    hashes = minhash.band_hashes(signed, 4, 3)
    for band in range(4):
        rows = signed[:, 3 * band : 3 * band + 3]
        assert np.array_equal(hashes[:, None, band] == hashes[None, :, band], (rows[:, None] == rows[None]).all(axis=2))
    assert len(np.intersect1d(hashes[:, 0], hashes[:, 1])) == 0


def test_settings_name_the_permutations_that_bands_need():
    with pytest.raises(ValidationError, match="raise permutations"):
        MinHash(bands=20, rows=8)
    assert MinHash(bands=14, rows=8).signature_settings() == MinHash(partitions=3).signature_settings()


# The first four: FineWeb on its own 14 x 8, arXiv:2406.17557; the last: 1 - (1 - 0.8^13)^9 by hand.
@pytest.mark.parametrize(
    ("bands", "rows", "jaccard", "expected"),
    [(14, 8, 0.7, 0.56), (14, 8, 0.75, 0.77), (14, 8, 0.8, 0.92), (14, 8, 0.85, 0.988), (9, 13, 0.8, 0.399)],
)
def test_s_curve(bands, rows, jaccard, expected):
    assert s_curve(bands, rows, jaccard) == pytest.approx(expected, abs=6e-3)
    assert s_curve(bands, rows, 0.0) == 0 and s_curve(bands, rows, 1.0) == 1
