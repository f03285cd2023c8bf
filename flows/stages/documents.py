"""`documents`: every shard of the sources read, extracted and measured in one pass.

`gristmill.flows.stages.source_shards` lists the shards of the sources and what identifies their content. The files of a
shard are read in order. Ranges that were not read as their whole file would be are read again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, groupby
from typing import Any

import pyarrow as pa
from pydantic import SerializeAsAny, TypeAdapter

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, pinned, work_of_steps
from gristmill.flows.stages.language_model import rewrites
from gristmill.flows.stages.source_shards import FoundShard, ShardFiles, SourceFormat, find_shards, selection
from gristmill.storage import files, layout
from gristmill.tasks.documents.by_shard import Names
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.documents.selection import Heldout
from gristmill.tasks.documents.step import DocumentStep, Settings, Step, function_at
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work, digest
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.shard import extract_shard
from gristmill.tasks.reading.listing import Shard, listed
from gristmill.tasks.reading.own_columns import carried_schema, joined_sources
from gristmill.tasks.reading.range_plan import Range, RangeRead, corrected
from gristmill.tasks.reading.ranges import LineCount, count_lines, divide
from gristmill.tasks.reading.record import Columns
from gristmill.tasks.reading.shard import FILES, find_types, look
from gristmill.tasks.reading.sources import Lines, Rewrites, Selection, format_of

# Sources whose records a stage of their own selects or writes.
_MADE: Mapping[type, Callable[[RunContext, Any], StageResult]] = {Selection: selection, Rewrites: rewrites}
JSONL = 2  # of how lines of JSON are read; 2: NaN and Infinity are null
_EXAMPLES = 3  # of dates that cannot be read, and of files that held nothing
_RANGE_READ = TypeAdapter(RangeRead)


class Extraction(Settings):
    """`formats`: how the files of each source are read; `before`, `steps`: the steps before and after the extraction,
    the latter with all thresholds at their defaults; `limit`: how many documents of each source are read; `drawn`: the
    documents that may be held out, which are also written as they are without any step, None where no steps come
    before the extraction; `choosing`: the steps right after the extraction, with their thresholds, by which the engine
    `union` chooses."""

    formats: dict[str, SourceFormat]
    before: tuple[SerializeAsAny[DocumentStep], ...]
    extract: Extract
    normalize: Normalize | None
    steps: tuple[SerializeAsAny[DocumentStep], ...]
    limit: int | None
    drawn: Heldout | None = None
    choosing: tuple[SerializeAsAny[DocumentStep], ...] = ()


def documents(context: RunContext, recipe: Recipe, steps: tuple[DocumentStep, ...]) -> Corpus:
    """Extract every shard of the sources and measure `steps` in the same pass. Where URL steps come before the
    extraction, the documents that may be held out are a second part of each shard, which these steps do not thin out:
    recipes with other steps on the same sources hold out the same documents. How many of them a recipe holds out is
    known only after this pass (`corpus.held_out`), so the part has as many as it may be."""
    sources = [context.placed(source) for source in recipe.sources]
    made = {each.name: _MADE[type(each)](context, each) for each in sources if type(each) in _MADE}

    @cache
    def source_shards(position: int) -> list[FoundShard]:
        return find_shards(context, sources[position], made.get(sources[position].name), recipe.limit)

    def look(position: int) -> dict[str, Any]:
        stated = [shard.stated() for shard in source_shards(position)]
        format = source_shards(position)[-1].format.model_dump(mode="json") if stated else None
        return {"files": digest(stated), "format": format, "shards": len(stated)}

    # source by source: where the files of one are gone, those of another may still have changed
    seen: dict[str, dict[str, Any]] = {}
    for position, source in enumerate(sources):
        reading = {"source": source.model_dump(mode="json"), "limit": recipe.limit}
        selected = made.get(source.name)
        reading |= {"selection": None if selected is None else selected.contents}
        seen[source.name] = context.outside(reading, partial(look, position))
    formats = {name: SourceFormat.model_validate(of["format"]) for name, of in seen.items() if of["shards"]}
    before = pinned(context, recipe.before)
    own_functions = [source_format.format for source_format in formats.values() if ":" in source_format.format]
    for address in [*own_functions, *(engine for engine in recipe.extract.asked if ":" in engine)]:
        function_at(address)  # whose error comes before any work
    choosing = pinned(context, recipe.choosing)
    drawn = Heldout(fractions=dict.fromkeys(formats, recipe.heldout_fraction)) if before else None
    record = Extraction(
        formats=formats,
        before=before,
        extract=recipe.extract,
        normalize=recipe.normalize,
        steps=tuple(step.measuring() for step in steps),
        limit=recipe.limit,
        drawn=drawn,
        choosing=choosing,
    )
    all_steps = (*before, recipe.extract, *([recipe.normalize] if recipe.normalize else []), *steps, *choosing)
    spec = StageSpec(
        name="documents",
        # 2: also writes the documents that may be held out, if URL steps come before extraction
        # 3: a URL without a scheme that begins with a host gets one
        version=3,
        body=_extract,
        record=record,
        inputs={
            "files": digest([of["files"] for of in seen.values()]),
            **{f"rewrites {name}": stage for name, stage in made.items() if stage.name == "rewrites"},
        },
        places=lambda: tuple(shard.files for position in range(len(sources)) for shard in source_shards(position)),
        work=_work(all_steps, formats, own_functions),
    )
    stage = context.build(spec)
    _check_signals(stage.result["own"], recipe.steps)
    by_shard = Names(tuple((name, of["shards"]) for name, of in seen.items() if of["shards"]))
    return Corpus(
        by_shard, stage, stage, (stage,), (*(each for each in made.values() if each.name == "selection"), stage)
    )


def _extract(phases: PhaseRunner, record: Extraction, places: tuple[ShardFiles, ...]) -> dict:
    """Read, extract and measure every shard of the sources."""
    common = {
        "limit": record.limit,
        "before": record.before,
        "extract": record.extract,
        "normalize": record.normalize,
        "steps": record.steps,
        "drawn": record.drawn,
        "choosing": record.choosing,
    }
    sources = Names.of(shard.source for shard in places)
    first: dict[str, list[Shard]] = {source: [] for source in sources.distinct()}
    for shard in places:
        missing = FILES - len(first[shard.source])
        if missing and (shard.part is None or shard.part.begin == 0):
            read = shard.shards(record.formats[shard.source])[:missing]
            first[shard.source] += [replace(file, part=None) for file in read]
    looks = {number: {"source": source, "shards": read} for number, (source, read) in enumerate(first.items())}
    shared = {"max_bytes": record.extract.max_bytes}
    phases.map("look", look, looks, temporary=True, common=shared, grows="constant")
    divided = _divided(phases, record, places)
    columns, own = _own_columns(phases, record, places, sources, divided)
    reading = _reading(phases.folder, record, places, columns, divided)

    def jobs(number: int) -> dict[str, Any]:
        return reading(number) | {"state": places[number].state}

    sized = all(shard.bytes is not None for shard in places)
    records = phases.map(
        "extract",
        extract_shard,
        Each(range(len(places)), jobs),
        common=common | {"own": own},
        size=partial(_bytes, places) if sized else None,
    )
    parts = _misread(record, places, records)
    again: Mapping[int, dict] = {}
    if parts:
        phases.message(
            f"documents: {len(parts)} ranges of files are read again, because their first records were in other ranges"
        )
        phases.forget("extract", parts)
        read_again = Each(sorted(parts), lambda number: _of_range(jobs(number), parts[number]))
        again = phases.map("extract_again", extract_shard, read_again, common=common | {"own": own})
    files.remove(_lists(phases.folder))
    counts = {
        source: _counted(again[i] if i in parts else records[i] for i in sources.shards((source,))) for source in first
    }
    return {"sources": counts, "own": own.names}


def _work(steps: Iterable[Step], formats: Mapping[str, SourceFormat], readers: Iterable[str]) -> Work:
    """The work of the steps, of users' readers, and of formats whose libraries decide what is read."""
    work = work_of_steps(steps, readers)
    kinds = dict.fromkeys(format_of(source_format.format) for source_format in formats.values())
    versions = {"jsonl": JSONL} if Lines in kinds else {}
    libraries = (*work.libraries, *(name for kind in kinds for name in kind.libraries))
    return replace(work, versions={**work.versions, **versions}, libraries=libraries)


def _divided(phases: PhaseRunner, record: Extraction, places: Sequence[ShardFiles]) -> dict[int, Range]:
    """By the numbers of their shards the ranges of files of lines as they are read, whose first lines are known. Holds
    the counts of one file's ranges."""
    files_there = [*_ranged(record, places, "line")]
    if not files_there:
        return {}
    columns = {name: source_format.columns for name, source_format in record.formats.items()}
    counting = Each([*chain(*files_there)], _reading(phases.folder, record, places, columns, {}))
    counted = phases.map("count", count_lines, counting, temporary=True, size=partial(_bytes, places))
    ranges: dict[int, Range] = {}
    for numbers in files_there:
        parts = [(part, LineCount(**counted[i])) for i in numbers if (part := places[i].part)]
        ranges |= zip(numbers, divide(parts), strict=True)
    return ranges


def _bytes(places: Sequence[ShardFiles], number: int) -> int:
    return places[number].bytes or 0


def _ranged(record: Extraction, places: Sequence[ShardFiles], starts: str) -> Iterator[list[int]]:
    """The numbers of the ranges of each file that is read in ranges, of formats whose ranges start like that."""
    ranged = (number for number, shard in enumerate(places) if shard.part is not None)
    for (source, _), of in groupby(ranged, lambda number: (places[number].source, places[number].files)):
        if format_of(record.formats[source].format).range_starts == starts:
            yield [*of]


def _misread(record: Extraction, places: Sequence[ShardFiles], records: Mapping[int, dict]) -> dict[int, Range]:
    """By shard number, the ranges to read again because their records differ from those of the whole archive. Holds the
    records of one file's ranges."""
    ranges: dict[int, Range] = {}
    for numbers in _ranged(record, places, "record"):
        read = [(part, _RANGE_READ.validate_python(records[i]["range"])) for i in numbers if (part := places[i].part)]
        ranges |= {number: part for number, part in zip(numbers, corrected(read), strict=True) if part is not None}
    return ranges


def _of_range(arguments: dict[str, Any], part: Range) -> dict[str, Any]:
    """The arguments of a shard's job for another range of its one file."""
    (file,) = arguments["source_files"]
    return arguments | {"source_files": (replace(file, part=part),)}


def _lists(folder: str) -> str:
    """Where the files of shards of many files are listed, while the stage is made."""
    return files.join(folder, "listed")


def _reading(
    folder: str,
    record: Extraction,
    places: Sequence[ShardFiles],
    columns: Mapping[str, Columns],
    divided: Mapping[int, Range],
) -> Callable[[int], dict[str, Any]]:
    """The source and the files of a shard, as the arguments of its job. `columns`: those of each source; `divided`:
    ranges that replace those of the shards."""

    def arguments(number: int) -> dict[str, Any]:
        shard = places[number]
        read = shard.shards(record.formats[shard.source].model_copy(update={"columns": columns[shard.source]}))
        if number in divided:
            read = [replace(file, part=divided[number]) for file in read]
        return {"source": shard.source, "source_files": listed(layout.part(_lists(folder), number), read)}

    return arguments


def _own_columns(
    phases: PhaseRunner,
    record: Extraction,
    places: Sequence[ShardFiles],
    sources: Names,
    divided: Mapping[int, Range],
) -> tuple[dict[str, Columns], pa.Schema]:
    """The columns of each source, those of its own by name; and those of all sources together."""
    columns = {name: source_format.columns for name, source_format in record.formats.items()}
    carrying = [name for name, source_format in columns.items() if source_format.own or source_format.every]
    numbers = sources.shards(carrying)
    if not numbers:
        return columns, pa.schema([])
    jobs = Each(numbers, _reading(phases.folder, record, places, columns, divided))
    limits = {"max_bytes": record.extract.max_bytes}
    results = phases.map("columns", find_types, jobs, temporary=True, common=limits)
    schemas: dict[str, pa.Schema] = {}
    for source in carrying:
        records = (results[number] for number in sources.shards((source,)))
        columns[source], schemas[source] = carried_schema(source, columns[source], records)
    own = joined_sources(schemas)
    _check_signals(own.names, (*record.before, *record.steps))
    return columns, own


def _check_signals(own: Sequence[str], steps: Iterable[Step]) -> None:
    """Raise ValueError for a column of a source's own that has the name of a signal."""
    for step in steps:
        if taken := [signal.name for signal in step.signals if signal.name in own]:
            raise ValueError(
                f"a source has the column {taken[0]}, and the step {step.step} gives a signal with that name: list "
                f"the source's `columns` one by one, and rename this one, as {{their_{taken[0]}: {taken[0]}}}"
            )


def _counted(records: Iterable[dict]) -> dict:
    """Records and documents of a source, how many were dropped by each rule, of what types those are that are no
    pages, which engines gave how many texts, how many were read in another encoding than they declare, and how many
    have no date, or one that cannot be read; the first files that held no record; and how many documents are drawn, if
    any are."""
    drops, types, engines, relabeled = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    undated = unread = 0
    examples: dict[str, None] = {}
    empty: list[str] = []
    drawn: int | None = None
    read = written = 0
    for record in records:
        read, written = read + record["rows_in"], written + record["rows_out"]
        types.update(record["types"])
        engines.update(record["engines"])
        relabeled.update(record["relabeled"])
        undated, unread = undated + record["dates"]["none"], unread + record["dates"]["unread"]
        if len(examples) < _EXAMPLES:
            examples |= dict.fromkeys(record["dates"]["examples"])
        empty += record["empty_files"][: _EXAMPLES - len(empty)]
        if "drawn" in record:
            drawn = (drawn or 0) + record["drawn"]
        for step in record["steps"]:
            drops.update({f"{step['step']}.{rule}": n for rule, n in step["drops"].items()})
    dates = {"none": undated, "unread": unread, "examples": [*examples][:_EXAMPLES]}
    result = {"drops": dict(sorted(drops.items())), "types": dict(types), "engines": dict(engines)}
    return {
        "records": read,
        "documents": written,
        **result,
        "relabeled": dict(sorted(relabeled.items())),
        "dates": dates,
        "empty_files": empty,
        **({} if drawn is None else {"drawn": drawn}),
    }
