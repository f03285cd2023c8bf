"""`documents`: every shard of the sources read, extracted and measured in one pass.

A shard is a file, a range of a large one, or small ones together; with a limit it is all that is read of a source. The
files of a shard are read one after the other. Ranges that were not read as their whole file would be are read again.
Records that a source selects by Common Crawl's columnar index are put into shards by `selection`, a stage of its own.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pyarrow as pa
from pydantic import SerializeAsAny, TypeAdapter

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe import own_steps
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, classes, libraries, modules, pinned
from gristmill.flows.stages.source_shards import FoundShard, ShardFiles, SourceFormat, find_shards
from gristmill.storage import files, layout
from gristmill.storage.fingerprint import fingerprint
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.documents.sampling import Heldout
from gristmill.tasks.documents.step import DocumentStep, Settings, Step
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, digest
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.extract_work import extract_shard
from gristmill.tasks.reading import index
from gristmill.tasks.reading.first_records import FILES, look
from gristmill.tasks.reading.listing import ListedFiles, Shard, listed, tables_of
from gristmill.tasks.reading.own_columns import carried_schema, find_types, joined_sources
from gristmill.tasks.reading.ranges import RangeRead, corrected
from gristmill.tasks.reading.sources import IndexFilters, Selection

_RANGE_READ = TypeAdapter(RangeRead)


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


class Record(Settings):
    """`formats`: how the files of each source are read; `before`, `steps`: the steps ahead of the extraction and behind
    it, the latter with all thresholds at their defaults; `classes`: those of all steps; `limit`: how many documents of
    each source are read; `drawn`: of these the held-out documents alone."""

    formats: dict[str, SourceFormat]
    before: tuple[SerializeAsAny[DocumentStep], ...]
    extract: Extract
    normalize: Normalize | None
    steps: tuple[SerializeAsAny[DocumentStep], ...]
    classes: tuple[str, ...]
    limit: int | None
    drawn: Heldout | None = None


def documents(
    context: RunContext, recipe: Recipe, steps: tuple[DocumentStep, ...], drawn: Heldout | None = None
) -> Corpus:
    """Extract every shard of the sources and measure `steps` in the same pass. `drawn`: the held-out documents alone,
    in a stage of another name."""
    sources = [context.placed(source) for source in recipe.sources]
    selections = {each.name: selected(context, each) for each in sources if isinstance(each, Selection)}

    @cache
    def found(at: int) -> list[FoundShard]:
        return find_shards(context, sources[at], selections.get(sources[at].name), recipe.limit)

    def look(at: int) -> dict[str, Any]:
        stated = [shard.stated() for shard in found(at)]
        format = found(at)[-1].format.model_dump(mode="json") if stated else None
        return {"files": digest(stated), "format": format, "shards": len(stated)}

    # source by source: where the files of one are gone, those of another may still have changed
    seen: dict[str, dict[str, Any]] = {}
    for at, source in enumerate(sources):
        given = {"source": source.model_dump(mode="json"), "limit": recipe.limit}
        selection = selections.get(source.name)
        given |= {"selection": None if selection is None else selection.key}
        seen[source.name] = context.outside(given, partial(look, at))
    formats = {name: SourceFormat.model_validate(of["format"]) for name, of in seen.items() if of["shards"]}
    before = pinned(context, recipe.before)
    own_functions = [known.format for known in formats.values() if ":" in known.format]
    for address in [*own_functions, *([recipe.extract.engine] if ":" in recipe.extract.engine else [])]:
        own_steps.function_at(address)  # whose error comes before any work
    readers = sorted({address.partition(":")[0] for address in own_functions})
    record = Record(
        formats=formats,
        before=before,
        extract=recipe.extract,
        normalize=recipe.normalize,
        steps=tuple(step.measuring() for step in steps),
        classes=classes((*before, *steps)),
        limit=recipe.limit,
        drawn=drawn,
    )
    all_steps = (*before, recipe.extract, *([recipe.normalize] if recipe.normalize else []), *steps)
    spec = StageSpec(
        "documents" if drawn is None else "drawn_documents",
        _extract,
        record,
        {"files": digest([of["files"] for of in seen.values()])},
        lambda: tuple(shard.files for at in range(len(sources)) for shard in found(at)),
        (*modules(all_steps), *readers),
        (*libraries(all_steps), *(name for reader in readers for name in own_steps.libraries_of(reader))),
    )
    made = context.build(spec)
    _check_signals(made.result["own"], recipe.steps)
    by_shard = tuple(name for name, of in seen.items() for _ in range(of["shards"]))
    return Corpus(by_shard, made, made, (made,), (*selections.values(), made))


def _extract(phases: PhaseRunner, record: Record, places: tuple[ShardFiles, ...]) -> dict:
    """Read, extract and measure every shard of the sources."""
    common = {
        "limit": record.limit,
        "before": record.before,
        "extract": record.extract,
        "normalize": record.normalize,
        "steps": record.steps,
        "drawn": record.drawn,
    }
    jobs = {}
    by_source: dict[str, list[int]] = {}
    first: dict[str, list[Shard]] = {}
    lists = files.join(phases.folder, "listed")
    for number, shard in enumerate(places):
        known = record.formats[shard.source]
        read = shard.shards(known)
        source_files = listed(layout.part(lists, number), read)
        jobs[number] = {"source": shard.source, "source_files": source_files, **common}
        by_source.setdefault(shard.source, []).append(number)
        if shard.part is None or shard.part.begin == 0:
            first.setdefault(shard.source, []).extend(replace(file, part=None) for file in read[:FILES])
    looks = {
        number: {"source": source, "shards": read[:FILES], "max_bytes": record.extract.max_bytes}
        for number, (source, read) in enumerate(first.items())
    }
    phases.map("look", look, looks, temporary=True)
    own = _own_columns(phases, record, jobs)
    for job in jobs.values():
        job["own"] = own
    sized = all(shard.bytes is not None for shard in places)
    made = phases.map("extract", extract_shard, jobs, size=(lambda i: places[i].bytes or 0) if sized else None)
    made |= _read_again(phases, places, jobs, made)
    files.remove(lists)
    return {"sources": {source: _counted([made[i] for i in of]) for source, of in by_source.items()}, "own": own.names}


def _read_again(
    phases: PhaseRunner, places: tuple[ShardFiles, ...], jobs: dict[int, dict], made: dict[int, dict]
) -> dict[int, dict]:
    """The records of ranges that were not read as the whole file would be, and are read anew; their parts take the
    place of the first ones."""
    ranges: dict[tuple, list[int]] = {}
    for number, shard in enumerate(places):
        if shard.part is not None:
            ranges.setdefault((shard.source, shard.files), []).append(number)
    again = {}
    for numbers in ranges.values():
        read = [(part, _RANGE_READ.validate_python(made[i]["range"])) for i in numbers if (part := places[i].part)]
        for number, part in zip(numbers, corrected(read), strict=True):
            if part is not None:
                (file,) = jobs[number]["source_files"]
                again[number] = jobs[number] | {"source_files": (replace(file, part=part),)}
    if not again:
        return {}
    phases.message(f"documents: {len(again)} ranges of files are read again: their first records were found in others")
    phases.forget("extract", again)
    return phases.map("extract_again", extract_shard, again)


def _own_columns(phases: PhaseRunner, record: Record, jobs: dict[int, dict]) -> pa.Schema:
    """The columns of the sources' own, of all sources; the files in the jobs get those of their source by name."""
    carrying = {
        name: known.columns for name, known in record.formats.items() if known.columns.own or known.columns.every
    }
    asked = {number: job for number, job in jobs.items() if job["source"] in carrying}
    given = {
        number: {name: job[name] for name in ("source", "source_files")} | {"max_bytes": record.extract.max_bytes}
        for number, job in asked.items()
    }
    if not given:
        return pa.schema([])
    found = phases.map("columns", find_types, given, temporary=True)
    schemas: dict[str, pa.Schema] = {}
    for source, columns in carrying.items():
        of = [number for number, job in asked.items() if job["source"] == source]
        columns, schemas[source] = carried_schema(source, columns, [found[number] for number in of])
        for number in of:
            files_of = asked[number]["source_files"]
            asked[number]["source_files"] = (
                replace(files_of, columns=columns)
                if isinstance(files_of, ListedFiles)
                else tuple(replace(file, columns=columns) for file in files_of)
            )
    own = joined_sources(schemas)
    _check_signals(own.names, (*record.before, *record.steps))
    return own


def _check_signals(own: Sequence[str], steps: Iterable[Step]) -> None:
    """Raise ValueError for a column of a source's own that has the name of a signal."""
    for step in steps:
        if taken := [signal.name for signal in step.signals if signal.name in own]:
            raise ValueError(
                f"a source has the column {taken[0]}, and the step {step.step} gives a signal of that name: name the "
                f"source's `columns` one by one, and this one by a name of its own, as {{their_{taken[0]}: {taken[0]}}}"
            )


def _counted(records: list[dict]) -> dict:
    """Records and documents of a source, and how many were dropped by each rule."""
    drops = Counter[str]()
    for record in records:
        for step in record["steps"]:
            drops.update({f"{step['step']}.{rule}": n for rule, n in step["drops"].items()})
    counts = {"records": sum(r["rows_in"] for r in records), "documents": sum(r["rows_out"] for r in records)}
    return counts | {"drops": dict(sorted(drops.items()))}
