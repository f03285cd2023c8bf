"""Classifiers of several labels, trained on planted words: what is measured, and what the steps that name them check."""

import random

import fasttext
import numpy as np
import orjson
import pyarrow as pa
import pytest

from flows import classifier
from flows.check import inputs
from flows.machine import MachineSettings
from tasks.documents.decisions import decide
from tasks.models.classifier_measures import label_measures
from tasks.models.harm import Toxicity
from tasks.models.quality import Classifier
from tasks.models.topic import Topic

WORDS = {
    "sports": "match goal team player coach league".split(),
    "food & drink": "bread oven flour dough yeast salt".split(),
    "law": "court judge appeal statute contract clause".split(),
}
COMMON = "the a of and to in is it for on".split()
SMALL = Classifier(dimensions=8, buckets=2000, epochs=15, learning_rate=0.5, characters=400)


def text(draw: random.Random, kind: str, lines: int = 3) -> str:
    return "\n".join(" ".join(draw.choices(WORDS[kind] + COMMON, k=12)).title() for _ in range(lines))


def rows(n: int = 240) -> list[dict]:
    draw = random.Random(7)
    return [{"text": text(draw, kind), "label": kind} for kind in draw.choices(list(WORDS), k=n)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of three topics, one of `law` against the rest under the label `toxic`, and what was measured."""
    folder = tmp_path_factory.mktemp("models")
    given = rows()
    (folder / "l.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in given))
    toxic = [row | {"label": "toxic" if row["label"] == "law" else "non-toxic"} for row in given]
    (folder / "t.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in toxic))
    made = {
        name: classifier.from_labels(
            str(folder / f"{name}.bin"), "jsonl", [str(folder / labels)], (), SMALL, "text", "label"
        )
        for name, labels in (("topics", "l.jsonl"), ("toxic", "t.jsonl"))
    }
    return folder, made


def test_labels_of_files_are_learned_each_by_itself(trained, tmp_path):
    folder, made = trained
    found = made["topics"]
    assert list(found["by_label"]) == ["food_&_drink", "law", "sports"]
    assert found["examples"] == 240 and found["macro_f1"] > 0.95
    assert [sum(row) for row in found["confusion"]] == [each["examples"] for each in found["by_label"].values()]
    assert sorted(fasttext.load_model(str(folder / "topics.bin")).labels) == [
        f"__label__{name}" for name in ("food_&_drink", "law", "sports")
    ]
    told = orjson.loads((folder / "topics.bin.json").read_bytes())
    assert told["by_label"] == found["by_label"] and b"F1 by label" in (folder / "topics.bin.svg").read_bytes()
    # in another order, in two files
    shuffled = random.Random(1).sample(rows(), 240)
    for number in range(2):
        (tmp_path / f"l{number}.jsonl").write_bytes(b"".join(orjson.dumps(r) + b"\n" for r in shuffled[number::2]))
    again = classifier.from_labels(
        str(tmp_path / "m.bin"), "jsonl", [str(tmp_path / "l*.jsonl")], (), SMALL, "text", "label"
    )
    assert again == found
    for suffix in ("", ".json", ".svg"):
        assert (tmp_path / f"m.bin{suffix}").read_bytes() == (folder / f"topics.bin{suffix}").read_bytes()


def test_a_label_with_one_example_is_named(tmp_path):
    given = [*rows(30), {"text": "one alone", "label": "rare"}]
    (tmp_path / "l.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in given))
    with pytest.raises(ValueError, match="learn from .* 0 rare.*leave a label out"):
        classifier.from_labels(
            str(tmp_path / "m.bin"), "jsonl", [str(tmp_path / "l.jsonl")], (), SMALL, "text", "label"
        )
    assert not (tmp_path / "m.bin").exists()


def test_the_measures_of_labels_are_those_of_their_definitions():
    rng = np.random.default_rng(5)
    scores = rng.dirichlet((1, 1, 1, 0.2), 400)
    labels = np.array([rng.choice(4, p=row) for row in scores])
    labels[labels == 3] = 0  # a label that no document has
    found = label_measures(labels, scores, "abcd")
    given = scores.argmax(axis=1)
    counts = np.zeros((4, 4), int)
    for one, other in zip(labels, given, strict=True):
        counts[one, other] += 1
    assert found["confusion"] == counts.tolist() and found["accuracy"] == counts.trace() / 400
    for number, name in enumerate("abcd"):
        right = counts[number, number]
        f1 = 2 * right / max(counts[number].sum() + counts[:, number].sum(), 1)
        assert found["by_label"][name]["f1"] == pytest.approx(f1)
    assert found["macro_f1"] == pytest.approx(np.mean([each["f1"] for each in found["by_label"].values()]))


def test_a_step_that_reads_texts_otherwise_is_refused(trained, tmp_path):
    folder, _ = trained
    machine = MachineSettings(home=str(tmp_path))

    def wrong(step) -> str:
        return " ".join(what for _, what in inputs.steps({0: step}, machine, False))

    topics, toxic = str(folder / "topics.bin"), str(folder / "toxic.bin")
    same = {"characters": 400, "lowercase": True}
    assert wrong(Topic(model=topics, **same, keep=("law", "other"), drop=("sports",))) == ""
    assert wrong(Toxicity(model=toxic, label="toxic", **same)) == ""
    assert "write `lowercase: true`" in wrong(Topic(model=topics, characters=400))
    assert "write `characters: 400`" in wrong(Toxicity(model=toxic, label="toxic", lowercase=True))
    found = wrong(Topic(model=topics, **same, drop=("sport",)))
    assert "no topic sport; name some of" in found and "sports" in found and "in `drop`" in found
    broken = tmp_path / "broken.bin"
    broken.write_bytes((folder / "topics.bin").read_bytes()[:-1])
    assert "is no whole fastText model" in wrong(Topic(model=str(broken)))


def test_topics_that_are_dropped():
    table = pa.table({"id": list("abcd"), "topic": ["sports", "food", "law", "other"], "topic_score": [0.9] * 4})
    for policy, gone in (({}, ""), ({"keep": ("law", "other")}, "ab"), ({"drop": ("sports", "other")}, "ad")):
        [(_, dropped)] = decide(table, [("topic", Topic(model="m.bin", **policy).decisions())])
        assert "".join(sorted(dropped["id"].to_pylist())) == gone
    both = Topic(model="m.bin", keep=("law", "sports"), drop=("sports",)).decisions()
    assert sorted(decide(table, [("topic", both)])[0][1]["id"].to_pylist()) == ["a", "b", "d"]
