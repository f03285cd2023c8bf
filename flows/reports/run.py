"""What a run did: the funnel, the training curve's ends, a sample, and where things are."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from flows.machine import MachineSettings
from flows.recipe import Recipe
from flows.reports.funnel import FunnelRow, funnel
from flows.stages.corpus import Corpus
from flows.stages.data import Data
from tasks.engine.make import StageResult
from training.tracking import METRICS

if TYPE_CHECKING:
    from flows.stages.model import Trained


@dataclass(frozen=True)
class MixedSource:
    """The share of the training data that comes from a source, in [0, 1], and how often each of its tokens is seen."""

    name: str
    share: float
    epochs: float


@dataclass(frozen=True)
class RunStage:
    """A stage of the run: its folder, and whether it was found finished."""

    folder: str
    reused: bool


@dataclass(frozen=True)
class Report:
    """What was made of a recipe, read from the files of its stages. What was not made is None."""

    recipe: Recipe
    settings: MachineSettings
    corpus: Corpus
    data: Data | None = None
    trained: "Trained | None" = None
    exported: StageResult | None = None

    @cached_property
    def funnel(self) -> list[FunnelRow]:
        """A row for each step, in the order of the recipe."""
        return funnel(self.corpus.stages)

    @cached_property
    def tokens(self) -> int | None:
        """Tokens of all curated documents, those that are held out included."""
        return None if self.data is None else sum(self.data.tokens.result.values())

    @property
    def characters_per_token(self) -> float | None:
        """Of the curated documents: characters over this are an estimate of tokens."""
        characters = self.funnel[-1].characters_out
        assert characters is not None, "the corpus has texts behind its last step"
        return characters / self.tokens if self.tokens else None

    @cached_property
    def mixture(self) -> list[MixedSource]:
        """The sources of the training data."""
        if self.data is None:
            return []
        shares = self.data.mixture.result["sources"]
        return [MixedSource(name, source["share"], source["epochs"]) for name, source in shares.items()]

    @cached_property
    def training_losses(self) -> list[float]:
        """Training loss of each step, in nats a token."""
        if self.trained is None:
            return []
        lines = self.trained.model.file(METRICS).read().splitlines()
        return [orjson.loads(line)["train/loss"] for line in lines]

    @property
    def result(self) -> dict[str, Any]:
        """What training has recorded: `parameters`, `steps`, `tokens`, `sample`, held-out losses; or nothing."""
        return self.trained.result if self.trained else {}

    @property
    def stages(self) -> list[RunStage]:
        """All stages of the run, in their order."""
        made = [
            *(self.data.stages if self.data else self.corpus.stages),
            *([self.trained.model] if self.trained else []),
            *([self.exported] if self.exported else []),
        ]
        return [RunStage(stage.folder, stage.reused) for stage in made]
