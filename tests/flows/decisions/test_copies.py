"""Duplicates that the runs of a decision meet, or do not."""

from types import SimpleNamespace

import numpy as np

from gristmill.flows.experiments.decisions.ablate import duplicate_warnings, pairs_in_run
from gristmill.flows.experiments.decisions.arm_data import ComparisonData
from gristmill.flows.experiments.decisions.plan import arms
from gristmill.flows.experiments.options import Candidates
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.dedup.near_duplicates import pairs_of_copies
from tests.corpora import Texts, context, fresh
from tests.flows.decisions.test_decision_runs import stage

BASE = load(
    {
        "name": "base",
        "sources": [{"name": "web", "jsonl": ["a"]}],
        "steps": [{"step": "extract"}, {"step": "c4"}, {"step": "minhash"}],
    }
)


def test_as_many_pairs_meet_as_draws_of_documents_have():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(300), rng.integers(1, 6, 300))
    sizes = np.bincount(clusters)
    pairs, share = int((sizes * (sizes - 1) // 2).sum()), 0.3
    found = []
    for _ in range(400):
        drawn = np.bincount(clusters[rng.random(len(clusters)) < share])
        found.append((drawn * (drawn - 1) // 2).sum())
    assert abs(np.mean(found) - pairs_in_run(pairs, share)) < 4 * np.std(found) / 20


def test_recipes_that_keep_duplicates_and_seldom_meet_them_are_named():
    compared = arms(BASE, Candidates(without=["minhash", "c4"], raw=True))
    of = {name: SimpleNamespace(source_tokens={"web": 1_000_000}) for name in compared.recipes}

    def said(budget: int, pairs: int | None, half=None) -> list[str]:
        data = ComparisonData(stage("evaluation_documents", "e"), stage("tokenizer", "t"), of, budget, half)
        return list(duplicate_warnings(compared, data, pairs))

    warned = said(100_000, 500)
    assert [line.split(" keeps")[0] for line in warned] == ["warning: without minhash", "warning: raw"]
    assert "reads 10.0% of its tokens, where 5.0 of these pairs" in warned[0] and "`--tokens 1000000`" in warned[0]
    assert "as many tokens reads all of them" in warned[0]
    assert "as many tokens, without --resample, reads all of them" in said(100_000, 500, half=stage)[0]
    assert said(500_000, 500) == said(100_000, 0) == said(100_000, None) == []


def test_the_pairs_are_those_of_the_clusters(tmp_path):
    from gristmill.flows.stages.dedup.near_duplicates import minhash
    from gristmill.tasks.dedup.near.settings import MinHash

    rng = np.random.default_rng(1)
    texts = [" ".join(fresh(rng, 60)) for _ in range(6)]
    copies = [texts[0]] * 4 + [texts[1]] * 2 + texts[2:]
    rows = [{"id": f"{i:032x}", "text": text} for i, text in enumerate(copies)]
    home = context(str(tmp_path))
    corpus = Texts([rows[::2], rows[1::2]]).corpus(str(tmp_path))
    assert pairs_of_copies(home, corpus) is None
    copies = pairs_of_copies(home, minhash(home, BASE, corpus, MinHash(step="minhash")))
    assert copies.result["pairs"] == 6 + 1
