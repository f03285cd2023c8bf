"""Documents of a home by id, URL, host, takedown list or likeness to a text, and the stages that hold them."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.dependents.graph import HomeGraph
from gristmill.flows.reports.dependents.things import Thing
from gristmill.flows.reports.search.opened import code_sent, executor
from gristmill.flows.reports.similar import read_text
from gristmill.storage import files, parquet
from gristmill.storage.home import FinishedStage
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.dedup.takedowns import taken_down
from gristmill.tasks.documents.normalize import Normalize, rewrite
from gristmill.tasks.engine import options
from gristmill.tasks.engine.jobs import Code, check_code
from gristmill.tasks.engine.options import JobOptions
from gristmill.tasks.evaluation.similar import THRESHOLD, TextIndex, index_of, likest
from gristmill.tasks.url.canonical import Canonical, host_of
from gristmill.tasks.url.lists import ENTRIES, ListError, check_takedowns
from gristmill.tasks.url.lists import taken_down as address_key
from gristmill.tasks.url.step import Url

MIN_SHINGLES = 25  # of a text that counts as contained in another one: most shorter ones are in many texts
_ORIGIN = "derived_from"  # a column: the id of the document that one was rewritten from
FEW_PARTS = 16  # whose texts threads of this process read, in about the time that an executor takes to start
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


class Match(Protocol):
    """Gives for each row of a table why it matches, null for one that does not. `normalize`: the settings by which the
    extraction has rewritten its texts."""

    def __call__(self, normalize: Mapping[str, Any] | None, table: pa.Table) -> pa.ChunkedArray: ...


@contextmanager
def matching(thing: Thing) -> Iterator[tuple[Match, tuple[str, ...]]]:
    """How documents are matched with a thing, and the columns that this needs. URLs and hosts match as entries of a
    takedown list do. Raises ValueError for a text without a word, and for what no list may have."""
    if thing.kind == "text":
        yield Alike((read_text(thing.name),)), ("id", "text")
        return
    if thing.kind == "document" and len(thing.name) < 32:
        label = pa.scalar(f"id {thing.name}...")

        def by_prefix(normalize: Mapping[str, Any] | None, table: pa.Table) -> pa.ChunkedArray:
            return pc.if_else(pc.starts_with(table["id"], thing.name), label, pa.scalar(None, pa.string()))

        yield by_prefix, ("id",)
        return
    try:
        key = address_key(thing.name, Canonical())
    except ListError:
        raise ValueError(f"documents are not found by {str(thing)!r}; {ENTRIES}") from None
    host = host_of(key.removeprefix("=").partition("/")[0])
    with TemporaryDirectory(prefix="gristmill-") as folder:
        Path(folder, "entry").write_text(f"{thing.name}\n", encoding="utf-8")
        with listing([str(Path(folder, "entry"))]) as by_entry:

            def by_candidates(normalize: Mapping[str, Any] | None, table: pa.Table) -> pa.ChunkedArray:
                mask = _candidates(table, thing.name, host).combine_chunks()
                if not mask.true_count:
                    return pa.chunked_array([pa.nulls(len(table), pa.string())])
                entries = by_entry(normalize, table.filter(mask)).combine_chunks()
                return pa.chunked_array([pc.replace_with_mask(pa.nulls(len(table), pa.string()), mask, entries)])

            yield by_candidates, ("id", "url")


def _candidates(table: pa.Table, name: str, host: str) -> pa.ChunkedArray:
    """The rows that an entry may match: those with this id, those whose URL has the entry's host, in either case, and
    those whose host may be written in another way: in other letters, with escapes or white space, or as a number."""
    urls = pc.fill_null(table["url"], "")
    is_address = host.startswith("[") or host.rpartition(".")[2].isdigit()
    has_host = pc.match_substring(urls, host, ignore_case=True)
    others = "" if is_address else "[^!-~]|%"
    return pc.or_(pc.or_(pc.equal(table["id"], name), has_host), pc.match_substring_regex(urls, others))


@contextmanager
def listing(lists: list[str]) -> Iterator[Match]:
    """Documents that takedown lists name. Raises ListError for a line that cannot be understood."""
    for path in lists:
        check_takedowns(path, Canonical())
    pinned = Url(takedowns=tuple(lists)).pinned()

    def by_list(normalize: Mapping[str, Any] | None, table: pa.Table) -> pa.ChunkedArray:
        return taken_down(table, pinned)

    yield by_list


def short_text(path: str) -> list[str]:
    """A sentence on what is not found of a text with few shingles; none for a longer one."""
    [size] = alike_index([read_text(path)]).sizes.tolist()
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


def alike_index(texts: list[str]) -> TextIndex:
    """Texts as others are compared with them: by sets of five words. Raises ValueError where none has a word."""
    index = index_of(pa.chunked_array([texts], pa.large_string()), Shingling())
    if not index.sizes.any():
        raise ValueError("the text has no words (letters or digits), so it cannot be compared. Give another text")
    return index


@dataclass(frozen=True)
class Alike:
    """Matches documents that are like one of some texts, or contain it. `rewrites`: the texts are compared as each
    extraction would have left them. Raises ValueError where none has a word."""

    texts: tuple[str, ...]
    rewrites: bool = True
    _indexes: dict[str, TextIndex] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._index(None)  # whose error is of the texts, and not of a shard

    def __call__(self, normalize: Mapping[str, Any] | None, table: pa.Table) -> pa.ChunkedArray:
        return likeness(self._index(normalize if self.rewrites else None), table["text"])

    def _index(self, normalize: Mapping[str, Any] | None) -> TextIndex:
        if (key := repr(normalize)) not in self._indexes:
            texts = list(self.texts)
            if normalize:
                column = pa.array(texts, pa.large_string())
                texts = rewrite(Normalize.model_validate(normalize), column).to_pylist()
            self._indexes[key] = alike_index(texts)
        return self._indexes[key]


def likeness(index: TextIndex, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """For each text how like it is one of the index, as `like, .95` or `contains it, .88`; null below THRESHOLD."""
    least = np.full(len(index.sizes), MIN_SHINGLES)
    best = likest(index, texts, THRESHOLD, least)
    entries = [
        None if at < 0 else f"{'like' if like else 'contains'} it, {value:.2f}"
        for at, value, like in zip(best.reference.tolist(), best.value.tolist(), best.like.tolist(), strict=True)
    ]
    return pa.chunked_array([entries], pa.string())


@dataclass(frozen=True)
class Part:
    """A part of a stage `documents` that is searched."""

    stage: str
    shard: int
    path: str
    ledger: str  # "" where nothing was dropped
    normalize: Mapping[str, Any] | None


@dataclass(frozen=True)
class PartSearch:
    """A search in parts, as it is sent to workers. `code`: that of the process that asks, None where it works itself; a
    worker with another raises RuntimeError."""

    match: Match
    columns: tuple[str, ...]
    code: Code | None
    options: JobOptions = field(default_factory=options.current)

    def __call__(self, part: Part) -> tuple[list[FoundDocument], list[str], str]:
        """The documents, the ids of records that were dropped before they became documents, and what could not be
        read."""
        options.configure(self.options)
        if self.code is not None:
            check_code(self.code)
        try:
            return *_find_in(part, self.match, self.columns), ""
        except (OSError, RuntimeError, ValueError) as error:
            return [], [], f"shard {part.shard} of {part.stage} cannot be searched: {error}"


def find_documents(
    settings: MachineSettings, graph: HomeGraph, match: Match, columns: tuple[str, ...], few: int = FEW_PARTS
) -> FoundDocuments:
    """The documents that match, in all stages of the home that extracted texts. Reads `columns` of all their parts, a
    row group at a time; holds what it finds.

    A search of texts in more than `few` parts is made by jobs of the machine's executor, others in threads.
    """
    found = FoundDocuments()
    parts: list[Part] = []
    for label, stage in sorted(graph.stages.items()):
        if stage.name != "documents":
            continue
        if label in graph.collected:
            found.gaps.append(f"{label} was collected, so its documents cannot be searched")
            continue
        try:
            parts += _parts_of(stage)
        except (OSError, RuntimeError) as error:
            found.gaps.append(f"{label} cannot be searched: {error}")
    options.configure(job_options(settings))
    results: dict[int, tuple[list[FoundDocument], list[str], str]] = {}
    # ids and URLs are read in a moment, and lists of entries are files of this machine
    with executor(settings, "text" not in columns or len(parts) <= few) as workers:
        results |= workers.map(PartSearch(match, columns, code_sent(workers, __name__)), parts)
    for number, part in enumerate(parts):
        documents, records, gap = results[number]
        found.documents += documents
        if records:
            found.records.setdefault(part.stage, []).extend(records)
        found.gaps += [gap] if gap else []
    return found


def add_rewrites(graph: HomeGraph, found: FoundDocuments) -> None:
    """Add the rewrites of documents, and the rewrites of these. Reads a column of the stages that have rewrites."""
    new = {(one.stage, one.id) for one in found.documents}
    while new:
        ids = pa.array(sorted({id_ for _, id_ in new}), pa.string())

        def written_from(normalize: Mapping[str, Any] | None, table: pa.Table, ids: pa.Array = ids) -> pa.ChunkedArray:
            origin = table[_ORIGIN]
            entry = pc.binary_join_element_wise("rewrite of", origin, " ")
            return pc.if_else(pc.is_in(origin, ids), entry, pa.scalar(None, pa.string()))

        more: list[FoundDocument] = []
        for label, stage in sorted(graph.stages.items()):
            has_rewrites = stage.name == "documents" and _ORIGIN in stage.result.get("own", ())
            if has_rewrites and label not in graph.collected:
                for shard, path in enumerate(stage.parts):
                    if _ORIGIN in parquet.columns(path):
                        more += _find_in(Part(label, shard, path, "", None), written_from, (_ORIGIN,))[0]
        known = {(one.stage, one.id) for one in found.documents}
        added = [one for one in more if (one.stage, one.id) not in known]
        found.documents += added
        new = {(one.stage, one.id) for one in added}


def _parts_of(stage: FinishedStage) -> Iterator[Part]:
    """The parts of a stage `documents`. Raises OSError or RuntimeError if its list of parts cannot be read."""
    normalize = stage.settings.get("normalize")
    for number, record in enumerate(stage.part_records):
        ledger = stage.ledger(number) if record["rows_in"] > record["rows_out"] else ""
        yield Part(stage.label, number, stage.part(number), ledger, normalize)


def _find_in(part: Part, match: Match, columns: tuple[str, ...]) -> tuple[list[FoundDocument], list[str]]:
    found = []
    with parquet.open_checked(part.path) as shard:
        for group in range(shard.metadata.num_row_groups):
            entries = match(part.normalize, shard.read([group], [*columns]))
            if entries.null_count == len(entries):
                continue
            rows = shard.read([group], ["id", "source", "url", "file"])
            rows = rows.append_column("entry", entries).filter(pc.is_valid(entries))
            found += [
                FoundDocument(row["id"], row["source"], row["url"], row["file"], part.stage, part.shard, row["entry"])
                for row in rows.to_pylist()
            ]
    if not part.ledger or "text" in columns or _ORIGIN in columns:  # which a ledger does not have
        return found, []
    ledger = parquet.read_table(part.ledger, ["id", "url"])
    return found, ledger.filter(pc.is_valid(match(part.normalize, ledger)))["id"].to_pylist()


def holdings(
    graph: HomeGraph, found: FoundDocuments, labels: Mapping[str, object]
) -> tuple[dict[str, Holding], list[str]]:
    """What some stages hold of documents, by label, without stages that hold none of them; and what could not be read.

    Reads the ids in the tables of these stages. If a stage has a table for each shard, only the shards with the
    documents are read.
    """
    held, gaps = dict[str, Holding](), list[str]()
    shards: dict[str, dict[int, set[str]]] = {}
    for one in found.documents:
        shards.setdefault(one.stage, {}).setdefault(one.shard, set()).add(one.id)
    every = pa.array(sorted(found.ids), pa.string())
    for label in labels:
        stage = graph.stages[label]
        if label in graph.collected:
            gaps.append(f"{label} was collected: what it held of the documents is unknown")
            continue
        try:
            holding = _holding(stage, every, _by_number(graph, shards, stage))
        except (OSError, RuntimeError) as error:
            gaps.append(f"what {label} holds is unknown, because a file cannot be read: {error}")
            continue
        if holding is not None:
            held[label] = holding
    return held, gaps


def _by_number(
    graph: HomeGraph, shards: Mapping[str, dict[int, set[str]]], stage: FinishedStage
) -> dict[int, set[str]] | None:
    """The ids by shard, of a stage with as many shards as the extraction that it was made from; else None."""
    origins = sorted(graph.extractions(stage.label))
    if len(origins) != 1 or stage.name in ("evaluation_documents", "heldout_documents", "evaluation_tokens"):
        return None
    if not stage.counts_documents and stage.name not in ("tokens", "documents"):
        return None
    return shards.get(origins[0], {})


def _holding(stage: FinishedStage, every: pa.Array, by_number: dict[int, set[str]] | None) -> Holding | None:
    """What a stage has of the documents `every`. `by_number`: the ids by shard, where they are known."""
    documents, tokens, shards = set[str](), 0, set[int]()
    has_tokens = False
    for job in stage.jobs:
        for name in job.files:
            if not name.endswith(".parquet") or name.startswith(("ledger/", "edits/")):
                continue
            match = _NUMBER.search(name)
            number = int(match[1]) if match else job.number
            if by_number is not None and number not in by_number:
                continue
            with parquet.open_checked(files.join(stage.folder, name)) as shard:
                columns = shard.schema.names
                if "id" not in columns:
                    continue
                length = "length" in columns and "offset" in columns and "text" not in columns
                table = shard.read(columns=["id", "length"] if length else ["id"])
            # a hash table of all would be made for each file
            wanted = every if by_number is None else pa.array(sorted(by_number[number]), pa.string())
            table = table.filter(pc.is_in(table["id"], wanted))
            if len(table):
                documents.update(table["id"].to_pylist())
                shards.add(number)
                tokens += (pc.sum(table["length"]).as_py() or 0) if length else 0
                has_tokens |= length
    return Holding(len(documents), tuple(sorted(shards)), tokens if has_tokens else None) if documents else None
