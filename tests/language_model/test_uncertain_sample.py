"""A sample with more documents near the cut of a first score: its weights, and a model that is measured with them."""

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.remarks import remarks_of
from gristmill.storage import parquet
from gristmill.tasks.language_model.sample import strata
from gristmill.tasks.models.distillation.held_out import class_measures
from gristmill.tasks.models.distillation.learn import HELD_OUT_FILE
from gristmill.tasks.models.host_intervals import group_numbers
from tests.language_model.asking import limits, made, recipe, rows
from tests.language_model.serving import serving

COUNT, OF = 600, 180


def documents() -> dict[str, list[dict]]:
    """Documents of two unequal sources with a score that tells something of their quality, mostly far from the cut."""
    draw = random.Random(3)
    found = []
    for number in range(COUNT):
        quality = draw.choice([0, 0, 1, 1, 2, 3, 4, 4, 5, 5])
        words = " ".join(draw.choice(["mill", "grain"] if quality >= 3 else ["win", "casino"]) for _ in range(6))
        score = min(max(quality / 5 + draw.gauss(0, 0.12), 0), 1)
        url = f"https://h{draw.randrange(120)}.example/{number}"
        found.append({"text": f"document=t{number} quality={quality}\n{words}", "url": url, "edu": score})
    return {"small": found[:50], "large": found[50:]}


def uncertain(folder: Path, *steps: dict, **changes) -> dict:
    """A recipe that annotates a sample with a third of it near the cut, and learns from it."""
    annotate = {"of": OF, "by": ["edu"], "bounds": {"edu": [0.4, 0.6]}, **changes}
    whole = recipe(folder, documents(), **annotate)
    for source in whole["sources"]:
        source |= {"columns": ["edu"], "url_column": "url", "shard_bytes": 100_000}
    return {**whole, "steps": [*whole["steps"], *steps]}


DISTILL = {"step": "distill", "of": "annotate_grade", "positive": 3, "fasttext": {"epochs": 40}, "held_out": 0.5}


@pytest.mark.extended
def test_a_model_is_measured_as_on_the_corpus(tmp_path):
    step = {**DISTILL, "weight": "annotate_weight", "cut": {"f_beta": 0.5}}
    with serving(latency=0.0) as server, limits(server, concurrency=32):
        stages = made(tmp_path / "home", uncertain(tmp_path, step))
        plain = made(tmp_path / "home", uncertain(tmp_path, DISTILL))
        assert server.bill()["requests"] == OF
    annotated = rows(stages["annotate"], "id", "annotate_grade", "annotate_weight")
    sampled = [row for row in annotated if row["annotate_weight"] is not None]
    assert len(sampled) == OF == sum(row["annotate_grade"] is not None for row in annotated)
    # the weights add up to the documents of each stratum, which are counted here by the definition
    scores = [row["edu"] for source in documents().values() for row in source]
    counts = Counter("below" if s < 0.4 else "from" if s >= 0.6 else "between" for s in scores)
    assert OF / 3 < counts["between"] < OF / 2 < counts["below"]
    weights = Counter(row["annotate_weight"] for row in sampled)
    assert sorted(round(weight * n) for weight, n in weights.items()) == sorted(counts.values())
    assert set(weights.values()) == {OF // 3}
    # the measures are those of held-out annotations with these weights
    held = parquet.read_table(f"{stages['distill_model'].folder}/{HELD_OUT_FILE}")
    by_id = {row["id"]: row["annotate_weight"] for row in sampled}
    assert held["weight"].to_pylist() == [by_id[each] for each in held["id"].to_pylist()]
    expected = class_measures(
        held["good"].to_numpy() == 1,
        held["score"].to_numpy(),
        group_numbers(held["host"].to_numpy()),
        held["length"].to_numpy().astype(float),
        0.5,
        held["weight"].to_numpy(),
    )
    model = stages["distill_model"].result["model"]
    assert {name: model[name] for name in expected} == expected
    assert plain["distill_model"].result["model"]["roc_auc"] != model["roc_auc"]
    reasons = stages["distill_cut"].result["reasons"]
    kept = held["score"].to_numpy() >= reasons["cut"]
    own = held["weight"].to_numpy() * kept
    assert reasons["precision"][0] == pytest.approx(float((own * held["good"].to_numpy()).sum() / own.sum()))


def test_strata_between_ends():
    values = [None, -1.0, 0.4, 0.5, 0.6, 7.0, float("inf"), float("nan")]
    labels = strata(pa.table({"a": pa.array(values, pa.float64())}), ["a"], (), {"a": (0.4, 0.6)})
    low, middle, high = '["below 0.4"]', '["from 0.4 to 0.6"]', '["from 0.6"]'
    assert labels == ["[null]", low, middle, middle, high, high, high, "[null]"]
    one = strata(pa.table({"a": [1, 2, 3]}), ["a"], (), {"a": (2.0,)})
    assert one == ['["below 2"]', '["from 2"]', '["from 2"]']


@pytest.mark.parametrize(
    ("changes", "step", "sentence"),
    [
        ({"bounds": {"other": [1]}}, {}, "has `bounds` of other, which is not in `by`"),
        ({"bounds": {"edu": [0.6, 0.4]}}, {}, "that do not ascend; give numbers such as"),
        ({"bounds": {"edu": []}}, {}, "that do not ascend"),
        ({}, {"weight": "annotate_wait"}, "is annotate_wait, which no step before it or source has; .*annotate_weight"),
        (
            {"prompt": {"user": "{{ text }}", "answer": {"weight": {"type": "integer"}}}},
            {"of": "annotate_weight"},
            "has a value weight in the prompt's `answer`, which the step itself has",
        ),
    ],
)
def test_what_is_wrong_with_a_recipe_is_found(tmp_path, changes, step, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(uncertain(tmp_path, {**DISTILL, **step}, **changes))


@pytest.mark.extended
def test_annotations_without_a_weight_are_refused(tmp_path):
    """A column of the source's files annotates documents that are not in the sample."""
    step = {**DISTILL, "of": "edu", "positive": 0.5, "weight": "annotate_weight"}
    with serving(latency=0.0) as server, limits(server, concurrency=32):
        with pytest.raises(ValueError, match="documents have an annotation in edu and no weight above 0 in annotate_w"):
            made(tmp_path / "home", uncertain(tmp_path, step))


def test_check_warns_of_a_model_that_is_measured_on_a_stratified_sample(tmp_path):
    settings = MachineSettings(home=str(tmp_path / "home"), lm={"base_url": "http://127.0.0.1:1/v1"})
    with_weight = load(uncertain(tmp_path, {**DISTILL, "weight": "annotate_weight"}))
    without = load(uncertain(tmp_path, DISTILL))
    own = [line for line in remarks_of(without, settings) if line.startswith("steps.distill")]
    assert own == [
        "steps.distill: annotate_grade is of a stratified sample, so precision, recall and the cut are those of the "
        "sample; set `weight: annotate_weight` for those of the corpus"
    ]
    assert not [line for line in remarks_of(with_weight, settings) if line.startswith("steps.distill")]
