"""The word index of a shard, by tantivy, and its documents ranked by the words of a query.

    words-00000-000.idx, .pos, .term, .fieldnorm, .fast, .store, .meta.json    of one block of documents

A block is an index of tantivy with one segment, whose random name is in no file of ours: the same documents give the
same bytes. Documents of takedown lists are in no index. An index has some .36 bytes for each byte of text.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import wrapt

from gristmill.storage import files, layout
from gristmill.storage.damage import DamagedFileError, RecordedFile, opening
from gristmill.storage.leftovers import scratch_folder
from gristmill.tasks.dedup.takedowns import allowed
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.engine import options
from gristmill.tasks.engine.jobs import Code, check_code
from gristmill.tasks.engine.options import JobOptions
from gristmill.tasks.search.index import dropped_documents
from gristmill.tasks.url.step import Url

if TYPE_CHECKING:
    import tantivy
else:
    tantivy = wrapt.lazy_import("tantivy")

PHASE = "words"
WORDS, NAMES = ("text", "title", "url", "source"), ("id", "step", "rule")
META = "meta.json"
# What tantivy calls a segment by; the files of one are named by its digits.
SEGMENT = "00000000-0000-0000-0000-000000000000"
BLOCK_BYTES = 32 << 20  # of text; tantivy holds some two to three times as much
# More than a block needs: where a segment has reached it another is begun.
HEAP_BYTES = 1 << 30
_READ = ["id", "source", "url", "title", "text"]
# Scripts without spaces between words: each character is a word.
APART = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
_APART = re.compile(f"[{APART}]")


@dataclass(frozen=True)
class _Row:
    """A document: `step`, `rule`: what dropped it, empty for one that is kept."""

    fields: dict[str, str]
    kept: bool
    step: str
    rule: str


def apart(text: str) -> str:
    """A text that can be split into words at all characters except letters and digits: in scripts without spaces every
    character is a word."""
    return text if text.isascii() else _APART.sub(r" \g<0> ", text)


@cache
def schema() -> "tantivy.Schema":
    """Texts by their words, lower-cased; `id`, `step` and `rule` as they are; `kept`: whether a document is. tantivy
    leaves out words of 40 bytes and more."""
    builder = tantivy.SchemaBuilder()
    for name in WORDS:
        builder.add_text_field(name)
    for name in NAMES:
        builder.add_text_field(name, stored=True, tokenizer_name="raw")
    builder.add_boolean_field("kept", stored=True, indexed=True)
    return builder.build()


def block_files(shard: int, block: int) -> str:
    """How the names of a block's files begin."""
    return f"words-{shard:05d}-{block:03d}"


def index_words(
    folder: str,
    shard: int,
    extracted: str,
    documents: str,
    kept: str,
    deciding: Sequence[str],
    takedowns: Url,
    block_bytes: int = BLOCK_BYTES,
    heap_bytes: int = HEAP_BYTES,
) -> dict:
    """Write the word index of a shard.

    `extracted`: the part with the texts as they were extracted, of which those that are not kept are taken;
    `documents`, `kept`: the parts with the texts that are kept, and with their ids; `deciding`: the folders of the
    stages that dropped documents. Returns how many documents are kept and dropped, and of each block the ends of its
    files' names. Holds the texts of a block, and what tantivy does.
    """
    blocks: list[list[str]] = []
    counts = {"kept": 0, "dropped": 0}
    dropped = dropped_documents(extracted, kept, _READ, shard, deciding, takedowns)
    documents_and_dropped = chain(_kept_rows(documents, kept, takedowns), _dropped_rows(dropped))
    # not a temporary one, which must be empty when it goes: tantivy looks after an index for a moment longer
    with scratch_folder("words") as scratch:
        for rows in _blocks(documents_and_dropped, block_bytes):
            for row in rows:
                counts["kept" if row.kept else "dropped"] += 1
            _write(folder, shard, rows, blocks, heap_bytes, scratch)
    return {"rows_in": sum(counts.values()), **counts, "blocks": blocks}


def _blocks(rows: Iterator[_Row], block_bytes: int) -> Iterator[list[_Row]]:
    block: list[_Row] = []
    size = 0
    for row in rows:
        block.append(row)
        size += len(row.fields["text"].encode("utf-8", "replace"))
        if size >= block_bytes:
            yield block
            block, size = [], 0
    if block:
        yield block


def _write(folder: str, shard: int, rows: list[_Row], blocks: list[list[str]], heap_bytes: int, scratch: Path) -> None:
    """Write a block, or two where one has more words than a segment can."""
    folder_of_index = scratch / f"{len(blocks)}-{len(rows)}"
    folder_of_index.mkdir()
    index = tantivy.Index(schema(), path=str(folder_of_index))
    writer = index.writer(heap_size=heap_bytes, num_threads=1)
    for row in rows:
        document = tantivy.Document(**{name: apart(text) for name, text in row.fields.items() if name != "id"})
        for name, value in (("id", row.fields["id"]), ("step", row.step), ("rule", row.rule)):
            document.add_text(name, value)
        document.add_boolean("kept", row.kept)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    meta = json.loads((folder_of_index / META).read_text())
    if len(meta["segments"]) > 1:
        middle = len(rows) // 2
        _write(folder, shard, rows[:middle], blocks, heap_bytes, scratch)
        _write(folder, shard, rows[middle:], blocks, heap_bytes, scratch)
        return
    [segment] = meta["segments"]
    digits = segment["segment_id"].replace("-", "")
    segment["segment_id"] = SEGMENT
    start, ends = block_files(shard, len(blocks)), []
    for path in sorted(folder_of_index.glob(f"{digits}.*")):
        files.write_bytes(files.join(folder, f"{start}{path.suffix}"), path.read_bytes())
        ends.append(path.suffix)
    files.write_json(files.join(folder, f"{start}.{META}"), meta)
    blocks.append(ends)


def _kept_rows(documents: str, kept: str, takedowns: Url) -> Iterator[_Row]:
    for group in select_groups(documents, kept, _READ):
        for row in allowed(group, takedowns).to_pylist():
            yield _Row(_fields(row), True, "", "")


def _dropped_rows(dropped: Iterator[pa.Table]) -> Iterator[_Row]:
    for group in dropped:
        for row in group.to_pylist():
            yield _Row(_fields(row), False, row["step"], row["rule"])


def _fields(row: dict[str, str | None]) -> dict[str, str]:
    return {name: row[name] or "" for name in _READ}


_RUN = re.compile(f"[{APART}]+")
_FIELDS = ["text", "title"]  # in which words are looked for that name no field


@dataclass(frozen=True)
class Ranked:
    """A document of a shard. `score`: BM25 among the documents of its block."""

    score: float
    shard: int
    id: str
    kept: bool
    step: str
    rule: str


@dataclass(frozen=True)
class WordQuery:
    """A search for the `n` best documents in the word index in a folder, as it is sent to workers. Called with the
    numbers of shards it gives how many documents match there, and the best. `code`: the code of the process that asks,
    None where it works itself; a worker with another raises RuntimeError."""

    folder: str
    query: str
    n: int
    code: Code | None
    options: JobOptions = field(default_factory=options.current)

    def __call__(self, shards: range) -> tuple[int, list[Ranked]]:
        options.configure(self.options)
        if self.code is not None:
            check_code(self.code)
        matching, best = 0, list[Ranked]()
        # Of links. tantivy writes a lock beside the files that it reads, and looks after them in a thread of its own
        # for a moment longer than a search takes.
        with scratch_folder("words") as scratch:
            for shard in shards:
                part = layout.done_part(self.folder, PHASE, shard)
                for block in range(len(part.record["blocks"])):
                    count, ranked = self._search(self._open(part, block, scratch), shard)
                    matching += count
                    best += ranked
                best = first(best, self.n)
        return matching, best

    def _search(self, index: "tantivy.Index", shard: int) -> tuple[int, list[Ranked]]:
        query, best = parsed(index, self.query), []
        with self._tantivy():
            searcher = index.searcher()
            results = searcher.search(query, max(1, self.n))
            for score, place in results.hits[: self.n]:
                row = {name: values[0] for name, values in searcher.doc(place).to_dict().items()}
                best.append(Ranked(score, shard, row["id"], row["kept"], row["step"], row["rule"]))
        return results.count, best  # type: ignore[attr-defined]  # which its stub does not have

    def _open(self, part: layout.Part, block: int, scratch: Path) -> "tantivy.Index":
        """A block of a shard, whose files are compared with their digests first: tantivy gives other scores where one
        is damaged, and panics. Raises DamagedFileError."""
        start, ends = block_files(part.number, block), part.record["blocks"][block]
        links, digits = scratch / start, SEGMENT.replace("-", "")
        links.mkdir()
        for end, name in [*((end, f"{digits}{end}") for end in ends), (f".{META}", META)]:
            recorded = RecordedFile(files.join(self.folder, f"{start}{end}"), part.files[f"{start}{end}"]["content"])
            (links / name).symlink_to(Path(recorded.local()).absolute())
        with self._tantivy():
            return tantivy.Index.open(str(links))

    def _tantivy(self) -> AbstractContextManager[None]:
        fix = f"remove the stage's folder {self.folder} and run the command again"
        return opening(self.folder, "word index that tantivy can read", fix, DamagedFileError)


def first(ranked: Sequence[Ranked], n: int) -> list[Ranked]:
    """The `n` best: of equal scores the first of the corpus."""
    return sorted(ranked, key=lambda one: (-one.score, one.shard, one.id))[:n]


def check_query(query: str) -> None:
    """Raise ValueError for a query that tantivy cannot parse."""
    parsed(tantivy.Index(schema()), query)


def parsed(index: "tantivy.Index", query: str) -> "tantivy.Query":
    """Raises ValueError as `check_query`."""
    try:
        return index.parse_query(with_phrases(query), _FIELDS, conjunction_by_default=True)
    except ValueError as error:
        fields = ", ".join((*WORDS, *NAMES, "kept"))
        raise ValueError(
            f"{query!r} is not a query: {error}. Fields are {fields}; put characters with a special meaning "
            'in double quotes, as in "a:b"'
        ) from None


def with_phrases(query: str) -> str:
    """A query as tantivy cuts texts: a run of characters of a script without spaces is a phrase."""
    parts = query.split('"')
    for index, part in enumerate(parts):
        parts[index] = apart(part) if index % 2 else _RUN.sub(lambda run: f'"{apart(run[0]).strip()}"', part)
    return '"'.join(parts)
