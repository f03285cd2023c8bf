"""Items of benchmarks found in documents, and the score of each place.

All n-grams of a batch are looked up in the index. Those that are there lead to items; the hits of an item in a document
that follow each other closely make a cluster. A cluster is scored if its question can still reach the threshold.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa

from gristmill.tasks.decontamination.index import ANSWER, PASSAGE, QUESTION, Index
from gristmill.tasks.decontamination.step import Indexing
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.ngrams import covered_shares, ngram_hashes, possible_members, word_hashes

PAIR = 2
# Of answer and passage in the score of an item that has no passage, no answer, or both; the question has the rest.
_ANSWER, _PASSAGE, _ANSWER_BESIDE, _PASSAGE_BESIDE = 0.25, 0.15, 0.2, 0.1
# An answer or a passage of fewer words counts less, in proportion: a word or two occur next to any question.
_CONFIDENT = 20
# Words around the question among which the answer is looked for, and the passage: at least, and times its own.
_ANSWER_WINDOW, _PASSAGE_WINDOW, _TIMES = 20, 100, 2
_WHOLE = 1 - 1e-9
# Different words, except numbers and single letters, that an item must share if a part of it is missing. Six in a
# row occur in texts by chance: "find the greatest common divisor of", "must be performed immediately after"; of a
# formula that repeats its commands (\\begin, \\end, \\sin) three. Chosen on pages of manuals
# (docs/explanation/decontamination.md).
_MIN_DISTINCT = 7


@dataclass(frozen=True)
class Found:
    """`start`, `stop`: words of the batch, from the first match to after the last, including the answer
    after the question; shares in [0, 1], NaN where the item has no such text."""

    start: int
    stop: int
    score: float
    question: float
    answer: float
    passage: float


def required(settings: Indexing, words: np.ndarray | float) -> np.ndarray:
    """The share that an item of this length needs: 1 for short ones, the threshold for long ones."""
    length = settings.tolerant_words - settings.strict_words
    excess = np.clip((np.asarray(words) - settings.strict_words) / length, 0, 1)
    return 1 - (1 - settings.threshold) * excess


@lru_cache(1)
def least_questions(index: Index) -> np.ndarray:
    """The share of its question that each item needs at least, regardless of its answer and passage: [I]."""
    settings, items = index.settings, len(index.id)
    sizes, lengths = np.zeros((2, 3, items), np.int64)
    np.maximum.at(sizes, (index.kind, index.item), index.stop - index.start)
    np.maximum.at(lengths, (index.kind, index.item), index.length)
    _, answer, passage = sizes
    least = np.ones(items)
    for with_answer in (0, 1):
        for with_passage in (0, 1):
            others = sum(_weights(answer * with_answer, passage * with_passage))
            words = lengths[QUESTION] + lengths[ANSWER] * with_answer
            share = (required(settings, words) - others) / (1 - others)
            least = np.where(words >= settings.min_words, np.minimum(least, share), least)
    return least


def _weights(answer: np.ndarray, passage: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights of an answer and a passage by their numbers of words; 0 words: there is none."""
    of_answer = np.where(passage > 0, _ANSWER_BESIDE, _ANSWER)
    of_passage = np.where(answer > 0, _PASSAGE_BESIDE, _PASSAGE)
    return of_answer * np.minimum(answer / _CONFIDENT, 1), of_passage * np.minimum(passage / _CONFIDENT, 1)


def item_score(
    index: Index, item: int, words: np.ndarray, bounds: tuple[int, int], question: float, start: int, stop: int
) -> Found:
    """The score of an item whose question has the share `question` in the words of a batch from `start` to `stop`;
    `bounds`: where the document begins and ends in `words`. The answer that gives the highest score counts."""
    settings = index.settings
    question_length = int(index.length[index.first[item]])
    of_passage, size = np.nan, 0
    for text, _ in index.texts(item, PASSAGE):
        size = text.stop - text.start
        best_before, best_after = _best_beside(
            index, text, words, bounds, start, stop, max(_PASSAGE_WINDOW, _TIMES * size)
        )
        of_passage = max(best_before[0], best_after[0])
    best = Found(start, stop, _scaled(settings, question, question_length), question, np.nan, of_passage)
    if size and (reached := _scaled(settings, _mean(question, 0, of_passage, 0, size), question_length)) > best.score:
        best = Found(start, stop, reached, question, np.nan, of_passage)
    of_answer = np.nan
    for text, answer_weight in index.texts(item, ANSWER):
        length = text.stop - text.start
        best_before, best_after = _best_beside(
            index, text, words, bounds, start, stop, max(_ANSWER_WINDOW, _TIMES * length)
        )
        share = max(best_before[0], best_after[0])
        of_answer = share if np.isnan(of_answer) else max(share, of_answer)
        for passage, passage_length in ((0.0, 0), (of_passage, size)) if size else ((0.0, 0),):
            reached = _scaled(
                settings,
                _mean(question, share, passage, length, passage_length),
                question_length + share * answer_weight,
            )
            if reached > best.score or (reached == best.score and share > 0 and np.isnan(best.answer)):
                last = best_after[2] if best_after[0] >= best_before[0] else stop
                best = Found(start, max(stop, last), reached, question, share, of_passage)
    return best if not np.isnan(best.answer) else Found(start, stop, best.score, question, of_answer, of_passage)


def stands_out(index: Index, item: int, words: np.ndarray, place: Found) -> bool:
    """Whether what was found of an item is more than a phrase of many texts: all of it, or enough different words."""
    return place.score >= _WHOLE or different_words(index, item, words, place) >= _MIN_DISTINCT


def different_words(index: Index, item: int, words: np.ndarray, place: Found) -> int:
    """How many different words of an item's question and of one of its answers, except numbers and single letters, are
    in the place next to one of their neighbors in the item; with the answer that gives the most.
    `words`: of the batch."""
    pairs = {*pairwise(words[place.start : place.stop].tolist())}

    def there(text: slice) -> set[int]:
        own, symbols = index.words[text].tolist(), index.symbols[text].tolist()
        stands = [pair in pairs for pair in pairwise(own)]
        neighbours = zip([False, *stands], [*stands, False], own, symbols, strict=True)
        return {
            word for word_before, word_after, word, symbol in neighbours if (word_before or word_after) and not symbol
        }

    [question] = [there(text) for text, _ in index.texts(item, QUESTION)]
    answers = [there(text) for text, _ in index.texts(item, ANSWER)]
    return max(len(question | answer) for answer in answers or [set()])


def _mean(question: float, answer: float, passage: float, length: int, size: int) -> float:
    a, p = (float(weight) for weight in _weights(np.array(length), np.array(size)))
    return question * (1 - a - p) + answer * a + passage * p


def _scaled(settings: Indexing, share: float, words: float) -> float:
    """The share, made less for a short item so that the threshold holds for all; but all of an item counts in full."""
    if words < settings.min_words - 1e-9:
        return 0.0
    if share >= _WHOLE:
        return 1.0
    return share * settings.threshold / float(required(settings, words))


def _best_beside(
    index: Index, text: slice, words: np.ndarray, bounds: tuple[int, int], start: int, stop: int, window: int
) -> list[tuple[float, int, int]]:
    """How much of a text is before the question, and after it: `covered_shares` of both."""
    begin = np.array([max(start - window, bounds[0]), stop])
    end = np.array([start, min(stop + window, bounds[1])])
    first, last = np.array([text.start] * 2), np.array([text.stop] * 2)
    columns = covered_shares(words, begin, end, index.words, first, last, index.weights, PAIR)
    return list(zip(*(column.tolist() for column in columns), strict=True))


# Of the share that a question needs, so much must be in n-grams that are looked up before it is compared word by word:
# with three words of ten changed, half of the words that have a neighbor left are in a 3-gram that is left.
_PART = 0.5
_SLACK = 3  # words that were put into a question, or left out of it


@dataclass(frozen=True, eq=False)
class Words:
    """A batch of documents as words: document d has those from ends[d] to ends[d + 1] of `hashes`; `ngrams`: the n-gram
    that begins at each word, 0 where there is none."""

    hashes: np.ndarray
    ends: np.ndarray
    ngrams: np.ndarray


@dataclass(frozen=True)
class Hits:
    """Items in documents, by document, item and place. document: int64, which of the batch; item: int64; start, stop:
    int64, words of the document; score, question, answer, passage: float64, shares in [0, 1], NaN where an item has no
    such text or the method does not ask for it."""

    document: np.ndarray
    item: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    score: np.ndarray
    question: np.ndarray
    answer: np.ndarray
    passage: np.ndarray


@dataclass(frozen=True)
class _Clusters:
    """Clusters by document, item and place: `first`, `last`: the words of the batch where its first and last n-gram
    begin; `cluster`, `place`: of every hit the cluster, ascending, and the place in the item's question; `ngram`: which
    of the index."""

    document: np.ndarray
    item: np.ndarray
    first: np.ndarray
    last: np.ndarray
    cluster: np.ndarray
    place: np.ndarray
    ngram: np.ndarray


def find(index: Index, texts: pa.ChunkedArray | pa.Array) -> Hits:
    """All hits in a batch of texts. Holds 12 bytes a byte of them, and 60 a hit of an n-gram."""
    hashes, ends = word_hashes(*utf8(texts))
    words = Words(hashes, ends, ngram_hashes(hashes, ends, index.settings.words))
    if index.settings.method == "ngrams":
        return _any_ngram(index, words)
    return _overlaps(index, words)


def _clusters(index: Index, words: Words, most_apart: int) -> _Clusters:
    positions = possible_members(words.ngrams, index.table)
    ngram = np.minimum(np.searchsorted(index.ngrams, words.ngrams[positions]), len(index.ngrams) - 1)
    there = index.ngrams[ngram] == words.ngrams[positions] if len(index.ngrams) else np.zeros(len(positions), bool)
    positions, ngram = positions[there], ngram[there]
    begin = np.append(0, index.stops)[ngram]
    times = index.stops[ngram] - begin
    ends = np.cumsum(times)
    posting = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - times - begin, times)
    positions, ngram = np.repeat(positions, times), np.repeat(ngram, times)
    item, place = index.posting_item[posting], index.posting_place[posting]
    document = np.searchsorted(words.ends, positions, side="right") - 1
    pair = document * max(len(index.id), 1) + item
    order = np.argsort(pair, kind="stable")  # hits come in the order of the text
    pair, positions = pair[order], positions[order]
    breaks = (pair[1:] != pair[:-1]) | (positions[1:] - positions[:-1] > most_apart)
    first = np.flatnonzero(np.append(True, breaks)[: len(positions)])
    last = np.append(first[1:], len(positions))[: len(first)] - 1
    return _Clusters(
        document[order][first],
        item[order][first],
        positions[first],
        positions[last],
        np.repeat(np.arange(len(first)), last - first + 1),
        place[order],
        ngram[order],
    )


def _any_ngram(index: Index, words: Words) -> Hits:
    """The score is the share of the item's n-grams that are in the document."""
    n = index.settings.words
    clusters = _clusters(index, words, n)
    pair = clusters.document * max(len(index.id), 1) + clusters.item
    pairs, of_cluster = np.unique(pair, return_inverse=True)
    different = np.unique(of_cluster[clusters.cluster] * max(len(index.ngrams), 1) + clusters.ngram)
    count = np.bincount(different // max(len(index.ngrams), 1), minlength=len(pairs))
    all_ngrams = np.bincount(index.posting_item, minlength=len(index.id))
    share = count[of_cluster] / all_ngrams[clusters.item]
    begin = words.ends[clusters.document]
    nothing = np.full(len(share), np.nan)
    return Hits(
        *(clusters.document, clusters.item, clusters.first - begin, clusters.last + n - begin),
        *(share, nothing, nothing, nothing),
    )


def _overlaps(index: Index, words: Words) -> Hits:
    clusters = _clusters(index, words, index.settings.max_misses + 1)
    rows: dict[tuple[int, int, int], Found] = {}
    candidate, question, start, stop = _questions(index, words, clusters)
    for cluster, share, first, last in zip(
        *(column.tolist() for column in (candidate, question, start, stop)), strict=True
    ):
        document, item = int(clusters.document[cluster]), int(clusters.item[cluster])
        bounds = int(words.ends[document]), int(words.ends[document + 1])
        each = item_score(index, item, words.hashes, bounds, share, first, last)
        if each.score >= index.settings.threshold - 1e-12 and stands_out(index, item, words.hashes, each):
            rows[document, item, each.start - bounds[0]] = each  # two clusters may be in one piece of the document
    keys = np.array(list(rows), np.int64).reshape(-1, 3)
    shares = np.array([(row.score, row.question, row.answer, row.passage) for row in rows.values()]).reshape(-1, 4)
    stops = np.array([row.stop for row in rows.values()], np.int64) - words.ends[keys[:, 0]]
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
    document, item, start = keys[order].T
    score, question, answer, passage = shares[order].T
    return Hits(document, item, start, stops[order], score, question, answer, passage)


def _questions(
    index: Index, words: Words, clusters: _Clusters
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(cluster, share, start, stop): the clusters whose questions have the share that they need, and where these are
    in the words of the batch."""
    least = least_questions(index)
    cluster = _candidates(index, clusters, least)
    item, document = clusters.item[cluster], clusters.document[cluster]
    # the question begins so many words before its first n-gram that was found, and ends so many after its last
    hits = np.searchsorted(clusters.cluster, cluster), np.searchsorted(clusters.cluster, cluster, side="right") - 1
    size = index.stop[index.first[item]] - index.question[item]
    start = np.maximum(clusters.first[cluster] - clusters.place[hits[0]] - _SLACK, words.ends[document])
    stop = np.minimum(clusters.last[cluster] + size - clusters.place[hits[1]] + _SLACK, words.ends[document + 1])
    text = index.question[item]
    share, start, stop = covered_shares(words.hashes, start, stop, index.words, text, text + size, index.weights, PAIR)
    enough = share >= least[item] - 1e-9
    return cluster[enough], share[enough], start[enough], stop[enough]


def _candidates(index: Index, clusters: _Clusters, least: np.ndarray) -> np.ndarray:
    """The clusters whose n-grams, with all words that are in none which is looked up, have a fair part of the share of
    the question that is needed: ascending."""
    n = index.settings.words
    enough = _PART * (least * index.question_weight)[clusters.item] - index.unseen_weight[clusters.item] - 1e-9
    begin = index.question[clusters.item[clusters.cluster]] + clusters.place
    # n-grams overlap, so this is at least the weight of the words in them; it spares most clusters the exact one
    weight = index.weights[begin[:, None] + np.arange(n)].sum(1)
    most = np.bincount(clusters.cluster, weight, minlength=len(clusters.item))
    some = (most >= enough)[clusters.cluster]
    longest = 1 << 32
    covered = np.sort(((clusters.cluster[some] * longest + clusters.place[some])[:, None] + np.arange(n)).ravel())
    covered = covered[np.append(True, covered[1:] != covered[:-1])[: len(covered)]]
    cluster, place = covered // longest, covered % longest
    weight = index.weights[index.question[clusters.item[cluster]] + place]
    return np.flatnonzero(
        np.bincount(cluster, weight, minlength=len(clusters.item)) >= np.where(most >= enough, enough, np.inf)
    )
