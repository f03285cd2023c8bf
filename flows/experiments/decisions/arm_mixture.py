"""What the runs of an arm read of its tokens: its recipe's mixture, and the budget that no arm exceeds.

Weights of sources are computed once, so that runs of any length have the same plan. A mixture with groups, phases,
fixed tokens or packed documents is planned as in the training of a recipe, for the tokens of a run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, NothingLeftError
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.plan import mean_shares
from gristmill.tasks.tokens.strategies import group_weights, most, stretches

_NO_CAP = 1e12  # epochs
_ROOM = 0.999  # of what groups can give at most: sums of shares are rounded


@dataclass(frozen=True)
class EncodedArm:
    """An arm before its budget is known.

    `tokenizer`, `tokens`, `evaluated`: the stages of its tokenizer, its token shards and the evaluation documents;
    `grouped`: its token shards by group, None if the groups are the sources; `source_tokens`, `group_tokens`: the
    tokens of each source and of each group; `settings`: the mixture, with nothing held out, since that would make
    mixtures differ that are trained alike; `weights`: of the groups, as far as no cap is met; `seq_len`: of the rows
    that documents are packed into, None if they are not.
    """

    recipe: Recipe
    corpus: Corpus
    tokenizer: StageResult
    tokens: StageResult
    evaluated: StageResult
    grouped: StageResult | None
    source_tokens: Mapping[str, int]
    group_tokens: Mapping[str, int]
    settings: Mixture
    weights: Mapping[str, float]
    seq_len: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the plan has only the weights of sources."""
        return is_plain(self.settings)

    @property
    def max_epochs(self) -> float:
        """How often a run may read a group."""
        return self.settings.upsample.max_copies if self.settings.upsample else self.settings.max_epochs

    @cached_property
    def one_epoch(self) -> float:
        """The most tokens of a run in which no group is read more than once, nor more than its recipe allows."""
        total = sum(self.weights.values())
        often = min(1, self.max_epochs)
        return min(often * self.group_tokens[name] * total / weight for name, weight in self.weights.items())

    def plan(self, budget: int) -> Mixture:
        """The mixture for a run of so many tokens. What counts tokens of the recipe's training is scaled to it: fixed
        tokens of groups, and the copies of the best range that decide how steep the curve of `upsample` is."""
        settings, upsample = self.settings, self.settings.upsample
        if not settings.tokens and not upsample:
            return settings
        share = budget / training_tokens(self.recipe, settings, self.group_tokens)
        fixed = {name: max(1, round(tokens * share)) for name, tokens in settings.tokens.items()}
        if upsample and upsample.power is None:
            upsample = upsample.model_copy(update={"max_copies": upsample.max_copies * share})
        return settings.model_copy(update={"tokens": fixed, "upsample": upsample})

    def with_sources(self, name: str, tokens: Mapping[str, int]) -> "EncodedArm":
        """The arm with so many tokens of each source. Raises as `read_mixture`."""
        settings, weights = read_mixture(name, self.recipe, tokens, tokens, not self.is_plain)
        return replace(self, source_tokens=tokens, group_tokens=tokens, settings=settings, weights=weights)


def is_plain(mixture: Mixture) -> bool:
    """Whether a mixture is no more than weights of sources."""
    return mixture.by_source and not mixture.phases and not mixture.tokens and mixture.packing == "concatenate"


def read_mixture(
    name: str, recipe: Recipe, source_tokens: Mapping[str, int], group_tokens: Mapping[str, int], whole: bool
) -> tuple[Mixture, dict[str, float]]:
    """The mixture that the runs of an arm read, and the weights of its groups.

    A recipe without a mixture reads its sources in proportion to their tokens. `whole`: whether it may have more than
    weights of sources. Raises ValueError for a mixture that may not be read or names groups without documents, and
    NothingLeftError for a source without tokens.
    """
    given = recipe.mixture
    if given is not None and not is_plain(given) and not whole:
        raise ValueError(
            f"{name}: mixtures are compared by the weights of their sources: remove `by`, `rehydrate`, "
            "`phases`, `tokens` and `packing` from its `mixture`"
        )
    if given is None:
        weights = {source: float(count) for source, count in source_tokens.items() if count}
    elif not is_plain(given):
        _check_sources(name, [each for each in given.named if each in source_tokens], source_tokens)
        settings = given.model_copy(update={key: _default(key) for key in ("heldout_fraction", "heldout_documents")})
        return settings, _weights(name, recipe, settings, group_tokens)
    else:
        weights = group_weights(given, source_tokens) if given.strategy != "weights" else given.weights
    _check_sources(name, weights or source_tokens, source_tokens)
    most = {} if given is None else {"max_epochs": given.max_epochs}
    return Mixture(weights=weights, **most), weights


def _default(key: str) -> object:
    return Mixture.model_fields[key].default


def _check_sources(name: str, sources: Iterable[str], tokens: Mapping[str, int]) -> None:
    if empty := [source for source in sources if not tokens[source]]:
        raise NothingLeftError(
            f"{name}: the source {' and '.join(empty)} has no tokens without the evaluation documents and "
            "their near-duplicates: loosen the steps that drop its documents, or add documents"
        )


def _weights(name: str, recipe: Recipe, settings: Mixture, tokens: Mapping[str, int]) -> dict[str, float]:
    """The shares of groups in a run in which no group meets its cap; with `upsample`, in the whole training."""
    free = settings.model_copy(update={"max_epochs": _NO_CAP})
    budget = training_tokens(recipe, settings, tokens)
    try:
        found = mean_shares(stretches(free, dict(tokens), budget), budget)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return {group: share for group, share in found.items() if share > 0}


def training_tokens(recipe: Recipe, settings: Mixture, tokens: Mapping[str, int]) -> int:
    """Tokens of the recipe's whole training; with `upsample` no more than its groups give, since a comparison may have
    a part of the documents."""
    whole = recipe.training.token_budget(recipe.model.seq_len)
    if settings.upsample is None:
        return whole
    named = [name for name, weight in group_weights(settings, tokens).items() if weight]
    return max(1, min(whole, int(_ROOM * most(settings.upsample, sum(tokens[name] for name in named)))))


def run_budget(arms: Mapping[str, EncodedArm], tokens: int, step_tokens: int, repeat: bool) -> int:
    """Tokens of a run, a multiple of `step_tokens`. Raises ValueError for an arm that does not have so many."""
    least = min(arms, key=lambda name: (arms[name].one_epoch, name))
    wanted = tokens if repeat else min(tokens, int(arms[least].one_epoch))
    budget = wanted // step_tokens * step_tokens
    if not budget:
        raise ValueError(
            f"{least}: one step of training takes {step_tokens:,} tokens, but a run may take {wanted:,}, with "
            f"{_listed(arms[least])} to read: add documents to its sources, or reduce the batch or the context"
        )
    for name, arm in arms.items():
        enough = arm.max_epochs * sum(arm.group_tokens[group] for group in arm.weights)
        key = "mixture.upsample.max_copies" if arm.settings.upsample else "mixture.max_epochs"
        if enough < budget or not _fills(arm, budget):
            raise ValueError(
                f"{name}: a run takes {budget:,} tokens, but the sources have {_listed(arm)}, which is at "
                f"most {enough:,.0f} with {key} {arm.max_epochs:g}: use fewer tokens, raise {key} or add data"
            )
    return budget


def _fills(arm: EncodedArm, budget: int) -> bool:
    """Whether every phase, and every group with fixed tokens, has the tokens of a run."""
    if arm.is_plain:
        return True
    if arm.settings.upsample and any(
        budget * share > arm.max_epochs * arm.group_tokens[group] for group, share in arm.weights.items()
    ):
        return False
    try:
        stretches(arm.plan(budget), dict(arm.group_tokens), budget)
    except ValueError:
        return False
    return True


MAX_LISTED = 8  # groups in a sentence


def _listed(arm: EncodedArm) -> str:
    names = sorted(arm.weights)
    more = f" and {len(names) - MAX_LISTED:,} more groups" if len(names) > MAX_LISTED else ""
    return ", ".join(f"{name} {arm.group_tokens[name]:,}" for name in names[:MAX_LISTED]) + more
