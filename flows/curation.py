"""From sources to curated documents: a recipe's steps in their order, consecutive document steps in one pass."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import builder_of
from gristmill.flows.stages.corpus import Corpus, check_left, check_sources, pinned
from gristmill.flows.stages.documents import documents
from gristmill.flows.stages.evaluation.heldout import named_texts
from gristmill.flows.stages.removal import evaluation_removal, takedowns
from gristmill.flows.stages.signals import measuring, rules, signals
from gristmill.tasks.documents.step import DocumentStep
from gristmill.tasks.models.filter import LearnedFilter


@dataclass(frozen=True)
class Passed:
    """Steps that the documents went through: consecutive document steps, or one corpus step, or none.

    `arriving`: the documents with the signals on which document steps decide; `left`: those that are kept.
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
    extraction; the last one's `left` is the curated corpus. With takedown lists of the recipe the last part has no
    steps, either.

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
            arriving, left = corpus, builder_of(steps[0])(context, recipe, corpus, steps[0], **more)
        else:
            arriving = corpus if steps is first else signals(context, corpus, steps)
            left = rules(context, arriving, steps)
        yield Passed(steps, arriving, left)
        check_left(left, steps)
        corpus = left
    if recipe.takedowns:
        left = takedowns(context, recipe, corpus)
        yield Passed((), corpus, left)
        check_left(left, ())


def _groups(steps: tuple) -> list[tuple]:
    """Consecutive document steps together, each corpus step by itself."""
    groups: list[tuple] = []
    for step in steps:
        together = isinstance(step, DocumentStep) and groups and isinstance(groups[-1][-1], DocumentStep)
        if together:
            groups[-1] = (*groups[-1], step)
        else:
            groups.append((step,))
    return groups
