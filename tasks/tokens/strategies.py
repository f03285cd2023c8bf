"""Weights of the groups by a mixture's strategy, and the shares of each stretch of training."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

from gristmill.tasks.tokens.mixture import Mixture, Phase, Upsampling

MAX_POWER = 8.0
_HALVINGS = 60  # of an interval of powers: to less than the rounding of a float


def copies(settings: Upsampling, tokens: Sequence[int], target: float) -> list[float]:
    """How often each range is read, so that `target` tokens are. `tokens`: of the ranges, the lowest first; there are
    some. The best range is read `max_copies` times at most, unless a power is given. Raises ValueError for more tokens
    than `most` gives."""
    whole = sum(tokens)
    if target > most(settings, whole) * (1 + 1e-9):
        raise ValueError(
            f"{target:,.0f} tokens are more than {whole:,} tokens can give if the lowest "
            f"{settings.discard:.0%} are discarded and at most {settings.max_copies:g} copies are read"
        )
    power = settings.power
    if power is None:
        low, high = 0.0, MAX_POWER
        if _copies(high, settings.discard, tokens, target)[-1] > settings.max_copies:
            for _ in range(_HALVINGS):
                power = (low + high) / 2
                steep = _copies(power, settings.discard, tokens, target)[-1] > settings.max_copies
                low, high = (low, power) if steep else (power, high)
            high = low
        power = high
    return _copies(power, settings.discard, tokens, target)


def most(settings: Upsampling, tokens: float) -> float:
    """How many tokens a group can give: its tokens that are not discarded, `max_copies` times."""
    return settings.max_copies * (1 - settings.discard) * tokens


def _copies(power: float, discard: float, tokens: Sequence[int], target: float) -> list[float]:
    """The mean of the curve over each range. The integral up to x is the share of the tokens from below x."""
    whole, n_copies, place = sum(tokens), [], 0
    before = 0.0
    for count in tokens:
        place += count
        x = place / whole
        share = ((x - discard) / (1 - discard)) ** (power + 1) if x > discard else 0.0
        n_copies.append(target * (share - before) / count if count else 0.0)
        before = share
    return n_copies


TOLERANCE = 1e-3  # of shares that are to be met
_REPEATED = re.compile(r"x(\d+)")


_MAX_LOG = 600.0  # of about 709, so that sums of many groups are floats


def total(values: Iterable[float]) -> float:
    """The sum from left to right, as `sum` gives it up to Python 3.11: later ones compensate rounding, and shares would
    differ in their last digit."""
    return reduce(add, values, 0)


class Stretch(NamedTuple):
    """A part of training of one mixture. `tokens`: its length; `shares`: of it, by group; they sum to one."""

    tokens: float
    shares: dict[str, float]


def capped(weights: Mapping[str, float], available: Mapping[str, float], budget: float) -> dict[str, float]:
    """Tokens of `budget` that each group gives: in proportion to its weight, and no more than it has available.

    This is UniMax (Chung et al. 2023, arXiv 2304.09151, algorithm 1) for weights: the rest of the budget is shared
    again among the groups that are not at their cap. With equal weights it is that algorithm. `available` is enough.
    """
    shares: dict[str, float] = {}
    open_names = sorted(weights)
    while open_names:
        rest = budget - total(shares.values())
        weight = total(weights[name] for name in open_names)
        full = [name for name in open_names if available[name] < rest * weights[name] / weight]
        for name in full or open_names:
            shares[name] = available[name] if full else rest * weights[name] / weight
        open_names = [name for name in open_names if name not in shares]
    return shares


def group_weights(settings: Mixture, tokens: Mapping[str, int], phase: Phase | None = None) -> dict[str, float]:
    """The weight of each group that is trained on; `tokens`: of all groups; a group with 0 tokens has no document.

    Raises ValueError for a weight whose group does not exist.
    """
    weights = (phase.weights if phase else {}) or settings.weights
    counts = {name: repetitions(settings, name) * count for name, count in tokens.items() if count}
    if (phase and phase.weights) or settings.strategy == "weights":
        return _split_amounts(weights, counts, "mixture.weights")
    unit = {name: _unit(settings, name) for name in counts if _key(name, settings.without) is None}
    _check(settings.without, counts, "mixture.without")
    sums: dict[str, float] = {}
    for name in unit:
        sums[unit[name]] = sums.get(unit[name], 0) + counts[name]
    power = {"proportional": 1.0, "temperature": 1 / settings.temperature, "unimax": 0.0}[settings.strategy]
    largest = max(sums.values(), default=1.0)
    # a power of a number of tokens may be larger than any float: then of its share in the largest
    scale = largest if power * math.log(largest) > _MAX_LOG else 1.0
    return {name: (sums[unit[name]] / scale) ** power * (counts[name] / sums[unit[name]]) for name in unit}


def sample_mixture(settings: Mixture) -> Mixture:
    """The mixture without what depends on training's budget or on scores: what a tokenizer's sample follows.

    Quantiles are left out, and so are caps and repetitions: with only quantiles, all sources are taken as they are. A
    group with a fixed budget of tokens and no weight has a weight of 1.
    """
    columns = tuple(column for column in settings.by if column.quantiles is None)
    if not columns:
        return Mixture(strategy="proportional")

    def summed(weights: Mapping[str, float]) -> dict[str, float]:
        sums: dict[str, float] = {}
        for name, weight in weights.items():
            key = "/".join(name.split("/")[: len(columns)])
            sums[key] = sums.get(key, 0) + weight
        return dict(sorted(sums.items()))

    weights = summed(settings.weights)
    if settings.strategy == "weights":
        weights = {name: 1.0 for name in summed(settings.tokens)} | weights
    phases = tuple(Phase(share=phase.share, weights=summed(phase.weights)) for phase in settings.phases)
    return Mixture(
        by=columns,
        weights=weights,
        strategy=settings.strategy,
        temperature=settings.temperature,
        without=tuple(name for name in settings.without if name.count("/") < len(columns)),
        phases=phases if any(phase.weights for phase in phases) else (),
    )


def sample_shares(mixture: Mixture, sizes: Mapping[str, int]) -> dict[str, float]:
    """The share of each group in a sample that follows the mixture; `sizes`: the bytes of each. They sum to one.

    Raises ValueError for a weight whose group does not exist.
    """
    shares: dict[str, float] = {}
    for phase in mixture.phases or (None,):
        weights = group_weights(mixture, sizes, phase)
        whole = total(weights.values()) / (phase.share if phase else 1)
        for name, weight in weights.items():
            shares[name] = shares.get(name, 0.0) + weight / whole
    return shares


def stretches(settings: Mixture, tokens: Mapping[str, int], budget: int) -> list[Stretch]:
    """The stretches of a training of `budget` tokens. Raises ValueError for a budget that the groups do not fill.

    The phases take what they need one after the other: a group that is at its cap in one gives nothing to the next.
    """
    if settings.upsample:
        return [_upsampled(settings, settings.upsample, tokens, budget)]
    available = {name: count * settings.max_epochs for name, count in tokens.items()}
    plan: list[Stretch] = []
    for phase in settings.phases or (None,):
        length = budget if phase is None else budget * phase.share
        weights = group_weights(settings, tokens, phase)
        fixed = _fixed(settings, tokens, budget)
        weights = {name: weight for name, weight in weights.items() if name not in fixed}
        have = total(available[name] for name in weights) + total(fixed.values())
        if not weights and abs(have - length) > TOLERANCE * length:
            raise ValueError(
                f"mixture.tokens are {have:,.0f} in total, but training takes {length:,.0f}, and there is no "
                "other group: they must sum to it"
            )
        if weights and have < length:
            raise ValueError(_unfilled(settings, tokens, sorted({*weights, *fixed}), length, have))
        rest = capped(weights, available, length - total(fixed.values()))
        tokens_of = rest | (
            fixed if rest else {name: count_taken * length / have for name, count_taken in fixed.items()}
        )
        if phase and phase.order:
            plan += _ordered(tokens_of, phase.order, length)
        elif fixed or any(count_taken >= available[name] for name, count_taken in tokens_of.items()):
            plan.append(_stretch(tokens_of, length))
        else:
            # only from the weights: a longer training begins with the samples of a shorter one, which the last digit of
            # a share can change
            whole = total(weights[name] for name in sorted(weights))
            plan.append(Stretch(length, {name: weights[name] / whole for name in sorted(weights)}))
        for name, count_taken in tokens_of.items():
            available[name] = max(0.0, available[name] - count_taken)
    return plan


def _upsampled(settings: Mixture, curve: Upsampling, tokens: Mapping[str, int], budget: int) -> Stretch:
    """The tokens of each unit are those of its weight, as far as `max_copies` permits; of its ranges those of the
    curve. Documents without a value are the lowest."""
    weights: dict[str, float] = {}
    for name, weight in group_weights(settings, tokens).items():
        weights[_unit(settings, name)] = weights.get(_unit(settings, name), 0) + weight
    ranges: dict[str, list[str]] = {unit: [] for unit in weights}
    for name in sorted(tokens, key=_range):
        if tokens[name] and (unit := _unit(settings, name)) in weights:
            ranges[unit].append(name)
    sizes = {unit: [tokens[name] for name in names] for unit, names in ranges.items()}
    available = {unit: most(curve, total(counts)) for unit, counts in sizes.items()}
    if (have := total(available.values())) < budget:
        raise ValueError(
            f"training takes {budget:,.0f} tokens (training.steps * training.batch * model.seq_len), but "
            f"mixture.upsample gives at most {have:,.0f} of {total(map(total, sizes.values())):,}: lower "
            "training.steps or mixture.upsample.discard, raise mixture.upsample.max_copies or add data"
        )
    upsampled = {}
    for unit, target in capped(weights, available, budget).items():
        for name, often in zip(ranges[unit], copies(curve, sizes[unit], target), strict=True):
            if often > 0:
                upsampled[name] = often * tokens[name]
    return _stretch(upsampled, budget)


def _range(name: str) -> str:
    """The key by which the ranges of a unit are sorted: ranges without a value are the lowest."""
    label = name.rsplit("/", 1)[-1]
    return "" if label == "none" else label


def repetitions(settings: Mixture, name: str) -> int:
    """How often a group counts by the size of its clusters."""
    if not settings.rehydrate:
        return 1
    labels = [match for label in name.split("/") if (match := _REPEATED.fullmatch(label))]
    return int(labels[-1][1]) if labels else 1


def _stretch(amounts: Mapping[str, float], length: float) -> Stretch:
    return Stretch(length, {name: amounts[name] / length for name in sorted(amounts)})


def _ordered(amounts: Mapping[str, float], order: str, length: float) -> list[Stretch]:
    """A stretch for each range of the last column, ascending or descending; those without a value are the lowest."""
    last = {name: name.rsplit("/", 1)[-1] for name in amounts}
    labels = sorted(set(last.values()), key=_range, reverse=order[0] == "d")
    parts = [{name: amounts[name] for name in amounts if last[name] == label} for label in labels]
    return [_stretch(part, total(part.values())) for part in parts if total(part.values()) > 0]


def _fixed(settings: Mixture, tokens: Mapping[str, int], budget: int) -> dict[str, float]:
    """Tokens of the groups that have a fixed budget."""
    counts = {name: repetitions(settings, name) * count for name, count in tokens.items() if count}
    amounts = _split_amounts(settings.tokens, counts, "mixture.tokens")
    if total(amounts.values()) > budget:
        raise ValueError(
            f"mixture.tokens are {total(amounts.values()):,.0f} in total, but training takes {budget:,}: "
            "lower them, or raise training.steps"
        )
    for name, amount in amounts.items():
        if amount > tokens[name] * settings.max_epochs:
            raise ValueError(
                f"mixture.tokens gives {name} {amount:,.0f} tokens, but it has {tokens[name]:,}, which is at "
                f"most {tokens[name] * settings.max_epochs:,.0f} with mixture.max_epochs "
                f"{settings.max_epochs:g}: lower it, raise mixture.max_epochs or add data"
            )
    return amounts


def _split_amounts(amounts: Mapping[str, float], counts: Mapping[str, int], key: str) -> dict[str, float]:
    """The value of each group: the value of its longest name, in proportion to tokens among the groups of this name."""
    _check(amounts, counts, key)
    owner = {name: owner_key for name in counts if (owner_key := _key(name, amounts)) is not None}
    sums: dict[str, int] = {}
    for name, owner_key in owner.items():
        sums[owner_key] = sums.get(owner_key, 0) + counts[name]
    return {name: amounts[owner_key] * (counts[name] / sums[owner_key]) for name, owner_key in owner.items()}


def _key(name: str, keys: Mapping[str, float] | tuple[str, ...]) -> str | None:
    labels = name.split("/")
    names = ("/".join(labels[:length]) for length in range(len(labels), 0, -1))
    return next((each for each in names if each in keys), None)


def _check(keys: Mapping[str, float] | tuple[str, ...], names: Mapping[str, int], key: str) -> None:
    owned = {"/".join(name.split("/")[:length]) for name in names for length in range(1, name.count("/") + 2)}
    if missing := sorted(set(keys) - owned):
        raise ValueError(
            f"the mixture names {', '.join(missing)}, but these have no documents left to train on: remove "
            f"it from {key}, which may have {', '.join(sorted(names))}"
        )


def _unit(settings: Mixture, name: str) -> str:
    """What a strategy weighs: a group without its ranges of cluster sizes and its quantile."""
    quantile = settings.by[-1].quantiles is not None
    return "/".join(name.split("/")[: len(settings.by) - quantile])


def _unfilled(settings: Mixture, tokens: Mapping[str, int], names: list[str], length: float, have: float) -> str:
    given_by = ", ".join(f"{name} {tokens[name]:,}" for name in names)
    return (
        f"training takes {length:,.0f} tokens (training.steps * training.batch * "
        f"model.seq_len{', and the share of the phase' if settings.phases else ''}), but the sources have "
        f"{given_by}, which is at most {have:,.0f} with mixture.max_epochs {settings.max_epochs:g}: lower "
        "training.steps or model.seq_len, raise mixture.max_epochs or add data"
    )
