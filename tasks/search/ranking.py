"""Documents of a shard by the words that they have, the best first."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tantivy

from gristmill.storage import files, layout
from gristmill.tasks.search.word_index_work import APART, META, NAMES, PHASE, SEGMENT, WORDS, apart, block_files

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
    """A search for the `n` best documents in the word index in a folder. Called with the number of a shard it gives
    how many documents match there, and the best. Raises ValueError for what is no query of tantivy's language.

    `scratch`: a folder for links. tantivy writes a lock beside the files that it reads, and looks after them in a
    thread of its own for a moment longer than a search takes.
    """

    folder: str
    query: str
    n: int
    scratch: Path

    def __call__(self, shard: int) -> tuple[int, list[Ranked]]:
        matching, best = 0, list[Ranked]()
        for block, ends in enumerate(layout.done_part(self.folder, PHASE, shard).record["blocks"]):
            index = self._opened(block_files(shard, block), ends)
            searcher = index.searcher()
            found = searcher.search(self._parsed(index), max(1, self.n))
            matching += found.count  # type: ignore[attr-defined]  # which its stub does not have
            for score, place in found.hits[: self.n]:
                row = {name: values[0] for name, values in searcher.doc(place).to_dict().items()}
                best.append(Ranked(score, shard, row["id"], row["kept"], row["step"], row["rule"]))
        return matching, sorted(best, key=lambda one: -one.score)[: self.n]

    def _parsed(self, index: tantivy.Index) -> tantivy.Query:
        try:
            return index.parse_query(given(self.query), _FIELDS, conjunction_by_default=True)
        except ValueError as error:
            fields = ", ".join((*WORDS, *NAMES, "kept"))
            raise ValueError(
                f"{self.query!r} is no query: {error}. Fields are {fields}; put other marks than those of a query in "
                'double quotes, as in "a:b"'
            ) from None

    def _opened(self, start: str, ends: Sequence[str]) -> tantivy.Index:
        """The block whose files' names begin with `start`."""
        links, digits = self.scratch / start, SEGMENT.replace("-", "")
        links.mkdir()
        for end, name in [*((end, f"{digits}{end}") for end in ends), (f".{META}", META)]:
            path = files.local_copy(files.join(self.folder, f"{start}{end}"))
            (links / name).symlink_to(Path(path).absolute())
        return tantivy.Index.open(str(links))


def given(query: str) -> str:
    """A query as tantivy cuts texts: a run of characters of a script without spaces is a phrase."""
    parts = query.split('"')
    for at, part in enumerate(parts):
        parts[at] = apart(part) if at % 2 else _RUN.sub(lambda run: f'"{apart(run[0]).strip()}"', part)
    return '"'.join(parts)
