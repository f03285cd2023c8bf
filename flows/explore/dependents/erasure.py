"""The targets of a takedown: documents by list, id, URL, host or text, and near-duplicates of them.

Marks of their texts find copies later without the texts. Stored answers of language models about them are identified by
the digests of the requests, which the stages that asked keep with the ids of the documents.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.explore.dependents.documents import (
    FEW_PARTS,
    Alike,
    FoundDocument,
    FoundDocuments,
    add_rewrites,
    find_documents,
    listing,
    matching,
    short_text,
)
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.dependents.graph import HomeGraph
from gristmill.flows.reports.dependents.things import Thing
from gristmill.flows.reports.search.opened import code_sent, executor
from gristmill.storage import files, parquet
from gristmill.storage.home import FinishedStage
from gristmill.storage.printable import redact_user
from gristmill.tasks.language_model.rewrite import ANSWER, asked_folder
from gristmill.tasks.search import marks as mark_search
from gristmill.tasks.search.marks import MARKS, OtherPhrases, phrases

LIKE = "near-duplicate: "  # prefix of the entry of a document that was found by its similarity


@dataclass(frozen=True)
class Request:
    """What to take down. `entries`: lines of a takedown list; `lists`: files of such lines; `texts`: files with one
    text each."""

    entries: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """A document to take down. `digest`: xxh3-128 of its extracted text; `phrases`: how many different ones it has;
    `marks`: hashes of phrases that only documents of the takedown have, at most MARKS."""

    id: str
    source: str
    url: str | None
    file: str
    entry: str
    digest: str
    phrases: int
    marks: tuple[int, ...]


def find_targets(settings: MachineSettings, graph: HomeGraph, request: Request) -> tuple[FoundDocuments, list[Target]]:
    """The documents that a request names, their near-duplicates, and marks of all of them.

    Reads all extracted texts of the home twice, and once more for each text of the request, with jobs of the machine's
    executor. Holds the texts of the targets and their shingles. Raises ValueError for an empty request, and for a text
    without words.
    """
    named = _named(settings, graph, request)
    texts = dict(_texts(graph, named))
    given = [Path(path).read_text("utf-8-sig") for path in request.texts]
    alike = [text for text, _ in texts.values() if _has_words(text)] + given
    found = _with_near(settings, graph, named, alike) if alike else named
    add_rewrites(graph, found)
    texts |= {name: text for name, text in _texts(graph, found) if name not in texts}
    marks = _marks(settings, graph, {name: text for name, (text, _) in texts.items()})
    targets = []
    for one in {each.id: each for each in reversed(found.documents)}.values():
        text, source = texts[one.id]
        digest = files.digest(text.encode())
        of_text = marks[one.id]
        url = None if one.url is None else redact_user(one.url)
        targets.append(Target(one.id, source, url, one.file, one.entry, digest, of_text[0], of_text[1]))
    return found, sorted(targets, key=lambda target: target.id)


def _named(settings: MachineSettings, graph: HomeGraph, request: Request) -> FoundDocuments:
    """The documents that entries and lists name, and those that are like a text of the request or contain it."""
    if not (request.entries or request.lists or request.texts):
        raise ValueError("nothing is to be taken down. Name entries (--entry), a list (--list) or a text (--text-like)")
    if missing := [path for path in (*request.lists, *request.texts) if not Path(path).is_file()]:
        raise FileNotFoundError(f"file not found: {missing[0]}. Check --list and --text-like")
    lists = [files.absolute(path) for path in request.lists]
    found = FoundDocuments()
    with ExitStack() as stack:
        if request.entries:
            folder = stack.enter_context(TemporaryDirectory(prefix="gristmill-"))
            Path(folder, "entry").write_text("".join(f"{entry}\n" for entry in request.entries), encoding="utf-8")
            lists.append(str(Path(folder, "entry")))
        if lists:
            match = stack.enter_context(listing(lists))
            found = find_documents(settings, graph, match, ("id", "url"))
    for path in request.texts:
        with matching(Thing("text", path)) as (match, columns):
            like = find_documents(settings, graph, match, columns)
        known = {(one.stage, one.id) for one in found.documents}
        found.documents += [one for one in like.documents if (one.stage, one.id) not in known]
        found.gaps += [*like.gaps, *short_text(path)]
    return found


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _texts(graph: HomeGraph, found: FoundDocuments) -> Iterator[tuple[str, tuple[str, str]]]:
    """(id, (text, source)) of documents, from the first stage that extracted each."""
    seen: set[str] = set()
    for label in sorted({one.stage for one in found.documents}):
        stage = graph.stages[label]
        for shard, ids in found.shards(label).items():
            wanted = pa.array(sorted(ids - seen), pa.string())
            if not len(wanted):
                continue
            for table in parquet.groups(stage.part(shard), ["id", "source", "text"]):
                for row in table.filter(pc.is_in(table["id"], wanted)).to_pylist():
                    seen.add(row["id"])
                    yield row["id"], (row["text"], row["source"])


def _with_near(
    settings: MachineSettings, graph: HomeGraph, named: FoundDocuments, texts: Sequence[str]
) -> FoundDocuments:
    """The documents, and all others that are like one of the texts or contain it."""
    near = find_documents(settings, graph, Alike(tuple(texts), rewrites=False), ("id", "text"))
    known = {(one.stage, one.id) for one in named.documents}
    entries = {one.id: one.entry for one in named.documents}

    def described(one: FoundDocument) -> FoundDocument:
        return replace(one, entry=entries.get(one.id, f"{LIKE}{one.entry}"))

    more = [described(one) for one in near.documents if (one.stage, one.id) not in known]
    gaps = list(dict.fromkeys([*named.gaps, *near.gaps]))
    return FoundDocuments([*named.documents, *more], named.records, gaps)


def _marks(
    settings: MachineSettings, graph: HomeGraph, texts: dict[str, str]
) -> dict[str, tuple[int, tuple[int, ...]]]:
    """By id, how many phrases a text has, and its marks. Holds the phrases of the texts."""
    ids = sorted(texts)
    own = dict(zip(ids, phrases([texts[name] for name in ids]), strict=True)) if ids else {}
    every = np.unique(np.concatenate([*own.values(), np.empty(0, np.uint64)]))
    common = np.zeros(len(every), bool)
    labels = [label for label, stage in sorted(graph.stages.items()) if stage.name == "documents"]
    parts = [part for label in labels if label not in graph.collected for part in graph.stages[label].parts]
    if len(every):
        with executor(settings, len(parts) <= FEW_PARTS) as workers:
            work = OtherPhrases(every, tuple(ids), code_sent(workers, mark_search.__name__))
            for _, places in workers.map(work, parts):
                common[places] = True
    unique = every[~common]
    return {name: (len(values), tuple(np.intersect1d(values, unique)[:MARKS].tolist())) for name, values in own.items()}


def answers_about(graph: HomeGraph, ids: Collection[str]) -> list[str]:
    """Digests of the requests about some documents, except requests that were also made about another document, since
    two texts may have the same beginning. Reads the ids and digests of the stages that asked."""
    wanted = {digest for id_, digest in _asked(graph) if id_ in ids}
    if wanted:
        wanted -= {digest for id_, digest in _asked(graph) if id_ not in ids and digest in wanted}
    return sorted(wanted)


def _asked(graph: HomeGraph) -> Iterator[tuple[str, str]]:
    """(id of a document, digest of a request) of all stages that asked and still have their files."""
    for label, stage in sorted(graph.stages.items()):
        if "answers" in stage.result and label not in graph.collected:
            for path, column in _tables(stage):
                for table in parquet.groups(path, ["id", column]):
                    for id_, digests in zip(table["id"].to_pylist(), table[column].to_pylist(), strict=True):
                        yield from ((id_, digest) for digest in (digests or "").split(",") if digest)


def _tables(stage: FinishedStage) -> Iterator[tuple[str, str]]:
    """The tables of a stage with digests of requests, each with the name of their column."""
    folder = asked_folder(stage.folder)
    if asked := files.names(folder):
        yield from ((files.join(folder, name), ANSWER) for name in asked)
    else:
        yield from ((part, f"{stage.name}_answer") for part in stage.parts)
