"""Corpora of texts that a test makes up, and the stages of a flow on them, without Prefect."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import files, layout, parquet
from gristmill.storage import ledger as storage_ledger
from gristmill.storage.schema import DOCUMENTS, LEDGER
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine import options
from gristmill.tasks.engine.executors import Executor, Threads
from gristmill.tasks.engine.make import StageResult, find_or_make
from gristmill.tasks.engine.phases import PhaseRunner, Silent
from gristmill.tasks.engine.spec import StageSpec


def build_in(home: str, workers: Executor | None = None) -> Callable[[StageSpec], StageResult]:
    """Makes stages in this process, or by an executor, and finds those that are finished."""
    workers = workers or Threads(1, None)
    return partial(find_or_make, home, executor=workers, progress=lambda: nullcontext(Silent()))


def context(home: str, workers: Executor | None = None) -> RunContext:
    return RunContext(MachineSettings(home=home), build_in(home, workers))


class Name(Settings):
    """`documents`: how many each source has."""

    corpus: str
    documents: dict[str, int] = {}


def take_up(folder: str, shard: int) -> dict:
    """A job whose part was written beforehand."""
    part, ledger = layout.part(folder, shard), layout.ledger_part(folder, shard)
    rows = parquet.rows(part)
    for path in (part, ledger):
        files.record(path, parquet.digest_rows(path))
    return {"rows_in": rows, "rows_out": rows, "steps": []}


def _planted(phases: PhaseRunner, record: Name, places: int) -> dict:
    """Take up parts that were written beforehand."""
    phases.map("plant", take_up, dict.fromkeys(range(places), {}))
    counts = {
        name: {
            "records": count,
            "documents": count,
            "types": {},
            "engines": {},
            "relabeled": {},
            "dates": {"none": 0, "unread": 0, "examples": []},
            "empty_files": [],
        }
        for name, count in record.documents.items()
    }
    return {"sources": counts}


@dataclass
class Direct:
    """Takes the place of a PhaseRunner: jobs are run here, one after the other, and none is recorded. `records`: those
    of the jobs of each phase."""

    folder: str
    records: dict[str, dict[int, dict]] = field(default_factory=dict)

    def map(
        self, phase: str, work: Callable[..., dict], jobs: dict[int, dict], temporary: bool = False, grows: str = ""
    ) -> dict:
        self.records[phase] = {number: work(self.folder, number, **jobs[number]) for number in sorted(jobs)}
        return self.records[phase]


def planted_stage(name: str, folder: str, rows: int = 0) -> StageResult:
    """A finished stage whose parts, with so many documents, a test writes, in a folder of the test's."""
    counts = {"rows_out": rows, "steps": []}
    return StageResult(name, "planted", folder, {"counts": counts, "result": {}, "contents": folder}, reused=False)


def check_balance(folder: str, records: list[dict]) -> None:
    """Shards of a stage's folder, with the records of their jobs, are accounted for."""
    storage_ledger.check_balance(folder, [layout.Part("", number, record, {}) for number, record in enumerate(records)])


@contextmanager
def job_memory(memory: int) -> Iterator[None]:
    """Jobs may hold so many bytes, within the block."""
    before = options.current()
    options.configure(replace(before, memory=memory))
    try:
        yield
    finally:
        options.configure(before)


@dataclass
class Texts:
    """Shards of documents, by id, that stand for a finished stage `documents`; what a document lacks is made up."""

    shards: list[list[dict]]
    sources: list[str] = field(default_factory=list)

    @property
    def recipe(self) -> SimpleNamespace:
        sources = [SimpleNamespace(name=n) for n in dict.fromkeys(self._sources())]
        return SimpleNamespace(sources=sources, heldout_documents=10_000)

    def _sources(self) -> list[str]:
        return self.sources or ["web"] * len(self.shards)

    def corpus(self, home: str, name: str = "texts") -> Corpus:
        counts = Counter[str]()
        for documents, source in zip(self.shards, self._sources(), strict=True):
            counts[source] += len(documents)
        spec = StageSpec(
            name="documents",
            version=1,
            body=_planted,
            record=Name(corpus=name, documents=counts),
            inputs={},
            places=len(self.shards),
        )
        folder = spec.folder(home)
        for number, (documents, source) in enumerate(zip(self.shards, self._sources(), strict=True)):
            given = [
                {"source": source, "url": f"https://{source}.example/{document['id']}", **document}
                for document in documents
            ]
            rows = [{**row, "characters": len(row["text"])} for row in given]
            table = pa.Table.from_pylist(rows, schema=DOCUMENTS)
            parquet.write_table(layout.part(folder, number), table)
            storage_ledger.write_ledger(folder, number, LEDGER.empty_table())
        made = build_in(home)(spec)
        return Corpus(tuple(self._sources()), made, made, (made,), (made,))


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
