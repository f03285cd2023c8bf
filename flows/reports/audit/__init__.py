"""The audit of learned filters: documents on either side of a cut that a person judges without knowing the side.

A page has the documents nearest the cut, some that are kept and as many that are dropped, shuffled by a keyed hash, and
of each the text alone. Votes are saved from the page as JSON; `agreement` compares them with the filter.
"""

import base64
import hashlib
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files as resources
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from flows.context import job_options, lookup
from flows.curation import Passed, curate
from flows.machine import MachineSettings
from flows.recipe import Recipe, load
from flows.reports import templates
from storage import files
from tasks.documents.decisions import decide, distances, wanted
from tasks.documents.sampling import uniform
from tasks.documents.selection import gather, select
from tasks.documents.step import Bound, work_of
from tasks.engine import options
from tasks.models.filter import LearnedFilter

EACH = 20  # documents of either side
_CHARACTERS = 6000  # shown of a text
_SEED = 1


@dataclass(frozen=True)
class Near:
    """A document near the cut. `distance`: as `tasks.documents.decisions.distances` has it; `order`: its place on the
    page, in [0, 1)."""

    distance: float
    order: float
    id: str
    shard: int
    kept: bool


@dataclass(frozen=True)
class Text:
    """A text on the page: its document's id, its beginning, and how many characters follow."""

    id: str
    text: str
    left_out: int


def write(recipe: Any, step: str = "", settings: MachineSettings | None = None) -> list[str]:
    """Write a page for each learned filter of a finished recipe that dropped documents, or for one, and return the
    paths: `<home>/reports/<recipe>-audit-<step>-<key>.html`.

    The same stages give the same bytes. Reads all scores, a shard at a time, and few texts. Raises NotFinishedError;
    ValueError where there is no such filter, or it dropped nothing.
    """
    recipe = load(recipe)
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    filters = [each.step for each in recipe.steps if isinstance(each, LearnedFilter)]
    if not filters or step not in ("", *filters):
        there = f"its learned filters are {', '.join(filters)}" if filters else "it has no learned filter"
        raise ValueError(f"{recipe.name} has no learned filter {step}".rstrip() + f" to audit; {there}")
    paths = []
    for passed in curate(lookup(settings, recipe.name), recipe):
        for one in passed.steps:
            if isinstance(one, LearnedFilter) and step in ("", one.step) and _dropping(passed):
                stage = f"{passed.left.kept.name}-{passed.left.kept.key}"
                path = files.join(
                    settings.home, "reports", f"{recipe.name}-audit-{one.step}-{passed.left.kept.key}.html"
                )
                files.write_bytes(path, page(recipe, one.step, stage, texts(passed, near(passed, one))).encode())
                paths.append(path)
    if not paths:
        raise ValueError(f"the learned filter {step or filters[0]} of {recipe.name} dropped nothing: there is no cut")
    return paths


def near(passed: Passed, step: LearnedFilter, each: int = EACH) -> list[Near]:
    """The documents nearest the cut of a filter, `each` that are kept and as many that are dropped, or all that there
    are, in the order of the page. Only bounds that dropped documents count."""
    known = {stage.key for stage in passed.arriving.measured}
    [scores, *_] = [stage for stage in passed.left.measured if stage.key not in known and stage.name == step.step]
    places = passed.arriving.places
    parts = {i: scores.part(i) for i in places.shards(without=step.reference)}
    bounds = work_of(step).bounds(step.decision_settings(), list(parts.values()))
    crossed = [bound for bound in bounds if bound.rule in _dropping(passed)]
    sides: dict[bool, list[Near]] = {True: [], False: []}
    for shard, part in parts.items():
        for one in _near_in(shard, part, places.kept[shard], step.step, bounds, crossed):
            sides[one.kept].append(one)
        sides = {kept: heapq.nsmallest(each, some, key=_nearest) for kept, some in sides.items()}
    return sorted((one for some in sides.values() for one in some), key=lambda one: (one.order, one.id))


def _nearest(one: Near) -> tuple[float, float, str]:
    return one.distance, one.order, one.id


def _near_in(shard: int, part: str, kept: str, step: str, bounds: list[Bound], crossed: list[Bound]) -> Iterator[Near]:
    table = gather((part,), kept, wanted([(step, bounds)]))
    [(_, dropped)] = decide(table, [(step, bounds)])
    gone = set(dropped["id"].to_pylist())
    far = distances(table, step, crossed)
    ids = table["id"]
    for id_, distance, order in zip(ids.to_pylist(), far.tolist(), uniform(ids, _SEED, "audit").tolist(), strict=True):
        if distance < float("inf"):
            yield Near(distance, order, id_, shard, id_ not in gone)


def texts(passed: Passed, documents: list[Near]) -> list[Text]:
    """The texts of documents, in their order, as they reached the filter. Holds the texts of one shard."""
    places = passed.arriving.places
    found: dict[str, str] = {}
    for shard in sorted({one.shard for one in documents}):
        table = select(places.documents[shard], places.kept[shard], ["text"])
        table = table.filter(pc.is_in(table["id"], pa.array([one.id for one in documents if one.shard == shard])))
        found |= dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return [Text(one.id, found[one.id][:_CHARACTERS], max(0, len(found[one.id]) - _CHARACTERS)) for one in documents]


def page(recipe: Recipe, step: str, stage: str, documents: list[Text]) -> str:
    """The page. It says of no document whether the filter keeps it, and loads nothing."""
    script = resources("flows.reports").joinpath("audit", "votes.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return templates.template("audit/page.html").render(
        recipe=recipe.name, step=step, stage=stage, documents=documents, script=Markup(script), digest=digest
    )


def _dropping(passed: Passed) -> set[str]:
    """The rules of the cut that dropped documents."""
    if passed.left.kept is passed.arriving.kept:  # the step makes no cut
        return set()
    return {rule for count in passed.left.kept.step_counts for rule, dropped in count["drops"].items() if dropped}
