"""Looking into the home: which stages there are, and the documents that they keep."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flows.reports.funnel import ranked
from storage import parquet
from storage.home import FinishedStage, Home, StageFolder


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


@dataclass(frozen=True)
class KeptDocument:
    """A row of a stage's part without its text, and the text, if the stage or the one that it reads has texts."""

    row: dict[str, Any]
    text: str | None


@dataclass(frozen=True)
class KeptDocuments:
    """The first documents of the stage in `folder`."""

    folder: str
    documents: list[KeptDocument]


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


def show(home: str, name: str, n: int) -> Iterator[KeptDocuments]:
    """The first `n` documents of each stage with a name or a label, of unfinished ones too.

    Holds one part of the stage and one of the texts. Raises FileNotFoundError for a stage that is not there, naming
    those that are.
    """
    found = Home(home)
    matching = sorted([*found.stages(name), *found.unfinished(name)], key=lambda stage: stage.label)
    if not matching:
        known = ", ".join(row.stage for row in status(home)) or "none"
        raise FileNotFoundError(f"no stage {name} in {home}; there are: {known}")
    for stage in matching:
        yield KeptDocuments(stage.folder, _first(stage, n))


def _first(stage: StageFolder, n: int) -> list[KeptDocument]:
    documents: list[KeptDocument] = []
    for part in stage.parts:
        if len(documents) == n:
            break
        rows = parquet.read_table(part).slice(0, n - len(documents)).to_pylist()
        texts = _texts(stage, part.rsplit("/", 1)[-1]) if rows else {}
        for row in rows:
            whole = texts.get(row.get("id"), {}) | row
            documents.append(KeptDocument({k: v for k, v in whole.items() if k != "text"}, whole.get("text")))
    return documents


def _texts(stage: StageFolder, part: str) -> dict[str, dict[str, Any]]:
    """Rows of the documents' part behind a stage's part, by id; empty if the stage has no documents."""
    if not isinstance(stage, FinishedStage) or stage.documents is None:
        return {}
    table = parquet.read_table(f"{stage.documents.folder}/{part}", ["id", "source", "url", "text"])
    return {row["id"]: row for row in table.to_pylist()}
