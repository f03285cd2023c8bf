"""The shards of a source and fingerprints of their content, from the names, sizes and digests of the files.

A shard is a file, a range of a large file, or several small files; with a limit it is all that is read of a source. The
stage `selection` puts the records that a source selects by Common Crawl's index into shards.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from gristmill.flows.machine.context import RunContext
from gristmill.flows.stages.language_model import characters_of
from gristmill.storage.fingerprint import fingerprint, of_files, stated, states_of
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, digest
from gristmill.tasks.reading import index
from gristmill.tasks.reading.formats.crawls import IndexFilters
from gristmill.tasks.reading.formats.source import Files
from gristmill.tasks.reading.listing import Shard, together
from gristmill.tasks.reading.range_plan import Range, ranges_of
from gristmill.tasks.reading.record import Columns, Repositories
from gristmill.tasks.reading.sources import Rewrites, Selection, Source

# Largest number of a snapshot's files whose sizes are looked up; with more, each file is a shard.
_FEW = 256


class SourceFormat(Settings):
    format: str
    columns: Columns
    repositories: Repositories | None = None


@dataclass(frozen=True)
class ShardFiles:
    """The files of a shard: (path, name) of each. The source and the names, on which ids depend, are inputs of the
    stage, too. `part`: the range of its one file; `bytes`: its size, None if unknown; `state`: of its local files when
    their fingerprint was taken."""

    source: str
    files: tuple[tuple[str, str], ...]
    base: str
    part: Range | None = None
    bytes: int | None = None
    state: str = ""

    def shards(self, source_format: "SourceFormat") -> list[Shard]:
        """Its files with how to read them."""
        return [
            Shard(
                source_format.format,
                path,
                name,
                source_format.columns,
                self.base,
                self.part,
                source_format.repositories,
            )
            for path, name in self.files
        ]


class FoundShard(NamedTuple):
    """A shard, how its files are read, and the fingerprint of their content."""

    files: ShardFiles
    format: SourceFormat
    seen: str

    def stated(self) -> str:
        """Everything about the shard that its documents depend on."""
        part = [] if self.files.part is None else [f"{self.files.part.begin} {self.files.part.end}"]
        return "\n".join([self.files.source, *(name for _, name in self.files.files), *part, self.seen])


def find_shards(
    context: RunContext, source: Source, selection: StageResult | None, limit: int | None
) -> list[FoundShard]:
    """The shards of a source in order. `selection`: the stage that selected or wrote its records, if there is one;
    `limit`: documents to read, from a single shard."""
    if isinstance(source, Selection):
        assert selection is not None, "its records were selected"
        read = source.selected_shards([selection.part(i) for i in range(selection.result["parts"])])[:limit]
        runs = _runs(len(read), limit)
        prints = [" ".join(f"{selection.contents} {i}" for i in run) for run in runs]
        sizes: list[int | None] = [None] * len(read)
    elif isinstance(source, Rewrites):
        assert selection is not None, "its records were written"
        read, runs = source.rewritten_shards(selection.folder, characters_of(selection))
        runs, sizes = runs if limit is None else _runs(len(read), limit), [None] * len(read)
        prints = [" ".join(f"{selection.contents} {read[i].name}" for i in run) for run in runs]
    else:
        read = source.shards()[:limit]
        runs, prints, sizes = _fingerprints(context, source, read, limit)
    shards = []
    for run, seen in zip(runs, prints, strict=True):
        shard = [read[position] for position in run]
        named = tuple((file.path, file.name) for file in shard)
        size = _sum(sizes[position] for position in run)
        most = source.max_range_bytes if len(run) == 1 else None
        for part in [None] if most is None else ranges_of(size, most):
            state = "" if source.is_immutable or selection else states_of([path for path, _ in named])
            of = ShardFiles(source.name, named, shard[0].base, part, _range_bytes(part, size), state)
            shards.append(FoundShard(of, SourceFormat(**_known(shard[0])), seen))
    return shards


def _known(shard: Shard) -> dict:
    return {name: getattr(shard, name) for name in SourceFormat.model_fields}


def _sum(sizes: Iterable[int | None]) -> int | None:
    values = [*sizes]
    return None if None in values else sum(size or 0 for size in values)


def _range_bytes(part: Range | None, size: int | None) -> int | None:
    """The size of a shard: of its range, or of its files."""
    return size if part is None or size is None else (size if part.end is None else part.end) - part.begin


def _runs(count: int, limit: int | None) -> list[range]:
    """A shard for each file; with a limit, one shard for all files."""
    return (
        [range(count)] if limit is not None and count else [range(position, position + 1) for position in range(count)]
    )


def _fingerprints(
    context: RunContext, source: Source, read: list[Shard], limit: int | None
) -> tuple[list[range], list[str], list[int | None]]:
    """Runs of files that are read together, the fingerprint of each run, and the sizes of the files."""
    if source.is_immutable:
        # Common Crawl's files never change, and a crawl has 90,000 of them: enough shards without ranges
        runs = _runs(len(read), limit)
        sizes: list[int | None] = [None] * len(read)
        if limit is None and len(read) <= _FEW:
            with ThreadPoolExecutor(8) as pool:
                sizes = list(pool.map(lambda file: stated(file.path).size, read))
        return runs, [" ".join(read[position].name for position in run) for run in runs], sizes
    notes = f"{context.settings.local_folder}/fingerprints"
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda file: stated(file.path), read))
        if limit is not None:
            # most of the files are never read, so their contents are not digested, either
            return _runs(len(read), limit), [digest([file.state for file in states])], [None] * len(read)
        assert isinstance(source, Files), "selections and snapshots have no files of their own"
        sizes = [file.size for file in states]
        runs = together(read, sizes, source.shard_bytes)
        return runs, list(pool.map(lambda run: of_files([states[position] for position in run], notes), runs)), sizes


def selection(context: RunContext, source: Selection) -> StageResult:
    """Filter the files of the index, one per job, and put the selected records into shards."""
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
