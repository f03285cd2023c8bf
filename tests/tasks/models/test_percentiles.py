"""Percentiles against numpy's over all scores at once, for any division of the documents into parts."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.storage import parquet
from gristmill.tasks.models.percentiles import percentiles

WANTED = (0, 0.1, 5, 30, 50, 60, 95, 99.99, 100)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("scores")


def written(folder, tables: list[dict]) -> list[str]:
    paths = [str(folder / f"{i}.parquet") for i in range(len(tables))]
    for path, table in zip(paths, tables, strict=True):
        parquet.write_table(path, pa.table(table))
    return paths


def column(values: list[float | None]) -> pa.Array:
    return pa.array(values, pa.float64())


floats = st.floats(allow_nan=False, allow_infinity=False, width=64) | st.sampled_from([-0.0, 0.0, 1.0, 5e-324, 1e300])


@settings(max_examples=20, deadline=None)
@given(
    parts=st.lists(st.lists(st.tuples(st.none() | floats, st.sampled_from(["de", "en", "", None]))), max_size=4),
    wanted=st.lists(st.floats(0, 100), min_size=1, max_size=3),
)
def test_percentiles_are_those_of_numpy(folder, parts, wanted):
    paths = written(
        folder,
        [{"s": column([s for s, _ in rows]), "g": pa.array([g for _, g in rows], pa.string())} for rows in parts],
    )
    together: dict[str, list[float]] = {}
    for score, group in (row for rows in parts for row in rows):
        if score is not None:
            together.setdefault(group or "", []).append(score)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = {name: np.percentile(together[name], wanted) for name in sorted(together)}
        found = percentiles(paths, "s", wanted, "g")
        everything = [score for scores in together.values() for score in scores]
        alone = {"": np.percentile(everything, wanted)} if everything else {}
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    for name, values in percentiles(paths, "s", wanted).items():
        np.testing.assert_array_equal(values, alone[name])


def nasty(rows: int) -> dict[str, np.ndarray]:
    """Scores of distributions on which a grid, or a sketch that joins neighbours, errs."""
    rng = np.random.default_rng(7)
    return {
        "heavy tail": np.exp(rng.standard_cauchy(rows).clip(-300, 300)),
        "within a millionth of 1": 1 + 1e-12 * rng.integers(-(10**6), 10**6, rows),
        "few values": rng.choice([0.0, -0.0, 1e-300, 0.1, 0.5, 1.0], rows, p=[0.3, 0.2, 0.1, 0.2, 0.1, 0.1]),
        "two masses far apart": np.where(
            rng.random(rows) < 0.5, rng.normal(1e-9, 1e-12, rows), rng.normal(1e9, 1, rows)
        ),
        "sorted": np.sort(rng.lognormal(6, 1, rows)),
    }


def check_divisions(folder, rows: int) -> None:
    scores = nasty(rows)
    values = np.concatenate(list(scores.values()))
    groups = pa.array(list(scores)).take(pa.array(np.repeat(np.arange(len(scores)), rows)))
    expected = {name: np.percentile(found, WANTED).tolist() for name, found in sorted(scores.items())}
    shuffled = np.random.default_rng(3).permutation(len(values))
    for order, ends in ((np.arange(len(values)), [1]), (shuffled, [1, 2, rows // 2, 3 * rows])):
        tables = [{"s": values[at], "g": groups.take(pa.array(at))} for at in np.split(order, ends)]
        paths = written(folder, tables)
        for some in (paths, paths[::-1]):
            found = percentiles(some, "s", WANTED, "g")
            assert found == expected


def test_neither_order_nor_division_changes_a_bit(folder):
    check_divisions(folder, 3000)


@pytest.mark.slow
def test_ten_million_scores(folder):
    check_divisions(folder, 2_000_000)


def test_a_part_without_scores_has_no_group(folder):
    paths = written(folder, [{"s": column([None, None]), "g": ["a", "b"]}, {"s": column([2]), "g": ["b"]}])
    assert percentiles(paths, "s", [50], "g") == {"b": [2.0]}
    assert percentiles(paths[:1], "s", [50]) == percentiles([], "s", [50]) == {}


def test_a_group_with_too_few_scores_has_no_percentile(folder):
    paths = written(folder, [{"s": column([1, 2, 5]), "g": ["a", "b", "b"]}, {"s": column([7, None]), "g": ["b", "a"]}])
    assert percentiles(paths, "s", [0, 50], "g", least=2) == {"a": [], "b": [2.0, 5.0]}
    assert percentiles(paths, "s", [100], "g", least=4) == {"a": [], "b": []}


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_without_a_place_is_an_error(folder, score):
    paths = written(folder, [{"s": column([1.0, score])}])
    with pytest.raises(ValueError, match=r"0\.parquet has a s that is not a finite number"):
        percentiles(paths, "s", [50])
