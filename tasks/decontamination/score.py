"""How much of an item stands at a place of a document: the shares of question, answer and passage, and the score.

After decon 0.3.0 (allenai/decon, doc/simple-details.md, src/detect/scoring.rs): the weights of the parts, the length
below which a part counts less, and the distances are its own. A word of a text counts if it stands in the document
beside one of its neighbours in the text: of a text of which a fifth of the words was changed that is three quarters,
where half of its 3-grams are left.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from gristmill.tasks.decontamination.index import ANSWER, PASSAGE, QUESTION, Index
from gristmill.tasks.decontamination.step import Indexing
from gristmill.tasks.kernels.ngrams import covered_shares

PAIR = 2
# Of answer and passage in the score of an item that has no passage, no answer, or both; the question has the rest.
_ANSWER, _PASSAGE, _ANSWER_BESIDE, _PASSAGE_BESIDE = 0.25, 0.15, 0.2, 0.1
# An answer or a passage of fewer words counts less, in proportion: a word or two stand beside any question.
_CONFIDENT = 20
# Words around the question among which the answer is looked for, and the passage: at least, and times its own.
_ANSWER_WINDOW, _PASSAGE_WINDOW, _TIMES = 20, 100, 2
_WHOLE = 1 - 1e-9
# Different words, no numbers and no single letters, that must be there of an item of which a part is missing. Six in a
# row stand in texts by chance: "find the greatest common divisor of", "must be performed immediately after"; of a
# formula that repeats its commands (\\begin, \\end, \\sin) three. Chosen on pages of manuals (docs/decontamination.md).
_LEAST_DIFFERENT = 7


@dataclass(frozen=True)
class Found:
    """`start`, `stop`: words of the batch, from the first that matches to behind the last, with those of the answer
    behind the question; shares in [0, 1], NaN where the item has no such text."""

    start: int
    stop: int
    score: float
    question: float
    answer: float
    passage: float


def required(settings: Indexing, words: np.ndarray | float) -> np.ndarray:
    """The share that an item of such a length needs: 1 for short ones, the threshold for long ones."""
    length = settings.tolerant_words - settings.strict_words
    over = np.clip((np.asarray(words) - settings.strict_words) / length, 0, 1)
    return 1 - (1 - settings.threshold) * over


@lru_cache(1)
def least_questions(index: Index) -> np.ndarray:
    """The share of its question that each item needs at least, whatever there is of its answer and passage: [I]."""
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
    """The weights of an answer and a passage of so many words; 0 words: there is none."""
    of_answer = np.where(passage > 0, _ANSWER_BESIDE, _ANSWER)
    of_passage = np.where(answer > 0, _PASSAGE_BESIDE, _PASSAGE)
    return of_answer * np.minimum(answer / _CONFIDENT, 1), of_passage * np.minimum(passage / _CONFIDENT, 1)


def item_score(
    index: Index, item: int, words: np.ndarray, bounds: tuple[int, int], question: float, start: int, stop: int
) -> Found:
    """The score of an item whose question has the share `question` in the words of a batch from `start` to `stop`;
    `bounds`: where the document begins and ends in `words`. The answer that gives the highest score counts."""
    settings = index.settings
    asked = int(index.length[index.first[item]])
    of_passage, size = np.nan, 0
    for text, _ in index.texts(item, PASSAGE):
        size = text.stop - text.start
        before, behind = _beside(index, text, words, bounds, start, stop, max(_PASSAGE_WINDOW, _TIMES * size))
        of_passage = max(before[0], behind[0])
    best = Found(start, stop, _scaled(settings, question, asked), question, np.nan, of_passage)
    if size and (reached := _scaled(settings, _mean(question, 0, of_passage, 0, size), asked)) > best.score:
        best = Found(start, stop, reached, question, np.nan, of_passage)
    of_answer = np.nan
    for text, counted in index.texts(item, ANSWER):
        length = text.stop - text.start
        before, behind = _beside(index, text, words, bounds, start, stop, max(_ANSWER_WINDOW, _TIMES * length))
        share = max(before[0], behind[0])
        of_answer = share if np.isnan(of_answer) else max(share, of_answer)
        for passage, given in ((0.0, 0), (of_passage, size)) if size else ((0.0, 0),):
            reached = _scaled(settings, _mean(question, share, passage, length, given), asked + share * counted)
            if reached > best.score or (reached == best.score and share > 0 and np.isnan(best.answer)):
                last = behind[2] if behind[0] >= before[0] else stop
                best = Found(start, max(stop, last), reached, question, share, of_passage)
    return best if not np.isnan(best.answer) else Found(start, stop, best.score, question, of_answer, of_passage)


def stands_out(index: Index, item: int, words: np.ndarray, found: Found) -> bool:
    """Whether what was found of an item is more than a phrase of many texts: all of it, or enough different words."""
    return found.score >= _WHOLE or different_words(index, item, words, found) >= _LEAST_DIFFERENT


def different_words(index: Index, item: int, words: np.ndarray, found: Found) -> int:
    """How many different words of an item's question and of one of its answers, no numbers and no single letters, stand
    in the place that was found beside a neighbour that they have there; of the answer with which they are most.
    `words`: of the batch."""
    pairs = {*pairwise(words[found.start : found.stop].tolist())}

    def there(text: slice) -> set[int]:
        own, symbols = index.words[text].tolist(), index.symbols[text].tolist()
        stands = [pair in pairs for pair in pairwise(own)]
        beside = zip([False, *stands], [*stands, False], own, symbols, strict=True)
        return {word for before, behind, word, symbol in beside if (before or behind) and not symbol}

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


def _beside(
    index: Index, text: slice, words: np.ndarray, bounds: tuple[int, int], start: int, stop: int, window: int
) -> list[tuple[float, int, int]]:
    """How much of a text stands before the question, and behind it: `covered_shares` of both."""
    begin = np.array([max(start - window, bounds[0]), stop])
    end = np.array([start, min(stop + window, bounds[1])])
    first, last = np.array([text.start] * 2), np.array([text.stop] * 2)
    found = covered_shares(words, begin, end, index.words, first, last, index.weights, PAIR)
    return list(zip(*(column.tolist() for column in found), strict=True))
