"""The audit of learned filters: documents that a person judges without knowing what the filter did with them.

A page has the documents nearest the cutoff and a sample of all documents, with as many kept as dropped ones, shuffled
by a keyed hash, and shows only their texts. If the step drops nothing and assigns labels, it also shows the label. The
page saves votes as JSON, and `agreement` compares them with the filter."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import wrapt
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gristmill.flows.curation import Passed, curate
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import pages
from gristmill.flows.reports.marking import before_edits
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.tables import Table
from gristmill.flows.reports.whatif import decided_by
from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import opening
from gristmill.storage.home import FinishedStage, Home
from gristmill.tasks.documents.decisions import decide, distances, of_source, wanted
from gristmill.tasks.documents.selection import gather, select, uniform
from gristmill.tasks.documents.step import EditStep, Step
from gristmill.tasks.engine import options

if TYPE_CHECKING:
    from scipy import stats
else:
    stats = wrapt.lazy_import("scipy.stats")


LEVEL = 0.95
NEAREST, SAMPLED = 40, 20  # documents, half of them from each side
KEPT, DROPPED = "kept", "dropped"
_SEED = 1


@dataclass(frozen=True)
class Drawn:
    """A document on the page. `side`: KEPT or DROPPED, or its label; `nearest`, `sampled`: which draws it is in."""

    id: str
    shard: int
    side: str
    nearest: bool
    sampled: bool


@dataclass(frozen=True)
class Draw:
    """`sizes`: the number of documents that the step judged, by side; `documents`: in the order of the page."""

    sizes: dict[str, int]
    documents: list[Drawn]


def draw(passed: Passed, step: Step, by_label: bool = False, nearest: int = NEAREST, sampled: int = SAMPLED) -> Draw:
    """Draw `nearest` documents nearest the cutoff of a step and `sampled` of all that it judged, by keyed hashes of
    their ids, the same number from each side or label, as far as there are enough.

    Holds the signals of a shard.
    """
    sizes: dict[str, int] = {}
    most = {"distance": nearest, "draw": sampled}
    found: dict[tuple[str, str], pa.Table] = {}
    for table in judged(passed, step, by_label):
        for side in pc.unique(table["side"]).to_pylist():
            some = table.filter(pc.equal(table["side"], side))
            sizes[side] = sizes.get(side, 0) + len(some)
            for column in most:
                ahead = found.get((side, column), some.slice(0, 0))
                found[side, column] = _first(pa.concat_tables([ahead, some]), column, most[column])
    ids: dict[str, set[str]] = {column: set() for column in most}
    rows: dict[str, dict] = {}
    for (_, column), table in found.items():
        chosen = _first(table, column, max(1, most[column] // len(sizes))).to_pylist()
        ids[column] |= {row["id"] for row in chosen}
        rows |= {row["id"]: row for row in chosen}
    order = sorted(rows.values(), key=lambda row: (row["order"], row["id"]))
    documents = [
        Drawn(row["id"], row["shard"], row["side"], row["id"] in ids["distance"], row["id"] in ids["draw"])
        for row in order
    ]
    return Draw(dict(sorted(sizes.items())), documents)


def judged(passed: Passed, step: Step, by_label: bool) -> Iterator[pa.Table]:
    """The documents of each shard that reached a step: `id`, `shard`, `side`, `distance` from the cutoff
    (`gristmill.tasks.documents.decisions.distances`) or the certainty of the label, and two numbers in [0, 1) for
    drawing and ordering them."""
    signals, decisions, exempt = decided_by(passed, passed.steps)
    names = [name for name, _ in decisions]
    decisions = decisions[: names.index(step.step) + 1]
    label = step.signals[0].name
    columns = [*wanted(decisions), *([step.certainty] if step.certainty else []), *([label] if by_label else [])]
    for shard, parts in signals.items():
        source = passed.arriving.sources[shard]
        if source in exempt.get(step.step, ()):
            continue
        own = of_source(decisions, exempt, source)
        table = gather(parts, passed.arriving.kept.part(shard), list(dict.fromkeys(columns)))
        *ahead, (_, gone) = [(name, dropped["id"]) for name, dropped in decide(table, own)]
        for _, ids in ahead:
            table = table.filter(pc.invert(pc.is_in(table["id"], ids.combine_chunks())))
        dropped = np.asarray(pc.is_in(table["id"], gone.combine_chunks()))
        if by_label:
            side, distance = table[label], np.asarray(table[step.certainty], np.float64)
        else:
            side = pa.chunked_array([np.where(dropped, DROPPED, KEPT)], pa.string())
            distance = distances(table, step.step, decisions[-1][1], step.certainty)
        yield pa.table(
            {
                "id": table["id"],
                "shard": np.full(len(table), shard),
                "side": side,
                "distance": distance,
                "draw": uniform(table["id"], _SEED, f"audit-sample {step.step}"),
                "order": uniform(table["id"], _SEED, f"audit {step.step}"),
            }
        )


def _first(table: pa.Table, column: str, most: int) -> pa.Table:
    """The rows with the lowest finite values of a column; ties in the order of ids."""
    finite = table.filter(pc.is_finite(table[column]))
    return finite.sort_by([(column, "ascending"), ("id", "ascending")]).slice(0, most)


_CHARACTERS = 6000  # of a text that are shown
_OF_LABELS = "Does the label fit?"


@dataclass(frozen=True)
class Text:
    """A text on the page: the document's id, its beginning, the number of characters after it, and the label if it is
    shown."""

    id: str
    text: str
    left_out: int
    label: str = ""


def write(recipe: Any, step: str = "", settings: MachineSettings | None = None) -> list[str]:
    """Write a page for each learned filter of a finished recipe that dropped documents or assigns labels, or for one
    filter, and return the paths: `<home>/reports/<recipe>-audit-<step>-<key>.html`.

    The same stages give the same bytes. Reads all scores, one shard at a time, and few texts. Raises NotFinishedError,
    and ValueError if there is no such filter, or if it dropped nothing.
    """
    recipe = load(recipe)
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    context, recipe = open_run(settings, recipe)
    filters = [each.step for each in recipe.steps if each.question]
    if not filters or step not in ("", *filters):
        there = f"its learned filters are {', '.join(filters)}" if filters else "it has no learned filter"
        raise ValueError(f"{recipe.name} has no learned filter {step}".rstrip() + f" to audit; {there}")
    paths = []
    for passed in curate(context, recipe):
        for one in passed.steps:
            if one.question and step in ("", one.step) and (one.certainty or drops(passed, one)):
                name = f"{recipe.name}-audit-{one.step}-{passed.left.kept.key}.html"
                paths.append(pages.write(settings.home, name, page(audit_of(recipe.name, passed, one))))
    if not paths:
        raise ValueError(
            f"the learned filter {step or filters[0]} of {recipe.name} dropped no documents, so "
            "there is no cutoff to audit"
        )
    return paths


def drops(passed: Passed, step: Step) -> bool:
    """Whether a step dropped documents."""
    if passed.left.kept is passed.arriving.kept:  # the step makes no cut
        return False
    counts = [count for count in passed.left.kept.step_counts if count["step"] == step.step]
    return any(dropped for count in counts for dropped in count["drops"].values())


def texts(passed: Passed, step: Step, documents: list[Drawn], labels: bool = False) -> list[Text]:
    """The texts of documents, in their order, as they reached a step: parts that this and later steps of the pass cut
    out are included. Holds the texts of one shard, and what was cut out of them."""
    places = passed.arriving.places
    names = [each.step for each in passed.steps]
    edited = any(isinstance(each, EditStep) for each in passed.steps[names.index(step.step) :])
    found: dict[str, str] = {}
    for shard in sorted({one.shard for one in documents}):
        ids = pa.array([one.id for one in documents if one.shard == shard])
        table = select(places.documents[shard], places.kept[shard], ["text"])
        table = table.filter(pc.is_in(table["id"], ids))
        found |= dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))
        if edited:
            cut = parquet.read_table(layout.edits_part(passed.arriving.documents.folder, shard))
            cut = cut.filter(pc.is_in(cut["id"], ids)).sort_by("start")
            for id_ in ids.to_pylist():
                found[id_], _ = before_edits(found[id_], cut.filter(pc.equal(cut["id"], id_)), step.step, names)
    return [
        Text(
            one.id,
            found[one.id][:_CHARACTERS],
            max(0, len(found[one.id]) - _CHARACTERS),
            one.side if labels else "",
        )
        for one in documents
    ]


@dataclass(frozen=True)
class Audit:
    """The content of a page: the question about each document, the label of the stage that decided, the draw, and the
    texts of its documents."""

    recipe: str
    step: str
    question: str
    stage: str
    drawn: Draw
    texts: list[Text]


def audit_of(recipe: str, passed: Passed, step: Step) -> Audit:
    """The documents of a step to judge: by its cutoff, or by its labels if it dropped nothing."""
    cuts, stage = drops(passed, step), passed.left.kept
    drawn = draw(passed, step, by_label=not cuts)
    shown = texts(passed, step, drawn.documents, labels=not cuts)
    return Audit(recipe, step.step, step.question if cuts else _OF_LABELS, f"{stage.name}-{stage.key}", drawn, shown)


def page(audit: Audit) -> str:
    """The page as HTML. It does not show which documents the filter keeps, and it loads nothing."""
    labels = {one.id: one.label for one in audit.texts if one.label}
    about = {
        "recipe": audit.recipe,
        "stage": audit.stage,
        "step": audit.step,
        "sizes": audit.drawn.sizes,
        "nearest": [one.id for one in audit.drawn.documents if one.nearest],
        "sampled": [one.id for one in audit.drawn.documents if one.sampled],
        "labels": labels,
    }
    return pages.render(
        "audit.html",
        recipe=audit.recipe,
        step=audit.step,
        question=audit.question,
        labeled=bool(labels),
        about=orjson.dumps(about).decode(),
        documents=audit.texts,
        script=Markup(pages.resource("votes.js")),
    )


class Votes(BaseModel):
    """The file that the page saves: its recipe and step, and `votes` by the ids of documents.

    `stage`: the label of the stage that decided; `sizes`: the number of documents that the step judged, by side;
    `nearest`, `sampled`: the ids of each draw; `labels`: by the ids of documents, if the page shows labels.
    """

    model_config = ConfigDict(extra="forbid")

    recipe: str
    stage: str
    step: str
    sizes: dict[str, int] = Field(min_length=1)
    nearest: list[str]
    sampled: list[str]
    labels: dict[str, str]
    votes: dict[str, Literal["yes", "no", "unsure"]]

    @model_validator(mode="after")
    def _check_ids(self) -> Self:
        drawn = {*self.nearest, *self.sampled}
        if strange := sorted({*self.votes} - drawn):
            raise ValueError(f"{strange[0]} has a vote, but is not one of the documents of the page")
        if self.labels and (drawn - {*self.labels} or {*self.labels.values()} - {*self.sizes}):
            raise ValueError("the labels do not belong to the documents of the page")
        return self


@dataclass(frozen=True)
class Share:
    """`agreeing` of `votes`, and an interval at the level 0.95; from 0 to 1 without votes."""

    agreeing: int
    votes: int
    low: float
    high: float

    @property
    def share(self) -> float | None:
        return self.agreeing / self.votes if self.votes else None


@dataclass(frozen=True)
class Shares:
    """Shares of a draw: over all its documents, and by side or label."""

    all: Share
    by_side: dict[str, Share]


@dataclass(frozen=True)
class Agreement:
    """Votes that agree with the step, on the documents nearest its cutoff and on the sample. `whole`: the estimate for
    all documents that the step judged, from the sample weighted by the sizes of the sides; None if a side has no votes.
    Votes without a decision count only in `unsure`."""

    recipe: str
    step: str
    stage: str
    nearest: Shares
    sample: Shares
    whole: float | None
    unsure: int

    @property
    def table(self) -> Table:
        """Rows for each draw: one for all its documents, and one for each side or label."""
        rows = [
            (drawn, side or "all", one.votes, one.agreeing, one.share, (one.low, one.high))
            for drawn, shares in (("nearest the cut", self.nearest), ("sample", self.sample))
            for side, one in {"": shares.all, **shares.by_side}.items()
        ]
        columns = ("documents", "side", "#votes", "#agree with the filter", "#share|.0%", "#95% interval|.0%")
        return Table(columns, rows, f"votes on {self.step} ({self.stage}), of {self.recipe}")

    @property
    def remarks(self) -> list[str]:
        votes = f"on {self.sample.all.votes} votes on the sample, a reader agrees with {self.step}"
        whole = [] if self.whole is None else [f"by the {votes} on {self.whole:.0%} of what it judged"]
        return [*whole, f"{self.unsure} votes cannot say"]


def agreement(path: str, settings: MachineSettings | None = None) -> Agreement:
    """Compare a file of votes with the decisions of their step, whose stage must still be in the home.

    Raises FileNotFoundError; ValueError for a file of another format, or with votes on documents that the step did not
    judge; LookupError for a stage that is not in the home.
    """
    settings = settings or MachineSettings()
    data = files.read_bytes(path)
    with opening(path, "file of votes as saved by a page of `gristmill explain audit`", "save the votes again"):
        saved = Votes.model_validate_json(data)
    stages = Home(settings.home).stages(saved.stage)
    if not stages:
        raise LookupError(
            f"{path} belongs to the stage {saved.stage}, which {settings.home} does not have; set "
            "GRISTMILL_HOME to the home that the page was written from"
        )
    sides = _sides(stages[0], saved.step, list(saved.votes))
    if strange := sorted(set(saved.votes) - set(sides)):
        raise ValueError(f"{path} has a vote on {strange[0]}, which {saved.stage} did not score; save the votes again")
    right = {id_: (vote == "yes") == (sides[id_] == KEPT) for id_, vote in saved.votes.items() if vote != "unsure"}
    if saved.labels:
        sides = saved.labels
        right = {id_: vote == "yes" for id_, vote in saved.votes.items() if vote != "unsure"}
    nearest, sample = (_shares(drawn, right, sides, saved.sizes) for drawn in (saved.nearest, saved.sampled))
    whole = _whole(sample.by_side, saved.sizes)
    return Agreement(saved.recipe, saved.step, saved.stage, nearest, sample, whole, len(saved.votes) - len(right))


def share(agreeing: int, votes: int, method: Literal["wilson", "exact"] = "wilson") -> Share:
    """A share of votes with the interval of Wilson (1927), or with the exact one of Clopper and Pearson (1934)."""
    if not votes:
        return Share(0, 0, 0.0, 1.0)
    interval = stats.binomtest(agreeing, votes).proportion_ci(LEVEL, method)
    return Share(agreeing, votes, float(interval.low), float(interval.high))


def _shares(drawn: Iterable[str], right: Mapping[str, bool], sides: Mapping[str, str], names: Iterable[str]) -> Shares:
    ids = [id_ for id_ in drawn if id_ in right]
    votes, agreeing = Counter(sides[id_] for id_ in ids), Counter(sides[id_] for id_ in ids if right[id_])
    by_side = {name: share(agreeing[name], votes[name]) for name in sorted(names)}
    return Shares(share(agreeing.total(), len(ids)), by_side)


def _whole(sample: Mapping[str, Share], sizes: Mapping[str, int]) -> float | None:
    if not all(sample[side].votes for side in sizes):
        return None
    return sum(size * sample[side].agreeing / sample[side].votes for side, size in sizes.items()) / sum(sizes.values())


def _sides(stage: FinishedStage, step: str, ids: list[str]) -> dict[str, str]:
    """Whether a step whose decisions are the stage's dropped each of the documents that it judged. One that a later
    step of the stage dropped, it kept. Reads ids, a shard at a time."""
    wanted = pa.array(ids, pa.string())
    found: dict[str, str] = {}
    for shard in range(len(stage.part_records)):
        there = parquet.read_table(stage.part(shard), ["id"])["id"]
        found |= dict.fromkeys(there.filter(pc.is_in(there, wanted)).to_pylist(), KEPT)
        gone = parquet.read_table(stage.ledger(shard), ["id", "step"])
        gone = gone.filter(pc.is_in(gone["id"], wanted))
        for id_, by in zip(gone["id"].to_pylist(), gone["step"].to_pylist(), strict=True):
            found[id_] = DROPPED if by == step else KEPT
    return found
