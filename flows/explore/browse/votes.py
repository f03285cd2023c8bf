"""Readers' votes on documents, kept in the home, and what they say of a recipe's drops.

<home>/votes/<stage>/<hash of the id>.json    one document of a stage that decided about it; `gc` leaves them

A vote says what a reader would have done with a document, whatever the step did: keep it, drop it, or cannot say. It
counts for a precision where the document was on a page of draws, each document as probable as any other; one that a
reader has looked for is kept beside them, and counts nowhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Literal

import wrapt
from pydantic import BaseModel, ConfigDict, ValidationError

from gristmill.flows.explore.browse.draws import TAKEN
from gristmill.flows.explore.browse.opened import Opened, Step
from gristmill.flows.reports.audit import LEVEL, Share
from gristmill.flows.reports.lineage import row_of
from gristmill.flows.reports.tables import Table
from gristmill.storage import files
from gristmill.storage.damage import opening

if TYPE_CHECKING:
    from scipy import stats
else:
    stats = wrapt.lazy_import("scipy.stats")

KEEP, DROP, UNSURE = "keep", "drop", "unsure"


class Vote(BaseModel):
    """`stage`: the label of the stage that dropped the document, or of the one that names those kept; `step`, `rule`:
    what dropped it, empty for a document that is kept; `drawn`: whether it was on a page of draws."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stage: str
    step: str
    rule: str
    shard: int
    id: str
    vote: Literal["keep", "drop", "unsure"]
    drawn: bool


@dataclass(frozen=True)
class RulePrecision:
    """`documents`: so many the rule dropped, or are kept where it is empty; `share`: votes that agree, with the
    interval of Clopper and Pearson at the level 0.95; `unsure`: votes that cannot say; `sought`: votes on documents
    that were not drawn, which do not count."""

    rule: str
    documents: int
    share: Share
    unsure: int
    sought: int


@dataclass(frozen=True)
class StepPrecision:
    """What readers say of the drops of a step, or of what is kept, where `step` is empty.

    `precision`, `low`, `high`: the share of these documents that readers would drop (keep) too, over the rules with
    votes by how many each dropped, with an interval at 0.95; None without a vote. `covered`: documents of those rules.
    """

    step: str
    stage: str
    documents: int
    covered: int
    rules: tuple[RulePrecision, ...]
    precision: float | None
    low: float
    high: float

    def parts(self) -> Iterator[Table | str]:
        """A row for each rule of a step, or one for what is kept; then the share over all."""
        columns = ("rule", "#documents", "#votes", "#agree", "#share|.0%", "#95% interval|.0%", "#unsure")
        rows = [
            (one.rule or "kept", one.documents, one.share.votes, one.share.agreeing, one.share.share,
             (one.share.low, one.share.high) if one.share.votes else None, one.unsure, one.sought)
            for one in self.rules
        ]  # fmt: skip
        title = f"votes on the drops of {self.step} ({self.stage})" if self.step else "votes on kept documents"
        yield Table((*columns, "#relevant"), rows, title)
        if self.precision is not None:
            what = f"of {self.step}'s drops readers would drop" if self.step else "of what is kept readers would keep"
            over = "" if self.covered == self.documents else f", over rules with {self.covered:,} of {self.documents:,}"
            yield f"{self.precision:.0%} ({self.low:.0%} to {self.high:.0%}) {what}{over}"


def cast(opened: Opened, stage: str, shard: int, id_: str, vote: str, drawn: bool) -> Vote | None:
    """Record a vote on a document, replacing an earlier one; an empty `vote` removes it. A document that was once drawn
    counts as drawn. Raises LookupError for one on which `stage` has not decided so, or that was taken down; ValueError
    for a vote that is none."""
    step, rule = _decision(opened, stage, shard, id_)
    path = _path(opened, stage, id_)
    if not vote:
        if files.exists(path):
            files.remove(path)
        return None
    before = _read(path)
    try:
        made = Vote(
            stage=stage, step=step, rule=rule, shard=shard, id=id_, vote=vote,
            drawn=drawn or (before is not None and before.drawn),
        )  # fmt: skip
    except ValidationError:
        raise ValueError(f"a vote is {KEEP}, {DROP} or {UNSURE}") from None
    files.write_bytes(path, made.model_dump_json().encode())
    return made


def vote_on(opened: Opened, stage: str, id_: str) -> str:
    """The vote on a document; empty without one."""
    found = _read(_path(opened, stage, id_))
    return found.vote if found else ""


def precision(opened: Opened) -> list[StepPrecision]:
    """What the votes say of each step of a recipe that has some, and of what is kept. Reads the votes on the recipe's
    own stages: those on the drops of another version are of other stages, and stay there."""
    found = []
    for step in opened.steps:
        votes = [one for one in _votes(opened, step.stage.label) if one.step == step.row.step]
        if votes and step.drops:
            found.append(_step(step, votes))
    kept = [one for one in _votes(opened, opened.kept.label) if not one.step]
    if kept:
        rule = _rule("", sum(opened.kept_by_shard), kept, KEEP)
        found.append(_summed("", opened.kept.label, rule.documents, [rule]))
    return found


def share(agreeing: int, votes: int) -> Share:
    """A share of votes with the interval of Clopper and Pearson (1934): few votes that all agree say little."""
    if not votes:
        return Share(0, 0, 0.0, 1.0)

    found = stats.binomtest(agreeing, votes).proportion_ci(LEVEL, "exact")
    return Share(agreeing, votes, float(found.low), float(found.high))


def weighted(shares: Sequence[Share], sizes: Sequence[int]) -> tuple[float, float, float]:
    """The share over groups of these sizes, and its interval, from that of each: the method of variance estimates
    recovery, Zou and Donner (2008), https://doi.org/10.1002/sim.3095. Every share has votes."""
    total = sum(sizes)
    weights = [size / total for size in sizes]
    points = [one.agreeing / one.votes for one in shares]
    middle = sum(weight * point for weight, point in zip(weights, points, strict=True))
    below, above = (
        sqrt(sum((w * (p - end)) ** 2 for w, p, end in zip(weights, points, ends, strict=True)))
        for ends in ([one.low for one in shares], [one.high for one in shares])
    )
    return middle, max(0.0, middle - below), min(1.0, middle + above)


def _step(step: Step, votes: list[Vote]) -> StepPrecision:
    by_rule = {rule: [one for one in votes if one.rule == rule] for rule in step.drops}
    rules = [_rule(rule, documents, by_rule[rule], DROP) for rule, documents in step.drops.items()]
    return _summed(step.row.step, step.stage.label, sum(step.drops.values()), rules)


def _rule(rule: str, documents: int, votes: list[Vote], agrees: str) -> RulePrecision:
    drawn: list[str] = [one.vote for one in votes if one.drawn]
    decided: list[str] = [vote for vote in drawn if vote != UNSURE]
    agreeing = share(decided.count(agrees), len(decided))
    return RulePrecision(rule, documents, agreeing, drawn.count(UNSURE), len(votes) - len(drawn))


def _summed(step: str, stage: str, documents: int, rules: list[RulePrecision]) -> StepPrecision:
    having = [one for one in rules if one.share.votes]
    if not having:
        return StepPrecision(step, stage, documents, 0, tuple(rules), None, 0.0, 1.0)
    sizes = [one.documents for one in having]
    return StepPrecision(
        step, stage, documents, sum(sizes), tuple(rules), *weighted([one.share for one in having], sizes)
    )


def _decision(opened: Opened, stage: str, shard: int, id_: str) -> tuple[str, str]:
    """Step and rule that dropped a document there; empty for one that is kept."""
    places = {step.stage.label: step.stage for step in opened.steps} | {opened.kept.label: opened.kept}
    if stage not in places or not 0 <= shard < len(places[stage].part_records):
        raise LookupError(f"no stage {stage} of this recipe has a shard {shard}")
    at = places[stage]
    row = row_of(at.ledger(shard), id_) if at.counts_documents else None
    kept = row is None and stage == opened.kept.label and row_of(at.part(shard), id_) is not None
    if row is None and not kept:
        raise LookupError(f"{stage} has not dropped {id_}")
    record = row_of(opened.extracted.part(shard), id_) or row or {}
    if opened.taken_down([(id_, record.get("url"))]):
        raise LookupError(TAKEN)
    return (row["step"], row["rule"]) if row else ("", "")


def _path(opened: Opened, stage: str, id_: str) -> str:
    return files.join(opened.settings.home, "votes", stage, _file_name(id_))


def _votes(opened: Opened, stage: str) -> list[Vote]:
    folder = files.join(opened.settings.home, "votes", stage)
    there = [_read(files.join(folder, name)) for name in sorted(files.names(folder)) if name.endswith(".json")]
    return [one for one in there if one is not None]


def _read(path: str) -> Vote | None:
    """Raises ValueError for a file that Gristmill did not write, and for one under the name of another vote."""
    if not files.exists(path):
        return None
    data = files.read_bytes(path)
    with opening(path, "vote as saved by a page of `gristmill browse`", "remove it"):
        made = Vote.model_validate_json(data)
    if not path.endswith(f"/{made.stage}/{_file_name(made.id)}"):
        # read as it is, it would be a second vote on its document
        raise ValueError(f"{path} has the name of another file: it is a vote on {made.id}; remove it")
    return made


def _file_name(id_: str) -> str:
    return f"{files.digest(id_.encode('utf-8', 'surrogatepass'))}.json"
