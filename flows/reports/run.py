"""What a run did: the funnel, the training curve's ends, a sample, and where things are."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from flows.machine import MachineSettings
from flows.recipe import Recipe
from flows.reports.funnel import FunnelRow, funnel
from flows.stages.corpus import Corpus
from flows.stages.data import Data
from flows.stages.model import Trained
from storage import files
from training.tracking import METRICS


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
    """A finished run of the flow `pipeline`. What it gives is read from the files of the run's stages."""

    recipe: Recipe
    corpus: Corpus
    data: Data
    trained: Trained
    settings: MachineSettings

    @cached_property
    def funnel(self) -> list[FunnelRow]:
        """A row for each step, in the order of the recipe."""
        return funnel(self.corpus.stages)

    @cached_property
    def tokens(self) -> int:
        """Tokens of all curated documents, those that are held out included."""
        return sum(self.data.tokens.result.values())

    @property
    def characters_per_token(self) -> float:
        """Of the curated documents: characters over this are an estimate of tokens."""
        characters = self.funnel[-1].characters_out
        assert characters is not None, "the corpus has texts behind its last step"
        return characters / self.tokens

    @cached_property
    def mixture(self) -> list[MixedSource]:
        """The sources of the training data."""
        shares = self.data.mixture.result["sources"]
        return [MixedSource(name, source["share"], source["epochs"]) for name, source in shares.items()]

    @cached_property
    def training_losses(self) -> list[float]:
        """Training loss of each step, in nats a token."""
        lines = files.read_bytes(files.join(self.trained.model.folder, METRICS)).splitlines()
        return [orjson.loads(line)["train/loss"] for line in lines]

    @property
    def result(self) -> dict[str, Any]:
        """What training has recorded: `parameters`, `steps`, `tokens`, `sample`, and the held-out losses."""
        return self.trained.result

    @property
    def stages(self) -> list[RunStage]:
        """All stages of the run, in their order."""
        return [RunStage(stage.folder, stage.reused) for stage in (*self.data.stages, self.trained.model)]
