"""Training runs as the protocol asks for them: each is a stage of its own, which any later decision finds."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.experiments.decisions.arm_data import ComparisonData
from gristmill.flows.experiments.decisions.arm_settings import ArmSettings
from gristmill.flows.experiments.decisions.report import TrainedRun
from gristmill.flows.experiments.decisions.tasks import DecisionTasks, mean_by_task
from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.stages.evaluation.documents import read, sets_of
from gristmill.flows.stages.evaluation.judge import judged_sets
from gristmill.flows.stages.proxy import ProxyResult, ProxyRun, proxy_spec, train_proxies
from gristmill.flows.stats.protocol import VERSION, Protocol
from gristmill.flows.stats.runs import EvaluationSet, RunRequest
from gristmill.storage.home import open_stage
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import StageSpec, digest
from gristmill.training.run.tracking import METRICS

POINTS = 40  # of a run's training loss in MLflow, whose database takes a millisecond for each


class ProxyRuns:
    """Calling it trains, or finds, what is asked for. `trained` is called with each batch; `around` trains it. With
    `tasks` each run is scored on these, too. `settings`: how the runs of each arm are trained, None: as the proxy is.

    `found`: the results by request; `scores`: what they make of the examples of tasks that count.
    """

    def __init__(
        self,
        context: RunContext,
        proxy: ProxyConfig,
        data: ComparisonData,
        evaluation: EvaluationSet,
        tasks: DecisionTasks | None,
        around: Callable[[int, Callable[[], list[ProxyResult]]], list[ProxyResult]],
        trained: Callable[[list[tuple[RunRequest, ProxyResult]]], None],
        settings: Mapping[str, ArmSettings] | None = None,
    ) -> None:
        self.found: dict[RunRequest, ProxyResult] = {}
        self.scores: dict[RunRequest, pa.Table] = {}
        self._context, self._proxy, self._data, self._tasks = context, proxy, data, tasks
        self._evaluation, self._around, self._trained = evaluation, around, trained
        self._settings = settings or {}

    def __call__(self, requests: Sequence[RunRequest]) -> list[np.ndarray]:
        """Bits of each evaluation document and then of each right answer, float64 (documents,), for each request."""
        new = [request for request in dict.fromkeys(requests) if request not in self.found]
        if new:
            runs = [self._run(request) for request in new]
            results = self._around(len(new), lambda: train_proxies(self._context, runs))
            outcomes = list(zip(new, results, strict=True))
            for request, result in outcomes:
                self._check(request.arm, result)
            self.found |= dict(outcomes)
            if self._tasks is not None:
                self.scores |= {request: self._tasks.scored(self._stage(request), request.arm) for request in new}
            self._trained(outcomes)
        return [self.bits(request) for request in requests]

    def bits(self, request: RunRequest) -> np.ndarray:
        """Of a finished run, as a call gives them."""
        bits = self.found[request].bits
        if request in self.scores:
            bits = np.concatenate([bits, self.scores[request]["bits"].to_numpy()])
        return bits

    def missing(self, requests: Sequence[RunRequest]) -> int:
        """How many of these are not in the home yet."""
        return sum(self._context.find(self._spec(request)) is None for request in dict.fromkeys(requests))

    def key(self, request: RunRequest) -> str:
        """The key of a run's stage."""
        return self._spec(request).key

    def figures(self, request: RunRequest) -> TrainedRun:
        """What a finished run has measured."""
        result, bits = self.found[request], self.bits(request)
        by_set, measured = self._evaluation.by_set(bits), float(self._evaluation.measure(bits))
        tasks, curve = self.task_figures(request, "hit"), tuple(training_losses(result))
        return TrainedRun(request, result.key, measured, by_set, tasks, curve, result.seconds)

    def task_figures(self, request: RunRequest, column: str) -> dict[str, float]:
        """The mean of a column of `task_losses` for a finished run, by task."""
        return mean_by_task(self.scores[request], column) if request in self.scores else {}

    @property
    def tasks_digest(self) -> str:
        """Of the tasks that runs are scored on, or empty."""
        return self._tasks.digest if self._tasks is not None else ""

    def _stage(self, request: RunRequest) -> StageResult:
        stage = self._context.find(self._spec(request))
        if stage is None:
            raise LookupError(f"the run {request} was removed from the home: run the same command again")
        return stage

    def _spec(self, request: RunRequest) -> StageSpec:
        return proxy_spec(self._context.settings, self._run(request), 0)

    def _run(self, request: RunRequest) -> ProxyRun:
        settings = self._settings.get(request.arm, ArmSettings(self._proxy))
        return ProxyRun(
            settings.proxy,
            self._data.mixture(request.arm, request.pair, request.tokens),
            request.pair,
            request.learning_rate * settings.rate,
            request.tokens,
            request.salt,
        )

    def _check(self, arm: str, result: ProxyResult) -> None:
        documents = slice(len(result.sizes))  # right answers of tasks follow
        names = [self._evaluation.names[index] for index in self._evaluation.set_of[documents]]
        sizes = self._evaluation.size[documents]
        same = names == [result.sets[index] for index in result.set_of]
        if same and not np.array_equal(result.sizes, sizes):
            counted, written = int(result.sizes.sum()), int(sizes.sum())
            raise ValueError(
                f"{arm}: its tokens stand for {counted:,} bytes of the evaluation documents, which have {written:,}, "
                "so its losses cannot be compared: the tokenizer loses characters. Use another tokenizer, or remove "
                f"{result.folder} if it was made of other documents"
            )
        if not same:
            raise ValueError(
                f"{result.folder} has losses of documents that are not in the evaluation: remove that folder "
                "and run the same command again"
            )


def training_losses(result: ProxyResult) -> list[tuple[int, float]]:
    """(step, training loss in nats a token) of a finished run, at most POINTS of them, evenly spaced."""
    lines = [orjson.loads(line) for line in open_stage(result.folder).file(METRICS).read().splitlines()]
    each = -(-len(lines) // POINTS)
    return [(line["step"], line["train/loss"]) for line in lines[each - 1 :: each]]


def evaluation_set(data: ComparisonData, judge: Sequence[str], tasks: DecisionTasks | None = None) -> EvaluationSet:
    """The evaluation documents and the right answers of tasks, in the order of every run's losses. `judge`: the sets
    that count, as for `judged_sets`, whose errors it raises."""
    table = read(data.evaluation, ["set", "bytes", "host", "record"])
    names = sets_of(data.evaluation)
    judged = judged_sets(names, judge, tasks.sets if tasks else ())
    numbers = {name: number for number, name in enumerate(names)}
    set_of = np.array([numbers[name] for name in table["set"].to_pylist()])
    sizes = table["bytes"].to_numpy().astype(np.int64)
    _, hosts = np.unique(table["host"].to_numpy().astype(str), return_inverse=True)  # those of all sets together
    clusters = hosts.astype(np.int64)
    known = set(table["set"].filter(_has_host(table)).to_pylist())
    hostless = tuple(name for name in names if name not in known)
    if tasks is not None:
        set_of = np.concatenate([set_of, len(names) + tasks.set_of])
        clusters = np.concatenate([clusters, clusters.max() + 1 + np.arange(len(tasks.set_of))])
        names, sizes = (*names, *tasks.sets), np.concatenate([sizes, tasks.sizes])
    return EvaluationSet(names, set_of, sizes, judged, clusters, hostless)


def _has_host(table: pa.Table) -> pa.ChunkedArray:
    """Whether the host of a document is known: else it is the file that its record begins with, or "-" without one."""
    files = pc.list_element(pc.split_pattern(table["record"], "\n", max_splits=1), 0)
    return pc.and_(pc.not_equal(table["host"], files), pc.not_equal(table["host"], "-"))


def decision_id(
    protocol: Protocol, evaluation: EvaluationSet, runs: ProxyRuns, arms: Sequence[str], tokens: int, bank: int
) -> str:
    """16 hexadecimal characters, of all that decides a verdict: the protocol and its version, the sets that count, the
    tasks, the stages of the runs of each arm, and the pairs of the bank."""
    keys = {arm: runs.key(RunRequest(arm, protocol.first_pair, protocol.learning_rates[0], tokens)) for arm in arms}
    return digest(
        {
            "arms": "\n".join(f"{arm} {key}" for arm, key in keys.items()),
            "protocol": protocol.model_dump_json(),
            "version": str(VERSION),
            "judged": "\n".join(evaluation.judged),
            "tasks": runs.tasks_digest,
            "bank": str(bank),
        }
    )[:16]
