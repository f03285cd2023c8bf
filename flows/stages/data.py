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

    @property
    def stages(self) -> tuple[StageResult, ...]:
        return (*self.corpus.stages, self.split.stage, self.tokenizer, self.tokens, self.mixture)
