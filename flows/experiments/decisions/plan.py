"""The plan of a decision, before any training: recipes, shared stages, runs, tokens, time and power."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from gristmill.flows.experiments.decisions.arm_data import ComparisonData
from gristmill.flows.experiments.decisions.arm_mixture import MAX_LISTED
from gristmill.flows.experiments.decisions.arm_settings import (
    ArmSettings,
    arm_settings,
    check_tokens,
    not_compared,
    proxy_values,
)
from gristmill.flows.experiments.decisions.device import ArmCost, Device, arm_cost, cost_sentence, run_flops, time_of
from gristmill.flows.experiments.decisions.noise import ProxyNoise, read_noise
from gristmill.flows.experiments.options import Candidates, DecisionOptions
from gristmill.flows.recipe import variants
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.proxy import ProxyConfig, load_proxy
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.variants import Variant
from gristmill.flows.run.progress import duration
from gristmill.flows.stages.evaluation.judge import TASK, judged_sets, set_names
from gristmill.flows.stats.crossed import SEED_SHARE, Components
from gristmill.flows.stats.protocol import WANTED_POWER, Bank, Protocol, judged_units, tested_documents
from gristmill.flows.stats.runs import EvaluationSet
from gristmill.flows.stats.sequential import Noise, expected_pairs, smallest_effect
from gristmill.flows.stats.verdict import Conditions


@dataclass(frozen=True)
class Arms:
    """`base`: its name; `recipes`: by name, the base first; `steps`: the step that a leave-one-out candidate omits, by
    the candidate's name; `fixed`: steps that cannot be left out, each with the reason."""

    base: str
    recipes: dict[str, Recipe]
    steps: dict[str, str]
    fixed: dict[str, str]

    @property
    def candidates(self) -> tuple[str, ...]:
        return tuple(name for name in self.recipes if name != self.base)


def arms(
    recipe: Any,
    chosen: Candidates,
    leave_one_out: bool = False,
) -> Arms:
    """The base and its candidates: other recipes (in any form that `gristmill.flows.recipe.recipe.load` accepts), the
    base with one changed setting each (`minhash.threshold=0.9`), without one step each, without each step in turn, and
    as raw extraction.

    Raises ValueError without candidates, or if one equals the base, and the errors of `load` and `variant`.
    """
    base = load(recipe)
    candidates = [Variant(other.name, other) for other in map(load, chosen.against)]
    candidates += [variants.variant(base, setting) for setting in chosen.settings]
    candidates += [variants.without(base, step) for step in chosen.without]
    steps: dict[str, str] = {}
    fixed: dict[str, str] = {}
    if leave_one_out:
        for step in (*base.before, *base.after):
            try:
                candidate = variants.without(base, step.step)
            except RecipeError as error:
                fixed[step.step] = f"{error}"
                continue
            candidates.append(candidate)
            steps[candidate.label] = step.step
    if chosen.raw:
        candidates.append(variants.raw(base))
    if not candidates:
        raise ValueError(
            f"nothing to compare {base.name} with: add a recipe with --against, a setting with --set or a "
            "step with --without, or use --leave-one-out or --raw"
        )
    recipes = {base.name: base}
    for candidate in candidates:
        if candidate.recipe == base:
            raise ValueError(f"{candidate.label} is the same recipe as {base.name}, so there is nothing to compare")
        if recipes.setdefault(candidate.label, candidate.recipe) != candidate.recipe:
            raise ValueError(f"two of the recipes have the name {candidate.label}: change the `name` of one")
    return Arms(base.name, recipes, steps, fixed)


@dataclass(frozen=True)
class Cost:
    """The minimum and maximum number of runs, and of their training tokens, without evaluation.

    bank_runs: runs of the A/A bank among them, half of which are also runs of the base. expected: the mean number of
    runs if no candidate has an effect, and if each has the smallest detectable one.
    """

    bank_runs: int
    runs: tuple[int, int]
    tokens: tuple[int, int]
    expected: tuple[float, float]


def cost(protocol: Protocol, candidates: int, tokens: int, bank_pairs: int) -> Cost:
    """The cost of a decision. `tokens`: of each run; `bank_pairs`: number of A/A pairs."""
    rates, tested = len(protocol.learning_rates), protocol.tested(candidates)
    screened = candidates if tested < candidates else 0

    def needed(pairs: int) -> int:
        return rates * screened + tested * pairs + max(pairs, bank_pairs) + bank_pairs

    def expected(detected: bool) -> float:
        limits = protocol.limits(candidates)
        pairs, of_base = expected_pairs(protocol.looks, limits, protocol.futility, detected, rates, tested)
        verdicts = WANTED_POWER if detected else protocol.alpha  # worth is measured after a verdict
        base_runs = max(of_base, bank_pairs) + bank_pairs
        return rates * screened + tested * pairs + base_runs + verdicts * protocol.worth_pairs

    fewest, most, halves = needed(protocol.looks[0]), needed(protocol.looks[-1]), protocol.worth_pairs
    return Cost(
        bank_runs=2 * bank_pairs,
        runs=(fewest, most + halves),
        tokens=(fewest * tokens, most * tokens + halves * (tokens // 2)),
        expected=(expected(False), expected(True)),
    )


def detectable_effect(
    protocol: Protocol, evaluation: EvaluationSet, candidates: int, variance: Bank | Components, bank_pairs: int = 0
) -> float:
    """The effect, in bits per byte, that a decision detects with probability WANTED_POWER.

    variance: how much runs differ, from components that were recorded before, or from the decision's own A/A bank,
    whose size then replaces `bank_pairs`. A bank of one recipe does not show whether candidates have different effects
    on different documents, so the effect is then a lower bound. With `Protocol.resample` it always is, since the
    variance of halves is known only from the decision's own pairs; it is assumed to be 0 here."""
    judged = tested_documents(protocol, evaluation, candidates)[1]
    rates = len(protocol.learning_rates)
    if isinstance(variance, Bank):
        noise = Noise(variance.variance(judged_units(judged)), variance.degrees, rates=rates)
    else:
        of_pair = variance.pair_variance(judged)
        of_documents = max(judged.effective_units - 1, 1.0)
        noise = Noise(of_pair, max(bank_pairs - 1, 0), variance.document_variance(judged), of_documents, rates)
    if protocol.resample:
        # the variance that is attributed to halves of the hosts even if they add none
        of_halves = noise.pair_variance * (1 - SEED_SHARE * (noise.degrees > 0))
        noise = replace(noise, degrees=0, shared_variance=noise.shared_variance + of_halves)
    return smallest_effect(protocol.looks, protocol.limits(candidates), noise, WANTED_POWER)


@dataclass(frozen=True)
class Plan:
    """`tokens`: of a run; `device`: the device of the runs, if its rate is known; `bank`: number of A/A pairs; `noise`:
    the recorded noise of the proxy; `evaluation`: the evaluation documents, or placeholders in the expected number
    (`expected_evaluation`) before there is `data`; `fixed_tokens`: whether the user set the budget; `settings`: how the
    runs of each arm are trained, the runs of the base as in `proxy`; `left`: by candidate, the keys that runs ignore,
    each with the reason; `text_bytes`: read by a run of each arm, if it depends on the arm; `limit`: what limits the
    tokens, if it is not the proxy."""

    arms: Arms
    protocol: Protocol
    proxy: ProxyConfig
    bank: int
    tokens: int
    device: Device | None
    noise: ProxyNoise | None
    evaluation: EvaluationSet
    data: ComparisonData | None = None
    fixed_tokens: bool = False
    settings: Mapping[str, ArmSettings] = field(default_factory=dict)
    left: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    text_bytes: Mapping[str, float] = field(default_factory=dict)
    limit: str = ""

    @property
    def cost(self) -> Cost:
        return cost(self.protocol, len(self.arms.candidates), self.tokens, self.bank)

    @property
    def pairs(self) -> range:
        """The numbers of all pairs that may be trained: of screening, then of the test and the bank."""
        return self.protocol.pairs(-1, max(self.protocol.looks[-1], self.bank))

    def announcement(self) -> str:
        """The smallest effect and the cost."""
        (fewest, most), (low, high) = self.cost.runs, self.cost.tokens
        trains = f"It trains {fewest} to {most} runs: {low:,} to {high:,} tokens."
        if self.noise is None or self.on_tasks:
            when = "after its A/A bank" if self.bank else "with its own pairs"
            return (
                f"The detectable effect is known {when}: no noise was recorded for the proxy "
                f"{self.proxy.name}{' with these settings' * self._changed}{' on tasks' * self.on_tasks}. {trains}"
            )
        components, looks = self.noise.components, self.protocol.looks
        effect = detectable_effect(self.protocol, self.evaluation, len(self.arms.candidates), components, self.bank)
        of_bank = f", {self.bank} A/A pairs" if self.bank else ""
        provided = "if runs and recipes differ as in the recorded runs"
        if self.noise.mixtures == 1:  # runs on one data set do not show how differently recipes act on documents
            provided = "if candidates have the same effect on all documents and runs differ as in the recorded runs"
        return (
            f"This decision detects an effect of {effect:.4f} bits per byte with probability {WANTED_POWER:g} "
            f"({looks[0]} to {looks[-1]} pairs, {len(self.protocol.learning_rates)} learning rates{of_bank}, "
            f"{judged_by(self.judged)}{'' if self.data else ' at most'}), {provided}{self._of_halves}: "
            f"{self.noise.provenance}, {self.noise.tokens:,} tokens each. {trains}"
        )

    @property
    def _changed(self) -> bool:
        return any(one.changes for one in self.settings.values())

    @property
    def on_tasks(self) -> bool:
        """Whether tasks are among the judged sets. Recorded noise is of documents, which are much longer than
        answers."""
        return any(name.startswith(TASK) for name in self.evaluation.judged)

    @property
    def judged(self) -> EvaluationSet:
        """The documents that judge."""
        return tested_documents(self.protocol, self.evaluation, len(self.arms.candidates))[1]

    @property
    def parameters(self) -> int:
        """Parameters of the proxy, without the gains of norms."""
        return self.proxy.model.parameters(self.proxy.vocab_size)

    @property
    def conditions(self) -> Conditions:
        """The conditions that its verdicts apply to."""
        costs = cost_sentence(self.costs) if self.costs else ""
        return Conditions(judged_by(self.judged), self.parameters, self.tokens, self.protocol.resample, costs)

    @property
    def costs(self) -> dict[str, ArmCost]:
        """The cost of a run of each arm, the base first."""
        return {name: arm_cost(one, self.tokens, self.text_bytes.get(name)) for name, one in self.settings.items()}

    @property
    def _of_halves(self) -> str:
        return " and both halves of the hosts are equally good (unknown before the runs)" * self.protocol.resample

    def by_bank(self, bank: Bank) -> str:
        """A sentence with the smallest detectable effect, from the decision's own A/A bank."""
        effect = detectable_effect(self.protocol, self.evaluation, len(self.arms.candidates), bank)
        return (
            f"With its own {len(bank.pairs)} A/A pairs, it detects an effect of {effect:.4f} bits per byte, "
            f"if candidates have the same effect on all documents{self._of_halves}."
        )

    def lines(self) -> Iterator[str]:
        names = ", ".join(self.arms.candidates)
        yield f"decision: {self.arms.base} against {names}"
        yield from (f"{step} cannot be removed: {reason}" for step, reason in self.arms.fixed.items())
        rates = ", ".join(f"{rate:g}" for rate in self.protocol.learning_rates)
        looks = _looks(self.protocol.looks)
        yield (
            f"proxy: {self.proxy.name}, {self.parameters:,} parameters; each run {self.tokens:,} "
            f"tokens{'' if self.data else ' at most'}{self.limit}; learning rates {rates}; interim analyses after "
            f"{looks} pairs"
        )
        count = len(self.arms.candidates)
        if (tested := self.protocol.tested(count)) < count:
            yield f"screening: one run each of {count} candidates, then the best {tested} are tested"
        yield from self._of_settings()
        if self.data:
            yield from self._of_data(self.data)
        fewest, most = self.cost.runs
        of_bank = f", {self.cost.bank_runs} of them for the A/A bank, to measure their variance" if self.bank else ""
        without, detected = self.cost.expected
        yield (
            f"runs: {fewest} to {most}{of_bank}, on average {without:.0f} without an effect and {detected:.0f} with "
            f"the smallest detectable one; {self._time()}; runs that are already in the home are reused"
        )
        if not self.fixed_tokens:
            yield (
                "the tokens of a run follow from the recipe with the least text, so a different set of candidates may "
                "need different runs; --tokens N fixes them, so that decisions share the runs of a recipe"
            )
        yield self.announcement()

    def _of_settings(self) -> Iterator[str]:
        """Settings and costs of the arms' runs, if they differ, and the keys that are not compared."""
        if len({*self.costs.values()}) > 1 or any(one.changes for one in self.settings.values()):
            for name, one in self.settings.items():
                rate = (f"learning rates x {one.rate:g}",) if one.rate != 1 else ()
                trained = ", ".join([*one.changes, *rate])
                yield f"  {name}: {trained}{'; ' * bool(trained)}{self.costs[name]}"
            if values := proxy_values(self.arms.recipes[self.arms.base], self.settings):
                yield f"the same in all recipes, so runs have the values of the proxy: {', '.join(values)}"
        for name, reasons in self.left.items():
            for key, reason in reasons.items():
                if key != "name":
                    yield f"not compared: {key} of {name}: {reason}"

    def _time(self) -> str:
        if self.device is None:
            return "their time on this machine is unknown until `--plan` has measured it"
        proxies = [one.proxy for one in self.settings.values()] or [self.proxy]
        costliest = max(proxies, key=lambda proxy: run_flops(proxy, self.tokens))
        evaluated = evaluated_tokens(self.evaluation)
        time = time_of(self.device, costliest, self.tokens, self.cost.runs, evaluated)
        without_effect, detected = (round(runs) for runs in self.cost.expected)
        mean = time_of(self.device, costliest, self.tokens, (without_effect, detected), evaluated).hours[0]
        least = "at least " if self.device.bound else ""
        money = "" if not self.device.price else f", for {least}{time.money[0]:,.2f} to {time.money[1]:,.2f}"
        low, high = (duration(3600 * hours) for hours in time.hours)
        return (
            f"{self.device.at_once} at once, {least}{duration(time.run)} each, of which "
            f"{duration(time.besides)} are start, evaluation and end "
            f"({run_flops(costliest, self.tokens):.2e} floating-point operations; {self.device.description}), so "
            f"{least}{low} to {high}{money} ({least}{duration(3600 * mean)} on average without an effect), without the "
            "corpora of the candidates"
        )

    def _of_data(self, data: ComparisonData) -> Iterator[str]:
        if self.protocol.resample:
            yield (
                "each pair reads its own half of the hosts of every source, so about half of the tokens "
                "below, with twice the epochs"
            )
        base = {stage.key for stage in data.arms[self.arms.base].corpus.stages}
        for name, arm in data.arms.items():
            tokens = sum(arm.source_tokens.values())
            epochs = ", ".join(f"{source} {count:.2f}" for source, count in arm.epochs.items())
            if len(arm.epochs) > MAX_LISTED:
                low, high = min(arm.epochs.values()), max(arm.epochs.values())
                epochs = f"{low:.2f} to {high:.2f} of {len(arm.epochs)} groups"
            shared = "" if name == self.arms.base else self._shared(base, {s.key for s in arm.corpus.stages})
            yield f"  {name}: {tokens:,} tokens, of which a run reads these epochs: {epochs}{shared}"

    def _shared(self, base: set[str], own: set[str]) -> str:
        return f"; {len(own & base)} of {len(own)} stages are shared with {self.arms.base}"


def planned(
    compared: Arms,
    options: DecisionOptions,
    device: Callable[[ProxyConfig], Device | None],
    tasks: Mapping[str, int],
    vocabulary: int | None = None,
) -> Plan:
    """The plan before any data is made. `device`: returns the device of a proxy, see
    `gristmill.flows.experiments.decisions.device`; `tasks`: number of examples by set, as in `task_sets`; `vocabulary`:
    the size of a custom tokenizer, for which there is no recorded noise.

    Raises the errors of `load_proxy`, `arm_settings`, `check_tokens`, `read_noise`, `protocol_of` and
    `expected_evaluation`.
    """
    loaded, noise = load_proxy(options.proxy), None
    if vocabulary is not None:
        loaded = loaded.model_copy(update={"vocab_size": vocabulary})
    settings = arm_settings(compared.recipes, loaded, vocabulary is not None)
    small = settings[compared.base].proxy
    check_tokens(settings, options.tokens or small.tokens)
    if vocabulary is None and all(one == ArmSettings(loaded) for one in settings.values()):
        noise = read_noise(options.proxy, loaded)
    return Plan(
        arms=compared,
        protocol=protocol_of(small, options),
        proxy=small,
        bank=options.bank_pairs,
        tokens=options.tokens or small.tokens,
        device=device(small),
        noise=noise,
        evaluation=expected_evaluation([*compared.recipes.values()], small, options.clean, options.judge, tasks),
        fixed_tokens=options.tokens is not None,
        settings=settings,
        left=not_compared(compared.recipes, vocabulary is not None),
    )


# Expected size of evaluation documents: the first 8,000 characters of English web pages.
DOCUMENT_BYTES, TOKEN_BYTES = 3_000, 3.0


def evaluated_tokens(evaluation: EvaluationSet) -> int:
    """Approximate tokens of the evaluation documents of a run. Placeholders (`expected_evaluation`) have a size of one
    byte."""
    known = int(evaluation.size.sum())
    return round((known if known > len(evaluation.size) else DOCUMENT_BYTES * known) / TOKEN_BYTES)


def expected_evaluation(
    recipes: Sequence[Recipe],
    proxy: ProxyConfig,
    clean: str | None,
    judge: Sequence[str],
    tasks: Mapping[str, int],
) -> EvaluationSet:
    """Placeholders for the evaluation documents: for each set the number that the proxy requires, and the examples of
    tasks, all of the same length. Raises the errors of `judged_sets`."""
    names = set_names(recipes, clean)
    counts = [proxy.evaluation_documents] * len(names) + list(tasks.values())
    set_of = np.repeat(np.arange(len(counts)), counts)
    judged = judged_sets(names, judge, tuple(tasks))
    return EvaluationSet((*names, *tasks), set_of, np.ones(len(set_of), np.int64), judged)


def protocol_of(proxy: ProxyConfig, options: DecisionOptions) -> Protocol:
    """The protocol, which is declared before any run. Leave-one-out tests every step; otherwise many candidates are
    screened.

    Raises ValueError for looks that do not increase from 2, and for an A/A bank of one pair.
    """
    if options.bank_pairs == 1:
        raise ValueError("--bank-pairs 1: one A/A pair has no variance; give 0, for no bank, or 2 or more")
    looks = tuple(options.pairs) or proxy.looks
    settings: dict[str, Any] = {"learning_rates": proxy.learning_rates, "looks": looks}
    settings |= {"first_pair": options.first_pair, "resample": options.resample}
    if options.futility is not None:
        settings["futility"] = options.futility
    settings["worth_pairs"] = min(Protocol.model_fields["worth_pairs"].default, looks[0])
    try:
        return Protocol(**settings | ({"survivors": None} if options.leave_one_out else {}))
    except ValidationError as error:
        raise ValueError("; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())) from None


def judged_by(evaluation: EvaluationSet) -> str:
    """Text such as "100 documents of 61 hosts of `clean`", or "300 right answers of `task:quiz`". Files replace unknown
    hosts. Both are omitted if each document counts separately: if all have the same host, or all have different
    ones."""
    members = np.concatenate([evaluation.members(name) for name in evaluation.judged])
    hosts = len(np.unique(evaluation.cluster_of[members]))
    is_shown = evaluation.unit_name != "documents" and hosts < len(members)
    of_hosts = f" of {hosts} {evaluation.unit_name[: None if hosts > 1 else -1]}" * is_shown
    what = "right answers" if all(name.startswith(TASK) for name in evaluation.judged) else "documents"
    return f"{len(members)} {what}{of_hosts} of {_listed([f'`{name}`' for name in evaluation.judged], 'and')}"


def _looks(looks: Sequence[int]) -> str:
    """Format as `4, 8 or 16`, and many evenly spaced looks as `4, 6, ... 20`."""
    first, second, *others = [*looks, 0]
    step = second - first
    if len(others) > 3 and list(looks) == [*range(first, looks[-1] + 1, step)]:
        return f"{first}, {second}, ... {looks[-1]}"
    return _listed(looks, "or")


def _listed(parts: Iterable[Any], word: str) -> str:
    *first, last = map(str, parts)
    return f"{', '.join(first)} {word} {last}" if first else last
