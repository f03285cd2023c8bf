"""`group_losses`: whether the steps took far more from a source, a host, a language or a topic than from its like."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import files
from gristmill.storage.printable import one_line
from gristmill.tasks.dedup.takedowns import STEP as TAKEDOWNS
from gristmill.tasks.documents.by_shard import Names
from gristmill.tasks.documents.expressions import DERIVED, parsed
from gristmill.tasks.documents.group_losses import AT_ONCE, STEP, Limits, count_shard, counts_folder, judge, sum_counts
from gristmill.tasks.documents.step import Clause, DocumentStep, Member, Settings, Step
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.rights.shards import STEP as SITE_RIGHTS
from gristmill.tasks.rights.step import Rights

log = logging.getLogger(__name__)


class LostGroupError(ValueError):
    """The steps took far more from a group of documents than from its like."""


class LossSearch(Settings):
    """`by_design`: for a grouping the steps that decide by its very values; `like`: the kind of each source; `apart`:
    those that a step always keeps."""

    limits: Limits
    by_design: dict[str, tuple[str, ...]]
    like: dict[str, str]
    apart: tuple[str, ...]


@dataclass(frozen=True)
class GroupLossesPlaces:
    """Folders of stages: the one that read the records, those that dropped documents, those with signals."""

    sources: Names
    extracted: str
    ledgers: tuple[str, ...]
    measured: tuple[str, ...]


def group_losses(context: RunContext, recipe: Recipe, corpus: Corpus) -> StageResult | None:
    """What groups lost so far; None if it is not counted, or for a reader if it is not finished."""
    spec = group_losses_spec(recipe, corpus)
    return None if spec is None else context.build_output(spec)


def check_losses(recipe: Recipe, losses: StageResult) -> None:
    """Log a line for each group. Raises LostGroupError instead where the recipe stops the run."""
    lines = sentences(losses.result)
    if lines and recipe.group_losses.then == "stop":
        raise LostGroupError(
            "\n".join([*lines, "the recipe has `group_losses: {then: stop}`: loosen the step, or set it to warn"])
        )
    for line in lines:
        log.warning("%s", line)


def group_losses_spec(recipe: Recipe, corpus: Corpus) -> StageSpec | None:
    """The stage that looks for such groups; None where the recipe does not ask, or no step drops documents."""
    settings = recipe.group_losses
    dropping = [stage for stage in corpus.stages if stage.step_counts and stage is not corpus.extracted]
    if settings.then == "ignore" or not dropping:
        return None
    record = LossSearch(
        limits=settings.part(Limits),
        by_design={name: decided for name in settings.by if (decided := deciding(recipe, name))},
        like={one.name: "crawl" if one.is_crawl else "" for one in recipe.sources},
        apart=tuple(sorted({name for step in recipe.steps for name in getattr(step, "reference", ())})),
    )
    inputs = corpus.inputs(signals=True)
    return StageSpec(
        name=STEP,
        version=1,
        body=_judge,
        record=record,
        inputs=inputs | {f"dropped {number}": stage for number, stage in enumerate(dropping)},
        places=GroupLossesPlaces(
            sources=Names.of(corpus.sources),
            extracted=corpus.extracted.folder,
            ledgers=tuple(stage.folder for stage in dropping),
            measured=tuple(stage.folder for stage in corpus.measured),
        ),
    )


def _judge(phases: PhaseRunner, record: LossSearch, places: GroupLossesPlaces) -> dict:
    """Find groups that lost far more than comparable groups."""
    common = {
        "by": record.limits.by,
        "extracted": places.extracted,
        "ledgers": places.ledgers,
        "measured": places.measured,
        "by_design": record.by_design,
    }
    jobs = Each(range(len(places.sources)), lambda i: {"source": places.sources[i]})
    phases.map("count", count_shard, jobs, temporary=True, common=common)
    level, parts = 0, len(places.sources)
    while level == 0 or parts > 1:
        adding = Each(range(ceil(parts / AT_ONCE)), lambda i: {})
        phases.map(f"sum-{level}", sum_counts, adding, temporary=True, common={"level": level, "parts": parts})
        level, parts = level + 1, ceil(parts / AT_ONCE)
    arguments = {"level": level, "limits": record.limits, "like": record.like, "apart": record.apart}
    result = phases.once("judge", judge, arguments)
    files.remove(counts_folder(phases.folder))
    return result


def deciding(recipe: Recipe, grouping: str) -> tuple[str, ...]:
    """The steps whose decision is by the values that make the groups, and those that go by what others ask for:
    takedowns and rights."""
    decided = [step.step for step in recipe.after if isinstance(step, Rights) or _decides(step, grouping)]
    return (*decided, *([SITE_RIGHTS] if Rights().step in decided else []), TAKEDOWNS)


def _decides(step: Step, grouping: str) -> bool:
    names = {grouping, DERIVED.get(grouping, grouping)}
    for each in step.decisions() if isinstance(step, DocumentStep) else ():
        if isinstance(each, Member) and each.signal == grouping and (each.allowed is not None or each.excluded):
            return True
        if isinstance(each, Clause) and names & {*parsed(each.expression).columns}:
            return True
    return False


def sentences(result: Mapping[str, Any]) -> list[str]:
    """What is said of each group that lost too much."""
    lines = []
    for one in result["groups"]:
        lines.append(
            f"the {one['by']} {one_line(one['group'])} lost {one['lost'] / one['documents']:.1%} of its "
            f"{one['documents']:,} documents, compared with {one['like_lost']:.1%} for {one['like']:,} other "
            f"{one['by']}s; `{one['step']}` dropped most of them, {one['step_lost']:,}: see `gristmill "
            f"explain show dropped --rule {one['step']}`"
        )
    if (more := result["found"] - len(lines)) > 0:
        lines.append(f"{more:,} more groups lost far more than comparable groups")
    return lines
