"""`selection`: the records that a source selects by Common Crawl's index, in shards. Separate: its own stage."""

from concurrent.futures import ThreadPoolExecutor

from gristmill.flows.machine.context import RunContext
from gristmill.storage.fingerprint import fingerprint
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, digest
from gristmill.tasks.reading import index
from gristmill.tasks.reading.formats.crawls import IndexFilters
from gristmill.tasks.reading.sources import Selection


def selection(context: RunContext, source: Selection) -> StageResult:
    """Filter the index's files, one a job, and put the records that fit into shards."""
    notes = f"{context.settings.local_folder}/fingerprints"

    def look() -> str:
        with ThreadPoolExecutor(8) as pool:
            return digest(list(pool.map(lambda path: fingerprint(path, notes), source.tables())))

    tables = context.outside({"index": source.model_dump(mode="json")}, look)
    spec = StageSpec(
        name="selection",
        version=1,
        body=_select,
        record=source.part(IndexFilters),
        inputs={"files": tables},
        places=lambda: tuple(source.tables()),
    )
    return context.build(spec)


def _select(phases: PhaseRunner, record: IndexFilters, places: tuple[str, ...]) -> dict:
    """Select records by the index and put them into shards."""
    jobs = {i: {"path": path, "filters": record} for i, path in enumerate(places)}
    phases.map("match", index.match, jobs)
    return phases.once("gather", index.gather, {"matched": len(places), "filters": record}, grows="documents")
