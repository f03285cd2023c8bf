"""The steps that damage documents: which ones, by how much, and that nothing but ids decides."""

import numpy as np
import pyarrow as pa
import pytest

from gristmill.tasks.documents.measure import measured
from tests.planted.damage import Duplicated, Foreign, Shuffled
from tests.planted.text import pydoc_paragraphs

TEXTS = pydoc_paragraphs()[:200]
DOCUMENTS = pa.table({"id": [f"d{i}" for i in range(len(TEXTS))], "text": pa.array(TEXTS, pa.large_string())})


def damaged(step, documents: pa.Table = DOCUMENTS) -> list[str]:
    return measured(documents, [step]).table["text"].to_pylist()


@pytest.mark.parametrize("kind", [Shuffled, Duplicated, Foreign])
def test_a_dose_damages_its_share_and_a_larger_one_the_same_and_more(kind):
    assert damaged(kind(dose=0)) == TEXTS
    found = {dose: damaged(kind(dose=dose)) for dose in (0.2, 0.6)}
    hit = {dose: np.array([a != b for a, b in zip(texts, TEXTS, strict=True)]) for dose, texts in found.items()}
    for dose, which in hit.items():
        # four standard deviations of 200 draws
        assert abs(which.mean() - dose) < 4 * np.sqrt(dose * (1 - dose) / len(TEXTS))
    assert hit[0.6][hit[0.2]].all()
    assert [found[0.2][i] for i in np.flatnonzero(hit[0.2])] == [found[0.6][i] for i in np.flatnonzero(hit[0.2])]
    order = np.random.default_rng(1).permutation(len(TEXTS))
    assert damaged(kind(dose=0.6), DOCUMENTS.take(pa.array(order))) == [found[0.6][i] for i in order]


def test_what_the_damage_is():
    for before, after in zip(TEXTS, damaged(Shuffled(dose=1)), strict=True):
        assert sorted(before.split()) == sorted(after.split())
    assert len(set(damaged(Duplicated(dose=1, texts=3)))) == 3
    letters = [c for text in damaged(Foreign(dose=1)) for c in text if c.isalpha()]
    assert np.mean(["\u0400" <= c <= "\u04ff" for c in letters]) > 0.99
