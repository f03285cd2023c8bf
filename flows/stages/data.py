"""What training reads, and the stages that made it."""

from dataclasses import dataclass

from flows.stages.corpus import Corpus
from flows.stages.heldout import Split
from tasks.engine.make import StageResult


@dataclass(frozen=True)
class Data:
    corpus: Corpus
    split: Split
    tokenizer: StageResult
    tokens: StageResult
    mixture: StageResult
    grouped: StageResult | None = None

    @property
    def stages(self) -> tuple[StageResult, ...]:
        grouped = () if self.grouped is None else (self.grouped,)
        return (*self.corpus.stages, self.split.stage, self.tokenizer, self.tokens, *grouped, self.mixture)
