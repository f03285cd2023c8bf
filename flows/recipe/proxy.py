"""The proxy: the small model that decisions about data are made with, and how it is trained."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from gristmill.flows.recipe import settings_file
from gristmill.flows.recipe.errors import ContradictionError
from gristmill.tasks.documents.step import Settings
from gristmill.training.config import ModelConfig, TrainingConfig

PROXIES = Path(__file__).with_name("proxies")
DEFAULT = "small"
_WHAT = "proxy"  # in sentences
_KEYS = "name, model and learning_rates"

# Fields of TrainingConfig that each run sets for itself, and what sets them.
_SET_BY_RUNS = {
    "seed": "the pair of a run sets it",
    "order_seed": "the pair of a run sets it",
    "learning_rate": "give `learning_rates`",
    "steps": "give `tokens`",
    "init_from": "a proxy begins with drawn weights",
    "eval_tasks": "name the folder where the runs are compared",
}


class ProxyConfig(Settings):
    """Model, training and evaluation of proxy runs. Unknown keys are an error."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", description="of the proxy, as reports show it")
    vocab_size: int = Field(2048, ge=300, le=1 << 16, description="of the tokenizer that all arms share")
    sample_bytes: int = Field(6_000_000, gt=0, description="of text that the tokenizer is trained on, at most")
    model: ModelConfig
    training: TrainingConfig = TrainingConfig()
    tokens: int = Field(200_000, gt=0, description="target tokens that a run learns from")
    learning_rates: tuple[float, ...] = Field(
        min_length=2, description="a small one and the tuned one: a verdict must hold at each of them"
    )
    looks: tuple[int, ...] = Field(
        (3, 6, 12), min_length=1, description="pairs of runs at each look, of which each may end the decision"
    )
    evaluation_documents: int = Field(100, ge=5, description="evaluation documents of each source")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if found := [*self._of_runs(), *self._of_lists()]:
            raise ContradictionError(found)
        return self

    def _of_runs(self) -> Iterator[tuple[tuple[str, ...], str]]:
        unset = TrainingConfig()
        for name, remedy in _SET_BY_RUNS.items():
            if (given := getattr(self.training, name)) != getattr(unset, name):
                yield ("training", name), f"is {given!r}, which a proxy has not; remove it: {remedy}"
        if self.steps(self.tokens) <= self.training.warmup_steps:
            yield (
                ("tokens",),
                f"is {self.tokens:,}, which are {self.steps(self.tokens)} steps of {self.training.batch} x "
                f"{self.model.seq_len} tokens, no more than the {self.training.warmup_steps} of training.warmup_steps; "
                "give more tokens, or lower training.batch or training.warmup_steps",
            )

    def _of_lists(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if any(rate <= 0 for rate in self.learning_rates):
            yield ("learning_rates",), f"is {list(self.learning_rates)}; give rates above 0"
        if list(self.learning_rates) != sorted(set(self.learning_rates)):
            yield ("learning_rates",), f"is {list(self.learning_rates)}; give each rate once, the smallest first"
        if list(self.looks) != sorted(set(self.looks)) or self.looks[0] < 2:
            yield ("looks",), f"is {list(self.looks)}; give numbers of pairs that rise from 2 or more, as [3, 6, 12]"

    @property
    def step_tokens(self) -> int:
        """Target tokens of one step."""
        return self.training.batch * self.model.seq_len

    def steps(self, tokens: int) -> int:
        """The steps of a run of so many tokens: those that it fills."""
        return tokens // self.step_tokens

    def run_training(self, tokens: int, learning_rate: float, seed: int, order_seed: int) -> TrainingConfig:
        """The training of one run. The warm-up is shorter in a run of fewer tokens than the proxy's, in proportion.

        Raises ValueError for tokens that do not fill two steps.
        """
        steps = self.steps(tokens)
        if steps < 2:
            raise ValueError(
                f"a run of {tokens:,} tokens has {steps} steps of {self.training.batch} x {self.model.seq_len} tokens, "
                "and needs two: give it more tokens, or the proxy a smaller training.batch"
            )
        share = min(1.0, steps / self.steps(self.tokens))
        return TrainingConfig.model_validate(
            self.training.model_dump()
            | {
                "steps": steps,
                "warmup_steps": min(round(self.training.warmup_steps * share), steps - 1),
                "learning_rate": learning_rate,
                "seed": seed,
                "order_seed": order_seed,
            }
        )


def load_proxy(proxy: Any = DEFAULT) -> ProxyConfig:
    """A proxy from a YAML file, the name of a shipped one (`small`), a mapping, or a ProxyConfig.

    Raises FileNotFoundError, which lists the shipped proxies, or RecipeError with a line for all that is wrong.
    """
    if isinstance(proxy, ProxyConfig):
        return proxy
    return settings_file.validated(ProxyConfig, *settings_file.read(proxy, PROXIES, _WHAT), _WHAT, _KEYS)


def proxy_file(proxy: Any) -> Path | None:
    """The file of a proxy that is given by a name or a path, as for `load_proxy`; None for one that is in no file."""
    return settings_file.named_file(proxy, PROXIES, _WHAT) if isinstance(proxy, str | Path) else None
