"""Heads on vectors whose labels follow a planted direction; their files, and files that are none."""

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save

from gristmill.tasks.models import heads
from gristmill.tasks.models.heads import PENALTIES, Head, check_fits, load, scores, train, write
from gristmill.tasks.models.model_files import ModelFileError
from tests.recorded import recorded

RNG = np.random.default_rng(7)
N, D = 600, 16
DIRECTION = RNG.standard_normal(D)
VECTORS = RNG.standard_normal((N, D)).astype(np.float16)
EXACT = VECTORS.astype(np.float64) @ DIRECTION
IDS = [f"d{i}" for i in range(N)]
GRADES = np.clip(np.round(2.5 + EXACT / EXACT.std()), 0, 5)
EMBEDDER = {"model": "m", "tokenizer": "t", "pooling": "mean", "max_tokens": 512}


def ids(names=IDS) -> pa.ChunkedArray:
    return pa.chunked_array([list(names)], pa.string())


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_ridge_finds_the_planted_direction():
    weight, bias, found, _ = train("ridge", ids(), VECTORS, GRADES, None)
    assert cosine(weight, DIRECTION) > 0.99 and bias == pytest.approx(2.5, abs=0.1)
    assert found["pearson"] > 0.9 and found["spearman"] > 0.9 and found["penalty"] in PENALTIES
    matrix = np.array(found["confusion"])
    assert matrix.sum() == found["tested"] == N and found["labels"] == [0, 1, 2, 3, 4, 5]
    assert matrix.sum(axis=1).tolist() == [int((GRADES == grade).sum()) for grade in range(6)]
    # F1 of `3 or more`, and the mean of the classes' F1, by their definitions over the matrix
    both, said, true = matrix[3:, 3:].sum(), matrix[:, 3:].sum(), matrix[3:].sum()
    assert found["f1_from"]["3"] == pytest.approx(2 * both / (said + true)) and found["f1_from"]["3"] > 0.9
    classes = [2 * matrix[k, k] / (matrix[k].sum() + matrix[:, k].sum()) for k in range(6)]
    assert found["macro_f1"] == pytest.approx(np.mean(classes))


def test_ridge_with_a_penalty_is_the_closed_form():
    weight, bias, found, _ = train("ridge", ids(), VECTORS, GRADES, 3.0)
    x = VECTORS.astype(np.float64)
    centred = x - x.mean(axis=0)
    expected = np.linalg.solve(centred.T @ centred + 3 * np.eye(D), centred.T @ (GRADES - GRADES.mean()))
    assert np.allclose(weight, expected) and bias == pytest.approx(GRADES.mean() - x.mean(axis=0) @ expected)
    assert found["penalty"] == 3


def test_logistic_finds_the_planted_direction():
    good = (np.random.default_rng(8).random(N) < 1 / (1 + np.exp(-EXACT - 1))).astype(float)
    weight, bias, found, unseen = train("logistic", ids(), VECTORS, good, None)
    assert cosine(weight, DIRECTION) > 0.95 and 0.4 < bias < 1.6
    pairs = EXACT[good == 1][:, None] - EXACT[good == 0]
    assert abs(found["roc_auc"] - np.mean(pairs > 0)) < 0.02 and found["calibration_error"] < 0.1
    # what the curves are drawn of
    labels, scores = unseen.T
    assert labels.sum() == good.sum() and np.mean((scores >= 0.5) == labels) == found["accuracy"]
    (right_bad, wrong_good), (wrong_bad, right_good) = found["confusion"]
    assert found["accuracy"] == (right_bad + right_good) / N
    assert found["f1"] == pytest.approx(2 * right_good / (2 * right_good + wrong_good + wrong_bad))


def test_labels_by_chance_are_not_found():
    """What is measured is on examples that the head has not seen."""
    chance = np.random.default_rng(8).permutation(GRADES)
    vectors = np.random.default_rng(8).standard_normal((N, 400)).astype(np.float16)
    assert train("ridge", ids(), vectors, chance, 1e-3)[2]["pearson"] < 0.2
    assert train("logistic", ids(), vectors, (chance > 2).astype(float), 1e-3)[2]["roc_auc"] < 0.62


def test_the_order_of_the_rows_changes_no_bit():
    order = np.random.default_rng(8).permutation(N)
    one = train("ridge", ids(), VECTORS, GRADES, 1.0)
    other = train("ridge", ids(np.array(IDS)[order]), VECTORS[order], GRADES[order], 1.0)
    assert one[0].tobytes() == other[0].tobytes() and one[1:3] == other[1:3] and np.array_equal(one[3], other[3])


def test_equal_texts_are_in_one_fold():
    """A head that learns examples by heart gains nothing from copies of them."""
    vectors, names = np.tile(np.eye(60, dtype=np.float16), (5, 1)), IDS[:60] * 5
    labels = np.tile(np.random.default_rng(8).permutation(60) % 2, 5).astype(float)
    assert train("logistic", ids(names), vectors, labels, 1e-3)[2]["roc_auc"] < 0.6


@pytest.mark.parametrize(
    "labels,why",
    [(np.ones(N), "a head learns from labels that differ"), (np.full(N, np.nan), "a label is not a finite number")],
)
def test_labels_that_nothing_can_be_learned_from_are_refused(labels, why):
    with pytest.raises(ValueError, match=why):
        train("ridge", ids(), VECTORS, labels, None)


def test_a_score_is_that_of_the_definition_and_of_its_row_alone():
    vectors = np.random.default_rng(8).standard_normal((5_000, D)).astype(np.float16)
    exact = vectors.astype(np.float64) @ DIRECTION - 0.5
    ridge, logistic = (Head(kind, DIRECTION, -0.5, EMBEDDER, {}) for kind in ("ridge", "logistic"))
    whole = scores(ridge, vectors)
    assert np.allclose(whole, exact) and np.allclose(scores(logistic, vectors), 1 / (1 + np.exp(-exact)))
    for size in (1, 7, 4_096):
        parts = [scores(ridge, vectors[at : at + size]) for at in range(0, 500, size)]
        assert np.concatenate(parts)[:500].tobytes() == whole[:500].tobytes()
    assert scores(ridge, vectors[:0]).shape == (0,)
    extreme = Head("logistic", DIRECTION * 1e6, 0.0, EMBEDDER, {})
    assert {*scores(extreme, vectors)} <= {0.0, 1.0} or np.isfinite(scores(extreme, vectors)).all()


def test_a_file_holds_the_head_and_what_made_it(tmp_path):
    head = Head("ridge", DIRECTION, 1.5, EMBEDDER, {"pearson": 0.9, "confusion": [[1, 0], [0, 1]]})
    for name in ("a", "b"):
        write(str(tmp_path / name), head)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    read = load(recorded(tmp_path / "a"))
    assert read.weight.tobytes() == DIRECTION.tobytes() and (read.kind, read.bias) == ("ridge", 1.5)
    assert read.embedder == EMBEDDER and read.found == head.found
    check_fits("a", read, EMBEDDER, D)
    check_fits("a", read, EMBEDDER | {"device": "cuda"}, D)
    for changed, why in (
        ({"model": "other"}, "vectors of another model; set `model` to the folder"),
        ({"tokenizer": "other"}, "vectors of another tokenizer"),
        ({"pooling": "cls"}, "with pooling 'mean', but the step has 'cls'; write `pooling: \"mean\"`"),
    ):
        with pytest.raises(ModelFileError, match=why):
            check_fits("a", read, EMBEDDER | changed, D)
    with pytest.raises(ModelFileError, match="16 weights for vectors of 8 numbers"):
        check_fits("a", read, EMBEDDER, 8)


GOOD = {"weight": np.zeros(D), "bias": np.zeros(1)}
SAID = {"gristmill_head": '{"kind": "ridge", "embedder": {}}'}


@pytest.mark.parametrize(
    "data,why",
    [
        (b"", "is not a valid head"),
        (b"\x80\x04N.", "is not a valid head"),  # a pickle
        (save(GOOD, SAID)[:-1], "is not a valid head"),
        (save(GOOD), "is not a valid head"),
        (save(GOOD, {"gristmill_head": "{"}), "is not a valid head"),
        (save(GOOD, {"gristmill_head": "[]"}), "is not a valid head"),
        (save({"weight": np.zeros(D)}, SAID), "is not a valid head"),
        (save(GOOD, {"gristmill_head": '{"kind": "forest", "embedder": {}}'}), "not a head of a known form"),
        (save(GOOD, {"gristmill_head": '{"kind": "ridge", "embedder": 1}'}), "not a head of a known form"),
        (save(GOOD | {"weight": np.zeros((D, 2))}, SAID), "not a head of a known form"),
        (save(GOOD | {"weight": np.zeros(D, np.float32)}, SAID), "not a head of a known form"),
        (save(GOOD | {"bias": np.array([np.nan])}, SAID), "not a head of a known form"),
    ],
)
def test_a_file_that_is_no_head_is_refused(tmp_path, data, why):
    (tmp_path / "head").write_bytes(data)
    with pytest.raises(ModelFileError, match=f"head .*{why}|head {why}"):
        heads.load(recorded(tmp_path / "head"))
