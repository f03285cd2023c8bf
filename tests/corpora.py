"""Corpora of texts that a test makes up, and the stages of a flow on them, without Prefect."""

import re
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from flows.stages.all_stages import Corpus

from flows.context import PhaseRunner, RunContext, StageResult, StageSpec
from flows.machine import MachineSettings
from storage import layout, parquet
from storage.layout import Stage
from storage.schema import DOCUMENTS
from tasks.dedup.near.settings import MinHash
from tasks.engine.executors import Executor, Threads


class Silent:
    """Progress that nobody looks at."""

    def phase(self, phase: str, total: int) -> None: ...

    def advance(self, found: bool) -> None: ...

    def drain(self) -> None: ...

    def say(self, line: str) -> None: ...


def context(home: str, workers: Executor | None = None) -> RunContext:
    """Makes stages in this process, or by an executor, and finds those that are finished."""
    workers = workers or Threads(1, None)

    def build(made: StageSpec) -> StageResult:
        folder = made.stage.folder(home)
        found = layout.manifest(folder)
        if found is None:
            found = layout.finish(
                folder, made.stage, made.body(PhaseRunner(folder, made.stage.code, workers, Silent()))
            )
            return StageResult(made.stage, folder, found, reused=False)
        layout.check(folder, found)
        return StageResult(made.stage, folder, found, reused=True)

    return RunContext(MachineSettings(home=home), build)


@dataclass
class Texts:
    """Shards of documents, by id, that stand for a finished stage `documents`; what a document lacks is made up."""

    shards: list[list[dict]]
    sources: list[str] = field(default_factory=list)

    @property
    def recipe(self) -> SimpleNamespace:
        return SimpleNamespace(sources=[SimpleNamespace(name=n) for n in dict.fromkeys(self._sources())])

    def _sources(self) -> list[str]:
        return self.sources or ["web"] * len(self.shards)

    def corpus(self, home: str, name: str = "texts") -> Corpus:
        stage = Stage("documents", {}, {"corpus": name}, {})
        folder = stage.folder(home)
        for number, (documents, source) in enumerate(zip(self.shards, self._sources(), strict=True)):
            given = [
                {"source": source, "url": f"https://{source}.example/{document['id']}", **document}
                for document in documents
            ]
            rows = [{**row, "characters": len(row["text"])} for row in given]
            table = pa.Table.from_pylist(rows, schema=DOCUMENTS)
            parquet.write_table(layout.part(folder, number), table)
        built = StageResult(stage, folder, {"inputs": {}, "settings": {}}, reused=False)
        return Corpus(tuple(self._sources()), built, built, (built,), (built,))


USUAL = MinHash()


def fresh(rng: np.random.Generator, count: int) -> list[str]:
    """Words that nobody else has."""
    return [f"w{x:x}" for x in rng.integers(0, 2**48, count)]


def plain_set(text: str, settings: MinHash = USUAL) -> frozenset:
    """The shingles of a text as they are, not hashed; words as here are those of texts without marks."""
    words = re.findall(r"[^\W_]+", text.lower())
    units = words if settings.unit == "words" else list(" ".join(words))
    n = settings.shingle
    return frozenset(tuple(units[i : i + n]) for i in range(max(len(units) - n + 1, 1))) if units else frozenset()


def plain_jaccard(one: str, other: str, settings: MinHash = USUAL) -> float:
    a, b = plain_set(one, settings), plain_set(other, settings)
    return len(a & b) / len(a | b)


def read(built: StageResult, shards_there: list[int]) -> pa.Table:
    return pa.concat_tables([parquet.read_table(built.part(i)) for i in shards_there])


def ledger(built: StageResult, shards_there: list[int]) -> pa.Table:
    return pa.concat_tables([parquet.read_table(layout.ledger_part(built.folder, i)) for i in shards_there])
