"""A classifier from labelled files or a finished recipe, its description, and the step that is given it."""

import gzip
import json
import random
import re
from pathlib import Path

import lxml.html
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.flows.experiments.models import classifier
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import check
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import audit
from gristmill.flows.reports.audit import agreement
from gristmill.flows.reports.pages.classifier_plots import curves, curves_file
from gristmill.tasks.models import fasttext
from gristmill.tasks.models.classifiers import BINS, Classifier, calibration_error, measures
from gristmill.tasks.models.quality import Quality

SMALL = Classifier(dimensions=4, buckets=500, epochs=10, learning_rate=0.5, characters=300)


def rows(n: int = 200) -> list[dict]:
    draw = random.Random(2)
    words = {"fine": "river mill grain flour stone", "poor": "click offer cheap login cart", "so-so": "cheap buy price"}
    return [
        {"body": " ".join(draw.choices((words[kind] + " the a of and to").split(), k=30)), "verdict": kind, "n": i}
        for i, kind in enumerate(draw.choices(list(words), k=n))
    ]


def train(out, kind: str, path, good=("fine",)) -> dict:
    return classifier.from_labels(str(out), kind, [str(path)], good, SMALL, "body", "verdict")


@pytest.mark.extended
def test_labelled_files_of_any_form_give_the_same_classifier(tmp_path):
    given = rows()
    (tmp_path / "l.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in given))
    with gzip.open(tmp_path / "shuffled.jsonl.gz", "wb") as file:
        file.writelines(orjson.dumps(row) + b"\n" for row in random.Random(1).sample(given, len(given)))
    pq.write_table(pa.Table.from_pylist(given), tmp_path / "l.parquet")
    found = train(tmp_path / "a.bin", "jsonl", tmp_path / "l.jsonl")
    assert found == train(tmp_path / "b.bin", "parquet", tmp_path / "l.parquet")
    assert found == train(tmp_path / "c.bin", "jsonl", tmp_path / "shuffled.jsonl.gz")
    for suffix in ("", ".json", ".svg"):
        [data] = {(tmp_path / f"{name}.bin{suffix}").read_bytes() for name in "abc"}
    assert found["examples"] == len(given) and found["good"] == sum(row["verdict"] == "fine" for row in given)
    assert found["roc_auc"] > 0.99
    assert sorted(fasttext.load_model(str(tmp_path / "a.bin")).labels) == ["__label__hq", "__label__raw"]
    told = json.loads((tmp_path / "a.bin.json").read_bytes())
    assert told["settings"]["characters"] == 300 and told["calibration_error"] == found["calibration_error"]
    with pytest.raises(FileExistsError, match="already exists"):
        train(tmp_path / "a.bin", "jsonl", tmp_path / "l.jsonl")


@pytest.mark.parametrize(
    "line,why",
    [
        ('{"body": "a mill"}', "row 1, has no verdict; set its key with --label-column"),
        ('{"verdict": "fine"}', "body is missing, there are verdict; fix it"),
        ('{"body": "a mill", "verdict": "fine"}', "needs at least two labels, .*: add documents"),
    ],
)
def test_files_that_cannot_be_learned_from_are_refused(tmp_path, line, why):
    (tmp_path / "l.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=why):
        train(tmp_path / "m.bin", "jsonl", tmp_path / "l.jsonl")
    assert not (tmp_path / "m.bin").exists()


def test_what_is_wrong_with_a_classifier_is_said_before_a_run(tmp_path):
    (tmp_path / "l.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows()))
    path = tmp_path / "m.bin"
    train(path, "jsonl", tmp_path / "l.jsonl")
    machine = MachineSettings(home=str(tmp_path / "home"))

    def wrong(**settings) -> list[str]:
        step = Quality(model=str(path), **{"characters": 300, **settings})
        return [f"{where[-1]} {what}" for where, what in check.step_problems({0: step}, machine, False)]

    assert wrong() == []
    assert "write `characters: 300`" in wrong(characters=500)[0]
    assert "no label cc; use one of" in wrong(label="cc")[0]
    description = tmp_path / "m.bin.json"
    told = description.read_bytes()
    description.write_bytes(told.replace(b'"digest": "', b'"digest": "0'))
    assert f"{path} does not match {description}; copy both again" in wrong()[0]
    description.write_text("{}")
    assert "is not a description of" in wrong()[0]
    description.unlink()
    assert wrong(characters=500) == []  # of somebody else
    path.write_bytes(path.read_bytes()[:-1])
    assert "is not a valid fastText model" in wrong()[0]
    path.unlink()
    assert "m.bin does not exist; correct the path" in wrong()[0]


def test_calibration_is_that_of_the_definition():
    rng = np.random.default_rng(3)
    scores = np.concatenate([rng.random(3000), [0.0, 1.0, 0.2, 1 / 3]])
    good = rng.random(len(scores)) < scores**2  # claims more than it holds
    total = 0.0
    for number in range(BINS):
        inside = np.floor(np.minimum(scores, np.nextafter(1, 0)) * BINS) == number
        if inside.any():
            total += inside.sum() * abs(good[inside].mean() - scores[inside].mean())
    assert calibration_error(good, scores) == pytest.approx(total / len(scores)) and total / len(scores) > 0.1
    honest = rng.random(len(scores)) < scores
    assert calibration_error(honest, scores) < 0.03
    found = measures(good, scores)
    pairs = scores[good][:, None] - scores[~good]
    assert found["roc_auc"] == pytest.approx(np.mean(np.sign(pairs) / 2 + 0.5))
    assert curves(good, scores) == curves(good.copy(), scores.copy())
    assert curves_file(good, scores).startswith(b"<svg ")


def test_the_classifier_of_a_finished_recipe_learns_from_what_its_run_did(undisturbed, recipe, tmp_path):
    home = undisturbed.home("undisturbed")
    machine = MachineSettings(home=str(home))
    found = classifier.from_recipe(str(tmp_path / "m.bin"), recipe, machine)
    # another test may have left the classifier of another threshold there
    folders = [path for name, path in undisturbed.stages("undisturbed").items() if name.startswith("quality_model-")]
    measured = [json.loads((folder / "manifest.json").read_bytes())["result"]["model"] for folder in folders]
    # the same examples; its run measures halves of them by document, this command tenths by host
    assert found["tested"] == found["examples"] and found["examples"] in [one["tested"] for one in measured]
    assert found["folds_by"] == "host" and found["roc_auc_low"] < found["roc_auc"] < found["roc_auc_high"]
    # pages of its filters, to be voted on
    [page] = audit.write(recipe, "perplexity", machine)
    documents = re.findall(r'<article data-id="([^"]*)">', Path(page).read_text())
    [about] = lxml.html.document_fromstring(Path(page).read_text()).xpath("//@data-about")
    votes = {**json.loads(about), "votes": dict.fromkeys(documents, "yes")}
    assert votes["stage"] == Path(page).stem.replace("small-audit-perplexity", "perplexity_cut")
    (tmp_path / "votes.json").write_text(json.dumps(votes))
    agreed = agreement(str(tmp_path / "votes.json"), machine)
    nearest = agreed.nearest.by_side
    assert nearest["kept"].agreeing == nearest["kept"].votes > 0 and nearest["dropped"].agreeing == 0
    assert agreed.whole == votes["sizes"]["kept"] / sum(votes["sizes"].values())
    named = load(recipe | {"steps": [{"step": "extract"}, {"step": "quality", "model": str(tmp_path / "m.bin")}]})
    with pytest.raises(ValueError, match="has no step `quality` with a `reference`"):
        classifier.from_recipe(str(tmp_path / "n.bin"), named, machine)
