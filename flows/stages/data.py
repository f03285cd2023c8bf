"""What training reads, and the stages that made it."""

from dataclasses import dataclass

from flows.stages.corpus import Corpus
from tasks.engine.make import StageResult


@dataclass(frozen=True)
class Data:
    corpus: Corpus
    tokenizer: StageResult
    tokens: StageResult
    mixture: StageResult

    @property
    def stages(self) -> tuple[StageResult, ...]:
        return (*self.corpus.stages, self.tokenizer, self.tokens, self.mixture)
