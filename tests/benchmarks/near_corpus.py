"""Corpora of any size with planted near-duplicates, made shard by shard: no shard needs the text of another.

The words of a document follow from the seed and its number alone, so a copy makes the words of its base again, wherever
that lies. Lengths are log-normal, words follow Zipf's law, and none has a digit or an accent, so that tools that
normalise text differently see the same words.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import parquet
from gristmill.storage.schema import DOCUMENTS

N = 5  # words of a shingle, by which copies are planted and measured

VOCABULARY = 200_000
SPREAD, MOST_WORDS, FEWEST_WORDS = 1.0, 20_000, 8  # of a document; SPREAD of the logarithm
TEMPLATE_CHANGES = 3  # words that a copy of the template has of its own

CLUSTER_EXPONENT = 2.2  # of a power law: most clusters are pairs
EXACT = 0.25  # of the copies
LEAST, MOST = 0.3, 0.99  # Jaccard similarity that a near copy is planted at

ORIGINAL, SAME, REPLACED, CUT, LONGER, TEMPLATE = range(6)

_BATCH = 2_000
_STEP = np.uint64(0x9E3779B97F4A7C15)
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Planted:
    """`documents` documents of `mean` words: `template` are copies of one template; of the others a share `copies` is
    copied from others, in clusters of up to `largest`.

    Holds about 40 bytes a document.
    """

    documents: int
    seed: int = 0
    copies: float = 0.2
    template: int = 0
    largest: int = 50
    mean: int = 500

    @cached_property
    def base(self) -> np.ndarray:
        """The document that each is a copy of, int64; an original's own number; of a template's copies `documents`."""
        rng = np.random.default_rng([self.seed, 1])
        copies = round(self.copies * (self.documents - self.template))
        sizes = np.arange(2, self.largest + 1)
        chance = 1 / sizes**CLUSTER_EXPONENT
        drawn = rng.choice(sizes, copies, p=chance / chance.sum())
        drawn = drawn[: np.searchsorted(np.cumsum(drawn - 1), copies) + 1]
        if copies:
            drawn[-1] -= (drawn - 1).sum() - copies
        order = rng.permutation(self.documents)
        base = np.arange(self.documents)
        members = order[: drawn.sum()]
        base[members] = np.repeat(members[np.cumsum(drawn) - drawn], drawn)
        base[order[self.documents - self.template :]] = self.documents
        return base

    @cached_property
    def how(self) -> np.ndarray:
        """What was done to the base, int8: ORIGINAL, SAME, REPLACED, ..."""
        rng = np.random.default_rng([self.seed, 2])
        near = rng.choice(np.array([REPLACED, REPLACED, CUT, LONGER], np.int8), self.documents)
        how = np.where(rng.random(self.documents) < EXACT, np.int8(SAME), near)
        how[self.base == np.arange(self.documents)] = ORIGINAL
        how[self.base == self.documents] = TEMPLATE
        return how

    @cached_property
    def words(self) -> np.ndarray:
        """Words of the document as an original, int64; the last is the template's."""
        rng = np.random.default_rng([self.seed, 3])
        drawn = rng.lognormal(np.log(self.mean) - SPREAD**2 / 2, SPREAD, self.documents)
        return np.append(np.clip(drawn, FEWEST_WORDS, MOST_WORDS).astype(np.int64), self.mean)

    @cached_property
    def changes(self) -> np.ndarray:
        """Words replaced, cut or added, int64.

        Of S shingles d replaced by others give J = (S - d) / (S + d), N for each word that stands alone; d cut off
        J = (S - d) / S; d added J = S / (S + d).
        """
        rng = np.random.default_rng([self.seed, 4])
        wanted = rng.uniform(LEAST, MOST, self.documents)
        shingles = self.words[self.base] - (N - 1)
        replaced = np.maximum(1, shingles * (1 - wanted) / (1 + wanted) / N)
        planned = [shingles * 0, shingles * 0, replaced, shingles * (1 - wanted), shingles * (1 / wanted - 1)]
        return np.choose(self.how, [*planned, shingles * 0 + TEMPLATE_CHANGES]).round().astype(np.int64)

    def texts(self, numbers: np.ndarray) -> pa.Array:
        """The texts of some documents, large_string. Holds up to 9 bytes a word."""
        data, offsets = _texts(
            numbers, self.base, self.how, self.words, self.changes, np.uint64(self.seed), *_letters()
        )
        return pa.LargeStringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(data))

    def write(self, path: str, first: int, last: int) -> int:
        """Write the documents from number `first` up to `last` as a part of documents. Returns the bytes of text."""
        written = 0
        with parquet.create(path, DOCUMENTS) as out:
            for low in range(first, last, _BATCH):
                table = self._table(np.arange(low, min(low + _BATCH, last)))
                written += pc.sum(table["characters"]).as_py()
                out.write_table(table)
        return written

    def _table(self, numbers: np.ndarray) -> pa.Table:
        texts = self.texts(numbers)
        ids = ids_of(numbers)
        day = pc.utf8_lpad(pc.cast(pa.array(1 + numbers % 28), pa.string()), 2, "0")
        site = pc.cast(pa.array(numbers % 9973), pa.string())
        columns = {
            "id": ids,
            "source": pa.repeat("planted", len(numbers)),
            "url": pc.binary_join_element_wise("https://s", site, ".example/", ids, ""),
            "date": pc.binary_join_element_wise("2024-01-", day, "T00:00:00Z", ""),
            "characters": pc.cast(pc.binary_length(texts), pa.int64()),
            "text": texts,
        }
        missing = {f.name: pa.nulls(len(numbers), f.type) for f in DOCUMENTS if f.name not in columns}
        return pa.table({name: (columns | missing)[name] for name in DOCUMENTS.names}, schema=DOCUMENTS)

    def clusters(self) -> Iterator[np.ndarray]:
        """Each base with its copies, by number, the base first; not the template's."""
        order = np.lexsort((self.how != ORIGINAL, self.base))
        bounds = np.flatnonzero(np.diff(self.base[order], prepend=-1, append=self.documents + 1))
        for low, high in zip(bounds[:-1], bounds[1:], strict=True):
            if high - low > 1 and self.base[order[low]] < self.documents:
                yield order[low:high]

    def pairs(self, least: float = 0.0) -> Iterator[tuple[int, int, float]]:
        """All pairs within clusters of at least this Jaccard similarity: exact, by plain Python, from the texts."""
        held: list[np.ndarray] = []
        for cluster in [*self.clusters(), None]:
            if cluster is None or sum(map(len, held)) > _BATCH:
                texts = iter(self.texts(np.concatenate(held)).to_pylist() if held else [])
                for members in held:
                    sets = [grams(next(texts)) for _ in members]
                    for (i, a), (j, b) in combinations(zip(members.tolist(), sets, strict=True), 2):
                        if (similarity := jaccard(a, b)) >= least:
                            yield i, j, similarity
                held = []
            if cluster is not None:
                held.append(cluster)


def ids_of(numbers: np.ndarray) -> pa.Array:
    """Ids in the order of the numbers."""
    return pc.binary_join_element_wise("d", pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), 10, "0"), "")


def number_of(name: str) -> int:
    return int(name[1:])


def grams(text: str) -> set[tuple[str, ...]]:
    """Word 5-grams of a planted text; a text of fewer words has one, of all its words."""
    words = _WORD.findall(text.lower())
    return set(zip(*(words[i:] for i in range(N)), strict=False)) or {tuple(words)}


def jaccard(a: set, b: set) -> float:
    common = len(a & b)
    return common / (len(a) + len(b) - common)


@cache
def _letters() -> tuple[np.ndarray, np.ndarray]:
    """Unlike words by rank as one array of bytes and its offsets: of 3 letters the 2,000 commonest, of 7 the others."""
    consonants, vowels = np.frombuffer(b"bcdfghjklmnpqrstvwxz", np.uint8), np.frombuffer(b"aeiou", np.uint8)
    rank = np.random.default_rng(0).permutation(VOCABULARY)
    letters = np.zeros((VOCABULARY, 7), np.uint8)
    rest = np.where(rank < 2_000, rank, rank * 104_729 % 20_000_000)  # a bijection, and words that look unlike
    for place, kind in enumerate((consonants, vowels, consonants, consonants, vowels, consonants, vowels)):
        rest, digit = np.divmod(rest, len(kind))
        letters[:, place] = kind[digit]
    length = np.where(rank < 2_000, 3, 7)
    by_rank = np.argsort(length, kind="stable")
    kept = np.arange(7) < length[by_rank, None]
    return letters[by_rank][kept], np.append(0, np.cumsum(length[by_rank]))


@nb.njit(nogil=True, cache=True, inline="always")
def _mixed(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@nb.njit(nogil=True, cache=True, inline="always")
def _word(key, place):
    """A word by its rank, drawn by Zipf's law: rank r has a chance of log(1 + 1 / r) / log(VOCABULARY), about 1 / r.

    Above 20 bits what follows it: 1 a comma, 2 the end of a sentence, 3 of a paragraph.
    """
    x = _mixed(key + np.uint64(place) * _STEP)
    rank = np.int64(np.exp((x >> np.uint64(11)) * (np.log(VOCABULARY) / 2.0**53))) - 1
    y = x & np.uint64(0xFF)
    mark = 3 if y < 2 else 2 if y < 14 else 1 if y < 28 else 0
    return min(rank, VOCABULARY - 1) | (mark << 20)


@nb.njit(nogil=True, cache=True)
def _texts(numbers, base, how, lengths, changes, seed, letters, starts):
    total, longest = np.int64(0), np.int64(0)
    for i in numbers:
        count = lengths[base[i]] + (changes[i] if how[i] == LONGER else 0)
        total += count
        longest = max(longest, count)
    data = np.empty(total * 9 + 2 * len(numbers), np.uint8)
    offsets = np.zeros(len(numbers) + 1, np.int64)
    words = np.empty(longest, np.int64)
    at = 0
    for k in range(len(numbers)):
        i = numbers[k]
        key = _mixed(_mixed(seed + _STEP) + np.uint64(base[i]) * _STEP)
        own = _mixed(_mixed(seed + _STEP + np.uint64(1)) + np.uint64(i) * _STEP)
        count = lengths[base[i]]
        for w in range(count):
            words[w] = _word(key, w)
        change = changes[i]
        if how[i] == REPLACED or how[i] == TEMPLATE:
            step = (count - 8) / change
            for c in range(change):
                free = max(np.int64(step) - 4, 1)
                turn = np.uint64(c) if how[i] == TEMPLATE else _mixed(own - np.uint64(c + 1) * _STEP)
                w = min(4 + np.int64(c * step) + np.int64(turn % np.uint64(free)), count - 1)
                mark, rank = words[w] >> 20, _word(own, c) & 0xFFFFF
                rank += rank == words[w] & 0xFFFFF  # surely another
                words[w] = rank % VOCABULARY | (mark << 20)
        elif how[i] == CUT:
            count -= change
        elif how[i] == LONGER:
            for w in range(change):
                words[count + w] = _word(own, w)
            words[count - 1] = (words[count - 1] & 0xFFFFF) | (3 << 20)
            count += change
        capital = True
        for w in range(count):
            rank, mark = words[w] & 0xFFFFF, words[w] >> 20
            start = at
            for b in range(starts[rank], starts[rank + 1]):
                data[at] = letters[b]
                at += 1
            if capital:
                data[start] -= np.uint8(32)
            capital = mark >= 2
            if w + 1 == count:
                data[at] = 46
                at += 1
            elif mark == 0:
                data[at] = 32
                at += 1
            else:
                data[at] = 44 if mark == 1 else 46
                data[at + 1] = 10 if mark == 3 else 32
                at += 2
        offsets[k + 1] = at
    return data[:at], offsets
