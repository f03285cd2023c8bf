"""The order of letters on a line, undone: against the Unicode bidirectional algorithm, and its own examples."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gristmill.tasks.pdf.right_to_left import in_order

HEBREW = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "אבגדהוזחטיכלמנסעפצקרשתאבגד")
WORDS = ["CAR", "MEANS", "SEA", "THE", "KNIFE"]
LATIN = ["car", "is", "fox"]


def kinds(text: str) -> list[tuple[str, str]]:
    return [(c, "R" if c > "\u0590" else "L" if c.isalpha() else "E" if c.isdigit() else "N") for c in text]


def shown(words: list[str]) -> str:
    """Words as a line that runs to the left shows them, by rules of UAX #9: a word of Latin letters is of level 2, as
    is a number (W7, I2); a space is of that level between two such words of which the first is Latin, else of level 1
    (N1, N2); then L2."""
    letters: list[tuple[str, int]] = []
    for k, word in enumerate(words):
        if k:
            one, other = words[k - 1], word
            # a number behind Latin letters is Latin (W7)
            before = next((w for w in reversed(words[:k]) if not w.isdigit()), "")
            latin = before[:1].islower() and (one[0].islower() or one.isdigit()) and not other[0].isupper()
            letters.append((" ", 2 if latin else 1))
        letters += [(c, 1 if word.isupper() else 2) for c in word]
    for level in (2, 1):
        k = 0
        while k < len(letters):
            end = k
            while end < len(letters) and letters[end][1] >= level:
                end += 1
            letters[k:end] = letters[k:end][::-1]
            k = max(end, k + 1)
    return "".join(c for c, _ in letters)


@given(st.lists(st.sampled_from([*WORDS, *LATIN, "15", "2024"]), min_size=1, max_size=8))
def test_a_line_that_runs_to_the_left(words):
    assume(any(word.isupper() for word in words))
    # a number ahead of Latin letters stands where one behind them does
    assume(not any(a.isdigit() and b.islower() for a, b in pairwise(words)))
    line = shown(words).translate(HEBREW)
    assert in_order(kinds(line), leftwards=True) == " ".join(words).translate(HEBREW)


@pytest.mark.parametrize(
    ("logical", "line", "leftwards"),
    [
        # as in UAX #9, 3.4, capitals are letters that run to the left
        ("car means CAR.", "car means RAC.", False),
        ("car MEANS CAR.", ".RAC SNAEM car", True),
        ("THE 3.50 CARS", "SRAC 3.50 EHT", True),
        ("UP 20-30 CARS", "SRAC 20-30 PU", True),
        ("50% CARS", "SRAC 50%", True),
    ],
)
def test_examples(logical, line, leftwards):
    assert in_order(kinds(line.translate(HEBREW)), leftwards) == logical.translate(HEBREW)


def test_brackets_are_mirrored_as_pairs():
    # pdfium takes one of them for a letter of Latin, and mirrors the other
    assert in_order(kinds("CBA (x y( ED".translate(HEBREW)), True) == "DE (x y) ABC".translate(HEBREW)
