"""How large a model should be: published laws, that of one's own runs, models that are to serve, and data that repeats.

`docs/guides/plan-a-training.md` has the source of each constant. N counts parameters, D tokens; C = 6 N D, but for
one's own law, whose runs have a cost of a token of their own.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill.flows.stats.law import ScalingLaw, TokenCost, optimum
from gristmill.samples.batch_plan import BatchPlan
from gristmill.training.config import TrainingConfig

# The largest batch over the noise scale. Of McCandlish et al. 2018 (arXiv 1812.06162, equation 2.11): with batches of
# B sequences a loss takes 1 + B / B_noise times the fewest tokens. A quarter costs up to a quarter more of them in the
# part of the run that has the larger batch.
SHARE = 0.25


@dataclass(frozen=True)
class Ramp:
    """`stages`: (tokens, times) as `batch_ramp` has them; `steps`: updates that read the tokens of the run with them,
    `fixed_steps` those of the run; `first`, `last`: the noise scale in sequences after the warm-up and at the end."""

    stages: tuple[tuple[int, int], ...]
    steps: int
    fixed_steps: int
    first: float
    last: float

    @property
    def setting(self) -> str:
        """As a recipe has it."""
        return "[" + ", ".join(f"{{tokens: {tokens}, times: {times}}}" for tokens, times in self.stages) + "]"


def ramp(metrics: Iterable[Mapping[str, Any]], training: TrainingConfig, seq_len: int) -> Ramp | None:
    """By the lines of a run's metrics.jsonl (`train/tokens` so far, `train/noise_scale`), in the order of their steps.

    Batches double once twice as many sequences are at most SHARE of the noise scale, and stay so: a stage begins where
    the scale falls no more below that for the rest of the run. What the warm-up has measured does not count, as the
    loss falls fastest there. None for a run that measured no noise scale. The stages are by tokens, so that the
    samples of a step follow from its number, for any number of ranks and after a resume.
    """
    points = [
        (int(line["train/tokens"]), line["train/noise_scale"])
        for line in metrics
        if line["step"] > training.warmup_steps and "train/noise_scale" in line
    ]
    if not points:
        return None
    lowest, rest = math.inf, []  # of each point and all after it
    for tokens, scale in reversed(points):
        lowest = min(lowest, scale)
        rest.append((tokens, lowest))
    stages: list[tuple[int, int]] = []
    for tokens, scale in reversed(rest):
        times = 2 ** math.floor(math.log2(max(1.0, SHARE * scale / training.batch)))
        if times > (stages[-1][1] if stages else 1):
            stages.append((tokens, times))
    plan, samples = BatchPlan(training.batch, seq_len, stages), training.batches(seq_len).first(training.steps)
    while stages and plan.samples[-1] >= samples:
        stages.pop()
        plan = BatchPlan(training.batch, seq_len, stages)
    steps = plan.numbers[-1] + math.ceil((samples - plan.samples[-1]) / plan.sizes[-1])
    return Ramp(tuple(stages), steps, training.steps, points[0][1], points[-1][1])


SIX = TokenCost(6.0, 1.0)  # Hoffmann et al. 2022, appendix F: C = 6 N D
TOKENS_A_PARAMETER = 20.0  # Hoffmann et al. 2022: Chinchilla is 70 billion parameters on 1.4 trillion tokens
PF_DAY = 1e15 * 86_400

# Hoffmann et al. 2022 (arXiv 2203.15556), approach 3: E, A and B of equation 10. The exponents are those that Sardana
# et al. 2024 (arXiv 2401.00448) print and use: of the compute in the paper's Table A3 they give its parameters within
# 4%. Those of the paper's TeX source, .3392 and .2849, are up to 8% off, the .34 and .28 of its text up to 30%.
HOFFMANN = ScalingLaw(E=1.69, A=406.4, alpha=0.336, B=410.7, beta=0.283)
# Besiroglu et al. 2024 (arXiv 2404.10102), Table 1: the same law, fitted again to the points of Hoffmann's Figure 4.
BESIROGLU = ScalingLaw(E=1.8172, A=482.01, alpha=0.3478, B=2085.43, beta=0.3658)
# Muennighoff et al. 2023 (arXiv 2305.16264), appendix A: exp(.6254804), exp(6.255414), exp(7.3049974), one exponent.
MUENNIGHOFF = ScalingLaw(
    E=math.exp(0.6254804), A=math.exp(6.255414), alpha=0.3526596, B=math.exp(7.3049974), beta=0.3526596
)
REPEATED_TOKENS, EXCESS_PARAMETERS = 15.387756, 5.309743  # the same: R_D* and R_N*


@dataclass(frozen=True)
class Power:
    """Parameters that grow with compute as `scale` C^`power`."""

    scale: float
    power: float

    def parameters(self, compute: float) -> float:
        return self.scale * compute**self.power


# Least squares of the logarithms in Hoffmann's Table 3 (approach 1) and Table A3 (2, 3): within 1% of all rows but that
# of 67 billion, which lie up to 4% from them.
APPROACHES = (Power(0.09916, 0.49810), Power(0.14488, 0.48994), Power(0.53462, 0.45866))
# Kaplan et al. 2020 (arXiv 2001.08361), Table 6 (appendix A): N_opt = N_e C_min^.73, of PF-days; without embeddings.
KAPLAN = Power(1.3e9 / PF_DAY**0.73, 0.73)


@dataclass(frozen=True)
class Split:
    """The best parameters and tokens of a compute budget by one law; `loss`: by its own, None where it gives none."""

    law: str
    parameters: float
    tokens: float
    loss: float | None = None


def splits(compute: float, own: tuple[ScalingLaw, TokenCost] | None = None) -> Iterator[Split]:
    """The best splits of so many operations by all published laws, and by one's `own` law with its cost of a token."""
    simple = math.sqrt(compute / 6 / TOKENS_A_PARAMETER)
    yield Split("20 tokens per parameter", simple, TOKENS_A_PARAMETER * simple)
    for number, power in enumerate(APPROACHES, 1):
        n = power.parameters(compute)
        yield Split(f"Hoffmann, approach {number}", n, compute / 6 / n)
    split = optimum(BESIROGLU, SIX, compute)
    yield Split("Besiroglu", split.parameters, split.tokens, split.loss)
    n = KAPLAN.parameters(compute)
    yield Split("Kaplan", n, compute / 6 / n)
    if own is not None:
        law, cost = own
        split = optimum(law, cost, compute)
        yield Split("own runs", split.parameters, split.tokens, split.loss)


def inference_aware(parameters: float, served: float, law: ScalingLaw = HOFFMANN) -> Split:
    """Sardana et al. 2024: the model as good as the compute-optimal one of so many parameters, with the fewest
    operations of training and of serving so many tokens: 6 N D + 2 N served.

    Along models of one loss D follows from N, so one number is searched: the operations have one minimum in log N,
    between the parameters that no amount of data makes as good and those that were given.
    """
    exponent = (law.alpha + law.beta) / law.beta
    share = law.alpha * law.A / (law.beta * law.B)
    tokens = (parameters / share ** (1 / (law.alpha + law.beta))) ** exponent / parameters
    loss = float(law.loss(parameters, tokens))

    def needed(n: np.ndarray) -> np.ndarray:
        """Tokens that bring a model of n parameters to the loss."""
        return ((loss - law.E - law.A * n**-law.alpha) / law.B) ** (-1 / law.beta)

    least = (law.A / (loss - law.E)) ** (1 / law.alpha)
    low, high = math.log(least) + 1e-9, math.log(parameters)
    for _ in range(4):  # each time among 1,000 points, the neighbors of the best being the next ends
        sizes = np.linspace(low, high, 1000)
        n = np.exp(sizes)
        best = int(np.argmin(n * (6 * needed(n) + 2 * served)))
        low, high = sizes[max(0, best - 1)], sizes[min(len(sizes) - 1, best + 1)]
    n_best = float(np.exp((low + high) / 2))
    return Split("inference-aware", n_best, float(needed(np.array([n_best]))[0]), loss)


def worth(tokens: float, unique: float) -> float:
    """How many new tokens `tokens` are worth of which `unique` are different: Muennighoff et al. 2023, equation 5."""
    if tokens <= unique:
        return tokens
    return unique * (1 + REPEATED_TOKENS * -math.expm1((1 - tokens / unique) / REPEATED_TOKENS))


def repeated_loss(parameters: float, tokens: float, unique: float) -> float:
    """The loss of Muennighoff's law, in nats a token of their text: only differences of it carry over."""
    used = min(unique, tokens)
    matching = min(parameters, _matching(used))  # U_N: the parameters that are compute-optimal for the unique tokens
    excess = parameters / matching - 1
    effective = matching * (1 + EXCESS_PARAMETERS * -math.expm1(-excess / EXCESS_PARAMETERS))
    return float(MUENNIGHOFF.loss(effective, worth(tokens, unique)))


def repeated_split(compute: float, unique: float) -> Split:
    """The best parameters and tokens of a budget where only so many tokens are different, by Muennighoff's law; 1,000
    sizes from a hundredth of Chinchilla's to it are compared, .5% apart."""
    free = optimum(MUENNIGHOFF, SIX, compute)
    if free.tokens <= unique:
        return Split("Muennighoff", free.parameters, free.tokens, free.loss)
    sizes = np.geomspace(free.parameters / 100, free.parameters * 2, 1000)
    losses = [repeated_loss(n, compute / 6 / n, unique) for n in sizes]
    best = int(np.argmin(losses))
    return Split("Muennighoff", float(sizes[best]), float(compute / 6 / sizes[best]), losses[best])


def _matching(tokens: float) -> float:
    """The parameters for which so many tokens are compute-optimal by Muennighoff's law: .051 of them."""
    law = MUENNIGHOFF
    return (law.alpha * law.A / (law.beta * law.B)) ** (1 / law.alpha) * tokens
