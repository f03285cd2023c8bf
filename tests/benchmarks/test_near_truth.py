"""Recall of the near-duplicate step against theory on planted pairs, and against all pairs of real pages.

`GRISTMILL_TEST_DATA`: folder with warc/open/OPEN-small.* and dedup_mccormick_100_1000_2500.tar.gz.
"""

import gzip
import os
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import layout, parquet
from gristmill.tasks.dedup.near.settings import MinHash, s_curve
from gristmill.tasks.dedup.near.sign import shingle_sets
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.engine.executors import executor
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.shard import extract_shard
from gristmill.tasks.kernels import minhash
from gristmill.tasks.reading.shard import Shard
from tests.benchmarks.near_corpus import Planted
from tests.benchmarks.near_run import near_duplicates
from tests.corpora import Texts, planted_stage
from tests.tasks.dedup.near.test_signatures import shingled

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

SETTINGS = MinHash()
WITHIN = 0.02
PLANTED_SEEDS, REAL_SEEDS = range(1, 9), range(1, 33)
BATCH = 2_000


def shared(texts: pa.Array, first: np.ndarray, second: np.ndarray, seeds) -> np.ndarray:
    """In how many permutations, one a seed, the pairs of rows share a band."""
    values, ends = shingle_sets(pa.chunked_array([texts]), SETTINGS)
    found = np.zeros(len(first), int)
    for seed in seeds:
        signed = minhash.signatures(values, ends, SETTINGS.permutations, seed)
        hashes = minhash.band_hashes(signed, SETTINGS.bands, SETTINGS.rows)
        found += (hashes[first] == hashes[second]).any(axis=1)
    return found


def curve(similarity: np.ndarray, found: np.ndarray, seeds, width: float, least: float) -> tuple[list[str], float]:
    """A table of measured and expected recall by similarity, and the largest deviation."""
    chance = s_curve(SETTINGS.bands, SETTINGS.rows, similarity)
    bins = np.minimum((similarity + 1e-9) // width, round(1 / width) - 1).astype(int)
    lines, largest = [f"  {'Jaccard':11} {'pairs':>7} {'measured':>9} {'theory':>9} {'points':>7}"], 0.0
    for b in range(round(least / width), round(1 / width)):
        inside = bins == b
        if not inside.any():
            continue
        measured, theory = found[inside].mean() / len(seeds), chance[inside].mean()
        largest = max(largest, abs(measured - theory))
        span = f"{b * width:.2f}-{(b + 1) * width:.2f}"
        lines.append(f"  {span:11} {inside.sum():7,} {measured:9.4f} {theory:9.4f} {100 * (measured - theory):+7.2f}")
    return lines, largest


def test_the_measured_curve_is_that_of_theory(capsys):
    planted = Planted(116_000, seed=2, copies=0.5, largest=2)
    pairs = [(i, j, s) for i, j, s in planted.pairs(0.3) if s < 1]
    found, similarity = [], np.array([s for _, _, s in pairs])
    for low in range(0, len(pairs), BATCH):
        some = np.array([(i, j) for i, j, _ in pairs[low : low + BATCH]])
        places = np.arange(len(some))
        found.append(shared(planted.texts(some.T.ravel()), places, len(some) + places, PLANTED_SEEDS))
    lines, largest = curve(similarity, np.concatenate(found), PLANTED_SEEDS, 0.05, 0.3)
    with capsys.disabled():
        print(f"\nplanted pairs, {SETTINGS.bands} bands of {SETTINGS.rows}, {len(PLANTED_SEEDS)} seeds pooled")
        print("\n".join(lines), f"\n  largest deviation {100 * largest:.2f} points")
    assert np.histogram(similarity, np.arange(6, 21) / 20)[0].min() >= 2_000
    assert largest <= WITHIN


def all_pairs(texts: dict[str, str], least: float) -> dict[tuple[str, str], float]:
    """Every pair of at least this Jaccard similarity of word 5-grams, in plain Python but for the counting."""
    names, numbers, rows, columns = list(texts), {}, [], []
    for row, name in enumerate(names):
        grams = shingled(texts[name], SETTINGS.shingle)
        rows += [row] * len(grams)
        columns += [numbers.setdefault(gram, len(numbers)) for gram in grams]
    matrix = csr_array((np.ones(len(rows), np.int64), (rows, columns)), shape=(len(names), max(len(numbers), 1)))
    size = matrix.sum(axis=1)
    common = (matrix @ matrix.T).tocoo()
    one, other = common.coords
    similarity = common.data / (size[one] + size[other] - common.data)
    near = (one < other) & (similarity >= least)
    return {(names[i], names[j]): float(s) for i, j, s in zip(one[near], other[near], similarity[near], strict=True)}


def judge(name: str, folder: Path, corpus: Corpus, texts: dict[str, str]) -> tuple[list[str], dict, dict]:
    """The step as it runs, and its bands with many seeds, against all pairs: lines to print, pairs, ledger rows."""
    pairs = all_pairs(texts, 0.2)
    with executor("serial") as pool:
        run = near_duplicates(str(folder), corpus, SETTINGS, pool)
    dropped = {row["id"]: row for row in run.dropped()}
    place = {name: i for i, name in enumerate(texts)}
    first, second = (np.array([place[pair[k]] for pair in pairs]) for k in (0, 1))
    similarity = np.array(list(pairs.values()))
    found = shared(pa.array(texts.values(), pa.large_string()), first, second, REAL_SEEDS)
    wrong = [
        row
        for row in dropped.values()
        if texts[row["id"]].strip() and pairs.get(_ordered(place, row["id"], row["representative"])) != row["value"]
    ]
    assert not wrong and all(row["value"] >= SETTINGS.threshold for row in dropped.values())
    lines = [f"{name}: {len(texts):,} documents, {len(dropped)} dropped, none of them below {SETTINGS.threshold}"]
    for least, wanted in ((0.8, 0.94), (0.9, 0.99)):
        # equal texts share all bands and say nothing
        near = (similarity >= least) & (similarity < 1)
        if not near.any():
            continue
        gone = np.array([a in dropped or b in dropped for a, b in pairs])[near]
        pooled = found[near].mean() / len(REAL_SEEDS)
        theory = s_curve(SETTINGS.bands, SETTINGS.rows, similarity[near]).mean()
        lines.append(
            f"  {near.sum()} unlike pairs at {least} or more: one of them dropped {gone.mean():.4f}; share a band "
            f"{pooled:.4f} ({len(REAL_SEEDS)} seeds), theory {theory:.4f}, wanted {wanted}"
        )
        assert pooled >= wanted
    assert all(a in dropped or b in dropped for (a, b), s in pairs.items() if s == 1)
    return lines + curve(similarity, found, REAL_SEEDS, 0.1, 0.2)[0], pairs, dropped


def _ordered(place: dict[str, int], a: str, b: str) -> tuple[str, str]:
    return (a, b) if place[a] < place[b] else (b, a)


def data() -> Path:
    if not os.environ.get("GRISTMILL_TEST_DATA"):
        pytest.skip("set GRISTMILL_TEST_DATA to a folder with warc/open and dedup_mccormick_100_1000_2500.tar.gz")
    return Path(os.environ["GRISTMILL_TEST_DATA"])


def test_open_pages(tmp_path, capsys):
    path = data() / "warc" / "open" / "OPEN-small.warc.gz"
    folder = str(tmp_path / "documents")
    shard = Shard("archive", str(path), path.name)
    extract_shard(folder, 0, "planted", (shard,), None, (), Extract(), Normalize(), ())
    built = planted_stage("documents", folder)
    rows = parquet.read_table(layout.part(folder, 0), ["id", "url", "text"]).to_pylist()
    texts = {row["id"]: row["text"] for row in rows}
    lines, pairs, dropped = judge("open pages", tmp_path, Corpus(("planted",), built, built, (), (built,)), texts)

    url = {row["id"]: row["url"] for row in rows}
    ours = {frozenset((url[a], url[b])): s for (a, b), s in pairs.items()}
    with gzip.open(path.with_name("OPEN-small.jaccard_w5_ge0.2.tsv.gz"), "rt") as f:
        theirs = {frozenset(line.split("\t")[1:]): float(line.split("\t")[0]) for line in f.read().splitlines()}
    like = [pair for pair, similarity in theirs.items() if similarity >= SETTINGS.threshold]
    there = [pair for pair in like if pair <= set(url.values())]
    gone = {url[name] for name in dropped}
    lines.append(
        f"  by the texts of the pages' makers {len(like)} pairs at {SETTINGS.threshold} or more, of {len(there)} both "
        f"pages have a text here, {sum(ours.get(pair, 0) >= SETTINGS.threshold for pair in there)} are as similar by "
        f"these texts, and of {sum(bool(pair & gone) for pair in there)} one is dropped"
    )
    with capsys.disabled():
        print("\n" + "\n".join(lines))


@pytest.mark.parametrize("size", [100, 1000, 2500])
def test_mccormick(tmp_path, capsys, size):
    with tarfile.open(data() / "dedup_mccormick_100_1000_2500.tar.gz") as tar:
        given, truth = (tar.extractfile(f"articles_{size}.{kind}").read().decode() for kind in ("train", "truth"))
    texts = dict(line.split(" ", 1) for line in given.splitlines())
    made = Texts([[{"id": name, "text": text} for name, text in texts.items()]], ["planted"])
    lines, pairs, _ = judge(f"McCormick {size}", tmp_path, made.corpus(str(tmp_path)), texts)
    known = [tuple(line.split()) for line in truth.splitlines()]
    either = {frozenset(pair): s for pair, s in pairs.items()}
    lines.append(f"  {len(known)} known pairs at {', '.join(f'{either.get(frozenset(p), 0):.2f}' for p in known)}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))
