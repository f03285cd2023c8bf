"""`selection`: the records that a source selects by Common Crawl's columnar index, put into shards."""

from concurrent.futures import ThreadPoolExecutor

from flows.context import RunContext
from storage.fingerprint import fingerprint
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec, digest
from tasks.reading import index
from tasks.reading.listing import tables_of
from tasks.reading.sources import IndexFilters, Selection


def selected(context: RunContext, source: Selection) -> StageResult:
    """Filter the index's files, one a job, and put the records that fit into shards."""
    tables = tables_of(source)
    notes = f"{context.settings.local_folder}/fingerprints"
    with ThreadPoolExecutor(8) as pool:
        prints = list(pool.map(lambda path: fingerprint(path, notes), tables))
    filters = source.part(IndexFilters)
    return context.build(StageSpec("selection", _select, filters, {"files": digest(prints)}, tuple(tables)))


def _select(phases: PhaseRunner, filters: IndexFilters, places: tuple[str, ...]) -> dict:
    """Select records by the index and put them into shards."""
    jobs = {i: {"path": path, "filters": filters} for i, path in enumerate(places)}
    phases.map("match", index.match, jobs)
    return phases.once("gather", index.gather, {"matched": len(places), "filters": filters})
