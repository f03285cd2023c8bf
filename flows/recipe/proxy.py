"""The proxy: the small model for decisions about data, and its training."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from gristmill.flows.recipe import settings_file
from gristmill.flows.recipe.errors import ContradictionError
from gristmill.tasks.documents.step import Settings
from gristmill.training.config import TrainingConfig
from gristmill.training.layout.limits import lacking
from gristmill.training.model_config import ModelConfig

PROXIES = Path(__file__).with_name("proxies")
DEFAULT = "small"
TOKENS = 200_000  # of a run, where neither tokens nor steps are given
_WHAT = "proxy"  # in sentences
_KEYS = "name, model and learning_rates"

# Fields of TrainingConfig that each run sets, and what determines them.
_SET_BY_RUNS = {
    "seed": "each pair of runs sets it",
    "order_seed": "each pair of runs sets it",
    "learning_rate": "set `learning_rates`",
    "init_from": "a proxy starts from random weights",
    "batch_ramp": "runs with other token budgets would have another ramp",
    "objective": "texts are compared by the causal loss",
    "profile_steps": "profile a normal training, whose steps are known",
    "eval_tasks": "set the tasks where the runs are compared",
}


class ProxyConfig(Settings):
    """Model, training and evaluation of proxy runs. Unknown keys are an error."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", description="Name of the proxy in reports.")
    vocab_size: int = Field(
        2048, ge=300, le=1 << 16, description="Vocabulary size of the tokenizer that all arms share."
    )
    sample_bytes: int = Field(6_000_000, gt=0, description="Maximum text to train the tokenizer on (bytes).")
    model: ModelConfig
    training: TrainingConfig = Field(
        description="Training settings, with `steps` or `tokens`, and `warmup_steps` or `warmup_ratio`."
    )
    tokens: int = Field(gt=0, description="Target tokens of a run; default: those of training.steps.")
    warmup_ratio: float | None = Field(
        None, ge=0, lt=1, description="Fraction of a run's steps in which the learning rate rises."
    )
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Processes of one run, on one machine, each with one GPU if there are GPUs. Several "
        "processes round differently than one.",
    )
    learning_rates: tuple[float, ...] = Field(
        min_length=2, description="Two learning rates, a small one and the tuned one. A verdict must hold at both."
    )
    looks: tuple[int, ...] = Field(
        tuple(range(4, 21, 2)),
        min_length=1,
        description="Pairs of runs at each interim analysis, any of which can end the decision.",
    )
    evaluation_documents: int = Field(100, ge=5, description="Evaluation documents per source.")

    @model_validator(mode="before")
    @classmethod
    def _of_one_length(cls, values: Any) -> Any:
        """Compute steps from tokens or tokens from steps, and the warm-up from its ratio, so that the training is
        validated with its real number of steps. Values of another type are left to the validation of the fields.
        """
        if not isinstance(values, Mapping):
            return values
        if "nodes" in values:
            sentence = (
                f"is {values['nodes']!r}, but each proxy run uses one machine; remove it, set `processes` for several "
                "GPUs of a machine, and GRISTMILL_EXECUTOR to train several runs on several machines"
            )
            raise ContradictionError([(("nodes",), sentence)])
        training = values.get("training") or {}
        if isinstance(training, TrainingConfig):
            training = training.model_dump(exclude_unset=True)
        unset = TrainingConfig.model_fields
        try:
            seq_len = ModelConfig.model_validate(values["model"]).seq_len
            batch = int(training.get("batch", unset["batch"].default))
            tokens, steps = values.get("tokens"), training.get("steps")
            if tokens is None:
                tokens = TOKENS if steps is None else int(steps) * batch * seq_len
            if steps is None:
                steps = max(1, int(tokens) // (batch * seq_len))
            filled = int(tokens) // (batch * seq_len)
            differ = training.get("steps") is not None and int(steps) != filled
            warmup = training.get("warmup_steps", unset["warmup_steps"].default)
            if (ratio := values.get("warmup_ratio")) is not None:
                warmup = training.get("warmup_steps", _warmup(float(ratio), int(steps)))
            short = int(warmup) >= int(steps)
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
            return values
        if differ:
            raise ContradictionError([_of_two_lengths(int(tokens), filled, int(steps), batch, seq_len)])
        if short:
            sentence = (
                f"is {tokens:,}, which is {steps:,} steps of {batch} x {seq_len} tokens, not more than the {warmup} "
                "of training.warmup_steps; use more tokens, or lower training.batch or training.warmup_steps"
            )
            raise ContradictionError([(("tokens",), sentence)])
        return {**values, "training": {**training, "steps": steps, "warmup_steps": warmup}, "tokens": tokens}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if problems := [*self._of_runs(), *self._of_lists()]:
            raise ContradictionError(problems)
        return self

    def _of_runs(self) -> Iterator[tuple[tuple[str, ...], str]]:
        unset = TrainingConfig()
        for name, remedy in _SET_BY_RUNS.items():
            if (value := getattr(self.training, name)) != getattr(unset, name):
                yield ("training", name), f"is {value!r}, which a proxy does not support; remove it: {remedy}"
        yield from lacking(self.model, self.training)
        if (steps := self.steps(self.tokens)) != self.training.steps:
            yield _of_two_lengths(self.tokens, steps, self.training.steps, self.training.batch, self.model.seq_len)
        if self.warmup_ratio is not None and self.training.warmup_steps != _warmup(self.warmup_ratio, steps):
            yield (
                ("training", "warmup_steps"),
                f"is {self.training.warmup_steps}, and warmup_ratio is {self.warmup_ratio:g}; give one of the two",
            )

    def _of_lists(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if any(rate <= 0 for rate in self.learning_rates):
            yield ("learning_rates",), f"is {list(self.learning_rates)}; give rates above 0"
        if list(self.learning_rates) != sorted(set(self.learning_rates)):
            yield ("learning_rates",), f"is {list(self.learning_rates)}; give each rate once, the smallest first"
        rates = len(self.learning_rates)
        if list(self.looks) != sorted({look // rates * rates for look in self.looks}) or self.looks[0] < 2 * rates:
            yield (
                ("looks",),
                (
                    f"is {list(self.looks)}; give ascending multiples of {rates}, the number of learning rates, from "
                    f"{2 * rates} on, such as {[2 * rates * count for count in (1, 2, 3)]}"
                ),
            )
        # as a tokenizer needs them
        if self.sample_bytes < 2 * self.vocab_size:
            yield (
                ("sample_bytes",),
                f"is {self.sample_bytes:,}, too little text for a vocabulary of vocab_size {self.vocab_size:,}; give "
                f"at least {2 * self.vocab_size:,}, better a thousand times the vocabulary",
            )

    @property
    def step_tokens(self) -> int:
        """Target tokens of one step."""
        return self.training.batch * self.model.seq_len

    def steps(self, tokens: int) -> int:
        """The number of steps that so many tokens fill."""
        return tokens // self.step_tokens

    def run_training(self, tokens: int, learning_rate: float, seed: int, order_seed: int) -> TrainingConfig:
        """The training configuration of one run. The warm-up is `warmup_ratio` of its steps. Without it,
        training.warmup_steps, reduced in proportion in a run with fewer tokens than the proxy.

        Raises ValueError if the tokens do not fill two steps.
        """
        steps = self.steps(tokens)
        if steps < 2:
            raise ValueError(
                f"a run of {tokens:,} tokens has {steps} steps of {self.training.batch} x {self.model.seq_len} "
                "tokens, but needs at least two: use more tokens, or a smaller training.batch in the proxy"
            )
        if self.warmup_ratio is None:
            warmup = min(self.training.warmup_steps, round(self.training.warmup_steps / self.training.steps * steps))
        else:
            warmup = _warmup(self.warmup_ratio, steps)
        return TrainingConfig.model_validate(
            self.training.model_dump()
            | {
                "steps": steps,
                "warmup_steps": min(warmup, steps - 1),
                "learning_rate": learning_rate,
                "seed": seed,
                "order_seed": order_seed,
            }
        )


def _of_two_lengths(tokens: int, filled: int, steps: int, batch: int, seq_len: int) -> tuple[tuple[str, ...], str]:
    """The problem if `tokens` fill another number of steps than `training.steps`."""
    sentence = f"is {steps:,}, but tokens {tokens:,} fill {filled:,} steps of {batch} x {seq_len} tokens"
    return ("training", "steps"), f"{sentence}; give one of the two"


def _warmup(ratio: float, steps: int) -> int:
    return min(round(ratio * steps), max(steps - 1, 0))


def load_proxy(proxy: Any = DEFAULT) -> ProxyConfig:
    """Load a proxy from a YAML file, the name of a shipped one (`small`), a mapping, or a ProxyConfig.

    Raises FileNotFoundError, which lists the shipped proxies, or RecipeError with a line per problem.
    """
    if isinstance(proxy, ProxyConfig):
        return proxy
    return settings_file.validated(ProxyConfig, *settings_file.read(proxy, PROXIES, _WHAT), _WHAT, _KEYS)


def proxy_file(proxy: Any) -> Path | None:
    """The file of a proxy with a name or path, as for `load_proxy`; None for one that is not in a file."""
    return settings_file.named_file(proxy, PROXIES, _WHAT) if isinstance(proxy, str | Path) else None
