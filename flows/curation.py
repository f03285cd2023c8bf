"""Curation: from sources to curated documents by the steps of a recipe, with adjacent document steps in one pass."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import builder_of
from gristmill.flows.stages import export as export_stage
from gristmill.flows.stages.corpus import Corpus, check_left, check_sources, pinned
from gristmill.flows.stages.documents import documents
from gristmill.flows.stages.group_losses import group_losses
from gristmill.flows.stages.heldout import Data, named_texts
from gristmill.flows.stages.indexes import (
    SearchedTexts,
    curated_texts,
    search_index_spec,
    trained_texts,
    word_index_spec,
)
from gristmill.flows.stages.mixture import training_data
from gristmill.flows.stages.removal import evaluation_removal, takedowns
from gristmill.flows.stages.rights import site_rights
from gristmill.flows.stages.signals import measuring, rules, signals
from gristmill.tasks.documents.step import DocumentStep
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.models.filter import LearnedFilter

if TYPE_CHECKING:
    from gristmill.flows.stages.model import Trained


@dataclass(frozen=True)
class Passed:
    """A part of the curation: adjacent document steps, one corpus step, or no step.

    `arriving`: the documents, with the signals that document steps decide on. `left`: the kept documents.
    """

    steps: tuple
    arriving: Corpus
    left: Corpus

    @property
    def on_documents(self) -> bool:
        return all(isinstance(step, DocumentStep) for step in self.steps)


def curate(
    context: RunContext,
    recipe: Recipe,
    extract_apart: bool = False,
    withheld: Callable[[Corpus, Corpus], Corpus] | None = None,
) -> Iterator[Passed]:
    """The recipe's way, each part of it made, or found, when it is asked for. The first has no steps behind the
    extraction; the last one's `left` is the curated corpus. With lists of sites, and with takedown lists, the last
    parts have no steps, either.

    `extract_apart`: the extraction is a stage of its own, which recipes with other steps share; else the first steps on
    documents are in its pass. The documents are the same.

    `withheld` is given the corpus as it was extracted and as it arrives at a learned filter, and returns the documents
    of the latter that the filter's model may be trained on; without it these are all but the texts of `evaluation`.

    Raises NothingLeftError, when it is asked for more, behind the part that left no document."""
    if withheld is None and (named := named_texts(context, recipe)) is not None:
        withheld = partial(evaluation_removal, context, evaluation=named)
    groups = _groups(pinned(context, recipe.after))
    first = groups[0] if not extract_apart and groups and isinstance(groups[0][0], DocumentStep) else ()
    corpus = documents(context, recipe, measuring(first))
    extracted = corpus
    yield Passed((), corpus, corpus)
    check_sources(corpus)
    for steps in groups:
        if not isinstance(steps[0], DocumentStep):
            more = {}
            if withheld is not None and isinstance(steps[0], LearnedFilter):
                more["learns_from"] = withheld(extracted, corpus)
            build = builder_of(steps[0])
            arriving = corpus
            remaining = replace(build(context, recipe, corpus.for_step(steps[0]), steps[0], **more), exempt=())
        else:
            arriving = corpus if steps is first else signals(context, corpus, steps)
            remaining = rules(context, arriving, steps)
        yield Passed(steps, arriving, remaining)
        check_left(remaining, steps)
        corpus = remaining
    for exclude in (site_rights, takedowns):
        remaining = exclude(context, recipe, corpus)
        if remaining is not corpus:
            yield Passed((), corpus, remaining)
            check_left(remaining, ())
            corpus = remaining


def _groups(steps: tuple) -> list[tuple]:
    """Group adjacent document steps, and each corpus step separately."""
    groups: list[tuple] = []
    for step in steps:
        together = isinstance(step, DocumentStep) and groups and isinstance(groups[-1][-1], DocumentStep)
        if together:
            groups[-1] = (*groups[-1], step)
        else:
            groups.append((step,))
    return groups


# The only list of the outputs of a run, in order.
#
# Flows use it with a context that makes stages, readers with one that only finds them.


# The outputs of each flow, in order. A flow needs those of the flows before it.
OUTPUTS = {
    "corpus": ("corpus", "group_losses", "word_index", "export"),
    "tokens": ("data", "search_index"),
    "pretrain": ("training",),
}


class BuiltStage(NamedTuple):
    """A stage of a run, and the output for which it was first built."""

    output: str
    stage: StageResult


def processing(stages: Iterable[BuiltStage]) -> list[StageResult]:
    """The stages of a run except the training."""
    return [each.stage for each in stages if each.output != "training"]


def lineage(stages: Iterable[BuiltStage]) -> list[StageResult]:
    """The stages of a run from which its training data was made."""
    return [each.stage for each in stages if each.output in ("corpus", "data")]


_Output = TypeVar("_Output")


def _output(build: "Callable[[Outputs], _Output]") -> "cached_property[_Output]":
    """A cached property that builds an output, and records its stages under its name."""

    @wraps(build)
    def noted(outputs: "Outputs") -> _Output:
        with outputs.building(build.__name__):
            return build(outputs)

    return cached_property(noted)


@dataclass
class Outputs:
    """The outputs of a run. The context builds each with its stages when it is first read, and records all stages, so
    that they are in the reports.

    `check_losses(outputs, corpus, losses)`: called with what groups lost up to a corpus, and may raise;
    `train(outputs)`: builds the model and returns it with its MLflow run. By default the model is built as any other
    stage.
    """

    context: RunContext
    recipe: Recipe
    check_losses: "Callable[[Outputs, Corpus, StageResult], None]" = lambda outputs, corpus, losses: None
    train: "Callable[[Outputs], Trained] | None" = None

    def __post_init__(self) -> None:
        self._building = ""
        self._stages: dict[str, BuiltStage] = {}
        self.context = self.context.noting(self._note)

    def _note(self, stage: StageResult) -> None:
        self._stages.setdefault(stage.label, BuiltStage(self._building, stage))

    @contextmanager
    def building(self, output: str) -> Iterator[None]:
        """Record stages for this output within the block."""
        outer, self._building = self._building, output
        try:
            yield
        finally:
            self._building = outer

    @property
    def stages(self) -> tuple[BuiltStage, ...]:
        """All stages built so far, once each, in order."""
        return tuple(self._stages.values())

    def make(self, flow: str = "") -> None:
        """Build the outputs of a flow (`pipeline` has all) and of those before it. Default: all that the recipe can
        have. Raises NotFinishedError where the context makes nothing."""
        flow = flow or ("corpus" if self.recipe.mixture is None else "pretrain")
        for name, outputs in OUTPUTS.items():
            for output in outputs:
                getattr(self, output)
            if name == flow:
                return

    def is_built(self, flow: str) -> bool:
        """Whether all outputs of a flow are built."""
        return all(output in vars(self) for output in OUTPUTS[flow])

    def built(self, output: str) -> Any:
        """An output, if it is built."""
        return vars(self).get(output)

    @_output
    def corpus(self) -> Corpus:
        """The curated documents. Where a recipe stops at group losses, they are counted after each part of the
        curation, since the next one may be expensive."""
        for part in curate(self.context, self.recipe):
            if self.recipe.group_losses.then == "stop":
                with self.building("group_losses"):
                    self.group_losses = self._group_losses(part.left)
        for stage in (part.left.documents, part.left.kept, *part.left.measured):
            self.context.restore(stage)
        return part.left

    @_output
    def group_losses(self) -> StageResult | None:
        """The losses of groups of documents; None if they are not counted."""
        return self._group_losses(self.corpus)

    def _group_losses(self, corpus: Corpus) -> StageResult | None:
        losses = group_losses(self.context, self.recipe, corpus)
        if losses is not None:
            self.check_losses(self, corpus, losses)
        return losses

    @_output
    def word_index(self) -> StageResult | None:
        """The index of words, if the recipe has one."""
        return self.context.build_output(self.word_index_spec) if self.recipe.word_index else None

    @property
    def word_index_spec(self) -> StageSpec:
        return word_index_spec(self.context, self.recipe, self.corpus)

    @_output
    def export(self) -> StageResult | None:
        """The exported documents, if the recipe has an export. It is outside the home, so readers do without it."""
        return None if self.context.is_reader else export_stage.export(self.context, self.recipe, self.corpus)

    @_output
    def data(self) -> Data:
        """The training data. Raises RecipeError for a recipe without a mixture."""
        data = training_data(self.context, self.recipe, self.corpus)
        for stage in data.training_stages:
            self.context.restore(stage)
        return data

    @_output
    def search_index(self) -> StageResult | None:
        """The index of phrases, if the recipe has one."""
        return self.context.build_output(self.search_index_spec) if self.recipe.index else None

    @property
    def search_index_spec(self) -> StageSpec:
        return search_index_spec(self.context, self.recipe, self.searched)

    @cached_property
    def searched(self) -> SearchedTexts:
        """The texts in which phrases are looked up: the training data, or the corpus of a recipe without a mixture."""
        if self.recipe.mixture is None:
            return curated_texts(self.context, self.recipe, self.corpus)
        return trained_texts(self.data)

    @_output
    def training(self) -> "Trained | None":
        """The trained model; None for a reader if it is not finished."""
        if self.train is not None:
            return self.train(self)
        from gristmill.flows.stages.model import Trained  # here, since a corpus needs no libraries of training

        model = self.context.build_output(self.model_spec)
        return None if model is None else Trained(model, model.result["result"], mlflow_run="")

    @cached_property
    def model_spec(self) -> StageSpec:
        """The stage of the model, without places."""
        from gristmill.flows.stages.model import model_spec

        return model_spec(self.context.settings, self.recipe, self.data)
