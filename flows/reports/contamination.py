"""What a recipe's step `decontamination` found: of each benchmark how many items are in documents, and examples."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.tables import Table
from gristmill.flows.stages.removal import HITS
from gristmill.storage import files, layout, parquet
from gristmill.tasks.decontamination.shards import hits_file, items_file
from gristmill.tasks.engine.make import StageResult

_SHOWN = 300  # characters of an example


@dataclass(frozen=True)
class BenchmarkRow:
    """`judged`: items that are long enough to be looked for; `dirty`: those that a document holds; `share`: of the
    judged; `documents`: those that hold an item of it; `shared`: of all documents."""

    benchmark: str
    items: int
    judged: int
    dirty: int
    share: float
    documents: int
    shared: float


@dataclass(frozen=True)
class HitExample:
    """A document that holds an item, and the piece of its text."""

    benchmark: str
    item: str
    document: str
    score: float
    found: str


@dataclass(frozen=True)
class Contamination:
    """`documents`: all that were compared; `holding`: those that hold an item; `split`: the folder with the benchmarks'
    items, `clean` and `dirty` apart; `items`: the file with every item; `examples`: of the highest scores."""

    documents: int
    holding: int
    benchmarks: tuple[BenchmarkRow, ...]
    examples: tuple[HitExample, ...]
    split: str
    items: str

    def parts(self) -> Iterator[Table | str]:
        """A row for each benchmark; then the sum, examples, and where the rest is."""
        columns = ("benchmark", "#items", "#judged", "#dirty", "#of judged|.2%", "#documents", "#of all|.3%")
        yield Table(columns, [tuple(vars(row).values()) for row in self.benchmarks])
        yield f"{self.holding:,} of {self.documents:,} documents contain an item of a benchmark."
        for one in self.examples:
            shown = " ".join(one.found.split())
            cut = "..." if len(shown) > _SHOWN else ""
            yield f"{one.benchmark}:{one.item} in {one.document}, score {one.score:.2f}: {shown[:_SHOWN]}{cut}"
        yield f"clean and contaminated items, in separate files: {self.split}"
        yield f"every item with its documents and score: {self.items}"


def contamination(recipe: Any, examples: int = 3, settings: MachineSettings | None = None) -> tuple[Contamination, ...]:
    """What each step `decontamination` of a finished recipe found, with so many examples of each benchmark.

    Raises NotFinishedError, and LookupError for a recipe without the step.
    """
    report = finished(recipe, settings)
    stages = [stage for stage in report.corpus.stages if stage.name == HITS]
    if not stages:
        raise LookupError(
            f"the recipe {report.recipe.name} has no step `decontamination`, so no document was compared "
            "with benchmarks; add the step and run the recipe"
        )
    return tuple(_contamination(stage, examples) for stage in stages)


def _contamination(stage: StageResult, examples: int) -> Contamination:
    searched = [part for part in layout.parts(stage.folder, stage.manifest) if part.phase == "find"]
    shards = [part.number for part in searched]  # all but those of sources without the step
    documents = sum(parquet.rows(stage.part(i)) for i in shards)
    rows = tuple(
        BenchmarkRow(
            name,
            found["items"],
            found["judged"],
            found["dirty"],
            found["dirty"] / max(found["judged"], 1),
            found["documents"],
            found["documents"] / max(documents, 1),
        )
        for name, found in stage.result["benchmarks"].items()
    )
    return Contamination(
        documents,
        sum(part.record["documents"] for part in searched),
        rows,
        tuple(_examples(stage, shards, examples)),
        files.join(stage.folder, "split"),
        items_file(stage.folder),
    )


def _examples(stage: StageResult, shards: Sequence[int], most: int) -> Iterator[HitExample]:
    """The hits of the highest scores, of each benchmark some, each item once. Holds the hits of a shard."""
    best: dict[str, list[tuple[float, str, str, str]]] = {name: [] for name in stage.result["benchmarks"]}
    for shard in shards:
        table = parquet.read_table(hits_file(stage.folder, shard), ["id", "benchmark", "item", "score", "found"])
        for name, known in best.items():
            mine = table.filter(pc.equal(table["benchmark"], name))
            known += [(-row["score"], row["item"], row["id"], row["found"]) for row in mine.to_pylist()]
            highest = {one[1]: one for one in sorted(known, reverse=True)}
            known[:] = sorted(highest.values())[:most]
    for name, known in best.items():
        for score, item, document, text in known:
            yield HitExample(name, item, document, -score, text)
