"""The report of a ladder of sizes, on planted orders."""

import numpy as np
import pytest
from lxml import html

from gristmill.flows.experiments.scaling.ladder import JUDGED, AgreementReport

LARGEST = [1.0, 1.2, 1.4, 1.6]


def report(*middle: list[float], noise: float = 0.003, web: list[float] = LARGEST) -> AgreementReport:
    rng = np.random.default_rng(0)
    sizes = [*middle, LARGEST]

    def losses(of_sizes):
        return np.array(of_sizes)[:, :, None] + noise * rng.standard_normal((len(sizes), 4, 3))

    measures = {JUDGED: losses(sizes), "web": losses([web] * len(sizes))}
    counts = tuple(10 ** (4 + at) for at in range(len(sizes)))
    return AgreementReport("base", ("a", "b", "c", "d"), counts, counts, measures, ("clean",))


def test_the_smallest_size_that_agrees():
    whole = report([2, 2.2, 2.4, 2.6], [1.5, 1.6, 1.7, 1.8])
    assert whole.smallest() == 10_000 and "smallest size that agrees is 10,000" in whole.sentence
    turned = report([2.2, 2, 2.4, 2.6], [1.5, 1.6, 1.7, 1.8])
    assert turned.smallest() == 100_000
    assert report([2, 2.2, 2.4, 2.6], [1.6, 1.5, 1.7, 1.8]).smallest() is None, "a larger size that disagrees counts"
    assert "no smaller size agrees" in report([2.2, 2, 2.4, 2.6]).sentence
    page = "".join(html.fromstring(whole._repr_html_()).itertext())
    assert whole.sentence in page and page.count("parameters") > 2, "a notebook has the tables, too"


def test_accuracy_is_the_share_of_pairs_in_order_with_what_seeds_know():
    rows = {(row["measure"], row["parameters"]): row for row in report([2.2, 2, 2.4, 2.6], web=LARGEST).rows()}
    found = rows[JUDGED, 10_000]
    assert found["accuracy"] == found["low"] == found["high"] == pytest.approx(5 / 6)
    assert rows["web", 10_000]["accuracy"] == 1
    assert (found["same"], found["told_apart"]) == (5, 6)
    unsure = next(report([2, 2.2, 2.4, 2.6], noise=0.3).rows())
    assert unsure["low"] < unsure["accuracy"] <= 1


def test_ranks_and_json():
    found = report([2.2, 2, 2.4, 2.6])
    assert [(row["arm"], row["ranks"]) for row in found.arm_rows()] == [
        ("a", [2, 1]), ("b", [1, 2]), ("c", [3, 3]), ("d", [4, 4]),
    ]  # fmt: skip
    plain = found.as_json()
    assert plain["smallest"] == {JUDGED: None, "web": 10_000} and len(plain["pairs"]) == 6
