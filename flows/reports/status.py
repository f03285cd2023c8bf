"""Looking into the home: which stages there are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from flows.reports.funnel import ranked
from storage.home import FinishedStage, Home


@dataclass(frozen=True)
class StageStatus:
    """A stage of the home.

    `documents_in`, `documents_out`: None where no documents are counted; `drops`: documents by `step.rule`, most
    first; `jobs_done`: of an unfinished stage; `trouble`: why a stage cannot be read.
    """

    stage: str
    state: Literal["finished", "unfinished", "unreadable"]
    documents_in: int | None = None
    documents_out: int | None = None
    drops: Mapping[str, int] = field(default_factory=dict)
    jobs_done: int = 0
    trouble: str = ""


def status(home: str) -> list[StageStatus]:
    """All stages of a home, in the order of their labels. Reads a manifest for each."""
    found = Home(home)
    rows = [_finished(stage) for stage in found.stages()]
    rows += [StageStatus(stage.label, "unfinished", jobs_done=stage.jobs_done) for stage in found.unfinished()]
    rows += [StageStatus(stage.label, "unreadable", trouble=stage.trouble) for stage in found.unreadable()]
    return sorted(rows, key=lambda row: row.stage)


def _finished(stage: FinishedStage) -> StageStatus:
    steps = stage.step_counts
    drops = ranked({f"{count['step']}.{rule}": n for count in steps for rule, n in count["drops"].items()})
    arrived, left = (steps[0]["rows_in"], steps[-1]["rows_out"]) if steps else (None, None)
    return StageStatus(stage.label, "finished", arrived, left, drops)
