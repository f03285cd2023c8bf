"""A step that takes time and no processor: what a test does in the middle of a stage, it does in time."""

import time
from typing import ClassVar, Literal

import pyarrow as pa

from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import Bound, DocumentStep, Signal

SECONDS = 0.5  # of a document


class Slow(DocumentStep):
    """Drop nothing, slowly."""

    step: Literal["slow"] = "slow"
    min_length: int = 0
    signals: ClassVar = (Signal("slow_length", "int64", "characters", "slow_step.py", description="Of the text."),)

    def decisions(self) -> list[Bound]:
        return [Bound("length", "slow_length", low=self.min_length)]


def measure(step: Slow, documents: Batch) -> dict[str, pa.Array]:
    texts = documents["text"].to_pylist()
    time.sleep(SECONDS * len(texts))
    return {"slow_length": pa.array(map(len, texts), pa.int64())}
