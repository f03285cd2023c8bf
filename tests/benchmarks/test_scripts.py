"""What one edit of a text of 400 characters costs in each script: the table of docs/explanation/deduplication.md."""

import random

import numpy as np
import pytest

from gristmill.tasks.dedup.near.settings import MinHash, s_curve
from tests.scripts import EDITS, SCRIPTS, edited, text_of
from tests.tasks.dedup.near.test_signatures import kernel_sets, words

SETTINGS = MinHash()
CHARACTERS, TEXTS = 400, 200
UNSPACED = ("Han", "Japanese", "Thai", "Lao", "Khmer", "Burmese")


def by_runs(text: str) -> set[tuple[str, ...]]:
    """The shingles if each run of letters were a word."""
    runs = words(text, "characters")
    return {tuple(runs[i : i + 5]) for i in range(max(len(runs) - 4, 1))}


def by_words(text: str) -> set[int]:
    return set(kernel_sets([text], SETTINGS.shingle)[0].tolist())


@pytest.mark.bench
def test_what_one_edit_costs(capsys):
    columns = [*EDITS, "share a band"]
    lines = [f"| script | {' | '.join(columns)} | runs: {' | '.join(columns)} |"]
    lines.append("|" + " --- |" * (2 * len(columns) + 1))
    for script in SCRIPTS:
        draw = random.Random(script)
        texts = [text_of(script, CHARACTERS, draw) for _ in range(TEXTS)]
        found = np.empty((2, len(EDITS), TEXTS))
        for e, kind in enumerate(EDITS):
            for t, text in enumerate(texts):
                other = edited(text, kind, 1, script, draw)
                for u, shingles in enumerate((by_words, by_runs)):
                    a, b = shingles(text), shingles(other)
                    found[u, e, t] = len(a & b) / len(a | b)
        banded = s_curve(SETTINGS.bands, SETTINGS.rows, found).mean(axis=(1, 2))
        cells = [
            f"{mean:.2f}" if at < len(EDITS) else f"{mean:.1%}"
            for means, share in zip(found.mean(axis=2), banded, strict=True)
            for at, mean in enumerate([*means, share])
        ]
        lines.append(f"| {script} | {' | '.join(cells)} |")
        by_word, runs = found.mean(axis=(1, 2))
        assert (by_word > 0.95 > 0.85 > runs) if script in UNSPACED else (by_word == runs), script
        assert found[0].min() >= SETTINGS.threshold
    with capsys.disabled():
        print("\n" + "\n".join(lines))
