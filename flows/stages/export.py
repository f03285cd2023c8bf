"""`export`: the curated documents as files for others to read, in a folder or at an address of the user's.

The folder is that of a stage: jobs that are done are found, and the manifest comes last. Its key is that of the
documents, of how they are written and of what the card says.
"""

from collections.abc import Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import islice

import pyarrow as pa
import yaml

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.storage import files, layout, parquet
from gristmill.storage.home import verify_files
from gristmill.storage.printable import redact_url
from gristmill.tasks.documents import export as exporting
from gristmill.tasks.documents.export import Card, Column, Export, FunnelStep, OwnColumn, own_columns, write_card
from gristmill.tasks.documents.expressions import parsed, truth
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import MAKER, StageResult, mark_begun
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.rules.rule import RuleStep

# What a stage's folder has while it is made, and not when it is finished.
_UNFINISHED = ("done", "lease", MAKER)
# Columns that every export has, null without the steps `language` and `minhash`.
_ALWAYS = (
    Column(
        name="language",
        kind="string",
        unit="ISO 639 code",
        source="step `language`",
        description="Most probable language.",
        measured=False,
    ),
    Column(
        name="cluster_size",
        kind="int64",
        unit="documents",
        source="step `minhash`",
        description="The document and its near-duplicates, which are not here; 1 where it has none.",
        measured=False,
    ),
)


class ExportFormat(Settings):
    format: str
    columns: tuple[Column, ...]
    card: Card
    where: str | None = None


@dataclass(frozen=True)
class ExportPlaces:
    """`key`: that of the export, which its first job writes down."""

    corpus: CorpusPlaces
    key: str


def check_target(context: RunContext, recipe: Recipe) -> None:
    """Raise FileExistsError where the recipe's export would be beside other files."""
    if recipe.export is not None:
        _key_at(_target(context, recipe.export))


def export(context: RunContext, recipe: Recipe, corpus: Corpus) -> StageResult | None:
    """Export the corpus to where the recipe says, or find that it is there; None if the recipe has no `export`.

    Raises FileExistsError where other files are there.
    """
    if recipe.export is None:
        return None
    where = recipe.export.where
    if where is not None:
        _check_expression(where, corpus)
    target = _target(context, recipe.export)
    columns = columns_of(recipe)
    card = Card(
        name=recipe.name,
        recipe=recipe_of_card(recipe),
        funnel=tuple(_funnel(corpus)),
        columns=columns,
        own=_own_columns(corpus),
        format=recipe.export.format,
        releases=tuple(sorted({("gristmill", version("gristmill")), *_releases(corpus)})),
        where=where,
    )

    def places() -> ExportPlaces:
        return ExportPlaces(corpus.places, spec.key)

    spec = StageSpec(
        name="export",
        version=1,
        body=_export,
        record=ExportFormat(format=recipe.export.format, columns=columns, card=card, where=where),
        inputs=corpus.inputs(signals=True),
        places=places,
        at=target,
    )
    _refuse_another(target, spec.key)
    _forget_damaged(target, spec.key)
    stage = context.build(spec)
    _refuse_another(target, spec.key)  # one that was made here while this one waited
    for name in _UNFINISHED:
        if name != "lease":
            files.remove(files.join(target, name))
    return stage


def _export(phases: PhaseRunner, record: ExportFormat, places: ExportPlaces) -> dict:
    """Write the kept documents for others to read."""
    phases.once("begin", exporting.begin, {"key": places.key}, temporary=True)
    corpus = places.corpus
    common = {"columns": record.columns, "format": record.format, "where": record.where}
    jobs = Each(corpus.shards(), lambda i: {**corpus.shard(i), "signals": corpus.signals[i]})
    written = exporting.summed(phases.map("write", exporting.export_shard, jobs, common=common).values())
    return phases.once("card", write_card, {"card": record.card, "written": written})


def _check_expression(where: str, corpus: Corpus) -> None:
    """Raise ValueError for an expression that has no meaning on the columns of a corpus, before any job. Reads the
    ends of a shard's parts."""
    parts = [stage.part(0) for stage in corpus.measured]
    schema = pa.schema({field.name: field.type for part in parts for field in parquet.schema(part)})
    try:
        truth(parsed(where), schema.empty_table())
    except ValueError as error:
        raise ValueError(f"export.where: {error}") from error


def _own_columns(corpus: Corpus) -> tuple[OwnColumn, ...]:
    """The columns of the sources' own: all parts with documents have the same."""
    extracted = corpus.extracted
    own = extracted.result.get("own", ())
    return own_columns(parquet.schema(corpus.documents.part(0))) if own else ()


def _target(context: RunContext, export: Export) -> str:
    """Absolute, because a worker may run in another folder."""
    return files.absolute(context.placed(export).to)


def _key_at(target: str) -> str:
    """The key of the export in the target, finished or begun; empty for an empty folder. Raises
    FileExistsError for other files."""
    if not set(files.names(target)) - {"lease", MAKER}:
        return ""
    try:
        manifest = layout.manifest(target) or {}
        begun = layout.done_record(target, "begin", 0) or {}
        if key := manifest.get("key") or begun.get("record", {}).get("key"):
            return key
    except layout.ManifestError:
        pass
    raise FileExistsError(
        f"`export: to` is {redact_url(target)}, which contains other files: choose another folder, or empty it"
    )


def _refuse_another(target: str, key: str) -> None:
    if _key_at(target) not in ("", key):
        raise FileExistsError(
            f"`export: to` is {redact_url(target)}, which contains an export of other documents, or of "
            "another recipe or format: choose another folder, or empty it"
        )


def _forget_damaged(target: str, key: str) -> None:
    """Where files of a finished export are not what was written, make it one that was begun: the jobs that wrote the
    others are done. Reads the export once."""
    manifest = layout.manifest(target)
    if manifest is None:
        return
    try:
        wrong = {damage.path for damage in verify_files(target).damages}
        parts = layout.parts(target, manifest)
    except layout.ManifestError:
        wrong, parts = {files.join(target, "parts.json")}, layout.Parts()
    if not wrong:
        return
    mark_begun(target, manifest)
    done = {"record": {"key": key}, "files": {}}
    layout.mark_done(target, "begin", 0, done)
    whole = (part for part in parts if not wrong & {files.join(target, name) for name in part.files})
    with ThreadPoolExecutor(16) as pool:  # a mark is small, and waits for the disk or the store
        while some := list(islice(whole, 1024)):
            list(pool.map(partial(_mark, target), some))
    files.remove(files.join(target, "manifest.json"))


def _mark(target: str, part: layout.Part) -> None:
    layout.mark_done(target, part.phase, part.number, {"record": part.record, "files": part.files})


def columns_of(recipe: Recipe) -> tuple[Column, ...]:
    """What the recipe's steps measure, in their order, before them the columns that every export has."""
    columns = {column.name: column for column in _ALWAYS}
    for step in recipe.steps:
        rules = step.rules if isinstance(step, RuleStep) else ()
        described = {name: column.description for name, column in columns.items()}
        described |= {f"{step.base_name}_{rule.name}": rule.description for rule in rules}
        for signal in step.signals:
            columns[signal.name] = Column(
                name=signal.name,
                kind=signal.kind,
                unit=signal.unit,
                source=signal.source,
                description=" ".join(described.get(signal.name, signal.description).split()),
            )
    return tuple(columns.values())


def _funnel(corpus: Corpus) -> list[FunnelStep]:
    return [
        FunnelStep(
            step=count["step"],
            documents_in=count["rows_in"],
            documents_out=count["rows_out"],
            drops={rule: n for rule, n in count["drops"].items() if n},
        )
        for stage in corpus.stages
        for count in stage.step_counts
        if "edits" not in count
    ]


def _releases(corpus: Corpus) -> set[tuple[str, str]]:
    """The releases that decided the documents, by the manifests of their stages."""
    return {(name, release) for stage in corpus.stages for name, release in stage.manifest["libraries"].items()}


def recipe_of_card(recipe: Recipe, more: Set[str] = frozenset()) -> str:
    """What of the recipe decides the corpus, and `more` of its keys, as YAML, without folders of this machine and
    without what lets a reader of addresses in."""
    whole = recipe.model_dump(mode="json", include={"name", "seed", "limit", "sources", "steps", *more})
    return yaml.safe_dump(_redacted(whole), sort_keys=False, allow_unicode=True, width=100)


def _redacted(value: object) -> object:
    if isinstance(value, dict):
        return {key: _redacted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_redacted(each) for each in value]
    if not isinstance(value, str):
        return value
    # folders of the machine that made it tell a reader nothing
    return value.rpartition("/")[2] if value.startswith("/") else redact_url(value)
