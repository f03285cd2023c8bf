"""Rows that train a tiny model: compared by losses, within a tolerance, since matrices round otherwise elsewhere."""

import json
from pathlib import Path
from typing import Any

from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.stages.evaluation.task_losses import task_losses
from gristmill.flows.stages.model import ModelPlaces, local_folder, local_mixture, model_spec
from gristmill.flows.stages.proxy import DoReMi, ProxyResult, ProxyRun, doremi, train_proxies
from gristmill.training.run import launch
from gristmill.training.run.heartbeat import Limits
from tests.golden.rows.row import Row, Settings
from tests.golden.rows.tokens import BY_WEIGHT, MODEL, TRAINING, data_of, plain
from tests.golden.run import Golden

FLOATS = ("model", "proxy", "doremi", "task_losses")
PROXY: Settings = {
    "name": "tiny",
    "model": MODEL,
    "training": {"batch": 4, "warmup_steps": 2},
    "tokens": 768,
    "learning_rates": (0.003, 0.01),
}


def _model(golden: Golden, training: Settings, tasks: bool = False) -> None:
    """A model, and what it makes of tasks."""
    loaded, _, data = data_of(golden, plain(BY_WEIGHT, training={**TRAINING, **training}))
    context = golden.context()
    folder = model_spec(context.settings, loaded, data).folder(golden.home)

    def places() -> ModelPlaces:
        return ModelPlaces(
            mixture=str(local_mixture(context.settings, data.mixture.folder)),
            out=local_folder(context.settings, folder),
            folder=folder,
            processes=1,
            nodes=launch.Nodes(1, 0, ""),
            tracking_uri=f"sqlite:///{golden.home}/mlflow.db",
            run_id="",
            init_from="",
            init_digests={},
            eval_tasks="",
            max_rollbacks=loaded.training.guard.max_rollbacks,
            parallel={},
            restarts=0,
            limits=Limits(),
        )

    made = context.build(model_spec(context.settings, loaded, data, places))
    if tasks:
        for name in (".", "more"):
            task_losses(context, Path(golden.path("tasks")) / name, made, data.tokenizer)


def _proxies(golden: Golden, pair: int, rate: float, more: Settings) -> tuple[ProxyConfig, Any, ProxyResult]:
    _, _, data = data_of(golden, plain(BY_WEIGHT))
    proxy = ProxyConfig.model_validate(PROXY)
    (result,) = train_proxies(golden.context(), [ProxyRun(proxy, data.mixture, pair, rate, proxy.tokens, **more)])
    return proxy, data, result


def _doremi(golden: Golden, eta: float, smoothing: float) -> None:
    proxy, data, reference = _proxies(golden, 1, 0.01, {})
    doremi(golden.context(), [DoReMi(proxy, data.mixture, reference, 1, 0.01, proxy.tokens, eta, smoothing)])


def _own(name: str, covers: tuple[str, ...], make: Any, *given: Any) -> Row:
    return Row(name, covers, lambda golden: make(golden, *given), json.dumps(given), True, FLOATS)


ROWS = (
    _own("model", ("model", "task_losses"), _model, {}, True),
    _own("model-longer", ("model", "task_losses"), _model, {"steps": 9, "seed": 3, "learning_rate": 0.01}, True),
    _own("proxy", ("proxy",), _proxies, 1, 0.01, {}),
    _own("proxy-salted", ("proxy",), _proxies, 2, 0.003, {"salt": 1}),
    _own("doremi", ("doremi",), _doremi, 1.0, 1e-3),
    _own("doremi-smooth", ("doremi",), _doremi, 0.1, 0.2),
)
