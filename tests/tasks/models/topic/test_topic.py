"""Topics, toxicity and adult content by models that are trained here on planted words."""

import random
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import check
from gristmill.storage import files, parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.models import fasttext
from gristmill.tasks.models.classifiers import line
from gristmill.tasks.models.harm import AdultContent, Toxicity, bounds, score_shard
from gristmill.tasks.models.model_files import ModelFileError
from gristmill.tasks.models.topic import OTHER, Topic
from gristmill.tasks.models.topic import measure as measure_topics
from tests.recorded import recorded

WORDS = {"mills": "grain flour wheel stone sack", "ships": "sail mast anchor harbour deck", "bread": "dough oven crust"}


def sentence(draw: random.Random, topic: str) -> str:
    return " ".join(draw.choices(WORDS[topic].split(), k=12))


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder, draw = tmp_path_factory.mktemp("topics"), random.Random(5)
    lines = [f"__label__{topic} {sentence(draw, topic)}\n" for _ in range(60) for topic in WORDS]
    (folder / "lines.txt").write_text("".join(lines))
    trained = fasttext.train_supervised(
        str(folder / "lines.txt"), dim=8, bucket=1000, epoch=25, lr=1.0, thread=1, verbose=0
    )
    trained.save_model(str(folder / "topics.bin"))
    return folder / "topics.bin"


def batch(texts: list[str]) -> pa.Table:
    return pa.table({"text": pa.array(texts, pa.large_string())})


def test_topics_are_those_of_fasttext(model):
    draw = random.Random(6)
    planted = [draw.choice(list(WORDS)) for _ in range(40)]
    texts = [sentence(draw, topic).replace(" ", "\n", 3) for topic in planted] + ["", "\n", "__label__ships </s>"]
    step = Topic(model=str(model)).pinned()
    columns = measure_topics(step, batch(texts))
    assert columns["topic"].to_pylist()[:40] == planted
    truth = fasttext.load_model(str(model))
    for text, topic, score in zip(
        texts, *(columns[name].to_pylist() for name in ("topic", "topic_score")), strict=True
    ):
        [labels], [scores] = truth.predict([line(text, 20_000, False)], k=1)
        assert topic == (labels[0].removeprefix("__label__") if labels else OTHER)
        assert score == pytest.approx(min(1.0, scores[0]) if labels else 0, abs=1e-6)
    order = np.random.default_rng(1).permutation(len(texts)).tolist()
    again = measure_topics(step, batch([texts[i] for i in order]))
    assert all(again[name].to_pylist() == [columns[name].to_pylist()[i] for i in order] for name in columns)


def test_what_no_topic_is_probable_for_is_other_and_topics_are_kept(model):
    texts = ["grain flour wheel stone", "grain sail dough", "anchor mast deck harbour"]
    [least] = measure_topics(Topic(model=str(model)), batch(texts[1:2]))["topic_score"].to_pylist()
    step = Topic(model=str(model), least_probability=least + 1e-3, keep=("mills", OTHER)).pinned()
    columns = measure_topics(step, batch(texts))
    assert columns["topic"].to_pylist() == ["mills", OTHER, "ships"]
    signals = pa.table({"id": ["a", "b", "c"], **columns})
    ((_, dropped),) = decide(signals, [("topic", step.decisions())])
    assert dropped.select(["id", "rule", "detail"]).to_pylist() == [{"id": "c", "rule": "topic", "detail": "ships"}]
    ((_, dropped),) = decide(signals, [("topic", Topic(model=str(model)).decisions())])
    assert not len(dropped)
    with pytest.raises(ModelFileError, match="has no topic clouds; use some of .*mills.* in `keep`"):
        Topic(model=str(model), keep=("clouds",)).pinned()


@pytest.mark.parametrize("kind", [Toxicity, AdultContent])
def test_harm_is_the_probability_of_a_label_by_document_and_by_line(model, kind, shard, tmp_path):
    draw = random.Random(7)
    bad, good = sentence(draw, "ships"), sentence(draw, "mills")
    shouted = f"\n{bad.upper()} {good}\n"
    texts = dict(zip("abcdef", [bad, good, f"{good}\n\n{bad}\n{bad}", "", " \n ", shouted], strict=True))
    step = kind(model=str(model), label="ships", max_lines=0.5)
    score_shard(str(tmp_path), 0, *shard("web", texts, list(texts)), [recorded(str(model))], step.scoring_settings())
    part = str(tmp_path / "part-00000.parquet")
    table = parquet.read_table(part)
    assert table.schema.names == ["id", *(signal.name for signal in kind.signals)]
    score, share = (table[signal.name].to_pylist() for signal in kind.signals)
    truth = fasttext.load_model(str(model))
    for text, found in zip(texts.values(), score, strict=True):
        # as Dolma asks, python/dolma/taggers/jigsaw.py
        [labels], [scores] = truth.predict([text.replace("\n", " ").strip()], k=-1)
        expected = dict(zip(labels, scores, strict=True)).get("__label__ships", 0)
        assert found == pytest.approx(min(1.0, expected), abs=1e-6)
    lines = [part for part in texts["c"].split("\n") if part.strip()]
    assert share == pytest.approx([1, 0, 2 * len(bad) / sum(map(len, lines)), 0, 0, 0])
    assert score[5] < 0.1, "capitals are not made small"
    ((_, dropped),) = decide(table, [(step.step, bounds(step.decision_settings(), [part]))])
    assert dropped["id"].to_pylist() == ["a", "c"] and set(dropped["rule"].to_pylist()) == {"max_lines"}


@pytest.mark.parametrize("percent", [0.5, 20, 33.3, 99])
def test_the_most_harmful_share_is_dropped(percent, tmp_path):
    rng = np.random.default_rng(8)
    scores = np.round(rng.random(600), 2)  # with many equal ones
    parts = [str(tmp_path / f"{at}.parquet") for at in range(3)]
    for at, part in enumerate(parts):
        parquet.write_table(part, pa.table({"id": [f"{at}-{i}" for i in range(200)], "toxicity": scores[at::3]}))
    settings = Toxicity(model="m.bin", label="toxic", drop_top=percent).decision_settings()
    of_score, _ = bounds(settings, parts)
    assert of_score.rule == "drop_top" and of_score.high == np.percentile(scores, 100 - percent)
    gone = scores > of_score.high
    assert np.mean(gone) <= percent / 100 <= np.mean(scores >= scores[~gone].max())
    with pytest.raises(ValueError, match="has max_score 0.5 and drop_top 1.0; give one of them"):
        AdultContent(model="m.bin", label="nsfw", drop_top=1, max_score=0.5)


def test_models_that_are_wrong_stop_the_run(model, tmp_path):
    def wrong(step) -> str:
        return " ".join(what for _, what in check.step_problems({0: step}, MachineSettings(home=str(tmp_path)), False))

    found = wrong(Toxicity(model=str(model), label="toxic"))
    assert re.search("has no label toxic; use one of .*ships.* in `label`", found)
    cut = tmp_path / "cut.bin"
    cut.write_bytes(model.read_bytes()[:-5])
    for step in (Topic(model=str(cut)), Toxicity(model=str(cut), label="ships")):
        assert "cut.bin is not a valid fastText model" in wrong(step)
    assert "does not exist" in wrong(Toxicity(model=str(tmp_path / "nowhere.bin"), label="ships"))
    with pytest.raises(FileNotFoundError):
        Topic(model=str(tmp_path / "nowhere.bin")).pinned()
    assert Topic(model=str(model)).pinned().model_checksum == files.checksum(str(model))
