"""What the runs of a comparison take up of a recipe's keys, and why they take up no others.

Documents, mixtures and tokenizers are always each arm's own. Of `training` and `model`, the keys that differ between
the recipes are put into the proxy, for each arm with its own recipe's value; all other settings are the proxy's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import lcm
from typing import Any

from pydantic import BaseModel, ValidationError

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.given_files import tokenizer_path, vocabulary
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.recipe.recipe import Recipe
from gristmill.tasks.models.filter import LearnedFilter
from gristmill.training.model_config import ModelConfig

COMPARED = ""  # instead of a reason
_SPEED = "it changes only speed, memory and rounding"
_RECORDS = "it changes only what is measured or kept, not the weights"
_PAIR = "each pair of runs sets it"
_RAMP = "the stages of a ramp are set for the tokens of the whole training"
_CAUSAL = "recipes are compared by the causal loss, with which it is not used"
_FULL_RUN = "it changes nothing that a model is trained on"
_HELD_OUT = "a comparison holds out its own evaluation documents"

# By field: COMPARED, or why runs do not take up the recipe's value.
TRAINING: dict[str, str] = {
    "seed": _PAIR,
    "order_seed": _PAIR,
    "init_from": "the runs of a comparison start from random weights",
    "steps": "the runs of all recipes read the same number of tokens; use --tokens to change it",
    "batch": COMPARED,
    "batch_ramp": _RAMP,
    "batch_rate": _RAMP,
    "micro_batch": _SPEED,
    "learning_rate": COMPARED,  # as a factor of the proxy's rates
    "embedding_rate": COMPARED,
    "head_rate": COMPARED,
    "vector_rate": COMPARED,
    "parametrization": "it transfers rates to the size of the recipe's model; use `gristmill decide transfer`",
    "warmup_steps": COMPARED,  # as a share of the recipe's steps
    "schedule": COMPARED,
    "decay_ratio": COMPARED,
    "final_ratio": COMPARED,
    "optimizer": COMPARED,
    "momentum": COMPARED,
    "betas": COMPARED,
    "eps": COMPARED,
    "weight_decay": COMPARED,
    "clip_norm": COMPARED,
    "loss_scaling": COMPARED,
    "objective": "recipes are compared by the causal loss",
    "corruption_rate": _CAUSAL,
    "mean_span": _CAUSAL,
    "fim_rate": _CAUSAL,
    "fim_spm_rate": _CAUSAL,
    "document_mask": COMPARED,
    "z_loss": COMPARED,
    "precision": COMPARED,
    "fp8_min_dim": COMPARED,
    "compile": _SPEED,
    "recompute": _SPEED,
    "loss_chunks": _SPEED,
    "accumulate": _SPEED,
    "parallel": _SPEED,
    "reshard_after_forward": _SPEED,
    "reduce_dtype": COMPARED,
    "log_every": _SPEED,
    "guard": COMPARED,
    "monitor_every": _RECORDS,
    "profile_steps": _RECORDS,
    "eval_every": _RECORDS,
    "eval_tasks": _RECORDS,
    "eval_tokens": _RECORDS,
    "checkpoint_every": _RECORDS,
    "keep_checkpoints": _RECORDS,
    "keep_every": _RECORDS,
    "sample_tokens": _RECORDS,
    "sample_temperature": _RECORDS,
    "sample_top_k": _RECORDS,
}
MODEL: dict[str, str] = {
    "block": COMPARED,
    "dim": COMPARED,
    "layers": COMPARED,
    "heads": COMPARED,
    "kv_heads": COMPARED,
    "ffn": COMPARED,
    "seq_len": COMPARED,
    "rope_theta": COMPARED,
    "norm_eps": COMPARED,
    "tie_embeddings": COMPARED,
    "qk_norm": COMPARED,
    "logit_softcap": COMPARED,
}
MIXTURE: dict[str, str] = {
    "weights": COMPARED,
    "max_epochs": COMPARED,
    "heldout_fraction": _HELD_OUT,  # but models of learned filters are not trained on what it names
    "heldout_documents": _HELD_OUT,
    "by": COMPARED,
    "strategy": COMPARED,
    "temperature": COMPARED,
    "tokens": COMPARED,
    "without": COMPARED,
    "rehydrate": COMPARED,
    "upsample": COMPARED,
    "phases": COMPARED,
    "packing": COMPARED,
}
# Of those with COMPARED all below them count, but for the sections that have a table of their own.
RECIPE: dict[str, str] = {
    "name": _FULL_RUN,
    "seed": "it seeds the tokenizer's sample, which is the same for all recipes of a comparison",
    "limit": COMPARED,
    "sources": COMPARED,
    "steps": COMPARED,
    "takedowns": COMPARED,
    "group_losses": _FULL_RUN,
    "evaluation": "a comparison judges by its own documents; use --clean",
    "tokenizer": COMPARED,
    "mixture": COMPARED,
    "model": COMPARED,
    "training": COMPARED,
    "index": _FULL_RUN,
    "word_index": _FULL_RUN,
    "export": _FULL_RUN,
}
_BY_RATIO = ("learning_rate", "embedding_rate", "head_rate", "vector_rate", "warmup_steps")
_SECTIONS = {"training": TRAINING, "model": MODEL, "mixture": MIXTURE}
MIN_STEPS = 4  # of a run: what a difference is worth is measured by runs of half the tokens, of two steps at least


@dataclass(frozen=True)
class ArmSettings:
    """`proxy`: what the runs of an arm train, with the arm's vocabulary; `rate`: a factor of the learning rates;
    `changes`: the recipe's values that are in it, as "training.batch 32"."""

    proxy: ProxyConfig
    rate: float = 1.0
    changes: tuple[str, ...] = ()


def differing(base: Recipe, other: Recipe) -> Iterator[tuple[str, str]]:
    """The keys in which two recipes differ, `steps` or `training.batch`, each with COMPARED or the reason why runs do
    not take it up."""
    for key in Recipe.model_fields:
        was, now = getattr(base, key), getattr(other, key)
        if was == now:
            continue
        if key not in _SECTIONS or was is None or now is None:
            yield key, RECIPE[key]
            continue
        for name in type(was).model_fields:
            if getattr(was, name) != getattr(now, name):
                reason = _SECTIONS[key][name]
                if reason == _HELD_OUT and any(isinstance(step, LearnedFilter) for step in (*base.steps, *other.steps)):
                    reason = COMPARED
                yield f"{key}.{name}", reason


def own_tokenizers(recipes: Mapping[str, Recipe], given: bool) -> bool:
    """Whether each arm has the tokenizer of its recipe. `given`: one is given for all."""
    base, *others = recipes.values()
    return not given and any(other.tokenizer != base.tokenizer for other in others)


def not_compared(recipes: Mapping[str, Recipe], given: bool) -> dict[str, dict[str, str]]:
    """By candidate the keys in which it differs from the base, the first of `recipes`, and that runs do not take up,
    each with the reason. Raises ValueError for a candidate that differs in no others."""
    (name, base), *others = recipes.items()
    left: dict[str, dict[str, str]] = {}
    for label, other in others:
        found = dict(differing(base, other))
        if given and "tokenizer" in found:
            found["tokenizer"] = "--tokenizer gives all recipes the same tokenizer; remove it"
        left[label] = {key: reason for key, reason in found.items() if reason}
        if found and len(left[label]) == len(found):
            raise _same(label, name, left[label])
    return left


def proxy_values(recipe: Recipe, settings: Mapping[str, ArmSettings]) -> list[str]:
    """Keys of `training` that a recipe sets and runs do not take up, since all recipes have the same value, as
    "training.precision fp16 (the proxy has auto)". Empty unless recipes differ in `training` or `model`."""
    taken = {change.partition(" ")[0] for one in settings.values() for change in one.changes}
    own = next(iter(settings.values())).proxy.training if taken else recipe.training
    return [
        f"training.{name} {_shown(value)} (the proxy has {_shown(getattr(own, name))})"
        for name in sorted(recipe.training.model_fields_set)
        if not TRAINING[name]
        and name not in _BY_RATIO
        and f"training.{name}" not in taken
        and (value := getattr(recipe.training, name)) != getattr(own, name)
    ]


def check_data(recipes: Mapping[str, Recipe]) -> None:
    """Raise ValueError for a candidate whose documents and mixture are the base's, where all recipes are trained by the
    same models and tokenizer."""
    (name, base), *others = recipes.items()
    for label, other in others:
        found = dict(differing(base, other))
        for key, reason in found.items():
            if not reason and key.split(".")[0] in (*_TRAINED, "tokenizer"):
                found[key] = "the models and the tokenizer are the same for all recipes; use `gristmill decide ablate`"
        if found and all(found.values()):
            raise _same(label, name, found)


def _same(label: str, base: str, reasons: Mapping[str, str]) -> ValueError:
    keys = "; ".join(f"{key} ({reason})" for key, reason in reasons.items())
    return ValueError(
        f"{label} differs from {base} in nothing that a comparison trains: {keys}. Change another key, or compare full "
        "runs with `gristmill run RECIPE --set KEY=VALUE`"
    )


def arm_settings(recipes: Mapping[str, Recipe], proxy: ProxyConfig, given: bool = False) -> dict[str, ArmSettings]:
    """How the runs of each arm are trained, by its name; `recipes`: the base first; `given`: one tokenizer, of which
    the proxy has the vocabulary, is given for all.

    Where no key of `training`, `model` and `tokenizer` differs, that is the proxy for all. A learning rate is taken as
    its ratio to the base's, and `warmup_steps` as their share of the recipe's steps. Raises ValueError for values that
    the proxy cannot take, and for a candidate that is trained as the base on the same tokens.
    """
    (name, base), *others = recipes.items()
    left = not_compared(recipes, given)
    keys = {key for _, other in others for key, reason in differing(base, other) if not reason}
    settings = {}
    for arm, recipe in recipes.items():
        settings[arm] = _settings(arm, recipe, base, proxy, {key for key in keys if key.split(".")[0] in _TRAINED})
        if own_tokenizers(recipes, given):
            size = _vocabulary(recipe)
            own = settings[arm].proxy.model_copy(update={"vocab_size": size})
            settings[arm] = ArmSettings(own, settings[arm].rate, (*settings[arm].changes, f"vocabulary {size:,}"))
    for arm, recipe in others:
        found = {key for key, reason in differing(base, recipe) if not reason}
        trained, other = settings[arm], settings[name]
        only_training = found and all(key.split(".")[0] in _TRAINED for key in found)
        if only_training and (trained.proxy, trained.rate) == (other.proxy, other.rate):
            same = "the proxy is trained in the same way with both values"
            raise _same(arm, name, left[arm] | dict.fromkeys(sorted(found), same))
    return settings


_TRAINED = ("training", "model")


def _settings(name: str, recipe: Recipe, base: Recipe, proxy: ProxyConfig, keys: set[str]) -> ArmSettings:
    rate = recipe.training.rates.matrices / base.training.rates.matrices if keys else 1.0
    values: dict[str, Any] = {"training": {}, "model": {}}
    for key in sorted(keys):
        section, _, field = key.partition(".")
        values[section][field] = getattr(getattr(recipe, section), field)
    changes = tuple(f"{key} {_shown(getattr(getattr(recipe, key.partition('.')[0]), key.partition('.')[2]))}"
                    for key in sorted(keys))  # fmt: skip
    training, model = values["training"], values["model"]
    training.pop("learning_rate", None)
    warmup = training.pop("warmup_steps", None)
    if guard := training.get("guard"):  # a run that ends had enough rollbacks, whatever it was allowed
        training["guard"] = guard.model_copy(update={"max_rollbacks": proxy.training.guard.max_rollbacks})
    share = proxy.training.warmup_steps / proxy.training.steps if warmup is None else warmup / recipe.training.steps
    if not _changes(proxy.training, training) and not _changes(proxy.model, model) and warmup is None:
        return ArmSettings(proxy, rate, changes)
    _check_alone(name, proxy, training, model)
    own = ModelConfig.model_construct(**vars(proxy.model) | model)
    steps = max(1, proxy.tokens // (training.get("batch", proxy.training.batch) * own.seq_len))
    ratio = proxy.warmup_ratio if warmup is None or proxy.warmup_ratio is None else share
    of_steps = min(round((share if ratio is None else ratio) * steps), max(steps - 1, 0))
    whole = proxy.model_dump() | {"warmup_ratio": ratio, "model": own.model_dump()}
    whole["training"] = proxy.training.model_dump() | _dumped(training) | {"steps": steps, "warmup_steps": of_steps}
    try:
        return ArmSettings(ProxyConfig.model_validate(whole), rate, changes)
    except ValidationError as error:
        problems = "; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())
        raise ValueError(
            f"{name}: the proxy {proxy.name} cannot be trained with {', '.join(changes)}: {problems}. Use another "
            "--proxy, more --tokens, or another value"
        ) from None


def _check_alone(name: str, proxy: ProxyConfig, training: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    """Raise ValueError for values that a run of the proxy would ignore."""
    if training.get("reduce_dtype", proxy.training.reduce_dtype) != proxy.training.reduce_dtype and proxy.processes < 2:
        raise ValueError(
            f"{name}: training.reduce_dtype acts between processes, but a run of the proxy {proxy.name} has one. Use "
            "a --proxy with more `processes`"
        )
    least = training.get("fp8_min_dim")
    if least and not ModelConfig.model_construct(**{**vars(proxy.model), **model}).fp8_matrices(least):
        raise ValueError(
            f"{name}: training.fp8_min_dim is {least}, but no matrix of the proxy {proxy.name} has sides of this size. "
            "Use a larger --proxy, or a lower value"
        )


def _changes(settings: BaseModel, values: Mapping[str, Any]) -> bool:
    return any(getattr(settings, name) != value for name, value in values.items())


def _dumped(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.model_dump() if isinstance(value, BaseModel) else value for name, value in values.items()}


def _shown(value: Any) -> str:
    if isinstance(value, BaseModel):
        changed = value.model_dump(exclude_defaults=True)
        return ", ".join(f"{name} {each}" for name, each in changed.items()) or "of the defaults"
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def _vocabulary(recipe: Recipe) -> int:
    """The size of the vocabulary of the recipe's tokenizer. Raises as `tokenizer_path` and `vocabulary`."""
    path = tokenizer_path(MachineSettings(), recipe)
    return recipe.tokenizer.vocab_size if path is None else vocabulary(path, recipe.tokenizer.end_of_text)


def step_unit(settings: Mapping[str, ArmSettings]) -> int:
    """Tokens of which half a run is a multiple, so that it is whole steps of every arm."""
    return lcm(*(each.proxy.step_tokens for each in settings.values()))


def check_tokens(settings: Mapping[str, ArmSettings], tokens: int) -> None:
    """Raise ValueError where runs of so many tokens are fewer than MIN_STEPS steps of an arm, or not whole steps of
    all."""
    unit = 2 * step_unit(settings)
    name = max(settings, key=lambda arm: settings[arm].proxy.step_tokens)
    least = -(-MIN_STEPS * settings[name].proxy.step_tokens // unit) * unit
    if tokens // unit * unit < least:
        raise ValueError(
            f"{name}: a step takes {settings[name].proxy.step_tokens:,} tokens, so runs that read the same number of "
            f"tokens in whole steps of every recipe need at least {least:,}, but they may take {tokens:,}. Use more "
            "--tokens, or smaller batches"
        )
