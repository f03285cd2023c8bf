"""Classifiers of several labels and the steps that name them, a learned filter in one file, groups by topic."""

import json
import random
import re
import sys
import textwrap
from pathlib import Path

import lxml.html
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.experiments.models import classifier
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import check
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import audit
from gristmill.flows.reports.audit import agreement
from gristmill.flows.reports.funnel import date_lines
from gristmill.flows.reports.whatif import whatif
from gristmill.flows.run.model_run import copy_description
from gristmill.storage import parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.documents.step import StepError
from gristmill.tasks.models import fasttext
from gristmill.tasks.models.classifiers import Classifier, label_measures
from gristmill.tasks.models.harm import Toxicity
from gristmill.tasks.models.topic import Topic
from gristmill.tasks.tokens.grouping import group_names, with_columns
from tests.corpora import context
from tests.flows.test_learned_filters import by_id

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


def test_what_is_known_of_a_named_classifier_goes_to_mlflow(trained, tmp_path):
    folder, _ = trained
    copy_description("topic", str(folder / "topics.bin"), tmp_path)
    copy_description("toxicity", str(folder / "of_somebody_else.bin"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["topic-classifier.json", "topic-classifier.svg"]
    assert (tmp_path / "topic-classifier.json").read_bytes() == (folder / "topics.bin.json").read_bytes()


def paged(n: int = 80) -> list[dict]:
    """Lines of pages whose label is that of the page, and says nothing of other pages: each has words of its own."""
    draw = random.Random(3)
    found = []
    for page in range(n):
        words = [f"p{page}w{number}" for number in range(6)]
        label = draw.choice("01")
        found += [
            {"text": " ".join(draw.choices(words + COMMON, k=14)), "label": label, "page": page} for _ in range(8)
        ]
    return draw.sample(found, len(found))


@pytest.mark.extended
def test_lines_of_one_page_are_in_one_half(tmp_path):
    given = paged()
    (tmp_path / "l.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in given))
    parquet.write_table(str(tmp_path / "l.parquet"), pa.Table.from_pylist(given))
    bare = [{name: row[name] for name in ("text", "label")} | {"site": f"s{row['page']}"} for row in given]
    (tmp_path / "bare.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in bare))
    settings = SMALL.model_copy(update={"epochs": 25})

    def found(name: str, kind: str, group: str | None = None) -> dict:
        out = str(tmp_path / f"{name}-{kind}-{group}.bin")
        return classifier.from_labels(out, kind, [str(tmp_path / name)], ["1"], settings, "text", "label", group)

    pages = found("l.jsonl", "jsonl")
    assert pages["folds_by"] == "page" and 0.3 < pages["roc_auc"] < 0.7, "the truth is 0.5"
    for other in (found("l.parquet", "parquet"), found("l.jsonl", "jsonl", "page")):
        assert other == pages
    texts = found("bare.jsonl", "jsonl")
    assert texts["folds_by"] == "text" and texts["roc_auc"] > 0.9, "the plant"
    assert 0.3 < found("bare.jsonl", "jsonl", "site")["roc_auc"] < 0.7
    addressed = [{**row, "url": f"https://www.{row.pop('site')}.example/{i}"} for i, row in enumerate(bare)]
    (tmp_path / "url.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in addressed))
    hosts = found("url.jsonl", "jsonl")
    assert hosts["folds_by"] == "host of url" and 0.3 < hosts["roc_auc"] < 0.7
    with pytest.raises(ValueError, match="has no host; choose another key with --group-column"):
        found("bare.jsonl", "jsonl", "host")


def test_a_label_with_one_example_is_named(tmp_path):
    given = [*rows(30), {"text": "one alone", "label": "rare"}]
    (tmp_path / "l.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in given))
    with pytest.raises(ValueError, match="trained on .* 0 rare.*remove a label"):
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
        return " ".join(what for _, what in check.step_problems({0: step}, machine, False))

    topics, toxic = str(folder / "topics.bin"), str(folder / "toxic.bin")
    same = {"characters": 400, "lowercase": True}
    assert wrong(Topic(model=topics, **same, keep=("law", "other"), drop=("sports",))) == ""
    assert wrong(Toxicity(model=toxic, label="toxic", **same)) == ""
    assert "write `lowercase: true`" in wrong(Topic(model=topics, characters=400))
    assert "write `characters: 400`" in wrong(Toxicity(model=toxic, label="toxic", lowercase=True))
    found = wrong(Topic(model=topics, **same, drop=("sport",)))
    assert "no topic sport; use some of" in found and "sports" in found and "in `drop`" in found
    broken = tmp_path / "broken.bin"
    broken.write_bytes((folder / "topics.bin").read_bytes()[:-1])
    assert "is not a valid fastText model" in wrong(Topic(model=str(broken)))


def test_topics_that_are_dropped():
    table = pa.table({"id": list("abcd"), "topic": ["sports", "food", "law", "other"], "topic_score": [0.9] * 4})
    for policy, gone in (({}, ""), ({"keep": ("law", "other")}, "ab"), ({"drop": ("sports", "other")}, "ad")):
        [(_, dropped)] = decide(table, [("topic", Topic(model="m.bin", **policy).decisions())])
        assert "".join(sorted(dropped["id"].to_pylist())) == gone
    both = Topic(model="m.bin", keep=("law", "sports"), drop=("sports",)).decisions()
    assert sorted(decide(table, [("topic", both)])[0][1]["id"].to_pylist()) == ["a", "b", "d"]


ROOT = Path(__file__).resolve().parents[2]
OWN = re.search(
    r"^## A learned filter of your own\n(?:(?!```|## )[^\n]*\n)*```python\n(.*?)^```$",
    (ROOT / "docs" / "guides" / "add-a-step.md").read_text(),
    re.M | re.S,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, trained):
    """A run on documents in two files, of three topics, some of them of `law`, which is what counts as toxic."""
    folder, models = tmp_path_factory.mktemp("topics"), trained[0]
    draw = random.Random(3)
    web = [{"id": f"{kind}{i}", "text": text(draw, kind)} for i in range(30) for kind in WORDS]
    web += [{"id": f"odd{i}", "text": " ".join(draw.choices("zig zag zog".split(), k=9))} for i in range(10)]
    for number in range(2):
        (folder / f"web{number}.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in web[number::2]))
    books = [{"id": f"b{i}", "text": text(draw, "sports") + " " + text(draw, "law")} for i in range(12)]
    (folder / "books.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in books))
    same = {"characters": 400, "lowercase": True}
    assert OWN, "the page has a step"
    (folder / "known_words_step.py").write_text(OWN[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRISTMILL_STEPS", "known_words_step")
        patch.syspath_prepend(str(folder))
        recipe = load(
            {
                "name": "topics",
                "sources": [
                    {"name": "web", "jsonl": [f"{folder}/web*.jsonl"]},
                    {"name": "books", "jsonl": [f"{folder}/books.jsonl"]},
                ],
                "steps": [
                    {"step": "extract"},
                    {"step": "topic", "model": f"{models}/topics.bin", "least_probability": 0.6, **same},
                    {"step": "toxicity", "model": f"{models}/toxic.bin", "label": "toxic", "max_score": 0.9, **same},
                    {"step": "known_words", "reference": ["books"], "min_share": 0.3},
                    {"step": "quality_bucket", "scores": ["known_words"], "inverse": ["toxicity"], "buckets": 2},
                ],
                "mixture": {"by": ["topic", "quality_bucket"], "weights": {"sports/1": 3, "sports": 1, "law": 1}},
            }
        )
        home = str(folder / "home")
        *_, last = curate(context(home), recipe)
        yield recipe, MachineSettings(home=home), last.left
    sys.modules.pop("known_words_step", None)


def test_topics_and_buckets_make_the_groups_of_a_mixture(finished):
    recipe, _, left = finished
    groups: dict[str, str] = {}
    for i in left.places.shards():
        ids = parquet.read_table(left.places.kept[i], ["id"])
        columns = [column.column for column in recipe.mixture.by]
        found = with_columns(ids, recipe.mixture.by, left.sources[i], left.places.signals[i], left.places.kept[i])
        names = group_names(found, recipe.mixture.by).tolist()
        measured = [parquet.read_table(stage.part(i)) for stage in left.measured]
        columns = {name: by_id(table, name) for table in measured for name in table.column_names if name in columns}
        for id_, name in zip(ids["id"].to_pylist(), names, strict=True):
            assert name == f"{columns['topic'][id_]}/{columns['quality_bucket'][id_]}"
        groups |= dict(zip(ids["id"].to_pylist(), names, strict=True))
    assert {name.partition("/")[2] for name in groups.values()} == {"0", "1"}
    by_topic = {name.partition("/")[0] for name in groups.values()}
    assert by_topic <= {"sports", "food_&_drink", "law", "other"} and {"sports", "food_&_drink"} <= by_topic
    assert {name for name in groups.values() if name.startswith("sports/")} >= {"sports/0", "sports/1"}


def test_a_step_that_keeps_all_topics_has_a_report(finished):
    recipe, _, left = finished
    assert next(step for step in recipe.steps if step.step == "topic").keep is None
    assert list(date_lines(recipe, left)) == []


def test_topics_and_harm_are_replayed(finished):
    recipe, machine, _ = finished
    replay = whatif(recipe, {"toxicity.max_score": 1}, machine)
    [recorded], [replayed] = replay.recorded, replay.replayed
    assert recorded["drops"]["max_score"] > 20 and replayed["drops"].get("max_score", 0) == 0
    replay = whatif(recipe, {"topic.drop": ["law"]}, machine)
    [recorded], [replayed] = replay.recorded, replay.replayed
    assert recorded["drops"].get("topic", 0) == 0 and replayed["drops"]["topic"] >= 25
    with pytest.raises(ValueError, match="topic.least_probability cannot be replayed"):
        whatif(recipe, {"topic.least_probability": 0.5}, machine)


def test_a_filter_in_one_file_is_run_replayed_and_judged(finished):
    """That of the page docs/guides/add-a-step.md."""
    recipe, machine, left = finished
    stages = {stage.name: stage for stage in left.stages}
    assert stages["known_words_model"].result["model"]["words"] > 10
    scores = stages["known_words"]
    for i in left.places.shards():
        table = parquet.read_table(scores.part(i))
        assert tuple(table.column_names) == ("id", "known_words")
        assert pc.all(pc.is_null(table["known_words"])).as_py() == (left.sources[i] == "books")
    [recorded] = whatif(recipe, {"known_words.min_share": 0}, machine).recorded
    assert recorded["drops"] == {"min_share": 10}, "those of words that no book has"
    replay = whatif(recipe, {"known_words.min_share": 0.99}, machine)
    values = np.concatenate(
        [parquet.read_table(scores.part(i))["known_words"].to_numpy() for i in left.places.shards()]
    )
    assert replay.replayed[0]["drops"]["min_share"] == (values < 0.99).sum()
    [page] = audit.write(recipe, "known_words", machine)
    assert 20 < Path(page).read_text().count("<article") <= 60


def test_labels_and_cuts_have_pages(finished, tmp_path):
    """A step that only labels is asked whether the label fits; `quality_bucket` is no filter."""
    recipe, machine, left = finished
    topics, toxicity, words = audit.write(recipe, "", machine)
    assert [re.search(r"-audit-(\w+)-", page)[1] for page in (topics, toxicity, words)] == [
        "topic", "toxicity", "known_words"
    ]  # fmt: skip
    tree = lxml.html.document_fromstring(Path(topics).read_text())
    about = json.loads(tree.xpath("//@data-about")[0])
    signals = pa.concat_tables(
        [gather(left.places.signals[i], left.measured[0].part(i), ["topic", "topic_score"]) for i in range(3)]
    ).to_pandas()
    assert about["sizes"] == signals.topic.value_counts().sort_index().to_dict() and len(about["sizes"]) == 4
    assert about["labels"].items() <= dict(zip(signals.id, signals.topic, strict=True)).items()
    assert {*about["nearest"], *about["sampled"]} == {*about["labels"]}
    for label, of_label in signals.groupby("topic"):
        unsure = [i for i in about["nearest"] if about["labels"][i] == label]
        assert sorted(unsure) == sorted(of_label.sort_values(["topic_score", "id"]).id[:10]), label
        assert sum(about["labels"][i] == label for i in about["sampled"]) == min(5, len(of_label))
    heads = [heading.text_content() for heading in tree.iter("h2")]
    assert heads[0].endswith(": " + about["labels"][tree.xpath("//article/@data-id")[0]])
    assert "Does the label fit?" in tree.text_content()
    # a person who says that one label never fits
    votes = {i: "no" if label == "law" else "yes" for i, label in about["labels"].items()}
    (tmp_path / "votes.json").write_text(json.dumps(about | {"votes": votes}))
    found = agreement(str(tmp_path / "votes.json"), machine)
    sample = found.sample.by_side
    assert (sample["law"].agreeing, sample["sports"].agreeing) == (0, sample["sports"].votes)
    assert found.whole == pytest.approx(1 - about["sizes"]["law"] / sum(about["sizes"].values()))
    # the page of a cut names no label
    about = json.loads(lxml.html.document_fromstring(Path(toxicity).read_text()).xpath("//@data-about")[0])
    assert about["labels"] == {} and {*about["sizes"]} == {"kept", "dropped"}


def test_a_filter_without_its_functions_is_refused(finished, tmp_path, monkeypatch):
    assert OWN
    half = textwrap.dedent(OWN[1]).partition("def bounds")[0].replace("known_words", "half_known")
    (tmp_path / "half_step.py").write_text(half)
    monkeypatch.setenv("GRISTMILL_STEPS", "half_step")
    monkeypatch.syspath_prepend(str(tmp_path))
    given = {"name": "x", "sources": [{"name": "a", "text": ["a"]}], "steps": [{"step": "extract"}]}
    with pytest.raises((StepError, RecipeError), match=r"half_step has no function bounds\(settings, scores\)"):
        load(given | {"steps": [*given["steps"], {"step": "half_step:KnownWords", "reference": ["a"]}]})
