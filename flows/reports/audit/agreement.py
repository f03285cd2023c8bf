"""Votes on documents that a filter has judged, compared with what it did."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
import wrapt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.audit import DROPPED, KEPT
from gristmill.storage import files, parquet
from gristmill.storage.home import FinishedStage, Home

if TYPE_CHECKING:
    from scipy import stats
else:
    stats = wrapt.lazy_import("scipy.stats")

LEVEL = 0.95


class Votes(BaseModel):
    """What the page saves: what it is about, and `votes` by the ids of documents.

    `stage`: the label of the stage that decided; `sizes`: of each side all documents that the step judged; `nearest`,
    `sampled`: the ids of either draw; `labels`: of a page that shows labels, by the ids of documents.
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
    def _of_the_page(self) -> Self:
        drawn = {*self.nearest, *self.sampled}
        if strange := sorted({*self.votes} - drawn):
            raise ValueError(f"{strange[0]} has a vote, and is not among the documents of the page")
        if self.labels and (drawn - {*self.labels} or {*self.labels.values()} - {*self.sizes}):
            raise ValueError("the labels are not those of the documents of the page")
        return self


@dataclass(frozen=True)
class Share:
    """`agreeing` of `votes`, and an interval at the level 0.95; from 0 to 1 without a vote."""

    agreeing: int
    votes: int
    low: float
    high: float


@dataclass(frozen=True)
class Shares:
    """Of a draw: of all its documents, and by side, or by label."""

    all: Share
    by_side: dict[str, Share]


@dataclass(frozen=True)
class Agreement:
    """Votes that agree with the step, on the documents nearest its cut and on the sample; `whole`: the estimate for all
    documents that the step judged, from the sample by the sizes of the sides, or None where a side has no vote. Votes
    that cannot say are in `unsure` alone."""

    recipe: str
    step: str
    stage: str
    nearest: Shares
    sample: Shares
    whole: float | None
    unsure: int


def agreement(path: str, settings: MachineSettings | None = None) -> Agreement:
    """The agreement of a file of votes with the step that they are about, whose stage the home still has.

    Raises FileNotFoundError; ValueError for a file of another form, or of votes on documents that the step did not
    judge; LookupError for a stage that is not in the home.
    """
    settings = settings or MachineSettings()
    try:
        given = Votes.model_validate_json(files.read_bytes(path))
    except ValidationError as error:
        raise ValueError(f"{path} has no votes as a page of `gristmill audit` saves them: {error}") from None
    stages = Home(settings.home).stages(given.stage)
    if not stages:
        raise LookupError(
            f"{path} is about the stage {given.stage}, which {settings.home} does not have; name by GRISTMILL_HOME the "
            "home that the page was written from"
        )
    sides = _sides(stages[0], given.step, list(given.votes))
    if strange := sorted(set(given.votes) - set(sides)):
        raise ValueError(f"{path} has a vote on {strange[0]}, which {given.stage} did not judge; save the votes again")
    right = {id_: (vote == "yes") == (sides[id_] == KEPT) for id_, vote in given.votes.items() if vote != "unsure"}
    if given.labels:
        sides = given.labels
        right = {id_: vote == "yes" for id_, vote in given.votes.items() if vote != "unsure"}
    nearest, sample = (_shares(drawn, right, sides, given.sizes) for drawn in (given.nearest, given.sampled))
    whole = _whole(sample.by_side, given.sizes)
    return Agreement(given.recipe, given.step, given.stage, nearest, sample, whole, len(given.votes) - len(right))


def share(agreeing: int, votes: int) -> Share:
    """A share of votes with the interval of Wilson (1927)."""
    if not votes:
        return Share(0, 0, 0.0, 1.0)

    found = stats.binomtest(agreeing, votes).proportion_ci(LEVEL, "wilson")
    return Share(agreeing, votes, float(found.low), float(found.high))


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
