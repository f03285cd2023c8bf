"""Language probabilities by naive Bayes over byte n-grams, which an automaton finds in one pass over the bytes.

The automaton is a deterministic one (Aho and Corasick 1975): each state names at most one n-gram, the longest of the
model that ends at the byte read last. Counts enter as log(1 + count). All sums are in a fixed order, so that machines
with other vector units give the same bits.
"""

import math

import numpy as np

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.compiled import nb

_HALF = np.float32(2.0**112)


@nb.njit(nogil=True, cache=True)
def most_probable(data, offsets, transitions, rows, ngrams, weights, priors, labels, scale, exponent):
    """(label: int64, its probability: float64) of each document, one entry a document.

    Probabilities are those of the classes' log scores divided by `scale * bytes ** exponent`. Several classes of one
    label count as the best of them. A document without an n-gram of the model has label 0 and equal probabilities.

    data, offsets: UTF-8 as `buffers.utf8` gives it; transitions: next state by row and byte, uint32 (rows, 256); rows:
    row of each state, uint16; ngrams: n-gram of each state, int32, -1 for none; weights: log probability of each n-gram
    in each class, the bits of float16 (n-grams, classes): half the memory, which is what the time goes to; priors: of
    each class, float32; labels: number of each class's label, int64.
    """
    documents, classes = offsets.shape[0] - 1, priors.shape[0]
    best = np.zeros(documents, np.int64)
    probability = np.empty(documents, np.float64)
    counts = np.zeros(weights.shape[0], np.int32)
    seen = np.empty(weights.shape[0], np.int32)
    scores = np.empty(classes, np.float32)
    bits = np.empty(classes, np.int32)
    row = bits.view(np.float32)
    by_label = np.empty(labels.max() + 1, np.float64)
    for d in range(documents):
        different = _count(data, offsets[d], offsets[d + 1], transitions, rows, ngrams, counts, seen)
        for c in range(classes):
            scores[c] = priors[c] if different else 0
        for i in range(different):
            ngram = seen[i]
            times = np.float32(math.log1p(counts[ngram])) * _HALF
            counts[ngram] = 0
            for c in range(classes):  # the same number divided by 2 ** 112, since exponents have another bias
                half = np.int32(weights[ngram, c])
                bits[c] = (half & 0x8000) << 16 | (half & 0x7FFF) << 13
            for c in range(classes):
                scores[c] += times * row[c]
        by_label[:] = -np.inf
        for c in range(classes):
            by_label[labels[c]] = max(by_label[labels[c]], scores[c])
        best[d] = np.argmax(by_label)
        temperature = scale * max(offsets[d + 1] - offsets[d], 1) ** exponent
        total = 0.0
        for score in by_label:
            total += math.exp((score - by_label[best[d]]) / temperature)
        probability[d] = 1 / total
    return best, probability


@nb.njit(nogil=True, cache=True, inline="always")
def _count(data, start, stop, transitions, rows, ngrams, counts, seen):
    """How many different n-grams a document has; adds to `counts` and lists them in `seen`, in the order of their first
    ends."""
    state, different = 0, 0
    for i in range(start, stop):
        state = transitions[rows[state], byte(data, i)]
        ngram = ngrams[state]
        if ngram >= 0:
            if counts[ngram] == 0:
                seen[different] = ngram
                different += 1
            counts[ngram] += 1
    return different
