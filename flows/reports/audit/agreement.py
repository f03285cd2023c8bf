"""Votes on documents near a cut, compared with what the filter did."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, ValidationError
from scipy.stats import binomtest

from flows.machine import MachineSettings
from storage import files, parquet
from storage.home import FinishedStage, Home

LEVEL = 0.95


class Votes(BaseModel):
    """What the page saves: `votes` by the ids of documents, `stage`: the label of the cut."""

    model_config = ConfigDict(extra="forbid")

    recipe: str
    stage: str
    votes: dict[str, Literal["keep", "drop", "unsure"]]


@dataclass(frozen=True)
class Share:
    """`agreeing` of `votes`, and the interval of Wilson (1927) at the level 0.95; from 0 to 1 without a vote."""

    agreeing: int
    votes: int
    low: float
    high: float


@dataclass(frozen=True)
class Agreement:
    """Votes that agree with the filter: on all documents, on those that it keeps, and on those that it drops. Votes
    that cannot say are in `unsure` alone."""

    recipe: str
    stage: str
    all: Share
    kept: Share
    dropped: Share
    unsure: int


def agreement(path: str, settings: MachineSettings | None = None) -> Agreement:
    """The agreement of a file of votes with the filter that they are about, which the home still has.

    Raises FileNotFoundError; ValueError for a file of another form, or of votes on documents that the filter did not
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
    kept = _kept(stages[0], list(given.votes))
    if strange := sorted(set(given.votes) - set(kept)):
        raise ValueError(f"{path} has a vote on {strange[0]}, which {given.stage} did not judge; save the votes again")
    counts = Counter((kept[id_], vote) for id_, vote in given.votes.items())
    right = {True: counts[True, "keep"], False: counts[False, "drop"]}
    wrong = {True: counts[True, "drop"], False: counts[False, "keep"]}
    return Agreement(
        given.recipe,
        given.stage,
        share(sum(right.values()), sum(right.values()) + sum(wrong.values())),
        share(right[True], right[True] + wrong[True]),
        share(right[False], right[False] + wrong[False]),
        counts[True, "unsure"] + counts[False, "unsure"],
    )


def share(agreeing: int, votes: int) -> Share:
    """A share of votes with its interval."""
    if not votes:
        return Share(0, 0, 0.0, 1.0)
    found = binomtest(agreeing, votes).proportion_ci(LEVEL, "wilson")
    return Share(agreeing, votes, float(found.low), float(found.high))


def _kept(stage: FinishedStage, ids: list[str]) -> dict[str, bool]:
    """Whether the stage keeps each of the documents that it judged. Reads ids, a shard at a time."""
    wanted = pa.array(ids, pa.string())
    found: dict[str, bool] = {}
    for shard in range(len(stage.part_records)):
        for path, stays in ((stage.part(shard), True), (stage.ledger(shard), False)):
            there = parquet.read_table(path, ["id"])["id"]
            found |= dict.fromkeys(there.filter(pc.is_in(there, wanted)).to_pylist(), stays)
    return found
