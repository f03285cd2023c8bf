"""What a decision is known by: all that decides its verdict, the statistics among them."""

from types import SimpleNamespace

import numpy as np

from gristmill.flows.experiments.decisions import runs as decision_runs
from gristmill.flows.experiments.decisions.arm_data import ComparisonData
from gristmill.flows.experiments.decisions.runs import ProxyRuns, decision_id
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.stats.protocol import Protocol
from gristmill.flows.stats.runs import EvaluationSet, RunRequest
from gristmill.tasks.engine.make import StageResult
from tests.corpora import context


def stage(name: str, key: str) -> StageResult:
    return StageResult(
        name, key, f"/home/stages/{name}-{key}", {"counts": {"steps": []}, "result": {}, "contents": key}, reused=True
    )


def evaluation_by(judged: str) -> EvaluationSet:
    return EvaluationSet(("books", "web"), np.repeat([0, 1], 5), np.ones(10, np.int64), (judged,))


def proxy_runs(home: str, mixture: str, judged: str, tasks: object | None) -> ProxyRuns:
    arms = {"base": SimpleNamespace(mixture=stage("mixture", mixture))}
    data = ComparisonData(stage("evaluation_documents", "e"), stage("tokenizer", "t"), arms, 99_328)
    given = context(home), load_proxy("small"), data, evaluation_by(judged)
    return ProxyRuns(*given, tasks, lambda count, train: train(), lambda made: None)


def identity(
    home: str,
    *,
    mixture: str = "m0",
    looks: tuple[int, ...] = (4, 6),
    judged: str = "web",
    bank: int = 8,
    tasks: object | None = None,
) -> str:
    proxy, runs = load_proxy("small"), proxy_runs(home, mixture, judged, tasks)
    protocol = Protocol(learning_rates=proxy.learning_rates, looks=looks)
    return decision_id(protocol, evaluation_by(judged), runs, ["base"], 99_328, bank)


def test_another_version_of_the_statistics_is_another_decision(tmp_path, monkeypatch):
    home = str(tmp_path)
    first = identity(home)
    assert identity(home) == first
    others = [{"mixture": "m1"}, {"looks": (4, 8)}, {"judged": "books"}, {"bank": 4}]
    assert len({first, *(identity(home, **other) for other in others)}) == 5
    monkeypatch.setattr(decision_runs, "VERSION", decision_runs.VERSION + 1)
    assert identity(home) != first


def test_tasks_make_another_decision_of_the_same_runs(tmp_path):
    home, tasks = str(tmp_path), SimpleNamespace(digest="quiz")
    assert identity(home, tasks=tasks) != identity(home)
    request = RunRequest("base", 1, 0.005, 99_328)
    assert proxy_runs(home, "m0", "web", tasks).key(request) == proxy_runs(home, "m0", "web", None).key(request)
