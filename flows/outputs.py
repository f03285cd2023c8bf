"""What a run of a recipe makes, in order: the only list of it.

A flow walks it with a context that makes stages, a reader with one that only looks them up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages import export as export_stage
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.evaluation.heldout import Data
from gristmill.flows.stages.group_losses import group_losses
from gristmill.flows.stages.indexes import search_index_spec, word_index_spec
from gristmill.flows.stages.mixture import training_data
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import StageSpec

if TYPE_CHECKING:
    from gristmill.flows.stages.model import Trained

# The outputs of each flow, in order. A flow needs those of the flows before it.
OUTPUTS = {
    "corpus": ("corpus", "group_losses", "word_index", "export"),
    "tokens": ("data", "search_index"),
    "pretrain": ("training",),
}


@dataclass
class Outputs:
    """The outputs of a run. The context builds each with its stages when it is first asked for.

    `check_losses(corpus, losses)`: called with what groups lost up to a corpus, and may raise; `train(outputs)`: builds
    the model and returns it with its MLflow run. By default the model is built as any other stage.
    """

    context: RunContext
    recipe: Recipe
    check_losses: Callable[[Corpus, StageResult], None] = lambda corpus, losses: None
    train: "Callable[[Outputs], Trained] | None" = None

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

    @cached_property
    def corpus(self) -> Corpus:
        """The curated documents. Where a recipe stops at group losses, they are counted after each part of the
        curation, since the next one may be expensive."""
        for part in curate(self.context, self.recipe):
            if self.recipe.group_losses.then == "stop":
                self.group_losses = self._group_losses(part.left)
        for stage in (part.left.documents, part.left.kept, *part.left.measured):
            self.context.restore(stage)
        return part.left

    @cached_property
    def group_losses(self) -> StageResult | None:
        """What groups of documents lost; None if it is not counted."""
        return self._group_losses(self.corpus)

    def _group_losses(self, corpus: Corpus) -> StageResult | None:
        losses = group_losses(self.context, self.recipe, corpus)
        if losses is not None:
            self.check_losses(corpus, losses)
        return losses

    @cached_property
    def word_index(self) -> StageResult | None:
        """The index of words, if the recipe has one."""
        return self.context.build_output(self.word_index_spec) if self.recipe.word_index else None

    @property
    def word_index_spec(self) -> StageSpec:
        return word_index_spec(self.context, self.recipe, self.corpus)

    @cached_property
    def export(self) -> StageResult | None:
        """The exported documents, if the recipe has an export. It is outside the home, so readers do without it."""
        return None if self.context.is_reader else export_stage.export(self.context, self.recipe, self.corpus)

    @cached_property
    def data(self) -> Data:
        """All that training needs. Raises RecipeError for a recipe without a mixture."""
        data = training_data(self.context, self.recipe, self.corpus)
        for stage in data.training_stages:
            self.context.restore(stage)
        return data

    @cached_property
    def search_index(self) -> StageResult | None:
        """The index of phrases, if the recipe has one."""
        return self.context.build_output(self.search_index_spec) if self.recipe.index else None

    @property
    def search_index_spec(self) -> StageSpec:
        return search_index_spec(self.context, self.recipe, self.data)

    @cached_property
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
