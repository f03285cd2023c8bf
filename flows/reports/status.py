"""The stages of a home in order of time, and what each let through."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gristmill.flows.machine.runs import recipes_by_stage
from gristmill.flows.reports.funnel import ranked
from gristmill.storage import files
from gristmill.storage.home import FinishedStage, Home, StageFolder, UnfinishedStage, UnreadableStage


@dataclass(frozen=True)
class StageStatus:
    """A stage of the home.

    `documents_in`, `documents_out`: None where no documents are counted; `drops`: documents by `step.rule`, most
    first; `jobs_done`: of an unfinished stage; `trouble`: why a stage cannot be read; `recipes`: those whose last run
    had it; `modified`: when it was finished, or its last job, in seconds since 1970, None if none was.
    """

    stage: str
    state: Literal["finished", "unfinished", "unreadable"]
    documents_in: int | None = None
    documents_out: int | None = None
    drops: Mapping[str, int] = field(default_factory=dict)
    jobs_done: int = 0
    trouble: str = ""
    recipes: tuple[str, ...] = ()
    modified: float | None = None


def status(home: str) -> list[StageStatus]:
    """All stages of a home in order of time, those that have finished no job last. Reads a manifest for each."""
    found = Home(home)
    recipes = recipes_by_stage(home)

    def row(stage: FinishedStage | UnfinishedStage | UnreadableStage) -> StageStatus:
        return replace(_row(stage), recipes=tuple(recipes.get(stage.label, ())), modified=_modified(stage))

    # requests to a store are mostly waiting
    with ThreadPoolExecutor(16) as pool:
        rows = pool.map(row, [*found.stages(), *found.unfinished(), *found.unreadable()])
    return sorted(rows, key=lambda row: (row.modified is None, row.modified or 0, row.stage))


def _row(stage: FinishedStage | UnfinishedStage | UnreadableStage) -> StageStatus:
    if isinstance(stage, UnfinishedStage):
        return StageStatus(stage.label, "unfinished", jobs_done=stage.jobs_done)
    if isinstance(stage, UnreadableStage):
        return StageStatus(stage.label, "unreadable", trouble=stage.trouble)
    steps = stage.step_counts
    drops = ranked({f"{count['step']}.{rule}": n for count in steps for rule, n in count["drops"].items()})
    arrived, left = (steps[0]["rows_in"], steps[-1]["rows_out"]) if steps else (None, None)
    return StageStatus(stage.label, "finished", arrived, left, drops)


def _modified(stage: StageFolder) -> float | None:
    """When a stage was finished, or its last job; None if none was. In seconds since 1970."""
    if not isinstance(stage, UnfinishedStage):
        return files.modified(files.join(stage.folder, "manifest.json"))
    done = files.join(stage.folder, "done")
    return max((files.modified(files.join(done, name)) for name in files.names(done)), default=None)


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
    from gristmill.storage import parquet  # here, since a status reads no documents

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
    from gristmill.storage import parquet  # here, since a status reads no documents

    table = parquet.read_table(f"{stage.documents.folder}/{part}", ["id", "source", "url", "text"])
    return {row["id"]: row for row in table.to_pylist()}
