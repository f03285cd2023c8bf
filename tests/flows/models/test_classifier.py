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
from gristmill.flows.reports.run_page.plots import curves, curves_file
from gristmill.tasks.models import fasttext
from gristmill.tasks.models.classifiers import (
    BINS,
    GOOD,
    Classifier,
    calibration_error,
    measures,
    ordered,
    passes,
    probabilities,
)
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


def test_few_examples_are_read_more_often():
    assert [passes(Classifier(), examples) for examples in (100, 3000, 12_000, 400_000)] == [600, 20, 5, 5]
    assert passes(Classifier(learning_rate=0.5), 3000) == 5 and passes(Classifier(learning_rate=0.5), 100) == 120
    assert passes(Classifier(epochs=7), 100) == 7 and passes(Classifier(), 3000, 7) == 70


@pytest.mark.extended
def test_a_model_that_only_knows_the_length_is_not_better_than_it(tmp_path):
    draw = random.Random(4)
    words = [f"w{number}" for number in range(3000)]
    given = [
        {
            "body": " ".join(draw.choices(words, k=draw.randrange(5, 60))),
            "n": number,
            "url": f"https://h{number % 60}.org/",
        }
        for number in range(400)
    ]
    lines = [orjson.dumps(row | {"verdict": "fine" if len(row["body"]) > 150 else "poor"}) + b"\n" for row in given]
    (tmp_path / "l.jsonl").write_bytes(b"".join(lines))
    found = train(tmp_path / "m.bin", "jsonl", tmp_path / "l.jsonl")
    assert found["length_roc_auc"] > 0.999 and found["above_length"] <= 0 and found["folds_by"] == "host of url"


@pytest.mark.extended
def test_good_examples_of_one_host_give_no_interval(tmp_path):
    given = [row | {"url": f"https://h{row['n'] * (row['verdict'] != 'fine')}.org/{row['n']}"} for row in rows(90)]
    (tmp_path / "l.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in given))
    found = train(tmp_path / "m.bin", "jsonl", tmp_path / "l.jsonl")
    assert found["roc_auc"] > 0.9 and not {"roc_auc_low", "roc_auc_high", "above_length"} & found.keys()
    assert found["no_interval"].startswith("the examples of a label are of too few hosts")
    few = [row | {"group": f"g{row['n'] % 9 + 9 * (row['verdict'] != 'fine')}"} for row in given]
    (tmp_path / "g.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in few))
    found = train(tmp_path / "g.bin", "jsonl", tmp_path / "g.jsonl")
    assert found["no_interval"].startswith("the good examples are of 9 origins and the others of 9, and 10 are needed")


def planted_pages(seed: int, n: int, style: str) -> list[dict]:
    """Pages of hosts with words of their own, whose kind follows from other words, from their host, and from chance."""
    rng = np.random.default_rng(seed)
    hosts, size = n // 12, 600
    shares = 1 / np.arange(1, size + 1) ** 0.7
    weights = rng.normal(size=size) * (rng.random(size) < (0.3 if style == "many words tell" else 0.05))
    weights /= np.sqrt(np.sum(shares * weights**2) / shares.sum())
    own, lean = rng.integers(size, size=(hosts, 20)), rng.normal(size=hosts) * 0.5
    rows = []
    for number in range(n):
        host, length = int(rng.integers(hosts)), int(rng.lognormal(3.2, 0.5)) + 5
        words = rng.choice(size, length, p=shares / shares.sum())
        score = weights[words].sum() / np.sqrt(length) * 1.5 + lean[host] + rng.normal() * 0.7
        text = " ".join(f"w{word}" for word in [*words, *rng.choice(own[host], length // 5)])
        rows.append({"body": text, "verdict": "fine" if score > 0 else "poor", "url": f"https://h{host}.org/{number}"})
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("style", ["many words tell", "few words tell"])
def test_the_printed_area_is_that_of_fresh_hosts(tmp_path, style):
    differences, areas = [], []
    for seed in range(5):
        pages = planted_pages(seed, 4000, style)
        some = [row for row in pages if int(row["url"].split("/")[2][1:-4]) % 2]
        fresh = [row for row in pages if not int(row["url"].split("/")[2][1:-4]) % 2]
        (tmp_path / "l.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in some))
        out = str(tmp_path / f"{seed}.bin")
        settings = Classifier(dimensions=16, buckets=20_000)
        printed = classifier.from_labels(
            out, "jsonl", [str(tmp_path / "l.jsonl")], ("fine",), settings, "body", "verdict"
        )
        scores = probabilities(fasttext.load_model(out), [row["body"] for row in fresh], GOOD)
        areas.append(measures(np.array([row["verdict"] == "fine" for row in fresh]), scores)["roc_auc"])
        differences.append(printed["roc_auc"] - areas[-1])
    assert min(areas) > 0.6 and abs(np.mean(differences)) < 0.03, (areas, differences)
    assert max(map(abs, differences)) < 0.06


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


@pytest.mark.parametrize("good", ["true", "True"])
def test_booleans_are_labels_as_json_spells_them(tmp_path, monkeypatch, good):
    lines = [{"body": f"text {n}", "verdict": n < 3} for n in range(10)]
    (tmp_path / "l.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    counts = {}

    def counted(out, settings, fill, told):
        with ordered(settings, fill) as examples:
            counts.update(good=int(examples.good.sum()), examples=len(examples.labels))
        return counts

    monkeypatch.setattr(classifier, "_make", counted)
    assert train(tmp_path / "m.bin", "jsonl", tmp_path / "l.jsonl", [good]) == {"good": 3, "examples": 10}
    with pytest.raises(ValueError, match=r"^no label is 1 or yes; labels in the files: false, true. Name one of them"):
        train(tmp_path / "m.bin", "jsonl", tmp_path / "l.jsonl", ["1", "yes"])


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
    # its reference is of one host, which cannot be divided
    assert found["folds_by"] == "document" and found["roc_auc"] > 0.5
    assert "roc_auc_low" not in found and found["no_interval"].startswith(
        "the examples of a label are of too few hosts"
    )
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
