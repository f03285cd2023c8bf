"""Readers' votes on documents, stored in the home, and the precision of a recipe's drops according to them.

<home>/votes/<stage>/<hash of the id>.json    one document that the stage kept or dropped; `gc` does not remove it

A vote records what a reader would have done with a document, whatever the step did: keep it, drop it, or unsure. It
counts toward a precision if the document was on a page of random draws. Votes on documents that a reader searched for
are stored too, but do not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gristmill.flows.explore.browse.draws import TAKEN
from gristmill.flows.explore.browse.opened import Opened, Step
from gristmill.flows.reports.audit import Share, share
from gristmill.flows.reports.lineage import row_of
from gristmill.flows.reports.tables import Table
from gristmill.storage import files
from gristmill.storage.damage import opening

KEEP, DROP, UNSURE = "keep", "drop", "unsure"


class Vote(BaseModel):
    """`stage`: the label of the stage that dropped the document, or that lists the kept documents; `step`, `rule`: what
    dropped it, empty for a kept document; `drawn`: whether it was on a page of random draws."""

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
    """`documents`: the number that the rule dropped, or that are kept if `rule` is empty; `share`: votes that agree,
    with the interval of Clopper and Pearson at the level 0.95; `unsure`: votes without a decision; `sought`: votes on
    documents that were not drawn, which do not count."""

    rule: str
    documents: int
    share: Share
    unsure: int
    sought: int


@dataclass(frozen=True)
class StepPrecision:
    """Votes on the drops of a step, or on kept documents if `step` is empty.

    `precision`, `low`, `high`: the share of these documents that readers would also drop (keep), weighted by the number
    of documents of each rule with votes, with an interval at 0.95; None without votes. `covered`: documents of these
    rules.
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
        """A row for each rule of a step, or one for kept documents; then the share over all rules."""
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
    """Record a vote on a document, replacing an earlier one; an empty `vote` removes it. A document that was drawn once
    counts as drawn. Raises LookupError if `stage` has not kept or dropped the document, or if it was taken down, and
    ValueError for an unknown vote."""
    step, rule = _decision(opened, stage, shard, id_)
    path = _path(opened, stage, id_)
    if not vote:
        if files.exists(path):
            files.remove(path)
        return None
    before = _read(path)
    try:
        new = Vote(
            stage=stage, step=step, rule=rule, shard=shard, id=id_, vote=vote,
            drawn=drawn or (before is not None and before.drawn),
        )  # fmt: skip
    except ValidationError:
        raise ValueError(f"a vote is {KEEP}, {DROP} or {UNSURE}") from None
    files.write_bytes(path, new.model_dump_json().encode())
    return new


def vote_on(opened: Opened, stage: str, id_: str) -> str:
    """The vote on a document; empty without one."""
    recorded = _read(_path(opened, stage, id_))
    return recorded.vote if recorded else ""


def precision(opened: Opened) -> list[StepPrecision]:
    """The precision of each step with votes, and of kept documents. Reads only votes on the recipe's current stages;
    votes on another version belong to other stages."""
    precisions = []
    for step in opened.steps:
        votes = [one for one in _votes(opened, step.stage.label) if one.step == step.row.step]
        if votes and step.drops:
            precisions.append(_step(step, votes))
    kept = [one for one in _votes(opened, opened.kept.label) if not one.step]
    if kept:
        rule = _rule("", sum(opened.kept_by_shard), kept, KEEP)
        precisions.append(_summed("", opened.kept.label, rule.documents, [rule]))
    return precisions


def weighted(shares: Sequence[Share], sizes: Sequence[int]) -> tuple[float, float, float]:
    """The weighted share over groups of these sizes, and its interval from the intervals of the groups: the method of
    variance estimates recovery, Zou and Donner (2008), https://doi.org/10.1002/sim.3095. Every share must have
    votes."""
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
    agreeing = share(decided.count(agrees), len(decided), "exact")  # wide for few votes that all agree
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
    """Step and rule that dropped a document in a stage; empty for a kept document."""
    stages = {step.stage.label: step.stage for step in opened.steps} | {opened.kept.label: opened.kept}
    if stage not in stages or not 0 <= shard < len(stages[stage].part_records):
        raise LookupError(f"no stage {stage} of this recipe has a shard {shard}")
    deciding = stages[stage]
    row = row_of(deciding.ledger(shard), id_) if deciding.counts_documents else None
    is_kept = row is None and stage == opened.kept.label and row_of(deciding.part(shard), id_) is not None
    if row is None and not is_kept:
        raise LookupError(f"{stage} has not dropped {id_}")
    record = row_of(opened.extracted.part(shard), id_) or row or {}
    if opened.taken_down([(id_, record.get("url"))]):
        raise LookupError(TAKEN)
    return (row["step"], row["rule"]) if row else ("", "")


def _path(opened: Opened, stage: str, id_: str) -> str:
    return files.join(opened.settings.home, "votes", stage, _file_name(id_))


def _votes(opened: Opened, stage: str) -> list[Vote]:
    folder = files.join(opened.settings.home, "votes", stage)
    votes = [_read(files.join(folder, name)) for name in sorted(files.names(folder)) if name.endswith(".json")]
    return [vote for vote in votes if vote is not None]


def _read(path: str) -> Vote | None:
    """Read a vote. Raises ValueError for a file that Gristmill did not write, and for a vote under a wrong file
    name."""
    if not files.exists(path):
        return None
    data = files.read_bytes(path)
    with opening(path, "vote as saved by a page of `gristmill browse`", "remove it"):
        vote = Vote.model_validate_json(data)
    if not path.endswith(f"/{vote.stage}/{_file_name(vote.id)}"):
        # otherwise it would count as a second vote on its document
        raise ValueError(f"{path} has the name of another file: it is a vote on {vote.id}; remove it")
    return vote


def _file_name(id_: str) -> str:
    return f"{files.digest(id_.encode('utf-8', 'surrogatepass'))}.json"
