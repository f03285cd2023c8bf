"""The data of the arms of a comparison: one token budget and one set of evaluation documents for all arms, and one
tokenizer, unless the recipes differ in theirs.

Neither tokenizers nor evaluation documents come from what a recipe keeps: both are made of the documents of the
sources of all recipes as they are extracted. So no recipe has an advantage, and both are the same in every comparison
of recipes with the same sources. Evaluation documents, their near-duplicates and documents that contain them are
removed from the curated documents of each recipe. All other documents become token shards, and nothing else is held
out. The models of learned filters are not trained on such documents either.

`only_in` and `diffs` show documents that one recipe keeps and another drops.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.curation import curate
from gristmill.flows.experiments.decisions.arm_mixture import EncodedArm, read_mixture, run_budget
from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.given_files import tokenizer_path
from gristmill.flows.recipe.proxy import ProxyConfig
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, NothingLeftError
from gristmill.flows.stages.evaluation.documents import evaluation_documents, sets_of, unfiltered_documents
from gristmill.flows.stages.evaluation.judge import of_other_sources
from gristmill.flows.stages.mixture import mixture
from gristmill.flows.stages.removal import evaluation_removal
from gristmill.flows.stages.tokens import (
    evaluation_tokens,
    file_tokenizer,
    grouped_tokens,
    half_counts,
    half_tokens,
    sources_tokenizer,
)
from gristmill.flows.stages.tokens import tokens as token_shards
from gristmill.storage import files, parquet
from gristmill.tasks.documents.by_shard import PartsOfSeveral
from gristmill.tasks.documents.selection import select, uniform
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import FinishedInput
from gristmill.tasks.tokens.fill_in_the_middle import FillInTheMiddle
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer

_SEED = 0  # of the tokenizer's sample: not the recipe's, so that comparisons share it


@dataclass(frozen=True)
class Arm:
    """A recipe that is compared. `corpus`: without the evaluation documents; `source_tokens`: of its token shards;
    `mixture`: the stage with `mixture.json`."""

    recipe: Recipe
    corpus: Corpus
    source_tokens: Mapping[str, int]
    tokens: StageResult
    mixture: StageResult
    tokenizer: StageResult

    @property
    def epochs(self) -> dict[str, float]:
        """How often a run of the whole budget reads each source, or each group."""
        return {name: source["epochs"] for name, source in self.mixture.result["sources"].items()}

    @property
    def shares(self) -> dict[str, float]:
        """The share of each source, or group, in a run; they sum to one."""
        return {name: source["share"] for name, source in self.mixture.result["sources"].items()}


@dataclass(frozen=True)
class ComparisonData:
    """`evaluation`: the stage of the evaluation documents; `tokenizer`: the base's, which all arms have, unless recipes
    differ in theirs; `budget_tokens`: what a run of any arm takes; `half`: makes what the runs of an arm and a pair
    read, where each pair has its own half of the hosts; `shorter`: makes what runs of fewer tokens read."""

    evaluation: StageResult
    tokenizer: StageResult
    arms: dict[str, Arm]
    budget_tokens: int
    half: Callable[[str, int], StageResult] | None = None
    shorter: Callable[[str, int, int], StageResult] | None = None

    def mixture(self, arm: str, pair: int, tokens: int | None = None) -> StageResult:
        """The stage with `mixture.json` that the runs of an arm and a pair read. `tokens`: of the run, if they are not
        the budget."""
        if self.shorter is not None and tokens not in (None, self.budget_tokens):
            return self.shorter(arm, pair, tokens)
        return self.arms[arm].mixture if self.half is None else self.half(arm, pair)


def arm_data(
    context: RunContext,
    arms: Mapping[str, Recipe],
    *,
    tokens: int,
    step_tokens: int,
    vocab_size: int,
    sample_bytes: int,
    per_source: int,
    clean: str | None = None,
    repeat: bool = False,
    tokenizer: Path | None = None,
    own_tokenizers: bool = False,
    contexts: Mapping[str, int] | None = None,
    pairs: range | None = None,
    apart: Callable[[str, Callable[[], Any]], Any] = lambda name, make: make(),
) -> ComparisonData:
    """Corpora, token shards and mixtures of recipes that are compared; what they share is made once.

    `arms`: by name, the base first. `tokens`: what a run takes; with `repeat` each arm repeats its sources to that end
    as far as its `mixture.max_epochs` allows, else it is lowered to one epoch of the arm that has least. The budget is
    a multiple of `step_tokens`, batch * seq_len. `vocab_size`, `sample_bytes`: of the tokenizer, or `tokenizer`: its
    file, or `own_tokenizers`: each arm has its recipe's; `per_source`, `clean`: see `evaluation_documents`. A recipe
    without a mixture reads its sources in proportion to their tokens. `contexts`: model.seq_len of the runs of each
    arm, for which documents are packed; None: mixtures are no more than weights of sources. `pairs`: the numbers of
    pairs of which each reads its own half of the hosts of every source, the same half for all arms; None: all read
    all. A run is then lowered to one epoch of the smallest half. `apart` is given the name of an arm and what makes
    its corpus and its tokens, and returns what that returns.

    Raises what making a corpus raises, with the arm's name, and ValueError where an arm cannot fill its mixture, or has
    groups of which halves are not counted.
    """
    recipes = [*arms.values()]
    for name, recipe in arms.items() if pairs else ():
        if recipe.mixture is not None and not recipe.mixture.by_source:
            raise ValueError(
                f"{name}: --resample counts the halves of sources, not of groups: remove --resample, or `by` and "
                "`rehydrate` from its `mixture`"
            )
    evaluation = evaluation_documents(context, recipes, per_source, clean)
    if own_tokenizers:
        models = {name: _own_tokenizer(context, recipes, evaluation, recipe) for name, recipe in arms.items()}
    elif tokenizer is None:
        settings = Tokenizer(vocab_size=vocab_size, sample_bytes=sample_bytes)
        models = dict.fromkeys(arms, _tokenizer(context, recipes, evaluation, settings))
    else:
        models = dict.fromkeys(arms, file_tokenizer(context, tokenizer))
    evaluated = {
        key: evaluation_tokens(context, (evaluation,), model)
        for key, model in {model.key: model for model in models.values()}.items()
    }

    def encoded(name: str, recipe: Recipe) -> EncodedArm:
        model, seq_len = models[name], None if contexts is None else contexts[name]
        fim = recipe.tokenizer.fim if own_tokenizers else None
        given = evaluation, model, evaluated[model.key], seq_len, fim
        return cast(EncodedArm, apart(name, partial(_curated, context, name, recipe, *given)))

    encoded_arms = {name: encoded(name, recipe) for name, recipe in arms.items()}
    halves = {name: _halves(context, name, arm, pairs) for name, arm in encoded_arms.items()} if pairs else {}
    read = {f"{name}, pair {pair}": half for name, of in halves.items() for pair, half in of.items()} or encoded_arms
    budget = run_budget(read, tokens, step_tokens, repeat)
    sets = dict.fromkeys(sets_of(evaluation), "")

    def planned(arm: EncodedArm, length: int, shards: StageResult) -> StageResult:
        given = arm.plan(length), length, arm.corpus.sources, arm.tokenizer, shards, sets, arm.evaluated
        return mixture(context, *given, arm.grouped, arm.seq_len)

    data = {
        name: Arm(
            arm.recipe, arm.corpus, arm.source_tokens, arm.tokens, planned(arm, budget, arm.tokens), arm.tokenizer
        )
        for name, arm in encoded_arms.items()
    }

    @cache
    def read_by(name: str, pair: int, length: int) -> StageResult:
        arm = encoded_arms[name]
        if not pairs:
            return planned(arm, length, arm.tokens) if length != budget else data[name].mixture
        cut = half_tokens(context, arm.corpus, arm.tokens, pair)
        return planned(halves[name][pair], length, cut)

    def shorter(name: str, pair: int, length: int) -> StageResult:
        # where a phase begins depends on the length of the run; shares do not
        return read_by(name, pair, length if encoded_arms[name].settings.phases else budget)

    half = (lambda name, pair: read_by(name, pair, budget)) if pairs else None
    return ComparisonData(evaluation, data[next(iter(arms))].tokenizer, data, budget, half, shorter)


def _halves(context: RunContext, name: str, arm: EncodedArm, pairs: range) -> dict[int, EncodedArm]:
    """By pair the arm with the tokens of the pair's half. Raises ValueError for a half without a token of a source."""
    halves = {}
    counts = half_counts(context, arm.corpus, arm.tokens, pairs).result["tokens"]
    for pair in pairs:
        counted = counts[f"{pair}"]
        if empty := [source for source in arm.weights if not counted[source]]:
            raise ValueError(
                f"{name}: the half of the hosts that pair {pair} reads has no documents of the source "
                f"{' and '.join(empty)}. Resampling requires sources with many hosts: add URLs or a column "
                "`host` to its documents, or remove --resample"
            )
        halves[pair] = arm.with_sources(name, {source: counted[source] for source in arm.source_tokens})
    return halves


def _own_tokenizer(
    context: RunContext, recipes: Sequence[Recipe], evaluation: StageResult, recipe: Recipe
) -> StageResult:
    """The tokenizer of a recipe: its file, or one with its settings, trained on the text that all are trained on."""
    if (path := tokenizer_path(context.settings, recipe)) is not None:
        return file_tokenizer(context, path, recipe.tokenizer.end_of_text)
    return _tokenizer(context, recipes, evaluation, recipe.trained_tokenizer())


def _tokenizer(
    context: RunContext, recipes: Sequence[Recipe], evaluation: StageResult, settings: Tokenizer
) -> StageResult:
    """Trained on the sources of all recipes as they are extracted, in proportion to their characters. Recipes with
    other sources have the same weight, whatever they have."""
    distinct = of_other_sources(recipes)
    parts: dict[str, PartsOfSeveral] = {}
    weights: dict[str, float] = {}
    inputs: dict[str, FinishedInput | str] = {}
    for number, recipe in enumerate(distinct, 1):
        whole = unfiltered_documents(context, recipe)
        remaining = evaluation_removal(context, whole, whole, evaluation)
        characters = Counter[str]()
        for source, record in zip(remaining.sources, remaining.kept.records("remove"), strict=True):
            characters[source] += record["steps"][-1]["characters_out"]
        if not any(characters.values()):
            raise NothingLeftError(
                f"the sources of {recipe.name} are empty without the evaluation documents and their "
                "near-duplicates: add documents"
            )
        apart = "" if len(distinct) == 1 else f"{number}-"
        for source, count in characters.items():
            if count:
                weights[f"{apart}{source}"] = count / characters.total()
                parts[f"{apart}{source}"] = remaining.places.parts((source,))
        inputs |= {f"{apart}{name}": stage for name, stage in remaining.inputs().items()}
    return sources_tokenizer(context, parts, inputs, settings, Mixture(weights=weights), _SEED)


def _curated(
    context: RunContext,
    name: str,
    recipe: Recipe,
    evaluation: StageResult,
    tokenizer: StageResult,
    evaluated: StageResult,
    seq_len: int | None,
    fim: FillInTheMiddle | None,
) -> EncodedArm:
    def without(extracted: Corpus, corpus: Corpus) -> Corpus:
        return evaluation_removal(context, extracted, corpus, evaluation)

    try:
        first, *others = curate(context, recipe, extract_apart=True, withheld=without)
    except NothingLeftError as error:
        raise NothingLeftError(f"{name}: {error}") from error
    corpus = without(first.left, others[-1].left if others else first.left)
    shards = token_shards(context, corpus, tokenizer, fim)
    counted = Counter[str](dict.fromkeys(corpus.sources, 0))
    for source, record in zip(corpus.sources, shards.records("encode"), strict=True):
        counted[source] += record["train"]["tokens"]
    whole, grouped = seq_len is not None, None
    if whole and recipe.mixture is not None:
        grouped = grouped_tokens(context, recipe, corpus, tokenizer, shards)
    groups = dict(counted) if grouped is None else grouped.result["tokens"]
    settings, weights = read_mixture(name, recipe, counted, groups, whole)
    packed = seq_len if settings.packing == "best_fit" else None
    return EncodedArm(
        recipe, corpus, tokenizer, shards, evaluated, grouped, dict(counted), groups, settings, weights, packed
    )


def proxy_data(
    context: RunContext, proxy: ProxyConfig, recipes: Mapping[str, Recipe], tokens: int, **options: Any
) -> ComparisonData:
    """The data of runs of so many tokens on these recipes, by name, the base first. `options`: further arguments of
    `arm_data`, whose errors it raises; a run is of whole steps of the proxy, if `step_tokens` is not among them."""
    return arm_data(
        context,
        recipes,
        tokens=tokens,
        vocab_size=proxy.vocab_size,
        sample_bytes=proxy.sample_bytes,
        per_source=proxy.evaluation_documents,
        **{"step_tokens": proxy.step_tokens} | options,
    )


MAX_SHOWN = 10  # of each recipe
_SHARDS = 64  # that are looked at: recipes that hardly differ are not read whole
_CHARACTERS = 600


@dataclass(frozen=True)
class CorpusDiff:
    """`command`: that writes the page of what differs between the base's corpus and a candidate's; `page`: its name
    beside the decision's, empty where it was not made."""

    command: str
    page: str


@dataclass(frozen=True)
class Shown:
    """A document, with the beginning of its text."""

    id: str
    url: str
    text: str


def only_in(corpus: Corpus, other: Corpus, most: int = MAX_SHOWN, seed: int = 0) -> tuple[Shown, ...]:
    """Documents of `corpus` that `other` does not have, by id, drawn by a keyed hash from some of its shards, which are
    drawn, too. `most`: of documents. Holds the ids of a shard of each, and the texts of one.

    A source has equal shards in both corpora if it has equally many. Else they read it otherwise, and have none of its
    documents in common.
    """
    others = _others(corpus, other)
    documents: list[Shown] = []
    for shard in _drawn(len(corpus.sources), seed):
        if len(documents) >= most:
            break
        kept = corpus.places.kept[shard]
        ids = parquet.read_table(kept, ["id"])["id"].combine_chunks()
        if shard in others:
            there = parquet.read_table(other.places.kept[others[shard]], ["id"])["id"].combine_chunks()
            ids = ids.filter(pc.invert(pc.is_in(ids, there)))
        order = np.argsort(uniform(ids, seed, "differing"))[: most - len(documents)]
        documents += _texts(corpus, shard, ids.take(order).to_pylist())
    return tuple(documents)


def _others(corpus: Corpus, other: Corpus) -> dict[int, int]:
    """The shard of `other` for each shard of `corpus`, of sources that both have in equally many."""
    shard_pairs: dict[int, int] = {}
    for source in corpus.places.sources.distinct():
        own, others = ([*each.places.sources.shards([source])] for each in (corpus, other))
        if len(own) == len(others):
            shard_pairs |= dict(zip(own, others, strict=True))
    return shard_pairs


def _drawn(shards: int, seed: int) -> Sequence[int]:
    return np.random.default_rng(seed).permutation(shards)[:_SHARDS].tolist()


def _texts(corpus: Corpus, shard: int, ids: list[str]) -> Iterator[Shown]:
    places = corpus.places
    table = select(places.documents[shard], places.kept[shard], ["text", "url"])
    rows = {row["id"]: row for row in table.filter(pc.is_in(table["id"], pa.array(ids, pa.string()))).to_pylist()}
    for one in ids:
        yield Shown(one, rows[one]["url"] or "", rows[one]["text"][:_CHARACTERS])


def diffs(corpora: Mapping[str, Corpus], base: str, name: str) -> dict[str, CorpusDiff]:
    """By candidate, how `gristmill explain diff` shows all differences, in a page beside the decision's,
    `<name>.html`."""
    by_candidate = {}
    for candidate, corpus in corpora.items():
        if candidate != base:
            sides = [f"{each.kept.name}-{each.kept.key}" for each in (corpora[base], corpus)]
            page = f"{name}-diff-{sides[1]}.html"
            command = shlex.join(["gristmill", "explain", "diff", *sides, "--to", page])
            by_candidate[candidate] = CorpusDiff(command, page.rpartition("/")[2] if files.exists(page) else "")
    return by_candidate
