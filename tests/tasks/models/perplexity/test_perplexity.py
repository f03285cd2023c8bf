"""Perplexity against its formula against numpy, and a model that is the same twice."""

import random
from pydoc_data import topics

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from gristmill.storage import files, parquet
from gristmill.tasks.documents.selection import Heldout
from gristmill.tasks.documents.step import Bound
from gristmill.tasks.models.compiled import kenlm
from gristmill.tasks.models.ngram_models import score_words, sentences
from gristmill.tasks.models.perplexity import (
    LanguageModel,
    Perplexity,
    Scoring,
    bounds,
    score_shard,
    train_model,
)
from tests.recorded import recorded

NAMES = sorted(topics.topics)
PROSE = {name: topics.topics[name] for name in NAMES if len(topics.topics[name]) > 500}
REFERENCE = dict(list(PROSE.items())[::2])
UNSEEN = dict(list(PROSE.items())[1::2])

NONE = Heldout(fractions={"a": 0, "b": 0})


def perplexity(model: kenlm.Model, text: str) -> float:
    return score_words(model, [text]).perplexity[0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder of a trigram model of half of Python's help texts, the record of its training, and its input."""
    folder = tmp_path_factory.mktemp("model")
    table = {
        "id": list(REFERENCE),
        "source": ["a"] * len(REFERENCE),
        "text": list(REFERENCE.values()),
        "characters": [len(t) for t in REFERENCE.values()],
    }
    parquet.write_table(str(folder / "documents.parquet"), pa.table(table))
    inputs = [(str(folder / "documents.parquet"),) * 2]
    return folder, train_model(str(folder), 0, inputs, [], LanguageModel(order=3), NONE), inputs


@pytest.fixture(scope="module")
def model(trained) -> kenlm.Model:
    return kenlm.Model(str(trained[0] / "model.bin"))


def test_sentences_are_the_words_of_lines():
    text = "It's  1 of 23,\tOK?\n\n  \r\nNaïve — ÉTÉ_x\u2028\0 日本語！"
    assert sentences(text) == ["it ' s 0 of 00 , ok ?", "naïve — été_x \0 日本語 ！"]
    assert sentences("") == sentences(" \n\t\n") == []


def test_perplexity_is_that_of_the_formula(model):
    text = "The value of an expression is evaluated.\nFrobnicate 42 words, and nothing else!\n\n"
    log10, words = 0.0, 0
    for line in ["the value of an expression is evaluated .", "frobnicate 00 words , and nothing else !"]:
        state, after = kenlm.State(), kenlm.State()
        model.BeginSentenceWrite(state)
        for word in [*line.split(" "), "</s>"]:
            log10 += model.BaseScore(state, word, after)
            state, after, words = after, state, words + 1
    assert perplexity(model, text) == pytest.approx(10 ** (-log10 / words), rel=1e-5)
    scored = [s for line in sentences(text) for s, _, _ in model.full_scores(line)]
    assert perplexity(model, text) == pytest.approx(10 ** (-sum(scored) / len(scored)), rel=1e-5)


def test_a_text_without_words_is_an_empty_sentence(model):
    expected = 10 ** -model.score("", bos=True, eos=True)
    assert perplexity(model, "") == perplexity(model, " \n \t") == pytest.approx(expected)


def test_prose_like_the_reference_scores_lower_than_its_words_shuffled(model):
    for text in UNSEEN.values():
        words = text.split()
        shuffled = random.Random(1).sample(words, len(words))
        assert perplexity(model, " ".join(words)) < perplexity(model, " ".join(shuffled))
    of_reference = np.median([perplexity(model, text) for text in REFERENCE.values()])
    assert of_reference < np.median([perplexity(model, text) for text in UNSEEN.values()])


def test_training_counts_and_gives_the_same_bytes_twice(trained, tmp_path):
    folder, record, inputs = trained
    assert record["documents"] == len(REFERENCE)
    assert record["words"] == sum(len(line.split()) for text in REFERENCE.values() for line in sentences(text))
    assert record["bytes"] == (folder / "model.bin").stat().st_size
    assert train_model(str(tmp_path), 0, inputs, [], LanguageModel(order=3), NONE) == record
    assert files.checksum(str(tmp_path / "model.bin")) == files.checksum(str(folder / "model.bin"))


def test_only_selected_documents_are_learned(tmp_path, shard):
    parts = [shard("a", {"1": "alpha beta gamma", "2": "delta"}, kept=["1"]), shard("b", {"3": "beta epsilon"})]
    record = train_model(str(tmp_path), 0, parts, [], LanguageModel(order=2), NONE)
    assert (record["documents"], record["words"]) == (2, 5)
    model = kenlm.Model(str(tmp_path / "model.bin"))
    known = {word for word in ("alpha", "beta", "gamma", "delta", "epsilon") if word in model}
    assert known == {"alpha", "beta", "gamma", "epsilon"}


def test_text_that_means_something_to_the_trainer_is_only_text(tmp_path, shard, model):
    texts = {
        "1": "a <unk> b <s> c </s> d",
        "2": "nul \0 here\0too \x1c \x85 \u3000 done",
        "3": "<s>\n</s>\n\\data\\ \\end\\",
    }
    train_model(str(tmp_path), 0, [shard("a", texts)], [], LanguageModel(order=5), NONE)
    small = kenlm.Model(str(tmp_path / "model.bin"))
    for text in texts.values():
        assert 1 < perplexity(small, text) < np.inf
        assert 1 < perplexity(model, text) < np.inf


@pytest.mark.parametrize("texts", [{}, {"1": "", "2": " \n"}])
def test_a_reference_without_words_is_an_error(tmp_path, shard, texts):
    with pytest.raises(ValueError, match=rf"has none \({len(texts)} documents\).*reference"):
        train_model(str(tmp_path), 0, [shard("a", texts)], [], LanguageModel(order=3), NONE)
    assert not (tmp_path / "model.bin").exists()


def test_scores_are_joined_by_id(trained, model, tmp_path, shard):
    kept = list(UNSEEN)[:5]
    documents, selection = shard("web", UNSEEN, kept=kept)
    assert score_shard(str(tmp_path), 2, documents, selection, (recorded(trained[0] / "model.bin"),), Scoring()) == {
        "rows": 5
    }
    table = parquet.read_table(str(tmp_path / "part-00002.parquet"))
    assert table["id"].to_pylist() == kept
    assert table["perplexity"].to_pylist() == [perplexity(model, UNSEEN[i]) for i in kept]


@pytest.mark.parametrize("low,high", [(0, 95), (5, 50), (12.5, 100)])
def test_percentiles_are_those_of_all_shards_together(tmp_path, low, high):
    values = np.random.default_rng(1).lognormal(5, 2, 1001)
    parts = np.split(values, [10, 10, 700])
    paths = [str(tmp_path / f"{i}.parquet") for i in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        parquet.write_table(path, pa.table({"id": [str(v) for v in part], "perplexity": pa.array(part, pa.float64())}))
    step = Perplexity(reference=("a",), min_percentile=low, max_percentile=high)
    expected = [
        Bound("min_percentile", "perplexity", low=np.percentile(values, low), keeps_null=True),
        Bound("max_percentile", "perplexity", high=np.percentile(values, high), keeps_null=True),
    ]
    settings = step.decision_settings()
    assert bounds(settings, paths) == bounds(settings, paths[::-1]) == expected
    for parts in ([paths[1]], []):
        with pytest.raises(ValueError, match="has no documents to score"):
            bounds(settings, parts)


def test_percentiles_out_of_order_are_refused():
    with pytest.raises(ValidationError, match="not below"):
        Perplexity(reference=("a",), min_percentile=50, max_percentile=50)


def test_held_out_documents_are_not_trained_on(shard, tmp_path):
    texts = {f"d{i}": f"plain words and the rare one number{'x' * i} in a row" for i in range(40)}
    parts = [shard("held", texts)]
    heldout = Heldout(fractions={"held": 0.5})
    seen = heldout.without(parquet.read_table(parts[0][0]))["text"].to_pylist()
    record = train_model(str(tmp_path), 0, parts, [], LanguageModel(order=2), heldout)
    assert 0 < len(seen) < 40 and record["documents"] == len(seen)
    model = kenlm.Model(str(tmp_path / "model.bin"))
    for text in texts.values():
        assert (text.split()[6] in model) == (text in seen)


def test_each_job_gets_its_slice_of_the_settings_and_no_more():
    step = Perplexity(reference=("a",), order=3, max_percentile=60)
    assert step.training_settings().model_dump() == {"order": 3}
    assert step.scoring_settings() == Scoring()
    decided = step.decision_settings().model_dump()
    assert (decided["min_percentile"], decided["max_percentile"], decided["by_language"]) == (0, 60, False)
    assert set(decided) == {*step.decision_fields, "by_language"}
