"""The models and runs of a scaling grid: shapes by size, learning rates by compute."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import wrapt

from gristmill.flows.experiments.options import number
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.training.model_config import ModelConfig

if TYPE_CHECKING:
    from gristmill.training import decoder
else:
    decoder = wrapt.lazy_import("gristmill.training.decoder")

# The best learning rate falls with the compute to this power: DeepSeek LLM, arXiv 2401.02954, equation 1. Their batch
# grows with compute; here it is the proxy's, which asks for a rate that falls faster, if anything.
RATE_POWER = -0.125


@dataclass(frozen=True)
class ScaledModel:
    """A shape of the proxy's model at another size. `parameters`: all of them, embeddings included, tied ones once;
    `non_embedding`: those outside of embedding and output projection; `flops_per_token`: of training on one token, see
    `gristmill.training.decoder.flops_per_token`."""

    model: ModelConfig
    parameters: int
    non_embedding: int
    flops_per_token: int


@dataclass(frozen=True)
class Cell:
    """A model and a token budget; all runs in it differ in their seeds alone."""

    size: ScaledModel
    tokens: int
    learning_rate: float

    @property
    def flops(self) -> float:
        return float(self.size.flops_per_token) * self.tokens


def scaled_model(proxy: ProxyConfig, parameters: int) -> ScaledModel:
    """The shape whose count is nearest to `parameters`, on a logarithmic scale.

    Heads stay as wide as the proxy's; their number, and with it the width, grows by one at a time. Layers are in
    proportion to the width, rounded, as are kv_heads and ffn where the proxy gives them. Raises ValueError where the
    smallest such model has more than twice as many parameters, as its embeddings alone do.
    """
    heads, best = 1, _shape(proxy, 1)
    while best.parameters < parameters:
        heads += 1
        wider = _shape(proxy, heads)
        if wider.parameters >= parameters:
            # the nearer one by ratio
            return wider if wider.parameters * best.parameters < parameters**2 else best
        best = wider
    if best.parameters > 2 * parameters:
        raise ValueError(
            f"a model of {parameters:,} parameters is too small: with a vocabulary of {proxy.vocab_size:,} "
            f"and heads as wide as in the proxy {proxy.name}, the smallest model has {best.parameters:,}; "
            "use larger sizes, or a smaller vocab_size in the proxy"
        )
    return best


def cell(proxy: ProxyConfig, size: ScaledModel, tokens: int) -> Cell:
    """A cell, its tokens lowered to whole steps.

    The learning rate is the largest of the proxy's, which is the tuned one, times (compute / the proxy's)^-0.125.
    """
    step = proxy.step_tokens
    tokens = tokens // step * step
    if not tokens:
        raise ValueError(f"a step takes {step:,} tokens, and a run cannot be shorter than a step; use more tokens")
    tuned = scaled_from(proxy)
    ratio = size.flops_per_token * tokens / (tuned.flops_per_token * proxy.tokens)
    return Cell(size, tokens, float(f"{proxy.learning_rates[-1] * ratio**RATE_POWER:.3g}"))


def grid(
    proxy: ProxyConfig, sizes: Sequence[int], tokens: Sequence[int], most_flops: float | None = None
) -> list[Cell]:
    """A cell for each size and budget with at most `most_flops` operations; sizes of one shape give one."""
    models = dict.fromkeys(scaled_model(proxy, size) for size in sorted(sizes))
    cells = [cell(proxy, size, budget) for size in models for budget in sorted(tokens)]
    return [one for one in dict.fromkeys(cells) if most_flops is None or one.flops <= most_flops]


def forecast_cell(proxy: ProxyConfig, text: str) -> Cell:
    """The run that `2.5M:10M` asks for, parameters and tokens. Raises ValueError for what is no such pair."""
    size, colon, budget = text.partition(":")
    if not colon:
        raise ValueError(f"{text!r} is not a run to forecast; write parameters:tokens, such as 2.5M:10M")
    return cell(proxy, scaled_model(proxy, number(size)), number(budget))


def plan(
    proxy: ProxyConfig,
    cells: Sequence[Cell],
    targets: Sequence[Cell],
    seeds: int,
    sweeps: Sequence[Sequence[Cell]] = (),
) -> list[str]:
    """What will be trained, a line each. `sweeps`: cells at other learning rates. Raises ValueError for a grid without
    a cell."""
    if not cells:
        raise ValueError("the grid has no runs: use smaller sizes or fewer tokens, or raise --most-flops")
    lines = [f"proxy {proxy.name}: {len(cells)} cells, {len(cells) * seeds} runs"]
    by_size: dict[int, list[Cell]] = {}
    for one in cells:
        by_size.setdefault(one.size.parameters, []).append(one)
    for parameters, some in by_size.items():
        model = some[0].size.model
        budgets = ", ".join(f"{one.tokens:,} (rate {one.learning_rate:g})" for one in some)
        lines.append(f"  {parameters:,} parameters, {model.layers} layers of width {model.dim}: tokens {budgets}")
    largest = max(one.flops for one in cells)
    lines += [
        f"  forecast: {one.size.parameters:,} parameters on {one.tokens:,} tokens, {one.flops / largest:.1f} times the "
        "grid's largest compute"
        for one in targets
    ]
    lines += [
        f"  learning rates {', '.join(f'{one.learning_rate:.3g}' for one in some)} at {some[0].size.parameters:,} "
        f"parameters and {some[0].tokens:,} tokens"
        for some in sweeps
    ]
    # the rule's own rate is a run of the grid
    tried = {one for some in sweeps for one in some} - {*cells}
    total = seeds * sum(one.flops for one in cells) + sum(one.flops for one in [*targets, *tried])
    return [*lines, f"  {total:.2e} floating-point operations in total"]


def scaled_proxy(proxy: ProxyConfig, size: ScaledModel) -> ProxyConfig:
    """The proxy with another model."""
    return proxy.model_copy(update={"model": size.model})


def scaled_from(proxy: ProxyConfig) -> ScaledModel:
    """The proxy's own model."""
    return _counted(proxy.model, proxy.vocab_size)


def _shape(proxy: ProxyConfig, heads: int) -> ScaledModel:
    base = proxy.model
    ratio = heads / base.heads
    groups = base.heads // base.kv_head_count
    update = {
        "dim": base.head_dim * heads,
        "heads": heads,
        "layers": max(1, int(base.layers * ratio + 0.5)),
        # the largest number of kv heads that divides the heads and shares each among as many, or fewer
        "kv_heads": base.kv_heads and next(k for k in range(max(1, heads // groups), heads + 1) if heads % k == 0),
        "ffn": base.ffn and max(32, round(base.ffn * ratio / 32) * 32),
    }
    return _counted(ModelConfig.model_validate(base.model_dump() | update), proxy.vocab_size)


def _counted(model: ModelConfig, vocab_size: int) -> ScaledModel:
    whole = decoder.parameter_count(model, vocab_size)
    embeddings = vocab_size * model.dim * (1 if model.tie_embeddings else 2)
    return ScaledModel(model, whole, whole - embeddings, decoder.flops_per_token(model, vocab_size))
