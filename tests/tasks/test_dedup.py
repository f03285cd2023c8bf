"""Near-duplicate removal end to end, against all pairs by brute force."""

import logging

import numpy as np
import pyarrow as pa
import pytest

from storage import shards
from tasks.dedup import clusters, links, signatures
from tasks.dedup.minhash import MinHash, s_curve
from tasks.kernels.jaccard import jaccard, link_buckets

WORDS = 100
SHINGLES = WORDS - 4


def deduplicate(parts, folder, settings):
    """All stages with plain loops; parts are tables of id, text. Returns kept, dropped, counts."""
    folder, signed, n = str(folder), f"{folder}/signed", len(parts)
    for s, documents in enumerate(parts):
        signatures.sign(documents, signed, s, settings)
    for s in range(n):
        signatures.band(folder, signed, s, settings)
    linked = [links.link(folder, signed, p, n, settings) for p in range(settings.partitions)]
    clustered = clusters.cluster(folder, signed, n, settings)
    halves = [clusters.split(folder, signed, s) for s in range(n)]
    kept = pa.concat_tables([k for k, _ in halves])
    return kept, pa.concat_tables([d for _, d in halves]), linked, clustered


def parts_of(documents: dict[str, str], n: int, seed: int | None = None) -> list[pa.Table]:
    ids = list(documents)
    if seed is not None:
        ids = [ids[i] for i in np.random.default_rng(seed).permutation(len(ids))]
    return [pa.table({"id": ids[i::n], "text": [documents[j] for j in ids[i::n]]}) for i in range(n)]


def plain_set(text: str) -> frozenset:
    w = text.split()
    return frozenset(tuple(w[i : i + 5]) for i in range(len(w) - 4))


def plain_jaccard(a: frozenset, b: frozenset) -> float:
    return len(a & b) / len(a | b)


def fresh_words(rng, count: int) -> list[str]:
    return [f"w{x:x}" for x in rng.integers(0, 2**48, count)]


def pair(rng, target: float) -> tuple[str, str, float]:
    """Two texts of 100 unlike words whose ends differ: with k common shingles, J = k / (2 * 96 - k)."""
    same = round(2 * SHINGLES * target / (1 + target))
    common = fresh_words(rng, same + 4)
    texts = [" ".join(common + fresh_words(rng, WORDS - len(common))) for _ in range(2)]
    return *texts, same / (2 * SHINGLES - same)


def planted() -> dict[str, str]:
    """Pairs, chains and copies among unlike documents; ids do not follow the order of planting."""
    rng = np.random.default_rng(20)
    texts = [" ".join(fresh_words(rng, WORDS)) for _ in range(150)]
    for target in np.repeat([0.3, 0.5, 0.7, 0.76, 0.79, 0.81, 0.85, 0.95], 12):
        texts += pair(rng, target)[:2]
    for _ in range(10):
        chain = fresh_words(rng, WORDS + 40)
        texts += [" ".join(chain[i : i + WORDS]) for i in range(0, 40, 8)]
    texts += texts[:10] + texts[:5]
    texts += ["", "... — ...", "one", "One!", "two words", "two"]
    return {f"d{k:04d}": text for k, text in zip(rng.permutation(len(texts)), texts, strict=True)}


def all_links(folder, settings, ids):
    rows = [shards.read_table(links.link_path(str(folder), p)).to_pylist() for p in range(settings.partitions)]
    return {
        (ids[r["shard"]][r["row"]], ids[r["other_shard"]][r["other_row"]]): r["jaccard"] for some in rows for r in some
    }


def test_no_link_below_the_threshold_and_similarities_are_exact(tmp_path):
    documents = planted()
    sets = {i: plain_set(t) for i, t in documents.items()}
    parts = parts_of(documents, 3)
    settings = MinHash()
    kept, dropped, _, counts = deduplicate(parts, tmp_path, settings)
    found = all_links(tmp_path, settings, [p["id"].to_pylist() for p in parts])
    for (a, b), measured in found.items():
        if sets[a] and sets[b]:
            assert measured == plain_jaccard(sets[a], sets[b]) >= settings.threshold

    assert sorted(kept["id"].to_pylist() + dropped["id"].to_pylist()) == sorted(documents)
    below = 0
    for row in dropped.to_pylist():
        if sets[row["id"]]:
            assert row["jaccard"] == plain_jaccard(sets[row["id"]], sets[row["representative"]])
            below += row["jaccard"] < settings.threshold
    # The chains: neighbours are similar enough, their ends are not, and the record says so.
    assert below == counts["below_threshold"] > 0
    sizes = {row["id"]: row["cluster_size"] for row in kept.to_pylist()}
    by_representative = {}
    for row in dropped.to_pylist():
        by_representative.setdefault(row["representative"], []).append(row["cluster_size"])
    for i, size in sizes.items():
        assert by_representative.get(i, []) == [size] * (size - 1)
    wordless = {i for i, t in documents.items() if t in ("", "... — ...")}
    assert wordless <= set(kept["id"].to_pylist())
    assert {t for i, t in documents.items() if t in ("one", "One!") and i in sizes} == {"One!"}


def test_clusters_are_the_components_of_all_pairs_that_share_a_band(tmp_path):
    documents = planted()
    parts = parts_of(documents, 2)
    settings = MinHash(threshold=0.6, bands=32, rows=4)
    kept, dropped, linked, _ = deduplicate(parts, tmp_path, settings)
    assert sum(c["left_out"] for c in linked) == 0

    tables = [shards.read_table(signatures.signature_path(f"{tmp_path}/signed", s)) for s in range(2)]
    rows = [r for t in tables for r in t.select(["id", "length", "signature", "shingles"]).to_pylist()]
    rows = [r | {"set": frozenset(r["shingles"])} for r in rows if r["shingles"]]
    bands = np.array([np.frombuffer(r["signature"], "<u4") for r in rows]).reshape(-1, 32, 4)
    parent = list(range(len(rows)))

    def root(i):
        while parent[i] != i:
            i = parent[i]
        return i

    for i, a in enumerate(rows):
        shares = (bands[i + 1 :] == bands[i]).all(axis=2).any(axis=1)
        for j in np.flatnonzero(shares) + i + 1:
            if plain_jaccard(a["set"], rows[j]["set"]) >= settings.threshold:
                parent[root(i)] = root(j)
    expected = {}
    for i, r in enumerate(rows):
        expected.setdefault(root(i), []).append(r)
    survivors = {}
    for members in expected.values():
        best = min(members, key=lambda r: (-r["length"], r["id"]))["id"]
        survivors |= {r["id"]: best for r in members if r["id"] != best}
    assert {r["id"]: r["representative"] for r in dropped.to_pylist()} == survivors
    assert len(survivors) > 100


@pytest.mark.parametrize("jaccards", [(0.7, 0.8, 0.9, 0.95)])
def test_recall_follows_the_curve(tmp_path, jaccards):
    rng, pairs_each = np.random.default_rng(5), 1000
    documents, truth = {}, {}
    for target in jaccards:
        for k in range(pairs_each):
            a, b, exact = pair(rng, target)
            documents |= {f"{target}-{k}-a": a, f"{target}-{k}-b": b}
            truth[target] = exact
    settings = MinHash(threshold=0.69, partitions=2)
    _, dropped, _, _ = deduplicate(parts_of(documents, 2), tmp_path, settings)
    found = {target: 0 for target in jaccards}
    for row in dropped.to_pylist():
        target, k, _ = row["id"].split("-")
        assert row["representative"].startswith(f"{target}-{k}-")
        assert row["jaccard"] == truth[float(target)]
        found[float(target)] += 1
    for target, count in found.items():
        expected = s_curve(settings.bands, settings.rows, truth[target])
        allowed = 4 * np.sqrt(expected * (1 - expected) / pairs_each) + 1 / pairs_each
        assert abs(count / pairs_each - expected) < allowed
    assert (found[0.9] + found[0.95]) / (2 * pairs_each) >= 0.99


@pytest.mark.parametrize("comparisons", [128, 1])
def test_partitions_shards_and_order_change_nothing(tmp_path, comparisons):
    documents = planted()
    results = []
    for partitions, n, seed in [(1, 3, None), (4, 3, None), (16, 3, None), (4, 1, 1), (5, 7, 2)]:
        settings = MinHash(partitions=partitions, comparisons=comparisons)
        folder = tmp_path / f"{partitions}-{n}-{seed}"
        kept, dropped, linked, counts = deduplicate(parts_of(documents, n, seed), folder, settings)
        results.append((kept.sort_by("id"), dropped.sort_by("id"), counts, sum(c["left_out"] for c in linked)))
    assert all(r == results[0] for r in results[1:])
    assert len(results[0][1]) > 50
    assert (results[0][3] > 0) == (comparisons == 1)


def test_a_second_call_writes_the_same_bytes(tmp_path):
    parts, settings = parts_of(planted(), 2), MinHash(partitions=2)
    deduplicate(parts, tmp_path, settings)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.parquet")}
    deduplicate(parts, tmp_path, settings)
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*.parquet")}
    assert len(before) == 2 + 2 * 2 + 2 + 2


def template_copies(rng, count: int) -> dict[str, str]:
    template = [f"t{i}" for i in range(WORDS)]
    return {f"c{i:06d}": " ".join([*template, *fresh_words(rng, 6)]) for i in range(count)}


def test_copies_of_a_template_cost_linear_time(tmp_path):
    rng = np.random.default_rng(9)
    settings = MinHash(bands=4, partitions=1)
    work = []
    for count in (5_000, 20_000):
        documents = template_copies(rng, count)
        _, dropped, [linked], counts = deduplicate(parts_of(documents, 1), tmp_path / str(count), settings)
        assert linked["largest"] > 0.5 * count and linked["sets"] == linked["documents"]
        assert linked["left_out"] == 0
        assert counts["largest"] > 0.9 * count
        work.append(linked["comparisons"] / count)
    # Each document is compared about once in each of the four bands, however many there are.
    assert work[0] <= settings.bands + 0.1 and work[1] <= settings.bands + 0.1


def test_identical_documents_are_not_compared_at_all(tmp_path):
    documents = {f"{i:05d}": "the same five words again and again" for i in range(20_000)}
    kept, dropped, [linked], counts = deduplicate(parts_of(documents, 2), tmp_path, MinHash(partitions=1))
    assert linked["comparisons"] == 0 and linked["sets"] == 1 and linked["largest"] == 20_000
    assert kept.to_pylist() == [{"id": "00000", "cluster_size": 20_000}]
    assert set(dropped["representative"].to_pylist()) == {"00000"} and set(dropped["jaccard"].to_pylist()) == {1.0}
    assert counts["largest"] == 20_000


def test_many_unlike_sets_in_one_bucket_are_bounded_and_counted():
    rng = np.random.default_rng(2)
    m, limit = 3_000, 20
    values = np.sort(rng.integers(0, 2**64, (m, 8), np.uint64, endpoint=False), axis=1)
    values[1::2] = values[::2]  # each set has its like beside it
    bounds, offsets = np.array([0, m]), np.arange(0, 8 * m + 1, 8)
    first, second, similarity, comparisons, left_out = link_buckets(
        np.arange(m), bounds, values.ravel(), offsets, 0.8, limit
    )
    assert np.array_equal(first, np.arange(0, m, 2)) and np.array_equal(second, first + 1)
    assert set(similarity) == {1.0}
    assert comparisons <= m * limit
    apart = m * (m - 1) // 2 - m // 2
    assert comparisons - len(first) + left_out == apart


def test_what_is_left_out_is_said(tmp_path, caplog):
    rng = np.random.default_rng(4)
    common = fresh_words(rng, 40)
    documents = {f"{i:03d}": " ".join(common + fresh_words(rng, 40)) for i in range(200)}
    settings = MinHash(bands=128, rows=1, comparisons=10, partitions=1)
    with caplog.at_level(logging.WARNING):
        _, _, [linked], _ = deduplicate(parts_of(documents, 1), tmp_path, settings)
    assert linked["left_out"] > 0 and "raise `comparisons`" in caplog.text


@pytest.mark.parametrize("least", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_jaccard_is_that_of_plain_sets(least):
    rng = np.random.default_rng(11)
    for _ in range(400):
        x = np.unique(rng.integers(0, rng.integers(1, 60), rng.integers(1, 50)).astype(np.uint64))
        y = x if rng.random() < 0.1 else np.unique(rng.integers(0, 40, rng.integers(1, 50)).astype(np.uint64))
        exact = plain_jaccard(frozenset(x.tolist()), frozenset(y.tolist()))
        assert jaccard(x, y, least) == (exact if exact >= least else -1.0)
        assert jaccard(x, y, exact) == exact


def test_survivor_first_is_the_smallest_id(tmp_path):
    body = " ".join(f"w{i}" for i in range(60))
    documents = {"b": body + " tail", "a": body, "c": body + " tail"}
    kept, _, _, _ = deduplicate(parts_of(documents, 1), tmp_path / "first", MinHash(survivor="first"))
    assert kept["id"].to_pylist() == ["a"]
    kept, _, _, _ = deduplicate(parts_of(documents, 1), tmp_path / "longest", MinHash())
    assert kept["id"].to_pylist() == ["b"]


def test_representatives_read_in_small_blocks_give_the_same(tmp_path):
    settings, parts = MinHash(partitions=1), parts_of(planted(), 3)
    deduplicate(parts, tmp_path, settings)
    folder = str(tmp_path)
    whole = [shards.read_table(clusters.cluster_path(folder, s)) for s in range(3)]
    clusters.cluster(folder, f"{folder}/signed", 3, settings, held=2_000)
    assert [shards.read_table(clusters.cluster_path(folder, s)) for s in range(3)] == whole


def test_a_missing_piece_of_the_exchange_fails(tmp_path):
    settings, parts = MinHash(partitions=2), parts_of(planted(), 2)
    deduplicate(parts, tmp_path, settings)
    (tmp_path / "bands" / "partition-01" / "part-00001.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        links.link(str(tmp_path), f"{tmp_path}/signed", 1, 2, settings)


def test_an_id_that_occurs_twice_in_a_cluster_fails(tmp_path):
    text = "six words that are the same"
    parts = [pa.table({"id": ["x"], "text": [text]}), pa.table({"id": ["x"], "text": [text]})]
    with pytest.raises(ValueError, match="'x'"):
        deduplicate(parts, tmp_path, MinHash(partitions=1))


def test_shards_without_documents_pass_through(tmp_path):
    empty = pa.table({"id": pa.array([], pa.string()), "text": pa.array([], pa.large_string())})
    parts = [empty, pa.table({"id": ["a", "b"], "text": ["one two", "three"]}), empty]
    kept, dropped, _, counts = deduplicate(parts, tmp_path, MinHash(partitions=2))
    assert kept.to_pylist() == [{"id": "a", "cluster_size": 1}, {"id": "b", "cluster_size": 1}]
    assert len(dropped) == 0 and counts["clusters"] == 0
    assert clusters.split(str(tmp_path), f"{tmp_path}/signed", 0)[0].num_rows == 0
