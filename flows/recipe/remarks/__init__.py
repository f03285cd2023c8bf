"""What is not wrong in a recipe, but may not be meant: sentences of `gristmill check`."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.given_files import tokenizer_path, tried
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.remarks.sent_texts import sent_texts
from gristmill.tasks.documents.where import Where
from gristmill.tasks.engine import extras, own_code
from gristmill.tasks.language_model.annotate import WEIGHT, Annotate
from gristmill.tasks.models.distillation.step import Distill
from gristmill.tasks.models.language import Language
from gristmill.tasks.models.mixed_languages import MixedLanguages
from gristmill.tasks.reading.formats.source import Inspection
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.tokens.mixture import SOURCE

_ENGLISH = ("en", "eng", "eng_Latn")
_BOUND = "min_stop_words"  # of `gopher_quality`, one of its thresholds
_LENGTH = "min_mean_word_length"  # another one
# Codes of Chinese and Japanese in models, without their script: each character counts as a word, so words have a mean
# length of 1 to 1.5.
_CHARACTER_WORDS, _MAX_LENGTH = ("cmn", "ja", "jpn", "wuu", "yue", "zh", "zho"), 1.5
_SHOWN_TOKENS = 5
_LEAST_RANGE = 4 << 20  # bytes: of a smaller one, the cost of its job is a tenth


def remarks_of(recipe: Recipe, settings: MachineSettings) -> Iterator[str]:
    """Remarks of the steps themselves, and on what only the recipe as a whole shows."""
    for step in map(settings.placed, recipe.steps):
        yield from own_code.call(f"step {step.step}", step.remarks, accept=list)
    yield from sent_texts(recipe, settings)
    yield from _unsampled(recipe)
    yield from _unweighted(recipe)
    yield from _other_languages(recipe)
    yield from _mixed_models(recipe)
    yield from _untrained(recipe)
    yield from _without_training(recipe)
    yield from _unread_training(recipe)
    with suppress(OSError, ValueError):  # what is wrong with the file is a finding
        yield from _of_tokenizer(recipe, settings)


def few_shards(inspections: Sequence[Inspection], settings: MachineSettings) -> Iterator[str]:
    """That workers wait, since there are fewer shards; with the setting that makes more, if a source has one."""
    workers = settings.workers or os.cpu_count() or 1
    shards = sum(each.shards for each in inspections)
    largest = max(
        (each for each in inspections if each.source.max_range_bytes and each.bytes and each.files),
        key=lambda each: each.bytes or 0,
        default=None,
    )
    if largest is None or largest.bytes is None or shards >= workers or largest.bytes < 2 * _LEAST_RANGE:
        return
    size = -(-largest.bytes // (4 * workers * _LEAST_RANGE)) * _LEAST_RANGE
    yield (
        f"sources.{largest.source.name}: the sources are {shards} shard{'s' * (shards != 1)}, so {shards} of {workers} "
        f"workers work; `range_bytes: {size}` divides files into shards of this size"
    )


def _unsampled(recipe: Recipe) -> Iterator[str]:
    """Expressions that drop documents because they were not sampled."""
    sampled: dict[str, str] = {}
    for step in recipe.steps:
        if isinstance(step, Annotate) and step.of is not None:
            sampled |= {signal.name: step.step for signal in step.signals}
        if isinstance(step, Where) and step.keep is not None and step.nulls is None:
            names = [name for name in step.columns if name in sampled]
            if names and " is " not in step.keep.lower() and "coalesce" not in step.keep.lower():
                yield (
                    f"steps.{step.step}: `keep` drops all documents outside of the sample of `{sampled[names[0]]}`, "
                    f"whose {names[0]} is null; set `nulls: keep` to keep them, or `nulls: drop` if that is meant"
                )


def _unweighted(recipe: Recipe) -> Iterator[str]:
    """Models that are measured on a sample with other shares of documents than the corpus."""
    stratified: dict[str, str] = {}
    for step in recipe.steps:
        if isinstance(step, Annotate) and step.by:
            stratified |= {signal.name: step.column(WEIGHT) for signal in step.signals}
        if isinstance(step, Distill) and step.weight is None and step.of in stratified:
            yield (
                f"steps.distill: {step.of} is of a stratified sample, so precision, recall and the cut are those of "
                f"the sample; set `weight: {stratified[step.of]}` for those of the corpus"
            )


def _other_languages(recipe: Recipe) -> Iterator[str]:
    """Languages that are kept, and whose texts a later step drops: they have none of its stop words, or each of their
    characters is a word."""
    kept: list[str] = []
    for step in recipe.steps:
        if isinstance(step, Language):
            kept = [code for code in step.keep if code not in _ENGLISH]
        elif isinstance(step, GopherQuality):
            least, length = ({code: _bound(step, name, code) for code in kept} for name in (_BOUND, _LENGTH))
            others = [code for code in kept if least[code] and code not in step.stop_words_by_language]
            if others and "stop_words" not in step.model_fields_set:
                yield (
                    f"steps.{step.step}: texts in {', '.join(others)} are kept by `language` but dropped here, "
                    f"because the stop words are English; set `stop_words_by_language`, or `{_BOUND}: null`"
                )
            unspaced = [code for code in kept if code.split("_")[0] in _CHARACTER_WORDS]
            short = [code for code in unspaced if length[code] > _MAX_LENGTH and step.definition == "datatrove"]
            if short:
                yield (
                    f"steps.{step.step}: texts in {', '.join(short)} are kept by `language` but dropped here, because "
                    f"each of their characters counts as a word, and `{_LENGTH}` is {length[short[0]]:g}; set "
                    f"`languages: {{{', '.join(f'{code}: {{{_LENGTH}: null}}' for code in short)}}}`"
                )


def _bound(step: GopherQuality, name: str, code: str) -> float:
    """A threshold for documents in a language; 0 for none."""
    return step.languages.get(code, {}).get(name, getattr(step, name)) or 0


def _mixed_models(recipe: Recipe) -> Iterator[str]:
    """Lines that another model labels than the documents: what it calls a language may have another name there."""
    model: str | None = None
    for step in recipe.steps:
        if isinstance(step, Language):
            model = step.model
        elif isinstance(step, MixedLanguages) and model not in (None, step.model):
            yield (
                f"steps.{step.step}.model: is {step.model}, but `language` has {model}, so languages that only one of "
                f"them has count as other languages; set `model: {model}`"
            )


def _untrained(recipe: Recipe) -> Iterator[str]:
    """Sources that no weight, budget or reference names."""
    mixture = recipe.mixture
    if mixture is None or mixture.strategy != "weights" or [column.column for column in mixture.by] != [SOURCE]:
        return
    named = {*mixture.weights, *mixture.tokens, *(name for phase in mixture.phases for name in phase.weights)}
    named |= {name for step in recipe.steps for name in getattr(step, "reference", None) or ()}
    if others := [source.name for source in recipe.sources if source.name not in named]:
        yield f"mixture.weights: {', '.join(others)} has no weight, so nothing is trained on it"


def _without_training(recipe: Recipe) -> Iterator[str]:
    """What `gristmill run` of a recipe with a mixture needs; a corpus and its tokens are made without."""
    if recipe.mixture is None:
        return
    try:
        extras.require("train", "training a model")
    except extras.MissingExtraError as error:
        yield f"mixture: {error}; `gristmill run --tokens-only` creates the tokens without training"


def _unread_training(recipe: Recipe) -> Iterator[str]:
    """Settings of training that the recipe gives and that nothing reads."""
    training = recipe.training
    if "momentum" in training.model_fields_set and training.optimizer != "muon":
        yield (
            f"training.momentum: only read with optimizer muon, but optimizer is {training.optimizer}, whose "
            "means decay by `betas`; remove it"
        )
    if not training.loss_scaling and training.precision != "fp16":
        yield (
            f"training.loss_scaling: only read with precision fp16, but precision is {training.precision}, which "
            "has no loss scale; remove it"
        )


def _of_tokenizer(recipe: Recipe, settings: MachineSettings) -> Iterator[str]:
    """What of texts does not come back from the tokens of the tokenizer.json that `tokenizer.path` names. Raises
    OSError and ValueError for a file that is none."""
    path = tokenizer_path(settings, recipe)
    if path is None:
        return
    trial = tried(path, recipe.tokenizer.end_of_text)
    if trial.changes:
        yield (
            f"tokenizer.path: {path.name} changes texts before it tokenizes them: "
            f"{', '.join(trial.changes)}; the model never sees what is removed"
        )
    if trial.stripping:
        names = ", ".join(map(repr, trial.stripping[:_SHOWN_TOKENS]))
        more = ", ..." if len(trial.stripping) > _SHOWN_TOKENS else ""
        yield (
            f"tokenizer.path: in {path.name}, {names}{more} strip adjacent white space (lstrip, rstrip); the "
            "model never sees it where a text has these tokens"
        )
