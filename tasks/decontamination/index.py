"""The index of benchmarks: which n-grams their items have, small enough that every worker holds it.

items.parquet      ITEMS: the items of all benchmarks, in the recipe's order
texts.parquet      TEXTS: the texts of each item, as places in the words
words.parquet      WORDS: the words of all texts, hashed, with their weights
ngrams.parquet     NGRAMS: the n-grams that are looked up, sorted, and where those of each begin in the next
postings.parquet   POSTINGS: the items that have an n-gram, and where
"""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from gristmill.storage import files, parquet
from gristmill.tasks.decontamination.step import Fields, Indexing, Item, read_items
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.ngrams import bit_table, ngram_hashes, word_hashes

QUESTION, ANSWER, PASSAGE = range(3)
# An n-gram in the questions and answers of more items says little of any of them: it is not looked up, as decon's "hot"
# n-grams begin no cluster (doc/simple-details.md). With `overlap` it counts where another n-gram has led to the item.
# A passage may have as many questions as it likes.
MAX_ITEMS = 32
# Numbers and single letters: what formulas of many texts are made of. They weigh half, and make no item longer. Both
# numbers were chosen on pages of manuals and on planted items (docs/explanation/decontamination.md).
_SYMBOL = re.compile(r"(?<![^\W_])(?:\d+|[A-Za-z])(?![^\W_])")
_OF_SYMBOL, _TIMES_DIFFERENT = 0.5, 1.6

ITEMS = pa.schema(
    [
        pa.field("benchmark", pa.string(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field(
            "words", pa.int64(), nullable=False, metadata={"what": "length of the question and the longest answer"}
        ),
        pa.field("judged", pa.bool_(), nullable=False, metadata={"what": "whether it has what documents are found by"}),
        pa.field("row", pa.large_string(), nullable=False, metadata={"what": "of the benchmark's file, as JSON"}),
    ]
)
TEXTS = pa.schema([(name, pa.int64()) for name in ("item", "kind", "start", "stop", "length")])
WORDS = pa.schema([("hash", pa.uint64()), ("weight", pa.float64()), ("symbol", pa.bool_())])
NGRAMS = pa.schema([("hash", pa.uint64()), ("stop", pa.int64())])
POSTINGS = pa.schema([("item", pa.int64()), ("place", pa.int64())])


@dataclass(frozen=True, eq=False)
class Index:
    """`benchmark`, `id`: of each of I items; `first`: the first text of each item, [I + 1]; `item`, `kind`, `start`,
    `stop`: of each text, with its place in `words` (hashes), `weights` and `symbols` (whether it is a number or one
    letter); `length`: of each text (`_lengths`); `ngrams`: sorted, of n words; those of ngrams[i] are in the postings
    from stops[i - 1] to stops[i], by item and place: that of a word in the question."""

    settings: Indexing
    benchmark: list[str]
    id: list[str]
    first: np.ndarray
    item: np.ndarray
    kind: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    length: np.ndarray
    words: np.ndarray
    weights: np.ndarray
    symbols: np.ndarray
    ngrams: np.ndarray
    stops: np.ndarray
    posting_item: np.ndarray
    posting_place: np.ndarray

    @cached_property
    def table(self) -> np.ndarray:
        """The n-grams as a table of bits."""
        return bit_table(self.ngrams)

    @cached_property
    def question(self) -> np.ndarray:
        """Where the question of each item begins in `words`: int64 [I]. It is the first text of an item."""
        return self.start[self.first[:-1]]

    @cached_property
    def question_weight(self) -> np.ndarray:
        """The weights of each item's question summed up: float64 [I]."""
        before = np.append(0.0, np.cumsum(self.weights))
        return before[self.stop[self.first[:-1]]] - before[self.question]

    @cached_property
    def unseen_weight(self) -> np.ndarray:
        """The weights of the words of each question that are in no n-gram that is looked up, summed up: float64 [I]."""
        n = self.settings.words
        coverage = np.zeros(len(self.words) + 1, np.int64)
        positions = self.question[self.posting_item] + self.posting_place
        np.add.at(coverage, positions, 1)
        np.add.at(coverage, np.minimum(positions + n, len(self.words)), -1)
        before = np.append(0.0, np.cumsum(np.where(np.cumsum(coverage[:-1]) > 0, 0.0, self.weights)))
        return before[self.stop[self.first[:-1]]] - before[self.question]

    def texts(self, item: int, kind: int) -> list[tuple[slice, int]]:
        """The texts of a kind that an item has, as slices of the words, with their lengths."""
        rows = range(self.first[item], self.first[item + 1])
        return [(slice(self.start[i], self.stop[i]), int(self.length[i])) for i in rows if self.kind[i] == kind]


def build_index(
    folder: str, number: int, paths: tuple[str, ...], fields: dict[str, Fields], settings: Indexing
) -> dict:
    """Write the index of benchmarks, given by name in the order of their paths. Holds all items, and some 100 bytes a
    word of them. Raises BenchmarkError."""
    items: list[Item] = []
    names: list[str] = []
    for (name, field_names), path in zip(fields.items(), paths, strict=True):
        benchmark_items = read_items(path, field_names)
        items += benchmark_items
        names += [name] * len(benchmark_items)
    if settings.method == "ngrams":
        texts = [
            (number, PASSAGE if part else QUESTION, text)
            for number, item in enumerate(items)
            for part, whole in enumerate((_whole(item), [item.passage] if item.passage else []))
            for text in whole
        ]
    else:
        texts = [
            (number, kind, text)
            for number, item in enumerate(items)
            for kind, some in enumerate(((item.question,), item.answers, (item.passage,) if item.passage else ()))
            for text in some
        ]
    item, kind = (np.array(column, np.int64) for column in list(zip(*texts, strict=True))[:2])
    words, ends = word_hashes(*utf8(pa.array([text for *_, text in texts], pa.large_string())))
    weights = _weights(words, np.repeat(item, np.diff(ends)), len(items))
    symbols = _symbols(words, [text for *_, text in texts])
    weights = np.where(symbols, _OF_SYMBOL * weights, weights)
    lengths = _lengths(words, ends, symbols)
    most = np.zeros((3, len(items)), np.int64)
    np.maximum.at(most, (kind, item), lengths)
    size = most[QUESTION] + most[ANSWER]

    hashes, owner, place, of_kind = _ngrams(words, ends, item, kind, settings)
    if settings.method == "overlap":
        lasting = size[owner] >= settings.min_words
        hashes, owner, place, of_kind = hashes[lasting], owner[lasting], place[lasting], of_kind[lasting]
    _, inverse = np.unique(hashes, return_inverse=True)
    is_rare = (np.bincount(inverse, of_kind != PASSAGE) <= MAX_ITEMS)[inverse]
    hashes, owner, place = hashes[is_rare], owner[is_rare], place[is_rare]
    ngrams, inverse, times = np.unique(hashes, return_inverse=True, return_counts=True)
    order = np.lexsort((place, owner, inverse))
    judged = np.zeros(len(items), bool)
    judged[owner] = True

    _write(folder, "items", ITEMS, names, [one.id for one in items], size, judged, [one.row.decode() for one in items])
    _write(folder, "texts", TEXTS, item, kind, ends[:-1], ends[1:], lengths)
    _write(folder, "words", WORDS, words, weights, symbols)
    _write(folder, "ngrams", NGRAMS, ngrams, np.cumsum(times))
    _write(folder, "postings", POSTINGS, owner[order], place[order])
    by_name = {name: np.array(names) == name for name in fields}
    return {
        "benchmarks": {
            name: {"items": int(is_of_benchmark.sum()), "judged": int(judged[is_of_benchmark].sum())}
            for name, is_of_benchmark in by_name.items()
        },
        "ngrams": len(ngrams),
    }


def _whole(item: Item) -> list[str]:
    """An item as one text, for each of its answers."""
    return [f"{item.question}\n{answer}" for answer in item.answers] or [item.question]


def _weights(words: np.ndarray, item: np.ndarray, items: int) -> np.ndarray:
    """ln(1 + N / d) of each word, where d of the N items have it (Spärck Jones 1972): float64. Above 0 for a word that
    all have, or two items would give no weight."""
    different, inverse = np.unique(words, return_inverse=True)
    pairs = np.unique(inverse * items + item)
    having = np.bincount(pairs // max(items, 1), minlength=len(different))
    return np.log1p(items / np.maximum(having, 1))[inverse]


def _symbols(words: np.ndarray, texts: list[str]) -> np.ndarray:
    """Which of the words of the texts are numbers or single letters: bool."""
    symbols = sorted({symbol for text in texts for symbol in _SYMBOL.findall(text)})
    return np.isin(words, word_hashes(*utf8(pa.array(symbols, pa.large_string())))[0])


def _lengths(words: np.ndarray, ends: np.ndarray, symbols: np.ndarray) -> np.ndarray:
    """The length of each text: its words, or 1.6 times its different ones except symbols, if these are fewer:
    int64. A question of twenty words has sixteen different ones; a formula repeats a few, most of them symbols."""
    _, word = np.unique(words, return_inverse=True)
    text = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    many = max(len(words), 1)
    pairs = np.unique(text[~symbols] * many + word[~symbols])
    different = np.bincount(pairs // many, minlength=len(ends) - 1)
    return np.minimum(np.diff(ends), (_TIMES_DIFFERENT * different).astype(np.int64))


def _ngrams(
    words: np.ndarray, ends: np.ndarray, item: np.ndarray, kind: np.ndarray, settings: Indexing
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(hash, item, place, kind of text) of the n-grams that documents are found by: of all texts, or only
    of questions. Equal n-grams of an item count once, at their last place or, for overlaps, at each."""
    hashes = ngram_hashes(words, ends, settings.words)
    text = np.repeat(np.arange(len(item)), np.diff(ends))
    if settings.method == "overlap":
        [positions] = np.nonzero((hashes != 0) & (kind[text] == QUESTION))
        return hashes[positions], item[text[positions]], positions - ends[text[positions]], kind[text[positions]]
    [positions] = np.nonzero(hashes)
    owner = item[text[positions]]
    order = np.lexsort((hashes[positions], owner))
    positions, owner = positions[order], owner[order]
    new = np.append(True, (hashes[positions][1:] != hashes[positions][:-1]) | (owner[1:] != owner[:-1]))[
        : len(positions)
    ]
    return hashes[positions][new], owner[new], np.zeros(int(new.sum()), np.int64), kind[text[positions]][new]


def _write(folder: str, name: str, schema: pa.Schema, *columns: list | np.ndarray) -> None:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    parquet.write_table(files.join(folder, f"{name}.parquet"), pa.table(arrays, schema=schema))


def items_of(folder: str) -> pa.Table:
    """The table ITEMS of an index."""
    return parquet.read_table(files.join(folder, "items.parquet"))


@lru_cache(1)
def load_index(folder: str, settings: Indexing) -> Index:
    """The index in a folder, read once by each worker. Holds 16 bytes a word and 32 an n-gram of the benchmarks."""

    def columns(name: str) -> list[np.ndarray]:
        return [np.asarray(column) for column in parquet.read_table(files.join(folder, f"{name}.parquet")).columns]

    items = parquet.read_table(files.join(folder, "items.parquet"), ["benchmark", "id"])
    item, *texts = columns("texts")
    return Index(
        settings,
        items["benchmark"].to_pylist(),
        items["id"].to_pylist(),
        np.searchsorted(item, np.arange(len(items) + 1)),
        *(item, *texts),
        *columns("words"),
        *columns("ngrams"),
        *columns("postings"),
    )
