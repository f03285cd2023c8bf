"""The questions of studies, and the settings that are compared to answer them."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import orjson

from gristmill.flows.experiments.options import StudyOptions
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.recipe.recipe import Recipe

RATE = 0.01  # runs only use its ratio to the base's
MIN_STEPS = 16  # of a run with the largest batch
FACTORS = (1, 2, 4, 8, 16, 32)
LARGE = 8  # times the proxy's batch, at which rules for the learning rate are compared
QUANTILES = 10


@dataclass(frozen=True)
class Choice:
    """An arm: `settings` as for `--set`; `x`: where it is on the axis of numbers, if the question has one."""

    label: str
    settings: tuple[str, ...]
    x: float | None = None


@dataclass(frozen=True)
class Question:
    """`asks`: the question; `choices`: makes the arms, the base first; `axis`: the name of their numbers."""

    asks: str
    choices: Callable[[Recipe, ProxyConfig, StudyOptions], list[Choice]]
    axis: str = ""


def _batches(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    """Learning rates follow the square root of the batch (Malladi et al. 2022, arXiv 2205.10287)."""
    batch, tokens = proxy.training.batch, options.tokens or proxy.tokens
    factors = [factor for factor in FACTORS if tokens // (factor * batch * proxy.model.seq_len) >= MIN_STEPS]
    return [_with_batch(f"batch {batch * factor}", batch * factor, sqrt(factor), True) for factor in factors]


def _rate_rules(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    batch = proxy.training.batch
    large = batch * LARGE
    # runs only use keys that differ from the base, so every arm must have a different batch
    return [
        _with_batch(f"batch {batch}", batch, 1),
        _with_batch(f"batch {large}, unchanged rate", large, 1),
        _with_batch(f"batch {large}, square root rule", large, sqrt(LARGE)),
        _with_batch(f"batch {large}, linear rule", large, LARGE),
    ]


def _with_batch(label: str, batch: int, factor: float, on_axis: bool = False) -> Choice:
    settings = (f"training.batch={batch}", f"training.learning_rate={RATE * factor:.6g}")
    return Choice(label, settings, batch if on_axis else None)


def _precisions(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    names = ("fp32", "bf16", "fp16")
    unscaled = ("training.precision=fp16", "training.loss_scaling=false")
    return [*(Choice(name, (f"training.precision={name}",)) for name in names), Choice("fp16, unscaled", unscaled)]


def _clips(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    norm = 1.0 if proxy.training.clip_norm is None else proxy.training.clip_norm
    values = {f"norm {norm:g}": f"{norm:g}", f"norm {norm / 10:g}": f"{norm / 10:g}", "no clipping": "null"}
    return [Choice(label, (f"training.clip_norm={value}",)) for label, value in values.items()]


def _orders(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    groups = orjson.dumps([{"column": "source"}, {"column": options.column, "quantiles": QUANTILES}]).decode()
    shared = [f"mixture.by={groups}"]
    if recipe.mixture is None:
        shared.append("mixture.strategy=proportional")

    def ordered(order: str) -> Choice:
        phases = orjson.dumps([{"share": 1, "order": order}]).decode()
        return Choice(f"{order} {options.column}", (*shared, f"mixture.phases={phases}"))

    return [Choice("shuffled", tuple(shared)), ordered("ascending"), ordered("descending")]


def _vocabularies(recipe: Recipe, proxy: ProxyConfig, options: StudyOptions) -> list[Choice]:
    sizes = [proxy.vocab_size, *(int(proxy.vocab_size * factor) for factor in (0.5, 2, 4))]
    return [Choice(f"{size:,} tokens", (f"tokenizer.vocab_size={size}",), size) for size in sizes]


# `resume` has no arms: see `study.resumed`
QUESTIONS: dict[str, Question] = {
    "batch": Question("From which batch on do larger ones cost tokens?", _batches, "batch, sequences"),
    "rate-rule": Question("How should the learning rate follow the batch?", _rate_rules),
    "precision": Question("Which precision loses something, and where does fp16 fail?", _precisions),
    "clip": Question("What does clipping the gradient do?", _clips),
    "order": Question("Does it help to read documents in an order?", _orders),
    "vocabulary": Question("Which vocabulary size is best?", _vocabularies, "tokens of the vocabulary"),
}
RESUME = "resume"
