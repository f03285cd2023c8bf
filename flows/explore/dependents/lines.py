"""What `home affected` and `home retract` print: sentences and tables of what depends on a thing."""

import re
from collections.abc import Iterator, Sequence

from gristmill.flows.explore.dependents.affected import Affected, AffectedStage, AffectedTraining, Cost
from gristmill.flows.reports.tables import Table
from gristmill.storage.printable import redact_url, redact_user

MAX_DOCUMENTS = 10  # that are listed
_MAX_SHARDS = 6
_KEY = re.compile(r"(-[0-9a-f]{8})[0-9a-f]{8}\b")


def parts(report: Affected) -> Iterator[str | Table]:
    """Everything, the summary first."""
    yield from summary(report)
    yield stages(report.stages)
    if report.found is not None and report.found.documents:
        yield documents(report)
    if report.trainings:
        yield trainings(report.trainings)
        yield from (f"stale: {one.stage}: {reason}" for one in report.trainings for reason in one.stale)
    yield from tables(report)
    yield from (f"unknown: {gap}" for gap in report.gaps)


def tables(report: Affected) -> Iterator[Table]:
    """What is outside of the stages: runs, exports, verdicts."""
    if report.runs:
        runs = [(run.began, run.run, run.flow, run.release, run.stages) for run in report.runs]
        yield Table(("began (UTC)", "run", "flow", "release", "#affected stages"), runs, "Recorded runs")
    if report.exports:
        exports = [(redact_url(one.address), one.label, ", ".join(one.reads[:2])) for one in report.exports]
        yield Table(("folder", "export", "reads"), exports, "Exports")
    if report.verdicts:
        verdicts = [
            (one.kind, one.base, one.file, "; ".join(one.stale) or "no", "; ".join(one.sentences))
            for one in report.verdicts
        ]
        yield Table(("kind", "recipe", "file", "stale", "verdict"), verdicts, "Verdicts")


def summary(report: Affected) -> Iterator[str]:
    """How much depends on the thing, since when, and what it costs."""
    counts = [
        (len(report.stages), "stage"),
        (sum(one.stage.startswith("model-") for one in report.trainings), "trained model"),
        (sum(not one.stage.startswith("model-") for one in report.trainings), "proxy run"),
        (len(report.runs), "recorded run"),
        (len(report.exports), "export"),
        (len(report.verdicts), "verdict"),
    ]
    listed = ", ".join(f"{count:,} {name}{'s' * (count != 1)}" for count, name in counts)
    yield f"{report.thing}: {listed}; since {report.since or 'an unknown time'} UTC"
    if report.found is not None:
        records = sum(map(len, report.found.records.values()))
        dropped = f", and {records:,} records that were dropped before they became documents" if records else ""
        count = len(report.found.ids)
        yield f"{count:,} {'document matches' if count == 1 else 'documents match'}{dropped}"
    yield from (f"retracted: {sentence}" for sentence in report.retracted)
    yield cost_line(report.cost)


def cost_line(cost: Cost) -> str:
    """What it costs to make all stages again."""
    gpu = f" and {cost.gpu_hours:,.2f} GPU hours" if cost.gpu_hours else ""
    price = "" if cost.price is None else f", {cost.price:,.2f} at these prices"
    unknown = ""
    if cost.unknown:
        unknown = f"; not recorded for {len(cost.unknown)} of them, such as {cost.unknown[0]}"
    core = f"{cost.core_hours:,.3f} core hours"
    return f"making these stages took {core}{gpu} the last time{price}{unknown}"


def stages(rows: Sequence[AffectedStage]) -> Table:
    """A row for each stage."""
    columns = ("stage", "made (UTC)", "shards", "#documents", "#tokens", "#core s|,.1f", "why")
    table = [
        (one.stage, one.made[:16], _numbers(one.shards), one.documents,
         one.all_tokens if one.documents is None else one.tokens, one.core_seconds,
         _why(one))
        for one in rows
    ]  # fmt: skip
    return Table(columns, table, "Stages")


def _why(one: AffectedStage) -> str:
    why = _KEY.sub(r"\1", one.why)
    return why if one.state == "finished" else f"{why} ({one.state})"


def _numbers(shards: Sequence[int] | None) -> str:
    if shards is None:
        return "all"
    more = f" and {len(shards) - _MAX_SHARDS} more" if len(shards) > _MAX_SHARDS else ""
    return ", ".join(map(str, shards[:_MAX_SHARDS])) + more


def documents(report: Affected) -> Table:
    """The first documents that match."""
    assert report.found is not None, "documents were looked for"
    rows = [
        (one.id, one.source, redact_user(one.url or ""), one.stage, one.shard, one.entry)
        for one in report.found.documents
    ]
    return Table(("id", "source", "url", "stage", "#shard", "matches"), rows[:MAX_DOCUMENTS], "Documents")


def trainings(rows: Sequence[AffectedTraining]) -> Table:
    """A row for each training."""
    columns = ("training", "recipe", "kept checkpoints that have read it", "#documents read", "#first step")
    table = [
        (one.stage, ", ".join(one.recipes), ", ".join(map(str, one.has_read)), one.read, one.first_step, one.times)
        for one in rows
    ]
    return Table((*columns, "#times read|.2f"), table, "Trainings")
