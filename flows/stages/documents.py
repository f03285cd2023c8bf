"""`documents`: every shard of the sources read, extracted and measured in one pass."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pydantic import SerializeAsAny

from flows.context import RunContext
from flows.recipe import Recipe
from flows.stages import index_selection
from flows.stages.corpus import Corpus
from flows.stages.steps_behind import classes, libraries, modules, pinned
from storage.fingerprint import fingerprint
from tasks.documents.normalize import Normalize
from tasks.documents.step import DocumentStep, Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec, digest
from tasks.extraction.extract import Extract
from tasks.extraction.extract_work import extract_shard
from tasks.reading.listing import Shard, shards_of
from tasks.reading.sources import Columns, Selection, Snapshot, Source


class SourceFormat(Settings):
    format: str
    columns: Columns


class Record(Settings):
    """`formats`: how the files of each source are read; `before`, `steps`: the steps ahead of the extraction and behind
    it, the latter with all thresholds at their defaults; `classes`: those of all steps."""

    formats: dict[str, SourceFormat]
    before: tuple[SerializeAsAny[DocumentStep], ...]
    extract: Extract
    normalize: Normalize | None
    steps: tuple[SerializeAsAny[DocumentStep], ...]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class SourceFile:
    """A file of a source. Its source and its name, on which ids depend, are inputs of the stage, too."""

    source: str
    name: str
    path: str
    base: str


def documents(context: RunContext, recipe: Recipe, steps: tuple[DocumentStep, ...]) -> Corpus:
    """Extract every shard of the sources and measure `steps` in the same pass."""
    selections: list[StageResult] = []
    found: list[tuple[str, Shard, str]] = []
    for source in recipe.sources:
        here = context.placed(source)
        if isinstance(here, Selection):
            selections.append(index_selection.selected(context, here))
            parts = [selections[-1].part(i) for i in range(selections[-1].result["parts"])]
            prints = [f"{selections[-1].key} {i}" for i in range(len(parts))]
            shards = shards_of(here, parts)
        else:
            shards = shards_of(here)
            prints = _fingerprints(context, here, shards)
        found += [(source.name, shard, seen) for shard, seen in zip(shards, prints, strict=True)]
    before = pinned(context, recipe.before)
    record = Record(
        formats={name: SourceFormat(format=shard.format, columns=shard.columns) for name, shard, _ in found},
        before=before,
        extract=recipe.extract,
        normalize=recipe.normalize,
        steps=tuple(step.measuring() for step in steps),
        classes=classes((*before, *steps)),
    )
    all_steps = (*before, recipe.extract, *([recipe.normalize] if recipe.normalize else []), *steps)
    spec = StageSpec(
        "documents",
        _extract,
        record,
        {"files": digest([f"{name} {shard.name} {seen}" for name, shard, seen in found])},
        tuple(SourceFile(name, shard.name, shard.path, shard.base) for name, shard, _ in found),
        modules(all_steps),
        libraries(all_steps),
    )
    made = context.build(spec)
    return Corpus(tuple(name for name, _, _ in found), made, made, (made,), (*selections, made))


def _extract(phases: PhaseRunner, record: Record, places: tuple[SourceFile, ...]) -> dict:
    """Read, extract and measure every shard of the sources."""
    common = {"before": record.before, "extract": record.extract, "normalize": record.normalize, "steps": record.steps}
    jobs = {}
    for i, file in enumerate(places):
        known = record.formats[file.source]
        shard = Shard(known.format, file.path, file.name, known.columns, file.base)
        jobs[i] = {"source": file.source, "shard": shard, **common}
    phases.map("extract", extract_shard, jobs)
    return {}


def _fingerprints(context: RunContext, source: Source, shards: list[Shard]) -> list[str]:
    if isinstance(source, Snapshot):
        # Common Crawl's files never change under an address, and a crawl has 90,000 of them
        return [shard.name for shard in shards]
    notes = f"{context.settings.local_folder}/fingerprints"
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda shard: fingerprint(shard.path, notes), shards))
