"""What a run of each arm costs, and how much text it reads, where the arms of a comparison differ in that."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gristmill.flows.experiments.decisions.arm_data import ComparisonData
from gristmill.flows.experiments.decisions.arm_settings import ArmSettings
from gristmill.flows.experiments.decisions.device import run_flops
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.stages.model import local_mixture
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.engine.make import StageResult

MAX_TOKENS = 1 << 22  # of a source or a group, by which the bytes of its tokens are estimated
_ALIKE = 0.005  # costs that differ by less are not named


@dataclass(frozen=True)
class ArmCost:
    """`parameters`: of the model, gains of norms left out; `flops`: floating-point operations of a run; `text_bytes`:
    UTF-8 bytes of the text that a run reads, about; None where that follows from the tokens in the same way for all
    arms."""

    parameters: int
    flops: float
    text_bytes: float | None = None

    def __str__(self) -> str:
        text = "" if self.text_bytes is None else f", about {self.text_bytes:,.0f} bytes of text"
        return f"{self.parameters:,} parameters, {self.flops:.2e} floating-point operations a run{text}"


def arm_cost(settings: ArmSettings, tokens: int, text_bytes: float | None = None) -> ArmCost:
    """Of a run of so many tokens."""
    proxy = settings.proxy
    return ArmCost(proxy.model.parameters(proxy.vocab_size), run_flops(proxy, tokens), text_bytes)


def cost_sentence(costs: Mapping[str, ArmCost]) -> str:
    """As "arms differ in cost: A has 1.31 times the parameters and 1.20 times the floating-point operations of base";
    empty where they cost the same. `costs`: the base's first."""
    (base, own), *others = costs.items()
    parts = [f"{name} has {' and '.join(ratios)}" for name, cost in others if (ratios := [*_ratios(own, cost)])]
    return f"arms differ in cost: {', '.join(parts)} of {base}" if parts else ""


def _ratios(base: ArmCost, other: ArmCost) -> Iterator[str]:
    for field, what in (("parameters", "parameters"), ("flops", "floating-point operations")):
        ratio = getattr(other, field) / getattr(base, field)
        if abs(ratio - 1) > _ALIKE:
            yield f"{ratio:.2f} times the {what}"


def text_bytes(settings: MachineSettings, data: ComparisonData) -> dict[str, float]:
    """Bytes of text that a run of each arm reads, about; empty where the arms have one tokenizer and pack documents in
    the same way."""
    arms = data.arms.values()
    packings = {arm.recipe.mixture.packing if arm.recipe.mixture else "concatenate" for arm in arms}
    if len({arm.tokenizer.key for arm in arms}) == 1 and len(packings) == 1:
        return {}
    return {name: _read(settings, arm.mixture, data.budget_tokens) for name, arm in data.arms.items()}


def _read(settings: MachineSettings, plan: StageResult, tokens: int) -> float:
    manifest = load_training_manifest(local_mixture(settings, plan.folder))
    sizes = np.array(manifest.token_bytes, np.int64)
    total = 0.0
    for source in manifest.sources:
        counted = size = 0
        for shard in source.shards:
            ids = np.memmap(shard.path, manifest.dtype, mode="r", offset=shard.offset)[: MAX_TOKENS - counted]
            counted, size = counted + len(ids), size + int(sizes[ids].sum())
            if counted >= MAX_TOKENS:
                break
        padding = plan.result["sources"][source.name].get("padding", 0.0)
        total += source.share * tokens * (1 - padding) * size / counted
    return total
