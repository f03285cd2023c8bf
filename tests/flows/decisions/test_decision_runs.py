"""What a decision is known by: all that decides its verdict, the statistics among them."""

from types import SimpleNamespace

import numpy as np

from gristmill.flows.comparison.protocol import Protocol
from gristmill.flows.comparison.runs import EvaluationSet
from gristmill.flows.decisions import runs as decision_runs
from gristmill.flows.decisions.arm_data import ComparisonData
from gristmill.flows.decisions.runs import ProxyRuns, decision_id
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.tasks.engine.make import StageResult
from tests.corpora import context


def stage(name: str, key: str) -> StageResult:
    return StageResult(name, key, f"/home/stages/{name}-{key}", {"counts": {"steps": []}, "result": {}}, reused=True)


def identity(
    home: str, *, mixture: str = "m0", looks: tuple[int, ...] = (3, 6), judged: str = "web", bank: int = 8
) -> str:
    proxy = load_proxy("small")
    arms = {"base": SimpleNamespace(mixture=stage("mixture", mixture))}
    evaluation = EvaluationSet(("books", "web"), np.repeat([0, 1], 5), np.ones(10, np.int64), (judged,))
    data = ComparisonData(stage("evaluation_documents", "e"), stage("tokenizer", "t"), arms, 99_328)
    runs = ProxyRuns(context(home), proxy, data, evaluation, None, lambda count, train: train(), lambda made: None)
    protocol = Protocol(learning_rates=proxy.learning_rates, looks=looks)
    return decision_id(protocol, evaluation, runs, ["base"], data.budget_tokens, bank)


def test_another_version_of_the_statistics_is_another_decision(tmp_path, monkeypatch):
    home = str(tmp_path)
    first = identity(home)
    assert identity(home) == first
    others = [{"mixture": "m1"}, {"looks": (3, 7)}, {"judged": "books"}, {"bank": 4}]
    assert len({first, *(identity(home, **other) for other in others)}) == 5
    monkeypatch.setattr(decision_runs, "VERSION", decision_runs.VERSION + 1)
    assert identity(home) != first
