"""What was made of a recipe: the funnel, documents kept and dropped, the training, and where things are."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports import templates
from gristmill.flows.reports.dropped import dropped_by
from gristmill.flows.reports.funnel import FunnelRow, frame, funnel
from gristmill.flows.reports.status import show
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.heldout import Data
from gristmill.storage.home import Home
from gristmill.tasks.engine.make import StageResult
from gristmill.training.run.tracking import METRICS

if TYPE_CHECKING:
    from pandas import DataFrame

    from gristmill.flows.stages.model import Trained


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


@dataclass(frozen=True, repr=False)
class Report:
    """What was made of a recipe, read from the files of its stages. What was not made is None."""

    recipe: Recipe
    settings: MachineSettings
    corpus: Corpus
    data: Data | None = None
    trained: "Trained | None" = None
    exported: StageResult | None = None

    def __repr__(self) -> str:
        return f"<Report of {self.recipe.name}: {'; '.join(self.summary)}>"

    def _repr_html_(self) -> str:
        """The summary and the funnel as HTML, every text escaped."""
        return templates.template("notebook.html").render(report=self)

    @cached_property
    def summary(self) -> list[str]:
        """What came out, in a sentence each: documents, tokens, held-out loss."""
        rows = funnel(self.corpus.stages)
        lines = [f"{rows[-1].documents_out:,} of {rows[0].documents_in:,} documents kept"]
        if self.tokens is not None:
            lines.append(f"{self.tokens:,} tokens to train on")
        if result := self.result:
            lines.append(
                f"{result['heldout/bits_per_byte']:.4f} bits/byte on held-out text, "
                f"where the unigram model has {result['unigram/bits_per_byte']:.4f}"
            )
            named = {name.split("/")[1]: value for name, value in result.items() if name.startswith("evaluation/")}
            lines += [f"{value:.4f} bits/byte on {name}" for name, value in named.items()]
        return lines

    @cached_property
    def steps(self) -> list[FunnelRow]:
        """The funnel: a row for each step, in the order of the recipe, and where there are tokens one for the held-out
        documents, and one for the texts of `evaluation`."""
        return funnel(self.data.split.train.stages if self.data else self.corpus.stages)

    @property
    def funnel(self) -> "DataFrame":
        """The funnel as a data frame; `tokens` are those behind a step, estimated from characters."""
        return frame(
            {
                "step": row.name,
                "documents_in": row.documents_in,
                "documents_out": row.documents_out,
                "kept": row.kept,
                "characters_out": row.characters_out,
                "tokens": self.estimated_tokens(row.characters_out),
                "reasons": ", ".join(f"{rule} {count}" for rule, count in row.reasons.items()),
            }
            for row in self.steps
        )

    def documents(self, n: int = 5, stage: str = "") -> "DataFrame":
        """The first `n` documents that a stage of the run kept, with their texts; default: of the curated corpus.

        `stage`: a name (`rules`) or a label (`rules-KEY`); of stages of one name the last. Raises LookupError, naming
        the stages that there are.
        """
        label = self._labelled(stage)[-1] if stage else _label(self.corpus.kept)
        [found] = show(self.settings.home, label, n)
        return frame(document.row | {"text": document.text} for document in found.documents)

    def dropped(self, rule: str = "", n: int = 20, stage: str = "") -> "DataFrame":
        """Up to `n` documents of each stage that a rule dropped, with their texts as they reached it.

        `rule`: `step.rule`, or a step (`gopher_quality.stop_words`, `minhash`); default: any. The column `marked` has
        the offending parts of the text. Raises LookupError, naming what there is.
        """
        wanted = set(self._labelled(stage))
        home = Home(self.settings.home)
        found = dropped_by([one for one in home.stages() if one.label in wanted], rule, n)
        return frame(
            {"stage": one.stage, **one.row, "text": one.text}
            | {"marked": [(one.text or "")[start:stop] for start, stop in one.marks]}
            for one in found
        )

    def _labelled(self, stage: str) -> list[str]:
        labels = [_label(one) for one in self._made()]
        found = [label for label in labels if not stage or stage in (label, label.rpartition("-")[0])]
        if not found:
            raise LookupError(f"no stage {stage} in the run of {self.recipe.name}; there are: {', '.join(labels)}")
        return found

    @cached_property
    def tokens(self) -> int | None:
        """Tokens of the documents that training may see."""
        return None if self.data is None else self.data.tokens.result["train"]

    @property
    def characters_per_token(self) -> float | None:
        """Of the documents behind the last row of the funnel: characters over this are an estimate of tokens."""
        characters = self.steps[-1].characters_out
        assert characters is not None, "the corpus has texts behind its last step"
        return characters / self.tokens if self.tokens else None

    def estimated_tokens(self, characters: int | None) -> int | None:
        """Tokens that so many characters give; None where there are no tokens to estimate from."""
        per_token = self.characters_per_token
        return None if characters is None or per_token is None else round(characters / per_token)

    @cached_property
    def mixture(self) -> list[MixedSource]:
        """The sources of the training data."""
        if self.data is None:
            return []
        shares = self.data.mixture.result["sources"]
        return [MixedSource(name, source["share"], source["epochs"]) for name, source in shares.items()]

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """What training has recorded of each step: `step`, `train/loss` in nats a token, ..."""
        if self.trained is None:
            return []
        return [*map(orjson.loads, self.trained.model.file(METRICS).read().splitlines())]

    @property
    def training_losses(self) -> list[float]:
        """Training loss of each step, in nats a token."""
        return [line["train/loss"] for line in self.metrics]

    @property
    def result(self) -> dict[str, Any]:
        """What training has recorded: `parameters`, `steps`, `tokens`, `sample`, held-out losses; or nothing."""
        return self.trained.result if self.trained else {}

    @property
    def stages(self) -> list[RunStage]:
        """All stages of the run, in their order."""
        return [RunStage(stage.folder, stage.reused) for stage in self._made()]

    def _made(self) -> Iterator[StageResult]:
        yield from self.data.stages if self.data else self.corpus.stages
        if self.trained:
            yield self.trained.model
        if self.exported:
            yield self.exported


def _label(stage: StageResult) -> str:
    return f"{stage.name}-{stage.key}"
