"""Semantic duplicates and the balance of clusters beside the rules on all vectors that `embedding` has stored."""

import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.dedup.semantic_duplicates import semantic_duplicates
from gristmill.flows.stages.learned_filters import embedding
from gristmill.storage import parquet
from gristmill.tasks.dedup import semantic
from gristmill.tasks.dedup.semantic import (
    SCALE,
    Clustered,
    Diversify,
    SemanticDedup,
    clusters_of,
    duplicates,
    k_means,
    nearest,
    rounded,
)
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.models.embedding import Embedding
from tests import embedders
from tests.corpora import Texts, context, ledger, read

OTHERS = embedders.WORDS
SAME = {"offer": "sale", "mill": "wheel"}


def exact_dot(one: np.ndarray, other: np.ndarray) -> int:
    """By whole numbers of Python."""
    return sum(a * b for a, b in zip(one.tolist(), other.tolist(), strict=True))


def by_definition(vectors: np.ndarray, similarity: float) -> list[int]:
    """In keep order: the first kept one before a document whose cosine with it is at least this, or -1."""
    bound, kept, found = round(similarity * SCALE**2), [], []
    for at, vector in enumerate(vectors):
        of = next((one for one in kept if exact_dot(vectors[one], vector) >= bound), -1)
        if of < 0:
            kept.append(at)
        found.append(of)
    return found


def clouds(rng: np.random.Generator, n: int, dimension: int, centres: int, spread: float) -> np.ndarray:
    around = rng.standard_normal((centres, dimension))
    return around[rng.integers(0, centres, n)] + spread * rng.standard_normal((n, dimension))


@given(st.integers(0, 10**6), st.integers(0, 70), st.integers(1, 9), st.sampled_from([0.5, 0.8, 0.95, 0.999, 1.0]))
@settings(deadline=None, max_examples=60)
def test_duplicates_are_those_of_the_definition_whatever_the_blocks(seed, n, centres, similarity):
    rng = np.random.default_rng(seed)
    vectors = rounded(clouds(rng, n, 6, centres, rng.choice([0.0, 0.05, 0.3])))
    before = semantic._BLOCK
    try:
        semantic._BLOCK = int(rng.integers(1, 20))
        of, cosine = duplicates(vectors, similarity)
    finally:
        semantic._BLOCK = before
    assert of.tolist() == by_definition(vectors, similarity)
    for at in np.flatnonzero(of >= 0):
        assert cosine[at] == exact_dot(vectors[at], vectors[of[at]]) / SCALE**2


@pytest.mark.parametrize("dimension", [3, 384, 4096, 16384])
def test_products_of_rounded_vectors_are_exact(dimension):
    rng = np.random.default_rng(dimension)
    vectors = rounded(np.concatenate([rng.standard_normal((8, dimension)), np.ones((1, dimension))]))
    products = vectors.astype(np.float32) @ vectors.astype(np.float32).T
    assert products.tolist() == (vectors.astype(object) @ vectors.astype(object).T).tolist()
    assert np.abs(products).max() < 2**24
    assert np.allclose(np.diag(products) / SCALE**2, 1, atol=0.02)


def test_rounding_keeps_cosines_and_leaves_zeros():
    vectors = clouds(np.random.default_rng(1), 100, 384, 5, 0.5)
    found = rounded(vectors.astype(np.float16)).astype(np.float64) / SCALE
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert np.abs(found @ found.T - unit @ unit.T).max() < 1e-3
    assert not rounded(np.zeros((2, 5), np.float16)).any()
    assert (rounded(np.full((1, 4), 1e-7)) == SCALE / 2).all()  # of any length
    with pytest.raises(ValueError, match="compares 16384 at most"):
        rounded(np.zeros((1, 20_000)))


def test_clusters_part_clouds_and_the_last_move_is_that_of_their_means():
    rng = np.random.default_rng(2)
    around = 5 * np.eye(8)[:6]
    of = rng.integers(0, 6, 600)
    vectors = rounded(around[of] + 0.1 * rng.standard_normal((600, 8)))
    _, first = np.unique(of, return_index=True)
    order = np.concatenate([first, np.delete(np.arange(600), first)])  # one of each cloud comes first
    centroids = k_means(vectors[order], 6)
    found = nearest(vectors, centroids)
    assert len({*zip(of.tolist(), found.tolist(), strict=True)}) == 6
    for number in range(6):
        mean = vectors[found == number].astype(np.float64).sum(axis=0)
        assert np.abs(centroids[number] - SCALE * mean / np.linalg.norm(mean)).max() <= 0.5 + 1e-9
    assert len(k_means(np.repeat(vectors[:3], 50, axis=0), 10)) == 3


@pytest.mark.parametrize(("documents", "expected"), [(0, 1), (4096, 1), (4097, 2), (10**6, 245), (10**9, 31_622)])
def test_how_many_clusters(documents, expected):
    assert clusters_of(documents) == expected


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> SimpleNamespace:
    """An embedder, and texts by id: some are another with words exchanged that its vectors hardly tell apart."""
    folder = tmp_path_factory.mktemp("semantic")
    draw, texts = random.Random(5), {}
    for number in range(60):
        words = draw.choices(OTHERS, k=30)
        texts[f"d{number}"] = " ".join(words)
        if number % 3 == 0:
            again = list(words)
            for at in draw.sample(range(30), 1 + number % 4):
                again[at] = draw.choice(OTHERS)
            texts[f"p{number}"] = " ".join([*again, *draw.choices(OTHERS, k=number % 2)])
    return SimpleNamespace(model=embedders.write(folder / "model"), texts=texts)


def run(home: str, planted, step: Clustered, shards: int, seed: int, workers: int, reference=()):
    documents, sources = [], []
    ids = list(planted.texts)
    for source, own in (("books", ids[:20]), ("web", ids[20:])):
        own = random.Random(seed).sample(own, len(own))
        for at in range(shards):
            documents.append([{"id": i, "text": planted.texts[i]} for i in own[at::shards]])
            sources.append(source)
    corpus = Texts(documents, sources)
    first = Embedding(model=planted.model, reference=reference)
    recipe = SimpleNamespace(steps=[first, step], sources=corpus.recipe.sources)
    where = context(home, Threads(workers, None))
    arriving = embedding(where, recipe, corpus.corpus(home), first)
    return arriving, semantic_duplicates(where, recipe, arriving, step)


def losses(corpus) -> dict[str, tuple[str, str]]:
    rows = ledger(corpus.kept, list(corpus.places.shards())).to_pylist()
    assert {(row["step"], row["rule"]) for row in rows} <= {
        ("semantic_dedup", "semantic"),
        ("diversify", "full_cluster"),
    }
    return {row["id"]: (row["representative"], row["detail"]) for row in rows}


def stored(corpus, without=()) -> dict[str, np.ndarray]:
    vectors = next(stage for stage in corpus.stages if stage.name == "embedding_vectors")
    table = read(vectors, list(corpus.places.shards(without=without)))
    return dict(zip(table["id"].to_pylist(), rounded(np.array(table["vector"].to_pylist())), strict=True))


@pytest.mark.parametrize("similarity", [0.9, 0.97])
def test_one_cluster_drops_what_all_pairs_say(tmp_path, planted, similarity):
    arriving, left = run(str(tmp_path), planted, SemanticDedup(similarity=similarity), 2, 1, 1)
    vectors = stored(arriving)
    order = sorted(vectors, key=lambda i: (-len(planted.texts[i]), i))
    expected = by_definition(np.array([vectors[i] for i in order]), similarity)
    found = losses(left)
    assert {i: of for i, (of, _) in found.items()} == {
        order[at]: order[of] for at, of in enumerate(expected) if of >= 0
    }
    assert found
    for i, (of, detail) in found.items():
        assert detail == f"cosine {exact_dot(vectors[i], vectors[of]) / SCALE**2:.4f}"


@pytest.mark.extended
def test_shards_order_and_workers_change_nothing_and_clusters_lose_pairs_alone(tmp_path, planted):
    step = SemanticDedup(similarity=0.9, clusters=4)
    found = [
        losses(run(str(tmp_path / f"{at}"), planted, step, shards, seed, workers)[1])
        for at, (shards, seed, workers) in enumerate([(1, 1, 1), (3, 2, 2), (7, 3, 3)])
    ]
    assert found == [found[0]] * 3
    whole = losses(run(str(tmp_path / "whole"), planted, SemanticDedup(similarity=0.9), 2, 1, 1)[1])
    assert 0 < len(found[0]) <= len(whole)


def test_sources_without_vectors_are_kept_and_keep_decides(tmp_path, planted):
    step = SemanticDedup(similarity=0.9, keep=("source",))
    arriving, left = run(str(tmp_path), planted, step, 3, 1, 2, reference=("books",))
    assert not {*losses(left)} & {*list(planted.texts)[:20]}
    vectors = stored(arriving, ("books",))
    order = sorted(vectors)
    expected = by_definition(np.array([vectors[i] for i in order]), 0.9)
    assert {*losses(left)} == {order[at] for at, of in enumerate(expected) if of >= 0}


@pytest.mark.parametrize(("most", "keep"), [(1.0, ()), (0.4, ("longest",)), (0.01, ()), (50.0, ())])
def test_of_a_cluster_at_most_so_many_are_kept(tmp_path, planted, most, keep):
    """Beside the clusters that the centroids of the stage give by exact products, of equal ones the first."""
    arriving, left = run(str(tmp_path), planted, Diversify(clusters=5, most=most, keep=keep), 3, 1, 2)
    vectors = stored(arriving)
    table = parquet.read_table(f"{left.kept.folder}/centroids.parquet")
    centroids = np.array(table["vector"].to_pylist())
    clusters: dict[int, list[str]] = {}
    for i in sorted(vectors, key=lambda i: (-len(planted.texts[i]) if keep else 0, i)):
        products = [exact_dot(vectors[i], centroid) for centroid in centroids]
        clusters.setdefault(products.index(max(products)), []).append(i)
    cap = math.ceil(most * len(vectors) / len(centroids))
    found = losses(left)
    assert {*found} == {i for members in clusters.values() for i in members[cap:]}
    for number, members in clusters.items():
        said = f"cluster {number} has {len(members)} documents, of which {cap} stay"
        assert {found[i] for i in members[cap:]} <= {(None, said)}
    assert bool(found) == (most < max(map(len, clusters.values())) * len(centroids) / len(vectors))
    kept = read(left.kept, list(left.places.shards()))["id"].to_pylist()
    assert sorted(kept) == sorted({*planted.texts} - {*found})


@pytest.mark.extended
def test_a_balance_is_the_same_for_any_shards_and_workers(tmp_path, planted):
    found = [
        losses(run(str(tmp_path / f"{at}"), planted, Diversify(clusters=4, most=0.5), shards, seed, workers)[1])
        for at, (shards, seed, workers) in enumerate([(1, 1, 1), (7, 3, 3)])
    ]
    assert found[0] == found[1] and found[0]
    arriving, left = run(str(tmp_path / "reference"), planted, Diversify(most=0.1), 2, 1, 1, reference=("books",))
    assert (
        not {*losses(left)} & {*list(planted.texts)[:20]}
        and len(losses(left)) == len(stored(arriving, ("books",))) * 9 // 10
    )


@pytest.mark.parametrize("name", ["semantic_dedup", "diversify"])
def test_it_needs_the_step_embedding_before_it(name):
    recipe = {
        "name": "bare",
        "sources": [{"name": "web", "jsonl": ["web.jsonl"]}],
        "steps": [{"step": "extract", "engine": "plain"}, {"step": name}],
    }
    with pytest.raises(RecipeError, match=f"`{name}` compares the vectors of the step `embedding`: put that before it"):
        load(recipe)
