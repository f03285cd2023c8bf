"""The classifier on documents of two planted vocabularies."""

import random
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.storage import files, layout, parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.selection import Heldout
from gristmill.tasks.models import classifiers, fasttext
from gristmill.tasks.models.classifiers import fold, line
from gristmill.tasks.models.model_files import ModelFileError
from gristmill.tasks.models.quality import (
    CROSS_FITTED,
    MIN_SCORE,
    MODELS,
    SCORED_BY,
    Quality,
    QualityBucket,
    Scorers,
    Scoring,
    bounds,
    bucket_shard,
    find_edges,
    gather_shard,
    gathered_folder,
    score_shard,
    train_model,
)
from tests.limits import largest_file
from tests.recorded import recorded

GOOD = "river mill wheel stone grain flour miller morning water quiet bread oven village harvest season".split()
RAW = "click offer cheap buy login cart free deal coupon subscribe banner price sale order shipping".split()
BOTH = "the a of and to in is it for on with as at by".split()
NONE = Heldout(
    fractions=dict.fromkeys([f"{name}{n}" for name in ("g", "r", "good", "raw") for n in ("", *range(5))], 0)
)
SETTINGS = Quality(reference=("good",), dimensions=8, buckets=2000, learning_rate=0.5, characters=2000)
TRAINING = SETTINGS.training_settings()


LONGER = TRAINING.model_copy(update={"epochs": 50})
SCORING = SETTINGS.scoring_settings()


def models(folder) -> tuple:
    return tuple(recorded(f"{folder}/{name}") for name in MODELS)


def documents(words: list[str], n: int, seed: int, name: str) -> dict[str, str]:
    draw = random.Random(seed)
    return {f"{name}-{i}": " ".join(draw.choices(words + BOTH, k=draw.randint(20, 60))).title() for i in range(n)}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Good and raw (documents, selection) shards; all are selected."""
    folder = tmp_path_factory.mktemp("documents")

    def write(name: str, texts: dict[str, str]) -> tuple[str, str]:
        path = str(folder / f"{name}.parquet")
        parquet.write_table(
            path, pa.table({"id": list(texts), "source": [name] * len(texts), "text": list(texts.values())})
        )
        return path, path

    good = [write(f"good{i}", documents(GOOD, 150, i, f"good{i}")) for i in range(2)]
    raw = [write(f"raw{i}", documents(RAW, 400, 10 + i, f"raw{i}")) for i in range(2)]
    return good, raw


@pytest.fixture(scope="module")
def trained(tmp_path_factory, inputs):
    folder = tmp_path_factory.mktemp("model")
    return str(folder), train_model(str(folder), 0, *inputs, TRAINING, NONE)


def test_it_tells_the_planted_vocabularies_apart(trained):
    _, record = trained
    assert record["accuracy"] > 0.95
    # as many of either kind, up to the chance of the draw: all 300 good ones, 300 of 800 raw ones
    assert 500 < record["tested"] == sum(record["trained"]) < 700
    assert min(record["trained"]) > 250 and record["roc_auc"] > 0.99


def test_scores_are_probabilities_joined_by_id(trained, tmp_path, shard):
    folder, _ = trained
    odd = {"empty": "", "spaces": " \n ", "nul": "\0", "lines": "Mill\nwheel\r\n\u2028stone", "unknown": "zzz 🦀"}
    texts = documents(GOOD, 30, 99, "good") | documents(RAW, 30, 98, "raw") | odd
    kept = list(texts)[::-1][:50]
    parts = shard("web", texts, kept)
    assert score_shard(str(tmp_path), 3, *parts, models(folder), SCORING) == {"rows": 50}
    table = parquet.read_table(str(tmp_path / "part-00003.parquet"))
    assert table["id"].to_pylist() == [i for i in texts if i in kept]
    scores = dict(zip(table["id"].to_pylist(), table["quality"].to_pylist(), strict=True))
    assert all(0 <= score <= 1 for score in scores.values())
    assert min(v for i, v in scores.items() if i.startswith("good")) > 0.9
    assert max(v for i, v in scores.items() if i.startswith("raw")) < 0.1


def test_the_score_is_fasttexts_own_probability(trained, tmp_path, shard):
    folder, _ = trained
    text = "River Mill\nCLICK  offer"
    parts = shard("web", {"a": text})
    score_shard(str(tmp_path), 0, *parts, models(folder), SCORING)
    [unseen] = fold(pa.chunked_array([["a"]]), SCORING.seed, 2)
    labels, probabilities = fasttext.load_model(f"{folder}/model-{unseen}.bin").predict(["river mill click offer"], k=2)
    expected = dict(zip(labels[0], probabilities[0], strict=True))["__label__hq"]
    assert parquet.read_table(str(tmp_path / "part-00000.parquet"))["quality"].to_pylist() == [pytest.approx(expected)]


def test_only_the_first_characters_are_read(trained, tmp_path, shard):
    folder, _ = trained
    start = " ".join(GOOD)
    parts = shard("web", {"a": start, "b": start + " " + " ".join(RAW * 5)})
    one = models(folder)[:1]
    score_shard(str(tmp_path), 0, *parts, one, SCORING.model_copy(update={"characters": len(start)}))
    a, b = parquet.read_table(str(tmp_path / "part-00000.parquet"))["quality"].to_pylist()
    assert a == b
    score_shard(str(tmp_path), 1, *parts, one, SCORING.model_copy(update={"characters": 10_000}))
    assert parquet.read_table(str(tmp_path / "part-00001.parquet"))["quality"].to_pylist()[1] < a


def test_two_trainings_give_the_same_bytes(trained, tmp_path, inputs):
    folder, record = trained
    assert train_model(str(tmp_path), 0, *inputs, TRAINING, NONE) == record
    made = [files.checksum(f"{folder}/{name}") for name in (*MODELS, CROSS_FITTED)]
    assert made == [files.checksum(str(tmp_path / name)) for name in (*MODELS, CROSS_FITTED)]
    other = tmp_path / "other"
    train_model(str(other), 0, *inputs, TRAINING.model_copy(update={"seed": 2}), NONE)
    assert not {*made} & {files.checksum(str(other / name)) for name in MODELS}


def test_a_model_that_found_no_space_is_refused(tmp_path, inputs):
    """fastText writes what fits, and says nothing."""
    with largest_file(100_000), pytest.raises(OSError, match="No space left|File too large"):
        train_model(str(tmp_path), 0, *inputs, TRAINING.model_copy(update={"dimensions": 100}), NONE)
    assert not (tmp_path / "model-0.bin").exists()


def test_a_page_cannot_name_labels_or_end_its_line(tmp_path, shard):
    good = documents(GOOD, 60, 1, "good")
    raw = {i: f"__label__hq __label__spam {text} </s> river" for i, text in documents(RAW, 60, 2, "raw").items()}
    train_model(str(tmp_path), 0, [shard("good", good)], [shard("raw", raw)], LONGER, NONE)
    model = fasttext.load_model(str(tmp_path / "model-0.bin"))
    assert sorted(model.labels) == ["__label__hq", "__label__raw"]
    parts = shard("web", {"plain": "river mill " * 5, "tricky": "__label__raw </s> " + "river mill " * 5})
    score_shard(str(tmp_path), 0, *parts, models(tmp_path)[:1], SCORING)
    plain, tricky = parquet.read_table(str(tmp_path / "part-00000.parquet"))["quality"].to_pylist()
    assert tricky == pytest.approx(plain, abs=1e-6) and plain > 0.6


@pytest.mark.parametrize("good,raw", [(0, 10), (10, 0), (1, 10), (0, 0)])
def test_too_few_documents_is_an_error_that_says_what_was_found(tmp_path, shard, good, raw):
    given = [shard("good", documents(GOOD, good, 1, "g"))], [shard("raw", documents(RAW, raw, 2, "r"))]
    with pytest.raises(ValueError, match=f"{good} and {raw} are left.*reference"):
        train_model(str(tmp_path), 0, *given, TRAINING, NONE)


def test_the_threshold_changes_no_model():
    settings = SETTINGS.model_copy(update={"min_score": 0.5})
    assert settings.training_settings() == TRAINING
    assert settings.scoring_settings() == SCORING == Scoring(characters=2000, lowercase=True, seed=1, label=None)
    assert not {"min_score", "keep_top"} & {*TRAINING.model_dump()}
    assert set(settings.decision_settings().model_dump()) == set(settings.decision_fields)
    (bound,) = bounds(settings.decision_settings(), [])
    assert (bound.signal, bound.low, bound.high) == ("quality", 0.5, None)
    assert bounds(SETTINGS.decision_settings(), [])[0].low == MIN_SCORE == 0.018112


def test_a_score_is_that_of_a_model_which_has_not_seen_the_document(tmp_path, shard):
    """Labels that mean nothing: a model that has seen a document knows its label, one that has not cannot."""
    draw = random.Random(5)
    texts = {f"{i}": " ".join(f"w{draw.randrange(10**6)}" for _ in range(30)) for i in range(400)}
    good, raw = ({i: text for i, text in texts.items() if int(i) % 2 == kind} for kind in (1, 0))
    parts = [shard("good", good)], [shard("raw", raw)]
    record = train_model(str(tmp_path), 0, *parts, LONGER, NONE)
    assert 0.4 < record["roc_auc"] < 0.6
    scored = {}
    for name, used in (("cross-fitted", models(tmp_path)), ("biased", models(tmp_path)[::-1])):
        aucs = []
        for number, part in enumerate([*parts[0], *parts[1]]):
            score_shard(str(tmp_path), number, *part, used, SCORING)
            aucs.append(parquet.read_table(str(tmp_path / f"part-{number:05d}.parquet"))["quality"].to_numpy())
        scored[name] = aucs
    ranks = {name: np.mean(of_good[:, None] > of_raw) for name, (of_good, of_raw) in scored.items()}
    assert ranks["cross-fitted"] == pytest.approx(record["roc_auc"], abs=1e-9)
    assert ranks["biased"] > 0.98


def test_the_same_models_whatever_the_order_and_the_shards(tmp_path, shard, trained):
    folder, record = trained
    good = documents(GOOD, 150, 0, "good0") | documents(GOOD, 150, 1, "good1")
    raw = documents(RAW, 400, 10, "raw0") | documents(RAW, 400, 11, "raw1")

    def dealt(name: str, texts: dict[str, str], shards: int) -> list[tuple[str, str]]:
        names = list(texts)
        random.Random(3).shuffle(names)
        return [shard(f"{name}{i}", {each: texts[each] for each in names[i::shards]}) for i in range(shards)]

    assert train_model(str(tmp_path), 0, dealt("g", good, 3), dealt("r", raw, 5), TRAINING, NONE) == record
    for name in MODELS:
        assert files.checksum(f"{folder}/{name}") == files.checksum(str(tmp_path / name))


@pytest.mark.parametrize("percent", [0.5, 10, 37.5, 100])
@pytest.mark.parametrize("shards", [1, 2, 7])
def test_the_top_is_of_all_scored_documents_however_they_are_sharded(tmp_path, percent, shards):
    scores = np.random.default_rng(3).beta(0.3, 2, 1000).round(3)  # many are equal
    parts = [str(tmp_path / f"{number}.parquet") for number in range(shards)]
    for part, some in zip(parts, np.array_split(scores, shards), strict=True):
        parquet.write_table(part, pa.table({"quality": some, SCORED_BY: ["0"] * len(some)}))
    settings = SETTINGS.model_copy(update={"keep_top": percent}).decision_settings()
    (bound,) = bounds(settings, parts)
    assert bound.low is not None and (bound.rule, bound.signal, bound.high) == ("keep_top", "quality", None)
    share = len(scores) * percent / 100
    assert share - 1 < (scores >= bound.low).sum(), "equal scores stay together"
    assert (scores > bound.low).sum() <= share


@pytest.mark.parametrize("shards", [1, 3])
def test_of_models_that_are_not_as_sure_as_each_other_the_same_share_is_kept(tmp_path, shards):
    """Folds of one distribution of documents, of which the second model's probabilities are another function."""
    draw = np.random.default_rng(5)
    quality, folds = draw.random(4000), draw.integers(0, 2, 4000)
    scores = np.where(folds == 0, quality, 0.3 + 0.1 * quality**3)
    ids = np.array([f"{i}" for i in range(4000)])
    columns = {"id": ids, "quality": scores, SCORED_BY: folds.astype(str)}
    parts = [str(tmp_path / f"{number}.parquet") for number in range(shards)]
    for part, some in zip(parts, np.array_split(np.arange(4000), shards), strict=True):
        parquet.write_table(part, pa.table({name: values[some] for name, values in columns.items()}))
    found = bounds(SETTINGS.model_copy(update={"keep_top": 40}).decision_settings(), parts)
    [(_, dropped)] = decide(pa.table(columns), [("quality", found)])
    kept = ~np.isin(ids, dropped["id"].to_pylist())
    for number in (0, 1):
        own = folds == number
        assert abs(kept[own].sum() - 0.4 * own.sum()) < 1
        assert quality[own & kept].min() > quality[own & ~kept].max()
    pooled = scores >= np.percentile(scores, 60)
    assert abs(pooled[folds == 0].mean() - pooled[folds == 1].mean()) > 0.2, "the plant"


def test_buckets_are_of_equally_many_documents_of_each_model(tmp_path):
    draw = np.random.default_rng(6)
    folds = draw.integers(0, 2, 3000)
    scores = np.where(folds == 0, draw.random(3000), 0.3 + 0.1 * draw.random(3000))
    table = pa.table({"id": [f"{i}" for i in range(3000)], "quality": scores, SCORED_BY: folds.astype(str)})
    scored = str(tmp_path / "scores.parquet")
    parquet.write_table(scored, table)
    step = QualityBucket(scores=("quality",), buckets=4).part(Scorers)
    gather_shard(str(tmp_path), 0, (scored,), scored, step)
    edges = find_edges(str(tmp_path), 0, [layout.part(gathered_folder(str(tmp_path)), 0)], step)["edges"]
    bucket_shard(str(tmp_path), 0, edges, step)
    numbers = parquet.read_table(layout.part(str(tmp_path), 0))["quality_bucket"].to_numpy()
    for number in (0, 1):
        counts = np.bincount(numbers[folds == number], minlength=4)
        assert counts.max() - counts.min() <= 2


def test_a_threshold_and_a_share_exclude_each_other():
    with pytest.raises(ValueError, match="min_score 0.1 and keep_top 10.0; give one of them"):
        Quality(reference=("good",), min_score=0.1, keep_top=10)


def test_a_description_that_does_not_fit_is_named(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"a model")
    classifiers.write(str(path), TRAINING, {"tested": 2})
    classifiers.check(str(path), TRAINING)
    with pytest.raises(ModelFileError, match="trained with lowercase True, .* write `lowercase: true`"):
        classifiers.check(str(path), TRAINING.model_copy(update={"lowercase": False}))
    path.write_bytes(b"another model")
    with pytest.raises(ModelFileError, match="does not match .*model.bin.json; copy both again"):
        classifiers.check(str(path), TRAINING)
    for content in ("", "[]", '{"digest": "0"}', '{"order": 3}'):
        (tmp_path / "model.bin.json").write_text(content)
        with pytest.raises(
            ModelFileError, match="model.bin.json is not a description of .*; copy it again, or remove it"
        ):
            classifiers.check(str(path), TRAINING)


def test_a_model_that_is_trained_takes_no_settings_of_training():
    with pytest.raises(ValueError, match="is already trained, and epochs, seed; remove it"):
        Quality(model="own.bin", epochs=7, seed=2)
    given = Quality(model="own.bin", characters=100, lowercase=False)
    assert Quality.model_validate(given.model_dump()) == given, "as the replay of thresholds reads a recipe"


WORDS = st.sampled_from(
    ["", "mill", "É", "__label__hq", "</s>", "x__label__y", "a</s>", "\x1c", "\u00a0", "\u2028", "\n\t ", "\x00"]
)


@given(st.lists(WORDS | st.text(max_size=3), max_size=12).map(" ".join), st.booleans())
def test_a_line_has_the_words_of_the_text_without_those_that_fasttext_takes_for_its_own(text, lowercase):
    """By the definition: pieces between what Unicode calls white space, commands left out."""
    pieces = re.split(r"\s+", text.lower() if lowercase else text)
    expected = [piece for piece in pieces if piece and not piece.startswith("__label__") and piece != "</s>"]
    found = line(text, 1000, lowercase)
    assert "\n" not in found
    if not any("</s>" in piece and piece != "</s>" for piece in pieces):  # of which the beginning alone would go
        assert re.split(r"\s+", found.strip()) == (expected or [""])
