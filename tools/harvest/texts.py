"""The texts of documents, from words whose frequencies fall as in a language (Zipf), word by word from a hash."""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tools.harvest.pages import LANGUAGES, Pages, draw, keyed
from tools.harvest.words import WORDS

_VOCABULARY = 10_000  # words of a language
_TABLE = 1 << 16
_FEW = 200  # new words of a thousand, and the next ones have a piece more
_SENTENCE, _CLAUSE, _PARAGRAPH = 15, 12, 4  # words, words, sentences, in the mean
_TEMPLATE = 0.3  # of the documents, how many keep words of their host's template
_HEAD, _FOOT = 8, 16  # words of a template
_UNSPACED = ("zh",)
_MARKS = ("", ",", ".", ".\n")  # behind a word: none, of a clause, a sentence, a paragraph


@cache
def words() -> tuple[pa.Array, np.ndarray]:
    """All forms of the words of all languages, and for each language the words that the numbers below _TABLE stand for,
    by their frequency: int64 (languages, _TABLE)."""
    forms: list[str] = []
    tables = []
    for number, language in enumerate(LANGUAGES):
        function, content = (part.split() for part in WORDS[language])
        common = np.random.default_rng(number)
        known = dict.fromkeys([*function, *content])
        halves = [(word[: -(-len(word) // 2)], word[len(word) // 2 :]) for word in content]
        pieces = 2
        while len(known) < _VOCABULARY:
            # beginnings and ends of words, put together, look like a word of the language; rare ones are longer
            before = len(known)
            for first, *rest in common.integers(0, len(halves), (1000, pieces)).tolist():
                known.setdefault(halves[first][0] + "".join(halves[i][1] for i in rest))
            pieces += len(known) - before < _FEW
        vocabulary = list(known)[:_VOCABULARY]
        space = "" if language in _UNSPACED else " "
        for word in vocabulary:
            shapes = (word, word[:1].upper() + word[1:])
            forms += [shape + mark + ("" if mark.endswith("\n") else space) for shape in shapes for mark in _MARKS]
        weights = 1 / (np.arange(_VOCABULARY) + 2.7)  # Mandelbrot's shift of Zipf's law
        ends = np.cumsum(weights) / weights.sum()
        tables.append(number * _VOCABULARY + np.searchsorted(ends, (np.arange(_TABLE) + 0.5) / _TABLE))
    return pa.array(forms, pa.large_string()), np.array(tables)


def texts(pages: Pages, seed: int) -> pa.Array:
    """The text of each document, UTF-8. Holds some 100 bytes a word of theirs."""
    shown = draw(pages.number, seed, "template") < _TEMPLATE
    around = np.where(shown, _HEAD + _FOOT, 0)
    lengths = pages.words + around
    ends = np.cumsum(lengths)
    document = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
    # the words of a template are those of its host, at the same places of every page
    head = np.where(shown, _HEAD, 0)[document]
    template = (place < head) | (place >= pages.words[document] + head)
    of = np.where(template, -1 - pages.host[document], pages.text[document])
    at = np.where(place < head, place, place - head + np.where(template, _HEAD - pages.words[document], 0))
    word = keyed(of * (1 << 20) + at, seed, "word")
    [changed] = np.nonzero(
        draw(pages.number[document] * (1 << 20) + place, seed, "edit") < pages.edited[document] * ~template
    )
    word[changed] = keyed(pages.number[document[changed]] * (1 << 20) + place[changed], seed, "other word")

    forms, tables = words()
    low = word & np.uint64(0xFFFF)
    stop = (low < 0x10000 // _SENTENCE) | (place == lengths[document] - 1)
    clause = ((word >> np.uint64(16)) & np.uint64(0xFFFF)) < 0x10000 // _CLAUSE
    last = ((word >> np.uint64(32)) & np.uint64(0xFFFF)) < 0x10000 // _PARAGRAPH
    mark = np.where(stop, 2 + last, clause)
    first = np.append(True, stop[:-1])[: len(stop)] | (place == 0)
    at = (tables[pages.language[document], word >> np.uint64(48)] * 2 + first) * len(_MARKS) + mark
    # the words of a document are next to each other, so its text is where its first begins and its last ends
    _, starts, data = pc.take(forms, pa.array(at)).buffers()
    offsets = np.frombuffer(starts, np.int64)[np.append(0, ends)]
    return pa.LargeStringArray.from_buffers(len(lengths), pa.py_buffer(offsets), data)
