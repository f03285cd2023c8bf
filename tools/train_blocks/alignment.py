"""Which words of a page a reference text has: the labels of the training."""

import numba as nb
import numpy as np

# Table of the alignment, in cells: a longer pair of texts is compared by its runs of words alone.
_CELLS = 400_000_000
RUN = 5


@nb.njit(nogil=True, cache=True)
def _align(page, gold):
    """Words of `page` on the best alignment with `gold`, where a match that continues a run counts one and a half."""
    n, m = len(page), len(gold)
    # bit 0: the best of this cell ends in a match; bit 1: that match continues a run; bit 2: else the best is above
    steps = np.zeros((n + 1, m + 1), np.uint8)
    matched = np.full(m + 1, -1e9, np.float32)
    best = np.zeros(m + 1, np.float32)
    for i in range(1, n + 1):
        corner_matched, corner_best = matched[0], best[0]
        for j in range(1, m + 1):
            above_matched, above_best = matched[j], best[j]
            here = np.float32(-1e9)
            step = 0
            if page[i - 1] == gold[j - 1]:
                here = corner_best + np.float32(1)
                if corner_matched + np.float32(1.5) >= here:
                    here = corner_matched + np.float32(1.5)
                    step |= 2
            top = max(above_best, best[j - 1])
            if above_best >= best[j - 1]:
                step |= 4
            if here >= top:
                step |= 1
                top = here
            matched[j], best[j] = here, top
            steps[i, j] = step
            corner_matched, corner_best = above_matched, above_best
    covered = np.zeros(n, np.bool_)
    i, j = n, m
    run = False
    while i > 0 and j > 0:
        step = steps[i, j]
        if run or step & 1:
            covered[i - 1] = True
            run = step & 2 != 0
            i -= 1
            j -= 1
        elif step & 4:
            i -= 1
        else:
            j -= 1
    return covered


def covered(page: list[str], gold: list[str]) -> np.ndarray:
    """Whether each word of the page is one of the gold text: bool, shape (len(page),).

    It is if the best alignment of both says so, or if it stands in a run of five words that the gold text has too
    (gold texts do not always keep the order of the page). Holds len(page) * len(gold) bytes, at most 400 MB.
    """
    number: dict[str, int] = {}
    a = np.array([number.setdefault(word, len(number)) for word in page], np.int64)
    b = np.array([number.setdefault(word, len(number)) for word in gold], np.int64)
    inside = _align(a, b) if len(a) * len(b) <= _CELLS else np.zeros(len(a), bool)
    runs = {tuple(gold[i : i + RUN]) for i in range(len(gold) - RUN + 1)}
    for i in range(len(page) - RUN + 1):
        if tuple(page[i : i + RUN]) in runs:
            inside[i : i + RUN] = True
    return inside
