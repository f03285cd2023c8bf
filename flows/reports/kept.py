"""The documents that the stages of a home keep."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flows.reports.status import status
from storage import parquet
from storage.home import FinishedStage, Home, StageFolder


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
