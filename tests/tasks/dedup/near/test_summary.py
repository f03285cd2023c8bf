"""The numbers of the dedup report against plain sets of word n-grams, all pairs by brute force."""

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binomtest

from gristmill.storage import parquet, sorted_files
from gristmill.tasks.dedup.near import recall
from gristmill.tasks.dedup.near.documents import Location, document_ids
from gristmill.tasks.dedup.near.settings import MinHash, s_curve
from gristmill.tasks.dedup.near.sign import band_hashes, signed
from gristmill.tasks.dedup.near.verify import DECIDED
from tests.corpora import fresh, plain_jaccard, plain_set

WORDS = 100
SHINGLES = WORDS - 4
SETTINGS = MinHash(bands=20, rows=4, threshold=0.75)


def family(rng, target: float, members: int) -> list[str]:
    """Texts of 100 words whose ends differ, every two of similarity `target`, nearly."""
    same = round(2 * SHINGLES * target / (1 + target))
    common = fresh(rng, same + 4)
    return [" ".join(common + fresh(rng, WORDS - len(common))) for _ in range(members)]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Pairs of all similarities, some families, copies (one of them in capitals), and documents without a word."""
    rng = np.random.default_rng(8)
    planted = [text for target in rng.uniform(0.01, 0.98, 1500) for text in family(rng, target, 2)]
    planted += [text for target in (0.4, 0.6, 0.8) for _ in range(8) for text in family(rng, target, 12)]
    planted += [planted[0], planted[1].upper(), planted[1], "", "... — ..."]
    return {f"d{number:05d}": text for number, text in zip(rng.permutation(len(planted)), planted, strict=True)}


def write(folder, texts: dict[str, str], n: int, settings: MinHash = SETTINGS, order: list[str] | None = None):
    """The crawl as it lies after signing, without bands or decisions; the selection leaves out every seventh row."""
    locations = []
    ids = order or sorted(texts)
    for shard in range(n):
        mine = [
            name for i, name in enumerate(ids[shard::n]) for name in ([f"gone-{name}", name] if i % 7 == 0 else [name])
        ]
        rows = {"id": mine, "url": [f"https://x.example/{name}" for name in mine], "source": ["web"] * len(mine)}
        rows |= {name: [None] * len(mine) for name in ("title", "published", "date")}
        rows["characters"] = [len(texts.get(name, "not chosen")) for name in mine]
        documents = pa.table(
            rows | {"text": pa.array([texts.get(name, "not chosen") for name in mine], pa.large_string())}
        )
        kept = [i for i, name in enumerate(mine) if name in texts]
        chosen = documents.take(pa.array(kept, pa.int64())).append_column("at", pa.array(kept, pa.int64()))
        documents_path, signatures_path = f"{folder}/documents-{shard}.parquet", f"{folder}/signatures-{shard}.parquet"
        parquet.write_table(documents_path, documents)
        parquet.write_table(signatures_path, signed(chosen, settings))
        locations.append(Location(0, shard, len(chosen), documents_path, signatures_path))
    return recall.Crawl(0, tuple(locations), settings)


@pytest.fixture(scope="module")
def crawl(tmp_path_factory, texts) -> recall.Crawl:
    return write(tmp_path_factory.mktemp("crawl"), texts, 3)


@pytest.fixture(scope="module")
def found(crawl) -> recall.HoldoutPairs:
    return recall.holdout_pairs(crawl)


@pytest.fixture(scope="module")
def truth(crawl, texts) -> list[tuple[float, bool]]:
    """Similarity of all pairs of unlike sets with a common shingle, and whether they share a band."""
    holders: dict[tuple, list[str]] = {}
    sets = {name: plain_set(text) for name, text in texts.items() if any(c.isalnum() for c in text)}
    for name in {one: name for name, one in sets.items()}.values():
        for shingle in sets[name]:
            holders.setdefault(shingle, []).append(name)
    bands = {}
    for location in crawl.locations:
        table = parquet.read_table(location.signatures)
        bands |= dict(zip(table["id"].to_pylist(), band_hashes(table["signature"], SETTINGS), strict=True))
    pairs = {pair for some in holders.values() for pair in combinations(sorted(some), 2)}
    return [
        (len(sets[a] & sets[b]) / len(sets[a] | sets[b]), bool((bands[a] == bands[b]).any())) for a, b in sorted(pairs)
    ]


def unexpected(bins: list[recall.Bin]) -> list[float]:
    """The bins in whose interval the S-curve is not."""
    return [one.low for one in bins if not one.least <= one.expected <= one.most]


@pytest.mark.extended
def test_the_measured_curve_is_that_of_all_pairs(found, truth):
    bins = recall.curve(found, SETTINGS)
    assert len(bins) >= 18
    assert sum(one.pairs for one in bins) == len(found.banded) > 900
    missed = []
    for one in bins:
        assert one.low <= one.jaccard < one.high
        assert one.least <= one.measured <= one.most
        low, high = s_curve(SETTINGS.bands, SETTINGS.rows, one.low), s_curve(SETTINGS.bands, SETTINGS.rows, one.high)
        assert low <= one.expected <= high
        if not one.least <= np.mean([banded for j, banded in truth if one.low <= j < one.high]) <= one.most:
            missed.append(one.low)
    # of twenty intervals of 95%
    assert len(missed) <= 1 and len(unexpected(bins)) <= 1


def test_a_hold_out_that_a_band_uses_would_be_found_out(tmp_path, texts):
    settings = MinHash(bands=2, rows=2)
    crawl = write(tmp_path, texts, 1, settings)
    assert len(unexpected(recall.curve(recall.holdout_pairs(crawl), settings))) <= 1
    path = crawl.locations[0].signatures
    table = parquet.read_table(path)
    band = np.ascontiguousarray(band_hashes(table["signature"], settings)[:, 0])
    parquet.write_table(path, table.set_column(table.schema.get_field_index("holdout"), "holdout", pa.array(band)))
    assert len(unexpected(recall.curve(recall.holdout_pairs(crawl), settings))) > 8


def names(crawl: recall.Crawl, docs: np.ndarray) -> list[str]:
    unique, position = np.unique(docs, return_inverse=True)
    ids = [name for signatures, _ in crawl.rows(unique, [], []) for name in signatures["id"].to_pylist()]
    return [ids[i] for i in position]


def rows(crawl: recall.Crawl, found: recall.HoldoutPairs) -> dict[frozenset, tuple]:
    pairs = found.pairs
    both = map(frozenset, zip(names(crawl, pairs.first), names(crawl, pairs.second), strict=True))
    return dict(zip(both, zip(pairs.jaccard.tolist(), found.banded.tolist(), strict=True), strict=True))


def test_similarities_are_exact_and_copies_apart(crawl, found, texts):
    for pair, (similarity, _) in rows(crawl, found).items():
        one, other = pair
        assert similarity == plain_jaccard(texts[one], texts[other]) < 1
    worded = [text for text in texts.values() if any(c.isalnum() for c in text)]
    assert found.documents == len(worded) == len(texts) - 2
    assert found.copies == len(worded) - len({plain_set(text) for text in worded}) == 3
    sizes = Counter(found.group.tolist())
    assert 10 < max(sizes.values()) <= 8 * 7 // 2


@pytest.mark.extended
def test_shards_order_and_what_is_held_change_nothing(tmp_path, crawl, found, texts):
    shuffled = [sorted(texts)[i] for i in np.random.default_rng(1).permutation(len(texts))]
    other = write(tmp_path, texts, 2, order=shuffled)
    # which of the copies stands for their set is the input's affair
    times = Counter(map(str.lower, texts.values()))
    copied = {name for name, text in texts.items() if times[text.lower()] > 1}
    alike = {pair: row for pair, row in rows(crawl, found).items() if not pair & copied}
    again = {
        pair: row for pair, row in rows(other, recall.holdout_pairs(other, held=1_000_000)).items() if not pair & copied
    }
    assert again == alike
    assert len(alike) > 900


def test_a_sample_is_a_part_of_all(crawl, found):
    everything = rows(crawl, found)
    total = found.documents + 2
    part = recall.holdout_pairs(crawl, documents=total // 4)
    assert part.share == pytest.approx(0.25, abs=0.001)
    assert abs(part.documents - total / 4) < 5 * (total * 0.25 * 0.75) ** 0.5
    sampled = rows(crawl, part)
    assert sampled.items() <= everything.items()
    assert 0.15 * len(everything) < len(sampled) < 0.35 * len(everything)
    few = recall.holdout_pairs(crawl, pairs=300)
    assert 300 - 28 <= len(few.banded) <= 300 and rows(crawl, few).items() <= everything.items()
    twos = recall.holdout_pairs(crawl, sets_each=2)
    assert len(twos.banded) == len(set(twos.group.tolist())) == len(set(found.group.tolist()))


def test_a_group_counts_once_in_a_bin():
    pairs = recall.Pairs(*np.zeros((2, 5), np.int64), np.array([0.81, 0.82, 0.83, 0.84, 0.2]))
    found = recall.HoldoutPairs(pairs, np.array([0, 0, 0, 1, 1]), np.array([True, True, False, False, True]), 9, 1.0, 0)
    one = recall.share_banded(found, SETTINGS, 0.8, 0.85)
    assert (one.pairs, one.groups) == (4, 2)
    assert one.measured == pytest.approx((2 / 3 + 0) / 2)
    assert one.jaccard == pytest.approx((0.82 + 0.84) / 2)
    share = [s_curve(SETTINGS.bands, SETTINGS.rows, j) for j in (0.81, 0.82, 0.83, 0.84)]
    assert one.expected == pytest.approx((np.mean(share[:3]) + share[3]) / 2)
    assert recall.share_banded(found, SETTINGS, 0.9) is None


@pytest.mark.parametrize(("hits", "trials"), [(0, 1), (1, 1), (0, 40), (40, 40), (7, 31), (999, 1000)])
def test_the_interval_is_wilsons(hits, trials):
    theirs = binomtest(hits, trials).proportion_ci(method="wilson")
    assert recall.wilson(hits / trials, trials) == pytest.approx((theirs.low, theirs.high), abs=1e-6)


def test_the_interval_is_around_the_share():
    for trials in range(1, 200):
        for hits in (0, 1, trials):
            least, most = recall.wilson(hits / trials, trials)
            assert 0 <= least <= hits / trials <= most <= 1


def test_deciles_begin_where_their_number_says():
    similarity = np.array([0.0, 0.0999, 0.1, 0.2, 3 / 10, 0.6, 0.7, 21 / 30, 0.8999, 0.9, 0.99999, 1.0])
    assert recall.decile(similarity).tolist() == [0, 0, 1, 2, 3, 6, 7, 7, 8, 9, 9, 10]


def decide(folder, crawl: recall.Crawl, clusters: list[tuple[str, list[tuple[str, float]]]], files: int) -> list[str]:
    """What was decided, as runs: representatives with those dropped for them."""
    locations = {}
    for location in crawl.locations:
        ids = parquet.read_table(location.signatures, ["id"])["id"].to_pylist()
        locations |= {name: int(document_ids(0, location.shard, np.array([row]))[0]) for row, name in enumerate(ids)}
    paths = []
    for file in range(files):
        decided = []
        for kept, gone in clusters[file::files]:
            for name, similarity in [(kept, 1.0), *gone]:
                decided.append((locations[name], name, locations[kept], kept, similarity, 1 + len(gone)))
        columns = zip(*decided, strict=True) if decided else [[]] * 6
        paths.append(f"{folder}/decided-{file}.parquet")
        sorted_files.write(paths[-1], pa.table(list(map(list, columns)), schema=DECIDED), "doc")
    return paths


@pytest.fixture(scope="module")
def decided(tmp_path_factory):
    """One cluster of a hundred, some of few, and one of copies; their similarities are planted."""
    rng = np.random.default_rng(3)
    big = family(rng, 0.85, 100)
    clusters = [(0, [(i, plain_jaccard(big[0], big[i])) for i in range(1, 100)])]
    texts = list(big)
    for target in np.repeat([0.76, 0.85, 0.93], 8):
        pair = family(rng, target, 2)
        clusters.append((len(texts), [(len(texts) + 1, plain_jaccard(*pair))]))
        texts += pair
    clusters.append((len(texts), [(len(texts) + 1, 1.0), (len(texts) + 2, 1.0)]))
    texts += [texts[-1] + " more words"] * 3
    for target in np.repeat(np.arange(1, 8) / 10 + 0.02, 60):  # below the threshold
        texts += family(rng, target, 2)
    named = {f"d{i:04d}": text for i, text in enumerate(texts)}
    folder = tmp_path_factory.mktemp("decided")
    crawl = write(folder, named, 2)
    clusters = [(f"d{i:04d}", [(f"d{j:04d}", similarity) for j, similarity in gone]) for i, gone in clusters]
    return named, crawl, clusters, decide(folder, crawl, clusters, 3)


def test_clusters_are_counted_and_the_largest_named(decided):
    _, crawl, truth, paths = decided
    found = recall.clusters(paths, 0, 5, 20)
    sizes = Counter(1 + len(gone) for _, gone in truth)
    assert dict(zip(found.sizes.tolist(), found.counts.tolist(), strict=True)) == sizes == {2: 24, 3: 1, 100: 1}
    assert found.documents == sum(size * count for size, count in sizes.items())
    ranked = sorted(truth, key=lambda cluster: (-len(cluster[1]), cluster[0]))[:5]
    assert found.largest["representative"].to_pylist() == [kept for kept, _ in ranked]
    assert names(crawl, found.largest["doc"].to_numpy()) == [kept for kept, _ in ranked]


def test_pairs_of_each_decile_are_what_they_are_said_to_be(decided):
    texts, crawl, truth, paths = decided
    clusters = recall.clusters(paths, 0, 5, 20)
    held_out = recall.holdout_pairs(crawl)
    below, in_decile = recall.below_threshold(crawl, held_out.pairs, held_out.group, 20)
    shown = recall.examples(crawl, clusters.dropped, below, 20, 10**6)
    kept_of = {name: kept for kept, gone in truth for name, _ in gone}
    all_dropped = Counter(int(recall.decile(np.array([j]))[0]) for _, gone in truth for _, j in gone)
    assert clusters.in_decile.tolist() == [all_dropped[number] for number in range(11)]
    assert [len(some) for some in shown[3:7]] == [20] * 4 and len(shown[10]) == 2
    for number, some in enumerate(shown):
        assert len(some) <= 20
        assert [pair.jaccard for pair in some] == sorted(pair.jaccard for pair in some)
        for pair in some:
            one, other = pair.first, pair.second
            assert (one.text, other.text) == (texts[one.id], texts[other.id])
            assert pair.jaccard == plain_jaccard(one.text, other.text)
            assert number / 10 <= pair.jaccard and (pair.jaccard < (number + 1) / 10)
            assert pair.dropped == (pair.jaccard >= SETTINGS.threshold)
            if pair.dropped:
                assert kept_of[one.id] == other.id
    # the decile of the threshold has both kinds, and there were enough of the one that is below
    assert 8 == sum(pair.dropped for pair in shown[7]) and in_decile[7] >= 12 == len(shown[7]) - 8
    # a cluster of a hundred does not crowd out the others
    assert len({pair.second.id for pair in shown[8]}) == 9


def test_the_same_ids_draw_the_same_pairs_from_other_files(tmp_path, decided):
    texts, _, truth, paths = decided
    crawl = write(tmp_path, texts, 5, order=sorted(texts, reverse=True))
    others = decide(tmp_path, crawl, truth[::-1], 1)
    found = [recall.clusters(some, 0, 5, 20).dropped for some in (paths, others)]
    drawn = [
        names(home, np.append(some.first, some.second)) for home, some in zip((decided[1], crawl), found, strict=True)
    ]
    assert drawn[0] == drawn[1]


def test_the_texts_of_an_earlier_crawl_are_found(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    one, other = family(np.random.default_rng(0), 0.9, 2)
    [old] = write(tmp_path / "old", {"old": one}, 1).locations
    [new] = write(tmp_path / "new", {"new": other}, 1).locations
    crawl = recall.Crawl(1, (old, replace(new, crawl=1)), SETTINGS)
    table = {
        "doc": [int(document_ids(number, 0, np.array([0]))[0]) for number in (0, 1)],
        "id": ["old", "new"],
        "kept_doc": [int(document_ids(0, 0, np.array([0]))[0])] * 2,
        "representative": ["old", "old"],
        "jaccard": [1.0, plain_jaccard(one, other)],
        "cluster_size": [2, 2],
    }
    sorted_files.write(f"{tmp_path}/decided.parquet", pa.table(table, schema=DECIDED), "doc")
    found = recall.clusters([f"{tmp_path}/decided.parquet"], 1, 5, 20)
    assert found.documents == 1
    none = found.dropped.take(np.empty(0, np.int64))
    [example] = [pair for some in recall.examples(crawl, found.dropped, none, 20, 50) for pair in some]
    assert (example.first.text, example.second.text) == (other[:50], one[:50])
    assert len(recall.holdout_pairs(crawl).banded) == 0


def test_a_corpus_without_a_pair(tmp_path):
    for texts in ({}, {"a": "one text", "b": "another of other words"}):
        crawl = write(tmp_path, texts, 2)
        found = recall.holdout_pairs(crawl)
        assert recall.curve(found, SETTINGS) == [] and found.documents == len(texts)
        [path, *_] = decide(tmp_path, crawl, [], 1)
        clusters = recall.clusters([path], 0, 5, 20)
        assert clusters.documents == len(clusters.sizes) == len(clusters.largest) == 0
        below, _ = recall.below_threshold(crawl, found.pairs, found.group, 20)
        assert recall.examples(crawl, clusters.dropped, below, 20, 100) == [[]] * 11


def test_stages_of_different_runs_are_told_apart(tmp_path):
    (tmp_path / "other").mkdir()
    crawl = write(tmp_path, {"a": "one text", "b": "two texts"}, 1)
    other = write(tmp_path / "other", {"c": "one text", "d": "two texts"}, 1)
    mixed = replace(crawl, locations=(replace(crawl.locations[0], documents=other.locations[0].documents),))
    with pytest.raises(LookupError, match="different runs"):
        recall.documents(mixed, document_ids(0, 0, np.array([0])), 10)
