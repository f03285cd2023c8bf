"""`documents`: every shard of the sources read, extracted and measured in one pass.

A shard is a file; with a limit it is all that is read of a source, whose files are then read one after the other.
Records that a source selects by Common Crawl's columnar index are put into shards by `selection`, a stage of its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from pydantic import SerializeAsAny

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, classes, libraries, modules, pinned
from gristmill.storage import files
from gristmill.storage.fingerprint import fingerprint
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.documents.step import DocumentStep, Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, digest
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.extract_work import extract_shard
from gristmill.tasks.reading import index
from gristmill.tasks.reading.first_records import FILES, look
from gristmill.tasks.reading.listing import Shard, shards_of, tables_of
from gristmill.tasks.reading.sources import Columns, IndexFilters, Selection, Snapshot, Source


def selected(context: RunContext, source: Selection) -> StageResult:
    """Filter the index's files, one a job, and put the records that fit into shards."""
    notes = f"{context.settings.local_folder}/fingerprints"

    def look() -> str:
        with ThreadPoolExecutor(8) as pool:
            return digest(list(pool.map(lambda path: fingerprint(path, notes), tables_of(source))))

    tables = context.outside({"index": source.model_dump(mode="json")}, look)
    filters = source.part(IndexFilters)
    return context.build(StageSpec("selection", _select, filters, {"files": tables}, lambda: tuple(tables_of(source))))


def _select(phases: PhaseRunner, filters: IndexFilters, places: tuple[str, ...]) -> dict:
    """Select records by the index and put them into shards."""
    jobs = {i: {"path": path, "filters": filters} for i, path in enumerate(places)}
    phases.map("match", index.match, jobs)
    return phases.once("gather", index.gather, {"matched": len(places), "filters": filters})


class SourceFormat(Settings):
    format: str
    columns: Columns


class Record(Settings):
    """`formats`: how the files of each source are read; `before`, `steps`: the steps ahead of the extraction and behind
    it, the latter with all thresholds at their defaults; `classes`: those of all steps; `limit`: how many documents of
    each source are read."""

    formats: dict[str, SourceFormat]
    before: tuple[SerializeAsAny[DocumentStep], ...]
    extract: Extract
    normalize: Normalize | None
    steps: tuple[SerializeAsAny[DocumentStep], ...]
    classes: tuple[str, ...]
    limit: int | None


@dataclass(frozen=True)
class SourceFile:
    """A file of a source. Its source and its name, on which ids depend, are inputs of the stage, too. `shard`: the
    number of the shard that it is, or is a part of."""

    shard: int
    source: str
    name: str
    path: str
    base: str


def documents(context: RunContext, recipe: Recipe, steps: tuple[DocumentStep, ...]) -> Corpus:
    """Extract every shard of the sources and measure `steps` in the same pass."""
    sources = [context.placed(source) for source in recipe.sources]
    selections = {each.name: selected(context, each) for each in sources if isinstance(each, Selection)}

    @cache
    def listed() -> list[tuple[SourceFile, Shard, str]]:
        return _listed(context, sources, selections, recipe.limit)

    def look() -> dict[str, Any]:
        return {
            "files": digest([f"{at.source} {at.name} {seen}" for at, _, seen in listed()]),
            "formats": {
                at.source: {"format": file.format, "columns": asdict(file.columns)} for at, file, _ in listed()
            },
            "shards": Counter(source for _, source in {(at.shard, at.source): None for at, _, _ in listed()}),
        }

    given = {"sources": [source.model_dump(mode="json") for source in sources], "limit": recipe.limit}
    seen = context.outside(given | {"selections": {name: each.key for name, each in selections.items()}}, look)
    before = pinned(context, recipe.before)
    record = Record(
        formats=seen["formats"],
        before=before,
        extract=recipe.extract,
        normalize=recipe.normalize,
        steps=tuple(step.measuring() for step in steps),
        classes=classes((*before, *steps)),
        limit=recipe.limit,
    )
    all_steps = (*before, recipe.extract, *([recipe.normalize] if recipe.normalize else []), *steps)
    spec = StageSpec(
        "documents",
        _extract,
        record,
        {"files": seen["files"]},
        lambda: tuple(at for at, _, _ in listed()),
        modules(all_steps),
        libraries(all_steps),
    )
    made = context.build(spec)
    by_shard = tuple(source.name for source in sources for _ in range(seen["shards"].get(source.name, 0)))
    return Corpus(by_shard, made, made, (made,), (*selections.values(), made))


def _listed(
    context: RunContext, sources: Sequence[Source], selections: Mapping[str, StageResult], limit: int | None
) -> list[tuple[SourceFile, Shard, str]]:
    """The files of all sources in order, each with what its content is known by."""
    found: list[tuple[SourceFile, Shard, str]] = []
    shard = 0
    for source in sources:
        if isinstance(source, Selection):
            made = selections[source.name]
            parts = [made.part(i) for i in range(made.result["parts"])]
            read = shards_of(source, parts)[:limit]
            prints = [f"{made.key} {i}" for i in range(len(read))]
        else:
            read = shards_of(source)[:limit]
            prints = _fingerprints(context, source, read, limit)
        for nth, (file, seen) in enumerate(zip(read, prints, strict=True)):
            number = shard if limit is not None else shard + nth
            found.append((SourceFile(number, source.name, file.name, file.path, file.base), file, seen))
        shard += len(read) if limit is None else 1
    return found


def _extract(phases: PhaseRunner, record: Record, places: tuple[SourceFile, ...]) -> dict:
    """Read, extract and measure every shard of the sources."""
    common = {
        "limit": record.limit,
        "before": record.before,
        "extract": record.extract,
        "normalize": record.normalize,
        "steps": record.steps,
    }
    jobs = {}
    by_source: dict[str, list[int]] = {}
    first: dict[str, list[Shard]] = {}
    for number, together in groupby(places, attrgetter("shard")):
        read = tuple(together)
        source, known = read[0].source, record.formats[read[0].source]
        source_files = tuple(Shard(known.format, file.path, file.name, known.columns, file.base) for file in read)
        jobs[number] = {"source": source, "source_files": source_files, **common}
        by_source.setdefault(source, []).append(number)
        first.setdefault(source, []).extend(source_files[:FILES])
    looks = {
        number: {"source": source, "shards": read[:FILES], "max_bytes": record.extract.max_bytes}
        for number, (source, read) in enumerate(first.items())
    }
    phases.map("look", look, looks, temporary=True)
    made = phases.map("extract", extract_shard, jobs)
    return {"sources": {source: _counted([made[i] for i in of]) for source, of in by_source.items()}}


def _counted(records: list[dict]) -> dict:
    """Records and documents of a source, and how many were dropped by each rule."""
    drops = Counter[str]()
    for record in records:
        for step in record["steps"]:
            drops.update({f"{step['step']}.{rule}": n for rule, n in step["drops"].items()})
    counts = {"records": sum(r["rows_in"] for r in records), "documents": sum(r["rows_out"] for r in records)}
    return counts | {"drops": dict(sorted(drops.items()))}


def _fingerprints(context: RunContext, source: Source, read: list[Shard], limit: int | None) -> list[str]:
    if isinstance(source, Snapshot):
        # Common Crawl's files never change under an address, and a crawl has 90,000 of them
        return [file.name for file in read]
    notes = f"{context.settings.local_folder}/fingerprints"

    def seen(file: Shard) -> str:
        # with a limit most of the files are never read: they are not, for their digest, either
        if limit is not None and files.is_local(file.path):
            return f"size={files.info(file.path)['size']} modified={files.modified(file.path):.6f}"
        return fingerprint(file.path, notes)

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(seen, read))
