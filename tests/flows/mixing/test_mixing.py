"""Both methods on planted sources: two useful ones, a copy of the first, and noise. Real proxies, trained."""

import json
from random import Random
from string import ascii_lowercase

import pytest

from gristmill.flows.experiments.decisions.arm_data import proxy_data
from gristmill.flows.experiments.mixtures import by_doremi, by_regmix, written
from gristmill.flows.experiments.options import REGMIX_RUNS
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.recipe.recipe import load
from tests.corpora import context
from tests.planted.text import prose, pydoc_paragraphs

pytestmark = pytest.mark.slow

SIZE = 250_000  # characters of a source
# In one run the weights of a source and of its copy differ by a standard deviation of .043 (eight runs of one corpus;
# the mean is 0), since each batch moves them by the noise of two windows of either. Their means over two runs differ by
# more than .05 in one case of ten, over six in one of two hundred.
DOREMI_RUNS = 6
PROXY = {
    "name": "tiny",
    "vocab_size": 512,
    "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
    # by AdamW a run of this length differs from another by .16 bits per byte, by Muon by .01
    "training": {"optimizer": "muon", "batch": 8, "micro_batch": 8, "warmup_steps": 12},
    "tokens": 60_000,
    "learning_rates": [0.005, 0.015],
    "evaluation_documents": 20,
}


def documents(kind: str, seed: int):
    """Texts of a kind without end."""
    draw = Random(f"{kind} {seed}")
    while True:
        if kind == "noise":
            yield " ".join("".join(draw.choices(ascii_lowercase, k=draw.randint(2, 9))) for _ in range(150))
        elif kind == "french":
            yield "\n\n".join(prose(draw, "fr", 150))
        else:
            yield "\n\n".join(draw.sample(pydoc_paragraphs(), 6))


@pytest.fixture(scope="module", params=range(10))
def planted(request, tmp_path_factory):
    """A recipe of the four sources, the context of a home, and the data of its proxies."""
    folder = tmp_path_factory.mktemp("planted")
    for name in ("english", "french", "noise"):
        texts, every = [], documents(name, request.param)
        while sum(map(len, texts)) < SIZE:
            texts.append(next(every))
        for path in (name, "copy") if name == "english" else (name,):
            (folder / f"{path}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    names = ("english", "french", "noise", "copy")
    recipe = load(
        {
            "name": "planted",
            "sources": [{"name": name, "jsonl": [f"{folder}/{name}.jsonl"]} for name in names],
            "steps": [{"step": "extract", "engine": "plain"}],
            "mixture": {"weights": dict.fromkeys(names, 1), "max_epochs": 10},
        }
    )
    home, proxy = context(str(folder / "home")), load_proxy(PROXY)
    return home, recipe, proxy, proxy_data(home, proxy, {recipe.name: recipe}, proxy.tokens, repeat=True)


def weights(found) -> dict[str, float]:
    assert sum(one.weight for one in found.sources) == pytest.approx(1)
    assert all(one.low <= one.weight + 1e-9 and one.weight <= one.high + 1e-9 for one in found.sources) or (
        found.method == "regmix"
    )
    return {one.name: one.weight for one in found.sources}


def test_doremi_finds_the_noise(planted, tmp_path):
    found = by_doremi(*planted, runs=DOREMI_RUNS, eta=0.1, smoothing=1e-3)
    by_source = weights(found)
    print(by_source)
    assert by_source["noise"] < 0.15 < by_source["french"]
    assert by_source["english"] == pytest.approx(by_source["copy"], abs=0.05)
    assert found == by_doremi(*planted, runs=DOREMI_RUNS, eta=0.1, smoothing=1e-3)
    (tmp_path / "out.yaml").write_text(written(found))
    assert load(tmp_path / "out.yaml").mixture.weights == found.weights


def test_regmix_finds_the_noise(planted, tmp_path):
    found = by_regmix(*planted, runs=REGMIX_RUNS, judge=["english", "french"])
    by_source = weights(found)
    print(by_source, *found.found[2:], found.refusal)
    assert by_source["noise"] < 0.1
    assert 0.2 < by_source["english"] + by_source["copy"] < 0.8
    assert not found.refusal
    (tmp_path / "out.yaml").write_text(written(found))
    assert load(tmp_path / "out.yaml").mixture.weights == found.weights
