"""Documents of a home by id, URL, host, takedown list or likeness to a text, and the stages that hold them."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.reports.dependents.graph import HomeGraph
from gristmill.flows.reports.dependents.things import Thing
from gristmill.storage import files, parquet
from gristmill.storage.home import FinishedStage
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.dedup.takedowns import taken_down
from gristmill.tasks.documents.normalize import Normalize, rewrite
from gristmill.tasks.evaluation.similar import THRESHOLD, Given, given, likest
from gristmill.tasks.url.canonical import Canonical
from gristmill.tasks.url.lists import ENTRIES, ListError, check_takedowns
from gristmill.tasks.url.lists import taken_down as address_key
from gristmill.tasks.url.step import Url

MIN_SHINGLES = 25  # of a text that counts as contained in another one: most shorter ones are in many texts
_NUMBER = re.compile(r"-(\d{5,})\.parquet$")


@dataclass(frozen=True)
class FoundDocument:
    """A document of a stage `documents`. `entry`: the list entry or the likeness by which it was found."""

    id: str
    source: str
    url: str | None
    file: str
    stage: str
    shard: int
    entry: str


@dataclass
class FoundDocuments:
    """`documents`: of all stages that extracted them; `records`: ids of records that were dropped before they became
    documents, whose URL is in the ledger, by stage; `gaps`: what could not be read."""

    documents: list[FoundDocument] = field(default_factory=list)
    records: dict[str, list[str]] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)

    @property
    def ids(self) -> set[str]:
        return {one.id for one in self.documents}

    def shards(self, stage: str) -> dict[int, set[str]]:
        """Of a stage the ids by shard."""
        found: dict[int, set[str]] = {}
        for one in self.documents:
            if one.stage == stage:
                found.setdefault(one.shard, set()).add(one.id)
        return found


@dataclass(frozen=True)
class Holding:
    """What a stage holds of some documents: `tokens` None for a stage without tokens."""

    documents: int
    shards: tuple[int, ...]
    tokens: int | None


# Gives for each row of a table why it matches, null for one that does not.
Match = Callable[[FinishedStage, pa.Table], pa.ChunkedArray]


@contextmanager
def matching(thing: Thing) -> Iterator[tuple[Match, tuple[str, ...]]]:
    """How documents are matched with a thing, and the columns that this needs. URLs and hosts match as entries of a
    takedown list do. Raises ValueError for a text without a word, and for what no list may have."""
    if thing.kind == "text":
        yield _alike(_text_of(thing.name)), ("id", "text")
        return
    if thing.kind == "document" and len(thing.name) < 32:
        label = pa.scalar(f"id {thing.name}...")

        def by_prefix(_: FinishedStage, table: pa.Table) -> pa.ChunkedArray:
            return pc.if_else(pc.starts_with(table["id"], thing.name), label, pa.scalar(None, pa.string()))

        yield by_prefix, ("id",)
        return
    try:
        address_key(thing.name, Canonical())
    except ListError:
        raise ValueError(f"documents are not found by {str(thing)!r}; {ENTRIES}") from None
    with TemporaryDirectory(prefix="gristmill-") as folder:
        Path(folder, "entry").write_text(f"{thing.name}\n", encoding="utf-8")
        with listing([str(Path(folder, "entry"))]) as match:
            yield match, ("id", "url")


@contextmanager
def listing(lists: list[str]) -> Iterator[Match]:
    """Documents that takedown lists name. Raises ListError for a line that cannot be understood."""
    for path in lists:
        check_takedowns(path, Canonical())
    pinned = Url(takedowns=tuple(lists)).pinned()

    def by_list(_: FinishedStage, table: pa.Table) -> pa.ChunkedArray:
        return taken_down(table, pinned)

    yield by_list


def short_text(path: str) -> list[str]:
    """A sentence on what is not found of a text with few shingles; none for a longer one."""
    [size] = alike_index([_text_of(path)]).sizes.tolist()
    if size >= MIN_SHINGLES:
        return []
    return [
        f"the text {path} has {size} different sequences of five words, fewer than {MIN_SHINGLES}: only documents that "
        "are like it as a whole were searched, and not longer ones that contain it. Give a longer part of the text, or "
        "search the phrase with `gristmill explain find`"
    ]


def _text_of(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}): convert it first") from None


def alike_index(texts: list[str]) -> Given:
    """Texts as others are compared with them: by sets of five words. Raises ValueError where none has a word."""
    index = given(pa.chunked_array([texts], pa.large_string()), Shingling())
    if not index.sizes.any():
        raise ValueError("the text has no words (letters or digits), so it cannot be compared. Give another text")
    return index


def _alike(text: str) -> Match:
    alike_index([text])  # whose error is of the text, and not of a shard
    by_settings: dict[str, Given] = {}

    def alike(stage: FinishedStage, table: pa.Table) -> pa.ChunkedArray:
        settings = stage.settings.get("normalize")
        if (key := repr(settings)) not in by_settings:
            normal = text
            if settings:  # as the extraction would have left it
                [normal] = rewrite(Normalize.model_validate(settings), pa.array([text], pa.large_string())).to_pylist()
            by_settings[key] = alike_index([normal])
        return likeness(by_settings[key], table["text"])

    return alike


def likeness(index: Given, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """For each text how like it is one of the index, as `like, .95` or `contains it, .88`; null below THRESHOLD."""
    least = np.full(len(index.sizes), MIN_SHINGLES)
    best = likest(index, texts, THRESHOLD, least)
    said = [
        None if at < 0 else f"{'like' if like else 'contains'} it, {value:.2f}"
        for at, value, like in zip(best.given.tolist(), best.value.tolist(), best.like.tolist(), strict=True)
    ]
    return pa.chunked_array([said], pa.string())


def find_documents(graph: HomeGraph, match: Match, columns: tuple[str, ...]) -> FoundDocuments:
    """The documents that match, in all stages of the home that extracted texts. Reads `columns` of all their parts, a
    row group at a time; holds what it finds."""
    found = FoundDocuments()
    for label, stage in sorted(graph.stages.items()):
        if stage.name != "documents":
            continue
        if label in graph.collected:
            found.gaps.append(f"{label} was collected, so its documents cannot be searched")
            continue
        for shard, part in enumerate(stage.parts):
            try:
                _find_in(found, stage, shard, part, match, columns)
            except (OSError, RuntimeError, ValueError) as error:
                found.gaps.append(f"shard {shard} of {label} cannot be searched: {error}")
    return found


def _find_in(
    found: FoundDocuments, stage: FinishedStage, shard: int, part: str, match: Match, columns: tuple[str, ...]
) -> None:
    wanted = list(dict.fromkeys([*columns, "id", "source", "url", "file"]))
    for table in parquet.groups(part, wanted):
        entries = match(stage, table)
        rows = table.drop_columns([name for name in table.column_names if name == "text"])
        rows = rows.append_column("entry", entries).filter(pc.is_valid(entries))
        found.documents += [
            FoundDocument(row["id"], row["source"], row["url"], row["file"], stage.label, shard, row["entry"])
            for row in rows.to_pylist()
        ]
    if "text" in columns:
        return
    ledger = parquet.read_table(stage.ledger(shard), ["id", "url"])
    ids = ledger.filter(pc.is_valid(match(stage, ledger)))["id"].to_pylist()
    if ids:
        found.records.setdefault(stage.label, []).extend(ids)


def holdings(
    graph: HomeGraph, found: FoundDocuments, labels: Mapping[str, object]
) -> tuple[dict[str, Holding], list[str]]:
    """What some stages hold of documents, by label, without stages that hold none of them; and what could not be read.

    Reads the ids in the tables of these stages. If a stage has a table for each shard, only the shards with the
    documents are read.
    """
    held, gaps = dict[str, Holding](), list[str]()
    ids = found.ids
    for label in labels:
        stage = graph.stages[label]
        if label in graph.collected:
            gaps.append(f"{label} was collected: what it held of the documents is unknown")
            continue
        try:
            numbers = _numbers(graph, found, stage)
            holding = _holding(stage, ids, numbers)
        except (OSError, RuntimeError) as error:
            gaps.append(f"what {label} holds is unknown, because a file cannot be read: {error}")
            continue
        if holding is not None:
            held[label] = holding
    return held, gaps


def _numbers(graph: HomeGraph, found: FoundDocuments, stage: FinishedStage) -> set[int] | None:
    """The shards in which documents are, of a stage with as many shards as the extraction that it was made from; else
    None."""
    origins = [label for label in graph.origins([stage.label]) if graph.stages[label].name == "documents"]
    if len(origins) != 1 or stage.name in ("evaluation_documents", "heldout_documents", "evaluation_tokens"):
        return None
    if not stage.counts_documents and stage.name not in ("tokens", "documents"):
        return None
    return set(found.shards(origins[0]))


def _holding(stage: FinishedStage, ids: set[str], numbers: set[int] | None) -> Holding | None:
    wanted = pa.array(sorted(ids), pa.string())
    documents, tokens, shards = set[str](), 0, set[int]()
    has_tokens = False
    for job in stage.jobs:
        for name in job.files:
            if not name.endswith(".parquet") or name.startswith(("ledger/", "edits/")):
                continue
            match = _NUMBER.search(name)
            number = int(match[1]) if match else job.number
            if numbers is not None and number not in numbers:
                continue
            path = files.join(stage.folder, name)
            columns = parquet.columns(path)
            if "id" not in columns:
                continue
            length = "length" in columns and "offset" in columns and "text" not in columns
            table = parquet.read_table(path, ["id", "length"] if length else ["id"])
            table = table.filter(pc.is_in(table["id"], wanted))
            if len(table):
                documents.update(table["id"].to_pylist())
                shards.add(number)
                tokens += (pc.sum(table["length"]).as_py() or 0) if length else 0
                has_tokens |= length
    return Holding(len(documents), tuple(sorted(shards)), tokens if has_tokens else None) if documents else None
