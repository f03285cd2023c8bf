"""Learned filters, embeddings and duplicates by vectors with `only` and `except`: as if the other sources were not
there, for which nothing is measured, dropped or learned."""

import json
import random
from pathlib import Path

import pytest

from gristmill.flows.experiments.models import classifier as heads
from gristmill.storage import parquet
from gristmill.tasks.models.embedders import Embedder
from tests import embedders
from tests.flows.test_learned_filters import GOOD, SMALL, WEB, harm_model
from tests.flows.test_step_sources import curated, gone, kept, recipe

FINE, POOR, OTHERS = embedders.WORDS[:6], embedders.WORDS[6:12], embedders.WORDS[12:]
SIGNALS = {"quality": "quality", "perplexity": "perplexity", "toxicity": "toxicity", "embedding": "embedding_kind"}


def source(folder: Path, name: str, texts: list[str]) -> dict:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"text": text, "url": f"https://{name}.example/{i}"}) + "\n"
                            for i, text in enumerate(texts)))  # fmt: skip
    return {"name": name, "jsonl": [str(path)], "url_column": "url", "range_bytes": 12_000}


def by_words(seed: int) -> list[str]:
    """Texts that an embedder of tests tells apart, every third one twice with a word exchanged."""
    draw, made = random.Random(seed), []
    for number in range(40):
        words = draw.choices(FINE if number % 2 else POOR, k=8) + draw.choices(OTHERS, k=16)
        made.append(" ".join(words))
        if number % 3 == 0:
            made.append(" ".join([*words[:-1], draw.choice(OTHERS)]))
    return made


@pytest.fixture(scope="module")
def embedder(tmp_path_factory) -> dict:
    """The settings of a step with a head for words."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is in the extra `embedding`")
    folder = tmp_path_factory.mktemp("embedder")
    model, labels, head = embedders.write(folder / "model"), folder / "labels.jsonl", str(folder / "kind.safetensors")
    texts = by_words(9)
    rows = [{"text": text, "kind": "fine" if {*text.split()[:8]} <= {*FINE} else "poor"} for text in texts]
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    heads.head_from_texts(head, model, ("jsonl", [str(labels)]), ("text", "kind"), ["fine"], Embedder())
    return {"step": "embedding", "model": model, "heads": {"kind": head}}


def scores(corpus, name: str) -> dict[str, list]:
    """The values of a signal by source, null where there is none."""
    found: dict[str, list] = {}
    stage = next(each for each in reversed(corpus.measured) if name in parquet.columns(each.part(0)))
    for shard, of in enumerate(corpus.sources):
        found.setdefault(of, []).extend(parquet.read_table(stage.part(shard), [name])[name].to_pylist())
    return found


@pytest.mark.extended
@pytest.mark.parametrize("name", ["quality", "perplexity", "toxicity", "embedding", "semantic_dedup"])
def test_a_source_is_scored_as_if_it_were_alone(tmp_path, name, request):
    texts = [*WEB.values()]
    good = [source(tmp_path, "good", [*GOOD.values()])]
    before: list[dict] = []
    if name in ("embedding", "semantic_dedup"):
        embedder, good = request.getfixturevalue("embedder"), []
        a, b = (source(tmp_path, one, by_words(seed)) for seed, one in enumerate("ab"))
        step = embedder | {"min_score": {"kind": 0.5}}
        if name == "semantic_dedup":
            before, step = [embedder], {"step": name, "similarity": 0.9}
    else:
        a, b = source(tmp_path, "a", texts[::2]), source(tmp_path, "b", texts[1::2])
        step = {"step": name, "reference": ["good"]} | SMALL.get(name, {})
        step |= harm_model(tmp_path) if name == "toxicity" else {"max_percentile": 80} if name == "perplexity" else {}
    home = tmp_path / "home"
    only = curated(home, recipe([a, b, *good], *before, step | {"only": ["a"]}))
    as_except = curated(home, recipe([a, b, *good], *before, step | {"except": [each["name"] for each in [b, *good]]}))
    alone = curated(home, recipe([a, *good], *before, step))
    every = curated(home, recipe([a, b, *good], *before, step))

    assert kept(only)["a"] == kept(alone)["a"] and gone(only, "a") == gone(alone, "a") and gone(only, "a")
    assert not gone(only, "b") and gone(every, "b"), "the step drops documents of such a source"
    assert kept(as_except) == kept(only)
    if (signal := SIGNALS.get(name)) is not None:
        values = scores(only, signal)
        assert values["a"] == scores(alone, signal)["a"] and None not in values["a"]
        assert {*values.get("b", [None])} == {None}, "nothing is measured of it"
        if name in ("quality", "perplexity"):  # what is learned, or where it cuts, depends on the sources of the step
            assert gone(every, "a") != gone(only, "a")


@pytest.mark.extended
def test_a_source_without_vectors_loses_no_document(tmp_path, embedder):
    a, b = (source(tmp_path, one, by_words(seed)) for seed, one in enumerate("ab"))
    steps = [embedder | {"only": ["a"]}, {"step": "semantic_dedup", "similarity": 0.9}]
    corpus = curated(tmp_path / "home", recipe([a, b], *steps))
    assert not gone(corpus, "b") and gone(corpus, "a")
