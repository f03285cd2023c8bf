"""Documents of shards by the words that they have, the best first."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tantivy

from gristmill.storage import files, layout
from gristmill.storage.leftovers import scratch_folder
from gristmill.tasks.engine import options
from gristmill.tasks.engine.jobs import Code, check_code
from gristmill.tasks.engine.options import JobOptions
from gristmill.tasks.search.word_index_work import APART, META, NAMES, PHASE, SEGMENT, WORDS, apart, block_files, schema

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
    numbers of shards it gives how many documents match there, and the best. `code`: that of the process that asks, None
    where it works itself; a worker with another raises RuntimeError."""

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
                for block, ends in enumerate(layout.done_part(self.folder, PHASE, shard).record["blocks"]):
                    count, found = self._search(self._opened(block_files(shard, block), ends, scratch), shard)
                    matching += count
                    best += found
                best = first(best, self.n)
        return matching, best

    def _search(self, index: tantivy.Index, shard: int) -> tuple[int, list[Ranked]]:
        searcher, best = index.searcher(), []
        found = searcher.search(parsed(index, self.query), max(1, self.n))
        for score, place in found.hits[: self.n]:
            row = {name: values[0] for name, values in searcher.doc(place).to_dict().items()}
            best.append(Ranked(score, shard, row["id"], row["kept"], row["step"], row["rule"]))
        return found.count, best  # type: ignore[attr-defined]  # which its stub does not have

    def _opened(self, start: str, ends: Sequence[str], scratch: Path) -> tantivy.Index:
        """The block whose files' names begin with `start`."""
        links, digits = scratch / start, SEGMENT.replace("-", "")
        links.mkdir()
        for end, name in [*((end, f"{digits}{end}") for end in ends), (f".{META}", META)]:
            path = files.local_copy(files.join(self.folder, f"{start}{end}"))
            (links / name).symlink_to(Path(path).absolute())
        return tantivy.Index.open(str(links))


def first(found: Sequence[Ranked], n: int) -> list[Ranked]:
    """The `n` best: of equal scores the first of the corpus."""
    return sorted(found, key=lambda one: (-one.score, one.shard, one.id))[:n]


def check_query(query: str) -> None:
    """Raises ValueError for what is no query of tantivy's language."""
    parsed(tantivy.Index(schema()), query)


def parsed(index: tantivy.Index, query: str) -> tantivy.Query:
    """Raises ValueError as `check_query`."""
    try:
        return index.parse_query(given(query), _FIELDS, conjunction_by_default=True)
    except ValueError as error:
        fields = ", ".join((*WORDS, *NAMES, "kept"))
        raise ValueError(
            f"{query!r} is no query: {error}. Fields are {fields}; put other marks than those of a query in double "
            'quotes, as in "a:b"'
        ) from None


def given(query: str) -> str:
    """A query as tantivy cuts texts: a run of characters of a script without spaces is a phrase."""
    parts = query.split('"')
    for at, part in enumerate(parts):
        parts[at] = apart(part) if at % 2 else _RUN.sub(lambda run: f'"{apart(run[0]).strip()}"', part)
    return '"'.join(parts)
