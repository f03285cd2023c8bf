"""Items of benchmarks found in documents.

All n-grams of a batch are looked up in the index. Those that are there lead to items; the hits of an item in a document
that follow each other closely make a cluster. A cluster is scored if its question can still reach the threshold.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gristmill.tasks.decontamination.index import Index
from gristmill.tasks.decontamination.score import PAIR, Found, item_score, least_questions, stands_out
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.ngrams import covered_shares, ngram_hashes, possible_members, word_hashes

# Of the share that a question needs, so much must be in n-grams that are looked up before it is compared word by word:
# with three words of ten changed, half of the words that have a neighbour left are in a 3-gram that is left.
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
    at = possible_members(words.ngrams, index.table)
    ngram = np.minimum(np.searchsorted(index.ngrams, words.ngrams[at]), len(index.ngrams) - 1)
    there = index.ngrams[ngram] == words.ngrams[at] if len(index.ngrams) else np.zeros(len(at), bool)
    at, ngram = at[there], ngram[there]
    begin = np.append(0, index.stops)[ngram]
    times = index.stops[ngram] - begin
    ends = np.cumsum(times)
    posting = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - times - begin, times)
    at, ngram = np.repeat(at, times), np.repeat(ngram, times)
    item, place = index.posting_item[posting], index.posting_place[posting]
    document = np.searchsorted(words.ends, at, side="right") - 1
    pair = document * max(len(index.id), 1) + item
    order = np.argsort(pair, kind="stable")  # hits come in the order of the text
    pair, at = pair[order], at[order]
    breaks = (pair[1:] != pair[:-1]) | (at[1:] - at[:-1] > most_apart)
    first = np.flatnonzero(np.append(True, breaks)[: len(at)])
    last = np.append(first[1:], len(at))[: len(first)] - 1
    return _Clusters(
        document[order][first],
        item[order][first],
        at[first],
        at[last],
        np.repeat(np.arange(len(first)), last - first + 1),
        place[order],
        ngram[order],
    )


def _any_ngram(index: Index, words: Words) -> Hits:
    """The score is the share of the item's n-grams that are in the document."""
    n = index.settings.words
    found = _clusters(index, words, n)
    pair = found.document * max(len(index.id), 1) + found.item
    pairs, of_cluster = np.unique(pair, return_inverse=True)
    different = np.unique(of_cluster[found.cluster] * max(len(index.ngrams), 1) + found.ngram)
    count = np.bincount(different // max(len(index.ngrams), 1), minlength=len(pairs))
    all_ngrams = np.bincount(index.posting_item, minlength=len(index.id))
    share = count[of_cluster] / all_ngrams[found.item]
    begin = words.ends[found.document]
    nothing = np.full(len(share), np.nan)
    return Hits(
        *(found.document, found.item, found.first - begin, found.last + n - begin),
        *(share, nothing, nothing, nothing),
    )


def _overlaps(index: Index, words: Words) -> Hits:
    found = _clusters(index, words, index.settings.max_misses + 1)
    rows: dict[tuple[int, int, int], Found] = {}
    at, question, start, stop = _questions(index, words, found)
    for cluster, share, first, last in zip(*(column.tolist() for column in (at, question, start, stop)), strict=True):
        document, item = int(found.document[cluster]), int(found.item[cluster])
        bounds = int(words.ends[document]), int(words.ends[document + 1])
        each = item_score(index, item, words.hashes, bounds, share, first, last)
        if each.score >= index.settings.threshold - 1e-12 and stands_out(index, item, words.hashes, each):
            rows[document, item, each.start - bounds[0]] = each  # two clusters may lie in one piece of the document
    keys = np.array(list(rows), np.int64).reshape(-1, 3)
    shares = np.array([(row.score, row.question, row.answer, row.passage) for row in rows.values()]).reshape(-1, 4)
    stops = np.array([row.stop for row in rows.values()], np.int64) - words.ends[keys[:, 0]]
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
    document, item, start = keys[order].T
    score, question, answer, passage = shares[order].T
    return Hits(document, item, start, stops[order], score, question, answer, passage)


def _questions(index: Index, words: Words, found: _Clusters) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(cluster, share, start, stop): the clusters whose questions have the share that they need, and where these stand
    in the words of the batch."""
    least = least_questions(index)
    cluster = _candidates(index, found, least)
    item, document = found.item[cluster], found.document[cluster]
    # the question begins so many words before its first n-gram that was found, and ends so many behind its last
    hits = np.searchsorted(found.cluster, cluster), np.searchsorted(found.cluster, cluster, side="right") - 1
    size = index.stop[index.first[item]] - index.question[item]
    start = np.maximum(found.first[cluster] - found.place[hits[0]] - _SLACK, words.ends[document])
    stop = np.minimum(found.last[cluster] + size - found.place[hits[1]] + _SLACK, words.ends[document + 1])
    text = index.question[item]
    share, start, stop = covered_shares(words.hashes, start, stop, index.words, text, text + size, index.weights, PAIR)
    enough = share >= least[item] - 1e-9
    return cluster[enough], share[enough], start[enough], stop[enough]


def _candidates(index: Index, found: _Clusters, least: np.ndarray) -> np.ndarray:
    """The clusters whose n-grams, with all words that are in none which is looked up, have a fair part of the share of
    the question that is needed: ascending."""
    n = index.settings.words
    enough = _PART * (least * index.question_weight)[found.item] - index.unseen_weight[found.item] - 1e-9
    begin = index.question[found.item[found.cluster]] + found.place
    # n-grams overlap, so this is at least the weight of the words in them; it spares most clusters the exact one
    weight = index.weights[begin[:, None] + np.arange(n)].sum(1)
    most = np.bincount(found.cluster, weight, minlength=len(found.item))
    some = (most >= enough)[found.cluster]
    longest = 1 << 32
    covered = np.sort(((found.cluster[some] * longest + found.place[some])[:, None] + np.arange(n)).ravel())
    covered = covered[np.append(True, covered[1:] != covered[:-1])[: len(covered)]]
    cluster, place = covered // longest, covered % longest
    weight = index.weights[index.question[found.item[cluster]] + place]
    return np.flatnonzero(
        np.bincount(cluster, weight, minlength=len(found.item)) >= np.where(most >= enough, enough, np.inf)
    )
