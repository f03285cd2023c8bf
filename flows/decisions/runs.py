"""Training runs as the protocol asks for them: each is a stage of its own, which any later decision finds."""

from collections.abc import Callable, Sequence

import numpy as np
import orjson

from gristmill.flows.comparison.protocol import VERSION, Protocol
from gristmill.flows.comparison.runs import EvaluationSet, RunRequest
from gristmill.flows.decisions.arm_data import ComparisonData
from gristmill.flows.decisions.report import TrainedRun
from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.given_files import tasks_at
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.stages.evaluation.documents import read, sets_of
from gristmill.flows.stages.evaluation.judge import judged_sets
from gristmill.flows.stages.proxy import ProxyResult, ProxyRun, proxy_spec, train_proxies
from gristmill.storage.home import open_stage
from gristmill.tasks.engine.spec import StageSpec, digest
from gristmill.training.run.tracking import METRICS

POINTS = 40  # of a run's training loss in MLflow, whose database takes a millisecond for each


class ProxyRuns:
    """Calling it trains, or finds, what is asked for. `trained` is called with each batch; `around` trains it.

    `found`: the results by request.
    """

    def __init__(
        self,
        context: RunContext,
        proxy: ProxyConfig,
        data: ComparisonData,
        evaluation: EvaluationSet,
        tasks: str,
        around: Callable[[int, Callable[[], list[ProxyResult]]], list[ProxyResult]],
        trained: Callable[[list[tuple[RunRequest, ProxyResult]]], None],
    ) -> None:
        self.found: dict[RunRequest, ProxyResult] = {}
        self._context, self._proxy, self._data, self._tasks = context, proxy, data, tasks
        self._evaluation, self._around, self._trained = evaluation, around, trained

    def __call__(self, requests: Sequence[RunRequest]) -> list[np.ndarray]:
        """Bits of each evaluation document, float64 (documents,), for each request."""
        new = [request for request in dict.fromkeys(requests) if request not in self.found]
        if new:
            runs = [self._run(request) for request in new]
            results = self._around(len(new), lambda: train_proxies(self._context, runs))
            made = list(zip(new, results, strict=True))
            for _, result in made:
                self._check(result)
            self.found |= dict(made)
            self._trained(made)
        return [self.found[request].bits for request in requests]

    def missing(self, requests: Sequence[RunRequest]) -> int:
        """How many of these are not in the home yet."""
        return sum(self._context.find(self._spec(request)) is None for request in dict.fromkeys(requests))

    def key(self, request: RunRequest) -> str:
        """The key of a run's stage."""
        return self._spec(request).key

    def figures(self, request: RunRequest) -> TrainedRun:
        """What a finished run has measured."""
        result = self.found[request]
        by_set = self._evaluation.by_set(result.bits)
        measured = float(self._evaluation.measure(result.bits))
        tasks, curve = self.task_figures(request, "accuracy"), tuple(training_losses(result))
        return TrainedRun(request, result.key, measured, by_set, tasks, curve, result.seconds)

    def task_figures(self, request: RunRequest, figure: str) -> dict[str, float]:
        """A figure of each task that a finished run was scored on, as `accuracy` or `chance`, by the task's name."""
        split = ((name.split("/"), value) for name, value in self.found[request].metrics.items())
        return {"/".join(name[1:-1]): value for name, value in split if (name[0], name[-1]) == ("tasks", figure)}

    def _spec(self, request: RunRequest) -> StageSpec:
        folder = tasks_at(self._context.settings, self._tasks, "tasks") if self._tasks else None
        return proxy_spec(self._context.settings, self._run(request), folder, 0)

    def _run(self, request: RunRequest) -> ProxyRun:
        return ProxyRun(
            self._proxy,
            self._data.mixture(request.arm, request.pair),
            request.pair,
            request.learning_rate,
            request.tokens,
            request.salt,
            self._tasks,
        )

    def _check(self, result: ProxyResult) -> None:
        names = [self._evaluation.names[at] for at in self._evaluation.set_of]
        if names != [result.sets[at] for at in result.set_of] or (result.sizes != self._evaluation.size).any():
            raise ValueError(
                f"{result.folder} has losses of other documents than those of the evaluation: remove that folder and "
                "run the same command again"
            )


def training_losses(result: ProxyResult) -> list[tuple[int, float]]:
    """(step, training loss in nats a token) of a finished run, at most POINTS of them, evenly spaced."""
    lines = [orjson.loads(line) for line in open_stage(result.folder).file(METRICS).read().splitlines()]
    each = -(-len(lines) // POINTS)
    return [(line["step"], line["train/loss"]) for line in lines[each - 1 :: each]]


def evaluation_set(data: ComparisonData, judge: Sequence[str]) -> EvaluationSet:
    """The evaluation documents in the order of every run's losses. `judge`: the sets that count, as for `judged_sets`,
    whose errors it raises."""
    table = read(data.evaluation, ["set", "bytes", "host"])
    names = sets_of(data.evaluation)
    judged = judged_sets(names, judge)
    numbers = {name: number for number, name in enumerate(names)}
    set_of = np.array([numbers[name] for name in table["set"].to_pylist()])
    _, hosts = np.unique(table["host"].to_numpy().astype(str), return_inverse=True)  # those of all sets together
    return EvaluationSet(names, set_of, table["bytes"].to_numpy().astype(np.int64), judged, hosts.astype(np.int64))


def decision_id(
    protocol: Protocol, evaluation: EvaluationSet, runs: ProxyRuns, arms: Sequence[str], tokens: int, bank: int
) -> str:
    """16 hexadecimal characters, of all that decides a verdict: the protocol and its version, the sets that count, the
    stages of the runs of each arm, and the pairs of the bank."""
    keys = {arm: runs.key(RunRequest(arm, protocol.first_pair, protocol.learning_rates[0], tokens)) for arm in arms}
    return digest(
        {
            "arms": "\n".join(f"{arm} {key}" for arm, key in keys.items()),
            "protocol": protocol.model_dump_json(),
            "version": str(VERSION),
            "judged": "\n".join(evaluation.judged),
            "bank": str(bank),
        }
    )[:16]
