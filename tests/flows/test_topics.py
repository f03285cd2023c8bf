"""Topics, harmful content and a filter of one's own in a finished run: columns, cuts, replays, pages, groups."""

import random
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import orjson
import pyarrow.compute as pc
import pytest

from flows import classifier
from flows.curation import curate
from flows.machine import MachineSettings
from flows.mlflow_artifacts import copy_description
from flows.own_steps import StepError
from flows.recipe import load
from flows.recipe_errors import RecipeError
from flows.reports import audit
from flows.reports.whatif import whatif
from storage import parquet
from tasks.tokens.grouping_work import group_names, with_columns
from tests.corpora import context
from tests.flows.test_label_classifiers import SMALL, WORDS, rows, text

ROOT = Path(__file__).resolve().parents[2]
OWN = re.search(
    r"^## A learned filter of your own\n(?:(?!    ).*\n)*((?:    .*\n|\n)+)",
    (ROOT / "docs" / "own_steps.md").read_text(),
    re.M,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run on documents in two files, of three topics, some of them of `law`, which is what counts as toxic."""
    folder = tmp_path_factory.mktemp("topics")
    given = rows(150)
    toxic = [row | {"label": "toxic" if row["label"] == "law" else "non-toxic"} for row in given]
    for name, labelled in (("topics", given), ("toxic", toxic)):
        path = folder / f"{name}.labels"
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in labelled))
        classifier.from_labels(str(folder / f"{name}.bin"), "jsonl", [str(path)], (), SMALL, "text", "label")
    draw = random.Random(3)
    web = [{"id": f"{kind}{i}", "text": text(draw, kind)} for i in range(30) for kind in WORDS]
    web += [{"id": f"odd{i}", "text": " ".join(draw.choices("zig zag zog".split(), k=9))} for i in range(10)]
    for number in range(2):
        (folder / f"web{number}.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in web[number::2]))
    books = [{"id": f"b{i}", "text": text(draw, "sports") + " " + text(draw, "law")} for i in range(12)]
    (folder / "books.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in books))
    same = {"characters": 400, "lowercase": True}
    assert OWN, "the page has a step"
    (folder / "known_words_step.py").write_text(textwrap.dedent(OWN[1]))
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
                    {"step": "topic", "model": f"{folder}/topics.bin", "least_probability": 0.6, **same},
                    {"step": "toxicity", "model": f"{folder}/toxic.bin", "label": "toxic", "max_score": 0.9, **same},
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
        found = with_columns(ids, columns, left.sources[i], left.places.signals[i], left.places.kept[i])
        groups |= dict(zip(found["id"].to_pylist(), group_names(found, recipe.mixture.by), strict=True))
    assert {name.partition("/")[2] for name in groups.values()} == {"0", "1", "none"}
    by_topic = {name.partition("/")[0] for name in groups.values()}
    assert by_topic <= {"sports", "food_&_drink", "law", "other"} and {"sports", "food_&_drink"} <= by_topic
    assert {name for name in groups.values() if name.startswith("sports/")} >= {"sports/0", "sports/1"}


def test_topics_and_harm_are_replayed(finished):
    recipe, machine, _ = finished
    replay = whatif(recipe, {"toxicity.max_score": 1}, machine)
    topic, harm = replay.recorded
    assert topic["drops"].get("topic", 0) == 0 and harm["drops"]["max_score"] > 20
    assert replay.replayed[1]["drops"].get("max_score", 0) == 0
    replay = whatif(recipe, {"topic.drop": ["law"]}, machine)
    assert replay.replayed[0]["drops"]["topic"] >= 25 > replay.replayed[1]["drops"].get("max_score", 0)
    with pytest.raises(ValueError, match="topic.least_probability cannot be replayed"):
        whatif(recipe, {"topic.least_probability": 0.5}, machine)


def test_a_filter_in_one_file_is_run_replayed_and_judged(finished):
    """That of the page docs/own_steps.md."""
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
    assert "odd" not in Path(page).read_text()[:100] and Path(page).read_text().count("<article") > 10


def test_a_filter_without_its_functions_is_refused(finished, tmp_path, monkeypatch):
    assert OWN
    half = textwrap.dedent(OWN[1]).partition("def bounds")[0].replace("known_words", "half_known")
    (tmp_path / "half_step.py").write_text(half)
    monkeypatch.setenv("GRISTMILL_STEPS", "half_step")
    monkeypatch.syspath_prepend(str(tmp_path))
    given = {"name": "x", "sources": [{"name": "a", "text": ["a"]}], "steps": [{"step": "extract"}]}
    with pytest.raises((StepError, RecipeError), match=r"half_step has no function bounds\(settings, scores\)"):
        load(given | {"steps": [*given["steps"], {"step": "half_step:KnownWords", "reference": ["a"]}]})
