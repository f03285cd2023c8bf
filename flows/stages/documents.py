"""`documents`: every shard of the sources read, extracted and measured in one pass.

A shard is a file, or small ones together; with a limit it is all that is read of a source. The files of a shard are
read one after the other.
Records that a source selects by Common Crawl's columnar index are put into shards by `selection`, a stage of its own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import SerializeAsAny

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe import own_steps
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, classes, libraries, modules, pinned
from gristmill.storage import files, layout
from gristmill.storage.fingerprint import fingerprint, of_files, stated
from gristmill.tasks.documents.by_shard import Names
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.documents.sampling import Heldout
from gristmill.tasks.documents.step import DocumentStep, Settings, Step
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, digest
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.extract_work import extract_shard
from gristmill.tasks.reading import index
from gristmill.tasks.reading.first_records import FILES, look
from gristmill.tasks.reading.listing import Shard, listed, shards_of, tables_of, together
from gristmill.tasks.reading.own_columns import carried_schema, find_types, joined_sources
from gristmill.tasks.reading.sources import Columns, Files, IndexFilters, Selection, Snapshot, Source


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
    return phases.once("gather", index.gather, {"matched": len(places), "filters": filters}, grows="documents")


class SourceFormat(Settings):
    format: str
    columns: Columns


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


@dataclass(frozen=True)
class ShardFiles:
    """The files of a shard: (path, name) of each. Its source and their names, on which ids depend, are inputs of the
    stage, too."""

    source: str
    files: tuple[tuple[str, str], ...]
    base: str


class FoundShard(NamedTuple):
    """A shard, how its files are read, and what their content is known by."""

    files: ShardFiles
    format: SourceFormat
    seen: str


def documents(
    context: RunContext, recipe: Recipe, steps: tuple[DocumentStep, ...], drawn: Heldout | None = None
) -> Corpus:
    """Extract every shard of the sources and measure `steps` in the same pass. `drawn`: the held-out documents alone,
    in a stage of another name."""
    sources = [context.placed(source) for source in recipe.sources]
    selections = {each.name: selected(context, each) for each in sources if isinstance(each, Selection)}

    @cache
    def found(at: int) -> list[FoundShard]:
        return _found(context, sources[at], selections.get(sources[at].name), recipe.limit)

    def look(at: int) -> dict[str, Any]:
        names = ["\n".join([files.source, *(name for _, name in files.files), seen]) for files, _, seen in found(at)]
        formats = [known.model_dump(mode="json") for _, known, _ in found(at)]
        return {"files": digest(names), "format": formats[-1] if formats else None, "shards": len(names)}

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
    by_shard = Names(tuple((name, of["shards"]) for name, of in seen.items() if of["shards"]))
    return Corpus(by_shard, made, made, (made,), (*selections.values(), made))


def _found(context: RunContext, source: Source, selection: StageResult | None, limit: int | None) -> list[FoundShard]:
    """The shards of a source in order. `selection`: the stage that selected its records, if it is such a source."""
    if isinstance(source, Selection):
        assert selection is not None, "its records were selected"
        read = shards_of(source, [selection.part(i) for i in range(selection.result["parts"])])[:limit]
        runs = _runs(len(read), limit)
        prints = [" ".join(f"{selection.key} {i}" for i in run) for run in runs]
    else:
        read = shards_of(source)[:limit]
        runs, prints = _fingerprints(context, source, read, limit)
    found = []
    for run, seen in zip(runs, prints, strict=True):
        shard = [read[at] for at in run]
        of = ShardFiles(source.name, tuple((f.path, f.name) for f in shard), shard[0].base)
        found.append(FoundShard(of, SourceFormat(format=shard[0].format, columns=shard[0].columns), seen))
    return found


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
    sources = Names.of(shard.source for shard in places)
    first: dict[str, list[Shard]] = {source: [] for source in sources.distinct()}
    for shard in places:
        if missing := FILES - len(first[shard.source]):
            known = record.formats[shard.source]
            first[shard.source] += _files_of(shard, known.format, known.columns)[:missing]
    looks = {number: {"source": source, "shards": read} for number, (source, read) in enumerate(first.items())}
    given = {"max_bytes": record.extract.max_bytes}
    phases.map("look", look, looks, temporary=True, common=given, grows="constant")
    columns, own = _own_columns(phases, record, places, sources)
    jobs = _reading(phases.folder, record, places, columns)
    made = phases.map("extract", extract_shard, Each(range(len(places)), jobs), common=common | {"own": own})
    files.remove(_lists(phases.folder))
    counts = {source: _counted(made[i] for i in sources.shards((source,))) for source in first}
    return {"sources": counts, "own": own.names}


def _files_of(shard: ShardFiles, format: str, columns: Columns) -> list[Shard]:
    return [Shard(format, path, name, columns, shard.base) for path, name in shard.files]


def _lists(folder: str) -> str:
    """Where the files of shards of many files are listed, while the stage is made."""
    return files.join(folder, "listed")


def _reading(
    folder: str, record: Record, places: Sequence[ShardFiles], columns: Mapping[str, Columns]
) -> Callable[[int], dict[str, Any]]:
    """The source and the files of a shard, as the arguments of its job; `columns`: those of each source."""

    def arguments(number: int) -> dict[str, Any]:
        shard = places[number]
        read = _files_of(shard, record.formats[shard.source].format, columns[shard.source])
        return {"source": shard.source, "source_files": listed(layout.part(_lists(folder), number), read)}

    return arguments


def _own_columns(
    phases: PhaseRunner, record: Record, places: Sequence[ShardFiles], sources: Names
) -> tuple[dict[str, Columns], pa.Schema]:
    """The columns of each source, those of its own by name; and those of all sources together."""
    columns = {name: known.columns for name, known in record.formats.items()}
    carrying = [name for name, known in columns.items() if known.own or known.every]
    asked = sources.shards(carrying)
    if not asked:
        return columns, pa.schema([])
    given = Each(asked, _reading(phases.folder, record, places, columns))
    limits = {"max_bytes": record.extract.max_bytes}
    found = phases.map("columns", find_types, given, temporary=True, common=limits)
    schemas: dict[str, pa.Schema] = {}
    for source in carrying:
        records = (found[number] for number in sources.shards((source,)))
        columns[source], schemas[source] = carried_schema(source, columns[source], records)
    own = joined_sources(schemas)
    _check_signals(own.names, (*record.before, *record.steps))
    return columns, own


def _check_signals(own: Sequence[str], steps: Iterable[Step]) -> None:
    """Raise ValueError for a column of a source's own that has the name of a signal."""
    for step in steps:
        if taken := [signal.name for signal in step.signals if signal.name in own]:
            raise ValueError(
                f"a source has the column {taken[0]}, and the step {step.step} gives a signal of that name: name the "
                f"source's `columns` one by one, and this one by a name of its own, as {{their_{taken[0]}: {taken[0]}}}"
            )


def _counted(records: Iterable[dict]) -> dict:
    """Records and documents of a source, and how many were dropped by each rule."""
    drops = Counter[str]()
    read = written = 0
    for record in records:
        read, written = read + record["rows_in"], written + record["rows_out"]
        for step in record["steps"]:
            drops.update({f"{step['step']}.{rule}": n for rule, n in step["drops"].items()})
    return {"records": read, "documents": written, "drops": dict(sorted(drops.items()))}


def _runs(count: int, limit: int | None) -> list[range]:
    """A shard for each file; with a limit one for all, of which the first documents are read."""
    return [range(count)] if limit is not None and count else [range(at, at + 1) for at in range(count)]


def _fingerprints(
    context: RunContext, source: Source, read: list[Shard], limit: int | None
) -> tuple[list[range], list[str]]:
    """Which files are read together, and the fingerprint of each such run."""
    if isinstance(source, Snapshot):
        # Common Crawl's files never change under an address, and a crawl has 90,000 of them
        runs = _runs(len(read), limit)
        return runs, [" ".join(read[at].name for at in run) for run in runs]
    notes = f"{context.settings.local_folder}/fingerprints"
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda file: stated(file.path), read))
        if limit is not None:
            # most of the files are never read: they are not, for their digest, either
            return _runs(len(read), limit), [digest([file.state for file in found])]
        assert isinstance(source, Files), "selections and snapshots have no files of their own"
        runs = together(read, [file.size for file in found], source.shard_bytes)
        return runs, list(pool.map(lambda run: of_files([found[at] for at in run], notes), runs))
