"""Data of a decision that no recipe is at home in, and halves of the hosts that all recipes read alike."""

import json
from pathlib import Path
from random import Random
from string import ascii_lowercase, ascii_uppercase

import numpy as np
import pytest

from gristmill.flows.experiments.decisions.arm_data import arm_data
from gristmill.flows.experiments.decisions.runs import evaluation_set
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.variants import raw
from gristmill.flows.stages.evaluation import documents as chosen
from gristmill.storage import parquet
from gristmill.storage.tokenizer_files import load_tokenizer
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.tokens.grouping import in_half
from tests.corpora import context

PROXY = {"step_tokens": 64, "vocab_size": 400, "sample_bytes": 60_000, "per_source": 5}
HOSTS = 12
SMALL, LARGE = ascii_lowercase, ascii_uppercase


def words(letters: str, count: int, seed: int) -> str:
    draw = Random(f"{letters} {seed}")
    return " ".join("".join(draw.choices(letters, k=draw.randint(3, 7))) for _ in range(count))


def lines(path: Path, letters: str, hosts: int = HOSTS, count: int = 96) -> str:
    """Documents of so many hosts, one of three long enough for the recipe."""
    rows = []
    for i in range(count):
        text = words(letters, 8 if i // hosts % 3 else 60, i)
        rows.append({"text": text, "url": f"https://{letters[:2]}{i % hosts}.example/{i}"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def recipe(name: str, **files: str):
    sources = [{"name": source, "jsonl": [path], "url_column": "url"} for source, path in files.items()]
    strict = {"step": "gopher_quality", "min_words": 20, "min_stop_words": 0, "max_mean_word_length": 20}
    return load({"name": name, "sources": sources, "steps": [{"step": "extract"}, strict | {"min_alpha_words": 0}]})


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    base = recipe("base", web=lines(folder / "a.jsonl", SMALL))
    return base, recipe("other", web=lines(folder / "b.jsonl", LARGE))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return context(str(tmp_path_factory.mktemp("home")))


@pytest.mark.extended
def test_evaluation_documents_and_tokenizer_are_those_of_both_recipes_in_either_order(home, recipes):
    base, other = recipes
    one = arm_data(home, {"base": base, "other": other}, tokens=10**6, **PROXY)
    two = arm_data(home, {"other": other, "base": base}, tokens=10**6, **PROXY)
    rows = chosen.read(one.evaluation, ["set", "text", "host"]).to_pylist()
    assert [row["set"] for row in rows] == ["web"] * 5 + ["web-2"] * 5
    assert all(row["text"].islower() == (row["set"] == "web") for row in rows)
    of_hosts = {(row["set"], row["host"]) for row in rows}
    assert len(of_hosts) == 10, "of as many hosts as there are documents"
    judged = evaluation_set(one, ["extracted"])
    hosts = [row["host"] for row in rows]
    same = [[one == other for one in hosts] for other in hosts]
    assert judged.judged == ("web", "web-2")
    assert (judged.cluster_of[:, None] == judged.cluster_of).tolist() == same, "the hosts of all sets"
    texts = [sorted(chosen.read(data.evaluation, ["text"])["text"].to_pylist()) for data in (one, two)]
    assert texts[0] == texts[1]
    taken = one.tokenizer.result["tokenizer"]["sample_bytes"]
    first, second = taken.values()
    assert sorted(taken) == ["1-web", "2-web"] and 0.5 < first / second < 2, "the same weight for both"


@pytest.mark.extended
def test_hosts_are_unknown_where_nothing_reads_the_urls(home, recipes):
    base, other = recipes
    [source] = other.sources
    unread = source.model_copy(update={"name": "unread", "url_column": None})
    both = other.model_copy(update={"sources": (*base.sources, unread)})
    judged = evaluation_set(arm_data(home, {"both": both}, tokens=10**6, **PROXY), ["extracted"])
    assert judged.names == ("unread", "web") and judged.hostless == ("unread",) == judged.alone


@pytest.mark.extended
def test_recipes_with_the_same_sources_have_the_data_of_one(home, recipes):
    base, _ = recipes
    alone = arm_data(home, {"base": base}, tokens=10**6, **PROXY)
    both = arm_data(home, {"base": base, "raw": raw(base).recipe}, tokens=10**6, **PROXY)
    assert (alone.evaluation.key, alone.tokenizer.key) == (both.evaluation.key, both.tokenizer.key)


@pytest.mark.extended
def test_a_tokenizer_that_is_given_encodes_all(home, recipes):
    base, other = recipes
    alone = arm_data(home, {"base": base}, tokens=10**6, **PROXY)
    path = Path(alone.tokenizer.folder, "tokenizer.model")
    data = arm_data(home, {"base": base, "other": other}, tokens=10**6, tokenizer=path, **PROXY)
    assert Path(data.tokenizer.folder, "tokenizer.model").read_bytes() == path.read_bytes()
    assert data.tokenizer.key != alone.tokenizer.key


def read(mixture) -> list[str]:
    """The texts that a run reads."""
    manifest = load_training_manifest(Path(mixture.folder, "mixture.json"))
    processor = load_tokenizer(manifest.tokenizer.path)
    texts = []
    for shard in (shard for source in manifest.sources for shard in source.shards):
        tokens = np.fromfile(shard.path, manifest.dtype)
        ends = np.flatnonzero(tokens == manifest.end_of_text)
        texts += [processor.decode(part[:-1].tolist()) for part in np.split(tokens, ends[:-1] + 1)]
    return texts


@pytest.mark.extended
def test_each_pair_reads_its_own_half_of_the_hosts_the_same_for_all_recipes(home, recipes):
    base, _ = recipes
    arms = {"base": base, "raw": raw(base).recipe}
    whole = arm_data(home, arms, tokens=10**6, **PROXY)
    data = arm_data(home, arms, tokens=10**6, pairs=range(0, 4), **PROXY)
    assert whole.mixture("base", 1) == whole.mixture("base", 2)
    halves: dict[int, set[str]] = {}
    for name in arms:
        there = read(whole.mixture(name, 0))
        corpus = data.arms[name].corpus
        known = parquet.read_table(corpus.documents.part(0), ["text", "url"]).to_pydict()
        host = {text: url.split("/")[2] for text, url in zip(known["text"], known["url"], strict=True)}
        for pair in range(4):
            names = parquet.pa.chunked_array([sorted(set(host.values()))])
            half = {one for one, of in zip(names.to_pylist(), in_half(names, pair), strict=True) if of}
            assert halves.setdefault(pair, half) == half and 0 < len(half) < HOSTS
            texts = read(data.mixture(name, pair))
            assert texts == [text for text in there if host[text] in half]
            assert max(source["epochs"] for source in data.mixture(name, pair).result["sources"].values()) <= 1
    assert len({frozenset(half) for half in halves.values()}) == 4
    assert data.budget_tokens < whole.budget_tokens


@pytest.mark.extended
def test_a_source_of_one_host_cannot_be_resampled(home, tmp_path):
    one = recipe("one", web=lines(tmp_path / "one.jsonl", SMALL, hosts=1))
    with pytest.raises(
        ValueError, match=r"^one: the half of the hosts that pair \d reads has no documents of the source web"
    ):
        arm_data(home, {"one": one}, tokens=10**6, pairs=range(0, 6), **PROXY)
