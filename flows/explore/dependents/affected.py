"""What depends on a stage, a step, a file or a document: stages, shards, tokens, runs, trainings, exports and verdicts.

All of it follows from the files of the home. What these do not say is in `gaps`, a sentence each.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson
import wrapt

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.dependents.graph import Edge, Export, HomeGraph, graph_of
from gristmill.flows.reports.dependents.retractions import Staleness
from gristmill.flows.reports.dependents.things import OF_DOCUMENTS, Roots, Thing, recognize, stage_roots, text_thing
from gristmill.flows.reports.status import token_count
from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.home import FinishedStage
from gristmill.storage.token_shards import PHASE, SPLIT
from gristmill.tasks.engine.job_costs import PhaseCost
from gristmill.tasks.engine.make import COST
from gristmill.training.checkpoint.keeping import stored
from gristmill.training.config import CHECKPOINTS
from gristmill.training.run.tracking import METRICS, TIMING

if TYPE_CHECKING:
    from gristmill.flows.explore.dependents import documents
    from gristmill.flows.explore.dependents.documents import FoundDocuments, Holding
    from gristmill.flows.explore.search import readings
    from gristmill.flows.explore.search.readings import Reading
    from gristmill.flows.reports.run import bill
else:  # what depends on a stage is found without kernels and torch
    documents = wrapt.lazy_import("gristmill.flows.explore.dependents.documents")
    readings = wrapt.lazy_import("gristmill.flows.explore.search.readings")
    bill = wrapt.lazy_import("gristmill.flows.reports.run.bill")

SECONDS = "seconds.json"  # of a proxy's stage: of its whole training
MAX_READ = 10_000  # documents whose steps are looked up in each training


@dataclass(frozen=True)
class AffectedStage:
    """A stage that depends on the thing. `why`: what of the thing it has, or which stage it reads; `made`: when it was
    finished, in UTC; `state`: `finished`, or `collected` if its files were removed; `shards`: those with the thing,
    None where all may have it; `documents`, `tokens`: of the thing, None where not counted; `all_tokens`: that it has,
    of token shards in `shards` if these are known;
    `core_seconds`, `gpu_seconds`: what it took to make, None where that is not recorded."""

    stage: str
    why: str
    made: str
    state: str
    shards: tuple[int, ...] | None = None
    documents: int | None = None
    tokens: int | None = None
    all_tokens: int | None = None
    core_seconds: float | None = None
    gpu_seconds: float | None = None


@dataclass(frozen=True)
class AffectedTraining:
    """A model or proxy run. `checkpoints`: steps of those that are kept; of documents `read`: how many of them it read,
    None if that was not computed, `first_step`: the first that read one, `times`: how often a token of them was read on
    average; `has_read`: the kept checkpoints from that step on; `stale`: why a model is stale, a sentence each."""

    stage: str
    recipes: tuple[str, ...]
    checkpoints: tuple[int, ...] = ()
    read: int | None = None
    first_step: int | None = None
    times: float | None = None
    stale: tuple[str, ...] = ()

    @property
    def has_read(self) -> tuple[int, ...]:
        """The kept checkpoints that were trained on the thing, as far as that is known."""
        if self.read == 0:
            return ()
        return tuple(step for step in self.checkpoints if self.first_step is None or step >= self.first_step)


@dataclass(frozen=True)
class AffectedRun:
    """A recorded run with `stages` of those that depend on the thing."""

    run: str
    flow: str
    release: str
    began: str
    stages: int


@dataclass(frozen=True)
class AffectedVerdict:
    """A decision, a scaling law or a study. `stale`: why it is stale already."""

    kind: str
    base: str
    id: str
    file: str
    sentences: tuple[str, ...]
    stale: tuple[str, ...]


@dataclass(frozen=True)
class Cost:
    """What the stages took when they were made. `price`: None without prices; `unknown`: stages whose cost is not
    recorded."""

    core_hours: float
    gpu_hours: float
    price: float | None
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Affected:
    """`since`: when the first of the stages with the thing was finished; `documents`: ids and where they are, for a
    thing that documents are found by; `records`: of those dropped before they became documents, how many."""

    thing: str
    kind: str
    since: str
    roots: tuple[str, ...]
    stages: tuple[AffectedStage, ...]
    trainings: tuple[AffectedTraining, ...]
    runs: tuple[AffectedRun, ...]
    exports: tuple[Export, ...]
    verdicts: tuple[AffectedVerdict, ...]
    retracted: tuple[str, ...]
    cost: Cost
    found: "FoundDocuments | None" = None
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prices:
    """Of a core hour and of a GPU hour, in one currency."""

    core_hour: float = 0.0
    gpu_hour: float = 0.0


@dataclass
class _Parts:
    graph: HomeGraph
    reached: dict[str, Edge | None]
    roots: Roots
    held: "dict[str, Holding]" = field(default_factory=dict)
    found: "FoundDocuments | None" = None
    gaps: list[str] = field(default_factory=list)


def affected(
    settings: MachineSettings,
    text: str = "",
    *,
    kind: str = "",
    text_like: str = "",
    exports: Iterable[str] = (),
    prices: Prices = Prices(),
) -> Affected:
    """What depends on a thing that a user names, or on documents like the text in the file `text_like`.

    Raises LookupError for a thing that the home does not have, FileNotFoundError for a missing file or export.
    """
    graph = graph_of(settings.home, exports)
    thing = text_thing(text_like) if text_like else recognize(graph, text, kind)
    return affected_by(settings, graph, thing, prices)


def affected_by(settings: MachineSettings, graph: HomeGraph, thing: Thing, prices: Prices = Prices()) -> Affected:
    """What depends on a thing. Raises LookupError for one that nothing in the home has."""
    if thing.kind in OF_DOCUMENTS:
        with documents.matching(thing) as (match, columns):
            found = documents.find_documents(settings, graph, match, columns)
        if thing.kind == "text":
            found.gaps += documents.short_text(thing.name)
        documents.add_rewrites(graph, found)
        return affected_by_documents(settings, graph, str(thing), thing.kind, found, prices)
    roots = stage_roots(graph, thing)
    if not roots.why:
        more = f" ({'; '.join(roots.notes)})" if roots.notes else ""
        has = "is called" if thing.kind == "stage" else f"has the {thing.kind.replace('-', ' ')}"
        name = str(thing).removeprefix(f"{thing.kind.replace('-', ' ')} ")
        raise LookupError(f"no stage in {graph.home} {has} {name}{more}. `gristmill home status` lists the stages")
    parts = _Parts(graph, graph.dependents(roots.why), roots, gaps=[*roots.notes])
    return _report(settings, parts, str(thing), thing.kind, prices)


def affected_by_documents(
    settings: MachineSettings,
    graph: HomeGraph,
    name: str,
    kind: str,
    found: "FoundDocuments",
    prices: Prices = Prices(),
) -> Affected:
    """What depends on documents that were found. Raises LookupError where none were."""
    if not found.documents and not found.records:
        more = f" ({'; '.join(found.gaps)})" if found.gaps else ""
        raise LookupError(f"no document in {graph.home} matches the {name}{more}")
    why = {label: "read its record" for label in found.records}
    why |= {one.stage: "extracted its text" for one in found.documents}
    why |= {label: "has the same contents" for label in sorted(graph.equals(why) & graph.collected)}
    reached = graph.dependents(why)
    held, gaps = documents.holdings(graph, found, reached)
    parts = _Parts(graph, reached, Roots(why), held, found, [*found.gaps, *gaps])
    return _report(settings, parts, name, kind, prices)


def _report(settings: MachineSettings, parts: _Parts, name: str, kind: str, prices: Prices) -> Affected:
    graph, reached = parts.graph, parts.reached
    with ThreadPoolExecutor(16) as pool:  # requests to a store are mostly waiting
        stages = tuple(pool.map(lambda item: _stage(parts, *item), reached.items()))
    staleness = Staleness(graph)
    verdicts = tuple(
        AffectedVerdict(one.kind, one.base, one.id, one.file, one.sentences, staleness.of_verdict(one))
        for one in graph.verdicts
        if any(label in reached for label in one.runs)
    )
    runs = tuple(
        AffectedRun(run.label, run.flow, run.release, run.began, count)
        for run in graph.runs
        if (count := sum(label in reached for label in run.stages))
    )
    trainings = tuple(
        replace(one, stale=staleness.of_model(one.stage)) if one.stage.startswith("model-") else one
        for one in _trainings(settings, parts)
    )
    roots = tuple(label for label, edge in reached.items() if edge is None)
    times = sorted(stage.made for stage in stages if stage.stage in roots and stage.made)
    return Affected(
        thing=name,
        kind=kind,
        since=times[0] if times else "",
        roots=roots,
        stages=stages,
        trainings=trainings,
        runs=runs,
        exports=tuple(one for one in graph.exports if any(label in reached for label in one.reads)),
        verdicts=verdicts,
        retracted=tuple(one.sentence for one in staleness.retractions_of(reached)),
        cost=_cost(stages, prices),
        found=parts.found,
        gaps=tuple(dict.fromkeys([*parts.gaps, *_relevant(graph, reached), *staleness.gaps])),
    )


def _relevant(graph: HomeGraph, reached: Collection[str]) -> list[str]:
    """The gaps of the graph, and what is never recorded."""
    unrecorded = []
    if any(label.startswith("model-") for label in reached):
        unrecorded.append(
            "folders of `export model` and `export tokens`, and copies of any export, are not recorded: name them with "
            "--export"
        )
    return [*graph.gaps, *unrecorded]


def _stage(parts: _Parts, label: str, edge: Edge | None) -> AffectedStage:
    graph = parts.graph
    stage, is_collected = graph.stages[label], label in graph.collected
    held = parts.held.get(label)
    if parts.found is None:
        shards, count, tokens = _shards(parts, stage), None, None
    else:
        shards, count, tokens = (held.shards, held.documents, held.tokens) if held else ((), 0, None)
    core, gpu = (None, None) if is_collected else _took(stage)
    why = parts.roots.why[label] if edge is None else f"{edge.how} {edge.source}"
    return AffectedStage(
        label,
        why,
        _time(files.modified(files.join(stage.folder, "manifest.json"))),
        "collected" if is_collected else "finished",
        shards,
        count,
        tokens,
        all_tokens=_tokens(stage, shards if parts.found is None else None),
        core_seconds=core,
        gpu_seconds=gpu,
    )


def _shards(parts: _Parts, stage: FinishedStage) -> tuple[int, ...] | None:
    """The shards that have a thing of some shards of `documents` stages. Stages that count documents, and tokens, have
    the shards of the extraction; any shard of the others may have it."""
    known = parts.roots.shards
    if stage.label in known:
        return known[stage.label]
    if known and (stage.counts_documents or stage.name == "tokens"):
        origins = [label for label in parts.graph.extractions(stage.label) if label in known]
        if len(origins) == 1:
            return known[origins[0]]
    return None


def _tokens(stage: FinishedStage, shards: Collection[int] | None) -> int | None:
    """How many tokens a stage has. If `shards` are given, only those token shards count."""
    if stage.name == "tokens" and shards is not None:
        return sum(job.record[SPLIT]["tokens"] for job in stage.jobs if job.phase == PHASE and job.number in shards)
    return token_count(stage)


def _took(stage: FinishedStage) -> tuple[float | None, float | None]:
    """Core and GPU seconds of a stage, as its files record them."""
    try:
        phases = checked_json.read(files.join(stage.folder, COST))["phases"]
        core = sum(PhaseCost.from_json(cost).cpu_seconds for cost in phases.values())
        gpu = 0.0
        if stage.name == "model":
            lines = [
                [*map(orjson.loads, files.read_bytes(files.join(stage.folder, name)).splitlines())]
                for name in (METRICS, TIMING)
            ]
            if (training := bill.training_bill(*lines)) is not None:
                core, gpu = core + 3600 * training.core_hours, 3600 * training.gpu_hours
        elif files.exists(seconds := files.join(stage.folder, SECONDS)):
            core += float(files.read_bytes(seconds))
    except (OSError, DamagedFileError, ValueError, KeyError):
        return None, None
    return round(core, 3), round(gpu, 3)


def _cost(stages: Sequence[AffectedStage], prices: Prices) -> Cost:
    core = sum(stage.core_seconds or 0.0 for stage in stages) / 3600
    gpu = sum(stage.gpu_seconds or 0.0 for stage in stages) / 3600
    price = core * prices.core_hour + gpu * prices.gpu_hour if prices.core_hour or prices.gpu_hour else None
    return Cost(core, gpu, price, tuple(stage.stage for stage in stages if stage.core_seconds is None))


def _trainings(settings: MachineSettings, parts: _Parts) -> tuple[AffectedTraining, ...]:
    graph = parts.graph
    labels = [label for label in parts.reached if graph.stages[label].name in ("model", "proxy", "doremi")]
    models = [label for label in labels if label.startswith("model-")]
    recipes: dict[str, list[str]] = {}
    for run in graph.runs:
        for label in {*run.stages} & {*labels}:
            if run.name not in recipes.setdefault(label, []):
                recipes[label].append(run.name)
    read: Mapping[str, list[Reading]] = {}
    if parts.found is not None:
        read = _readings(settings, parts, models)
    return tuple(
        _training(graph.stages[label], tuple(recipes.get(label, ())), parts, read.get(label)) for label in labels
    )


def _readings(settings: MachineSettings, parts: _Parts, models: Sequence[str]) -> "dict[str, list[Reading]]":
    """What trainings read of the documents, for those with all that this needs."""
    assert parts.found is not None, "documents were found"
    ids = parts.found.ids
    if len(ids) > MAX_READ:
        parts.gaps.append(f"the steps that read {len(ids):,} documents are computed only for up to {MAX_READ:,}")
        return {}
    found: dict[str, list[Reading]] = {}
    for label in models:
        mixture = parts.graph.stages[label].input("mixture")
        if label in parts.graph.collected or mixture is None:
            parts.gaps.append(f"what {label} read is unknown, because its mixture is not in the home")
            continue
        try:
            found[label] = [*readings.readings_of(ids, settings, [label])]
        except (OSError, RuntimeError, ValueError) as error:
            parts.gaps.append(f"what {label} read is unknown: {error}")
    return found


def _training(
    stage: FinishedStage, recipes: tuple[str, ...], parts: _Parts, read: "list[Reading] | None"
) -> AffectedTraining:
    checkpoints: tuple[int, ...] = ()
    if stage.name == "model" and stage.label not in parts.graph.collected:
        checkpoints = tuple(sorted(stored(files.join(stage.folder, CHECKPOINTS))))
    if read is None:
        return AffectedTraining(stage.label, recipes, checkpoints)
    steps = [min(one.steps) for one in read if one.steps]
    tokens = sum(one.tokens for one in read)
    times = sum(sum(one.steps.values()) for one in read) / tokens if tokens else 0.0
    return AffectedTraining(stage.label, recipes, checkpoints, len(steps), min(steps, default=None), times)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
