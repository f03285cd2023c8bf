"""The stages of a home in order of time, and the documents that they keep."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import wrapt

from gristmill.flows.machine.runs import recipes_by_stage
from gristmill.flows.reports.funnel import TOP, ranked
from gristmill.flows.reports.tables import Table, listed
from gristmill.storage import files
from gristmill.storage.home import FinishedStage, Home, StageFolder, UnfinishedStage, UnreadableStage

if TYPE_CHECKING:
    from gristmill.flows.reports import columns
    from gristmill.storage import parquet, schema
else:
    columns = wrapt.lazy_import("gristmill.flows.reports.columns")
    parquet = wrapt.lazy_import("gristmill.storage.parquet")
    schema = wrapt.lazy_import("gristmill.storage.schema")


@dataclass(frozen=True)
class StageStatus:
    """A stage of the home.

    `documents_in`, `documents_out`: None if documents are not counted; `drops`: documents by `step.rule`, most first;
    `jobs_done`: of an unfinished stage; `trouble`: why a stage cannot be read; `recipes`: recipes whose last run had
    it; `modified`: when it, or its last job, was finished, in seconds since 1970, None if no job was; `tokens`: that it
    made or was trained on, None for other stages; `contents`: the digest of its contents; `inputs`: keys of stages and
    digests of files, by their roles, and `digests` the digests of both."""

    stage: str
    state: Literal["finished", "unfinished", "unreadable"]
    documents_in: int | None = None
    documents_out: int | None = None
    drops: Mapping[str, int] = field(default_factory=dict)
    jobs_done: int = 0
    trouble: str = ""
    recipes: tuple[str, ...] = ()
    modified: float | None = None
    tokens: int | None = None
    contents: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.stage.rpartition("-")[2]

    @property
    def documents(self) -> str:
        """The numbers of documents in and out, if they are counted."""
        return " → ".join(f"{n:,}" for n in (self.documents_in, self.documents_out) if n is not None)

    @property
    def finished(self) -> str:
        """The time it was finished, to the minute, or its state."""
        if self.state != "finished":
            return self.state
        return "" if self.modified is None else datetime.fromtimestamp(self.modified).strftime("%d %b %H:%M")


def table(rows: Iterable[StageStatus]) -> Table:
    """A row for each stage."""
    shown = [
        (row.finished, row.stage, ", ".join(row.recipes),
         f"{row.jobs_done:,} jobs done" if row.state == "unfinished" else row.documents, listed(row.drops, TOP))
        for row in rows
    ]  # fmt: skip
    return Table(("finished", "stage", "recipe", "#documents", "most dropped by"), shown)


def status(home: str) -> list[StageStatus]:
    """All stages of a home in order of time, then stages without a finished job. Reads a manifest for each."""
    found = Home(home)
    recipes = recipes_by_stage(home)

    def row(stage: FinishedStage | UnfinishedStage | UnreadableStage) -> StageStatus:
        return replace(_row(stage), recipes=tuple(recipes.get(stage.label, ())), modified=_modified(stage))

    # threads, since requests to a store mostly wait
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
    return StageStatus(
        stage.label,
        "finished",
        arrived,
        left,
        drops,
        tokens=token_count(stage),
        contents=stage.contents,
        inputs=stage.inputs,
        digests=stage.digests,
    )


def token_count(stage: FinishedStage) -> int | None:
    """How many tokens a stage has made or was trained on; None for other stages."""
    if stage.name == "tokens":
        return stage.result["train"]
    counted = stage.result.get("tokens")
    return sum(counted.values()) if isinstance(counted, dict) else counted


def _modified(stage: StageFolder) -> float | None:
    """The time a stage, or its last job, was finished, in seconds since 1970; None if no job was."""
    if not isinstance(stage, UnfinishedStage):
        return files.modified(files.join(stage.folder, "manifest.json"))
    done = files.join(stage.folder, "done")
    return max((files.modified(files.join(done, name)) for name in files.names(done)), default=None)


# The first of these among the inputs of a stage is its predecessor; other inputs were made on the side.
_BEFORE = ("mixture", "tokens", "kept", "documents")


@dataclass(frozen=True)
class StageNode:
    """A stage of a recipe, and the stages that were made for it on the side."""

    stage: StageStatus
    aside: tuple["StageNode", ...]


def trees(rows: Iterable[StageStatus]) -> dict[str, list[StageNode]]:
    """The stages that the documents and tokens of each recipe's last run went through, in order.

    Other inputs of a stage (signatures, the model of a filter, a tokenizer) are in its `aside`. A stage is listed once,
    where it is needed first. Unfinished stages are last, because their inputs are unknown.
    """
    found: dict[str, list[StageStatus]] = {}
    for row in rows:
        for recipe in row.recipes:
            found.setdefault(recipe, []).append(row)
    return {recipe: _tree(found[recipe]) for recipe in sorted(found)}


def _tree(rows: list[StageStatus]) -> list[StageNode]:
    by_key = {row.contents: row for row in rows if row.contents} | {row.key: row for row in rows}
    read = {found.key for row in rows for name in row.inputs if (found := _input(row, name, by_key)) is not None}
    shown: set[str] = set()
    lines: list[list[StageStatus]] = []
    for last in sorted((row for row in rows if row.key not in read), key=lambda row: row.state != "finished"):
        line = list(_line(last, by_key, shown))[::-1]
        shown.update(row.key for row in line)
        lines.append(line)

    def node(row: StageStatus) -> StageNode:
        aside = []
        for name in sorted(row.inputs):
            other = _input(row, name, by_key)
            if other is not None and other.key not in shown:
                shown.add(other.key)
                aside.append(node(other))
        return StageNode(row, tuple(aside))

    return [node(row) for line in lines for row in line]


def _input(row: StageStatus, name: str, rows: Mapping[str, StageStatus]) -> StageStatus | None:
    """The stage that another one read, or one with equal contents. `rows`: by key and by contents."""
    return rows.get(row.inputs[name]) or rows.get(row.digests.get(name, ""))


def _line(last: StageStatus, by_key: Mapping[str, StageStatus], shown: set[str]) -> Iterator[StageStatus]:
    """A stage and its predecessors, back to one that is already shown."""
    row: StageStatus | None = last
    while row is not None and row.key not in shown:
        yield row
        before = next((name for name in _BEFORE if name in row.inputs), None)
        row = None if before is None else _input(row, before, by_key)


@dataclass(frozen=True)
class KeptDocument:
    """A row of a stage's part without its text, and the text, if the stage or its input has texts."""

    row: dict[str, Any]
    text: str | None


@dataclass(frozen=True)
class KeptDocuments:
    """The first documents of the stage in `folder`; `recipes`: the recipes whose curated documents these are, if these
    were requested."""

    folder: str
    documents: list[KeptDocument]
    recipes: tuple[str, ...] = ()


# Stages that select curated documents for a training or an evaluation.
_BEHIND_CURATION = ("heldout", "evaluation_removal")


def show(home: str, name: str, n: int, where: str = "") -> Iterator[KeptDocuments]:
    """The first `n` documents of each stage with a name or a label, including unfinished stages. The name `documents`
    selects the curated documents of each recipe's last run, which are in the last finished stage of the curation.

    `where`: an expression; only documents for which it is true are shown, with the columns that it names.

    Holds one part of the stage and one part of the texts. Raises FileNotFoundError for an unknown stage, with the names
    of all stages, LookupError for an unknown column in `where`, and ExpressionError for an invalid expression.
    """
    found = Home(home)
    found.check_readable()
    if name == "documents":
        yield from _curated(found, n, where)
        return
    matching = sorted([*found.stages(name), *found.unfinished(name)], key=lambda stage: stage.label)
    if not matching:
        known = ", ".join(row.stage for row in status(home)) or "none"
        raise FileNotFoundError(f"no stage {name} in {home}; the stages are {known}")
    for stage in matching:
        yield KeptDocuments(stage.folder, _first(stage, n, where))


def _curated(home: Home, n: int, where: str) -> Iterator[KeptDocuments]:
    by_recipe: dict[str, list[FinishedStage]] = {}
    recipes = recipes_by_stage(home.address)
    for stage in home.stages():
        if stage.counts_documents and stage.name not in _BEHIND_CURATION:
            for recipe in recipes.get(stage.label, ()):
                by_recipe.setdefault(recipe, []).append(stage)
    last: dict[str, list[str]] = {}
    for recipe, stages in sorted(by_recipe.items()):
        for stage in stages:
            if not any(later.reads("kept", stage) for later in stages):
                last.setdefault(stage.key, []).append(recipe)
    if not last:
        known = ", ".join(stage.label for stage in home.stages("documents")) or "none is finished"
        raise FileNotFoundError(
            f"no run of a recipe has curated documents in {home.address}: run one with `gristmill corpus`, "
            f"or give the key of a stage of extracted documents ({known})"
        )
    for key, names in last.items():
        stage = home.stage(key)
        run = [other for other in home.stages() if {*names} & {*recipes.get(other.label, ())}]
        yield KeptDocuments(stage.folder, _first(stage, n, where, run), tuple(names))


def _first(stage: StageFolder, n: int, where: str = "", run: Iterable[FinishedStage] = ()) -> list[KeptDocument]:
    """`run`: stages that may have more measured columns."""
    if where:
        return _chosen(stage, n, where, run)

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


def _chosen(stage: StageFolder, n: int, where: str, run: Iterable[FinishedStage]) -> list[KeptDocument]:
    documents: list[KeptDocument] = []
    for part, named in columns.chosen(stage, where, run):
        asked = {row["id"]: row for row in named.slice(0, n - len(documents)).to_pylist()}
        if asked:
            own = {row["id"]: row for row in parquet.read_table(part).to_pylist() if row["id"] in asked}
            texts = _texts(stage, part.rsplit("/", 1)[-1])
            for id_, row in asked.items():
                whole = texts.get(id_, {}) | own[id_] | row
                text = whole.pop("text", None)
                documents.append(KeptDocument(whole, text))
        if len(documents) == n:
            break
    return documents


def _texts(stage: StageFolder, part: str) -> dict[str, dict[str, Any]]:
    """Rows of the documents in a stage's part, by id; empty if the stage has no documents."""
    if not isinstance(stage, FinishedStage) or stage.documents is None:
        return {}

    path = f"{stage.documents.folder}/{part}"
    names = dict.fromkeys(["id", "source", "url", "date", "title", *schema.own_of(parquet.schema(path)), "text"])
    table = parquet.read_table(path, [*names])
    return {row["id"]: row for row in table.to_pylist()}
