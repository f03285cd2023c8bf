"""The scripts for a GPU, end to end at a tiny size: a table for a person, and no error."""

import argparse
import json
import random
import re

import pytest

from gristmill.flows.experiments.decisions.noise import fit_noise
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.stages.proxy import run_record
from gristmill.flows.stats.protocol import requests
from gristmill.training.config import TrainingConfig
from gristmill.training.model_config import ModelConfig
from tests.benchmarks import gpu_noise, gpu_ranks, gpu_training

# What the script asks of nanoGPT's model.py: the classes, their arguments, and what they return.
PEER = """
import dataclasses
import torch
from torch.nn import functional as F

@dataclasses.dataclass
class GPTConfig:
    block_size: int
    vocab_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    bias: bool

class GPT(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = torch.nn.Embedding(config.vocab_size, config.n_embd)
        torch.nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, x, targets=None):
        logits = self.embedding(x) @ self.embedding.weight.T
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        return torch.optim.AdamW(self.parameters(), learning_rate, betas, weight_decay=weight_decay)
"""


def write_text(path):
    rng = random.Random(0)
    words = ["".join(rng.choices("aeioubdfgklmnprst", k=rng.randint(2, 7))) for _ in range(300)]
    documents = (" ".join(rng.choices(words, k=40)) for _ in range(200))
    path.write_text("\n\n".join(documents))


@pytest.mark.slow
def test_the_tiny_size(tmp_path, capsys):
    write_text(tmp_path / "text.txt")
    (tmp_path / "model.py").write_text(PEER)
    given = [str(tmp_path / "text.txt"), "--nanogpt", str(tmp_path), "--sizes", "tiny", "--blocks", "1"]
    given += ["--muon-steps", "5", "--seconds", "3000"]
    assert gpu_training.main(given) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    rows = {name: cells for name, *cells in re.findall(r"\| tiny \| (\w+) \| (.*)", said)}
    assert {"bf16", "eager", "selective", "nanoGPT"} <= rows.keys()
    assert "the time is over" not in said
    assert rows["nanoGPT"][0].split(" | ")[3] == "1.000"
    losses = {name: float(cells[0].rstrip(" |").rsplit(" | ", 2)[1]) for name, cells in rows.items()}
    assert all(5 < loss < 7 for loss in losses.values()), "of a vocabulary of 512, hardly trained: ln 512 is 6.2"
    assert re.search(r"\| muon \| 0.004 \| \d\.\d+ \|", said) and "adamw over muon" in said


@pytest.mark.slow
def test_ranks_of_runs_that_were_made_ready(tmp_path, capsys):
    """Training and the table; that recipes are made ready is `proxy_data`, which has its own tests."""
    write_text(tmp_path / "text.txt")
    (tmp_path / "mixture-0").mkdir()
    gpu_training.prepared(tmp_path / "text.txt", tmp_path / "mixture-0", 512)
    record = {
        "model": ModelConfig(dim=32, layers=1, heads=2, seq_len=64).model_dump(mode="json"),
        "training": TrainingConfig(steps=3, batch=2, micro_batch=2, warmup_steps=1, sample_tokens=0).model_dump(
            mode="json"
        ),
    }
    runs = [
        {
            "proxy": "p",
            "arm": arm,
            "rate": 0.01,
            "pair": pair,
            "place": f"{arm}-{pair}",
            "mixture": "mixture-0",
            "record": record,
        }
        for arm in ("a", "b")
        for pair in range(2)
    ]
    (tmp_path / gpu_ranks.RUNS).write_text(json.dumps(runs))
    given = argparse.Namespace(folder=tmp_path, at_once=2)
    gpu_ranks.train(given)
    gpu_ranks.show(given)
    said = capsys.readouterr().out
    rows = re.findall(r"\| text \| p \| 0.01 \| (\w) \| (\d\.\d+) \| 0\.0000 \|", said)
    assert [arm for arm, _ in rows] == ["a", "b"] and rows[0][1] == rows[1][1], "equal runs have equal losses"


def ready_for_noise(folder, proxies, pairs: int, vocabulary: int) -> None:
    """What `prepare` leaves, of a planted text."""
    write_text(folder / "text.txt")
    (folder / "mixture-0").mkdir()
    gpu_training.prepared(folder / "text.txt", folder / "mixture-0", vocabulary)
    runs = []
    for name, proxy in proxies.items():
        for one in requests("a", range(1, pairs + 1), proxy.learning_rates, proxy.tokens):
            record = run_record(proxy, one.tokens, one.learning_rate, one.pair, one.salt).model_dump(mode="json")
            place = f"{proxy.name}-{one.pair}-{one.learning_rate:g}-{one.salt}"
            runs.append(vars(one) | {"place": place, "proxy": name, "record": record})
            runs[-1] |= {"mixture": ["mixture", "0", "planted"], "vocabulary": vocabulary}
    runs.sort(key=lambda run: run["pair"])
    (folder / gpu_noise.RUNS).write_text(json.dumps(runs))


@pytest.mark.slow
def test_pairs_in_two_calls_are_what_the_noise_is_fitted_to(tmp_path, capsys):
    """The first call has no time, and the second a torn line of another: each run is trained once, and all count."""
    proxy = load_proxy(
        {
            "name": "tiny",
            "vocab_size": 512,
            "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
            "training": {"batch": 2, "warmup_steps": 1},
            "tokens": 512,
            "learning_rates": [0.003, 0.01],
        }
    )
    (tmp_path / "tiny.yaml").write_text(json.dumps(proxy.model_dump(mode="json")))
    ready_for_noise(tmp_path, {str(tmp_path / "tiny.yaml"): proxy}, 2, 512)

    def train(number: int, *more: str) -> int:
        results = f"{tmp_path}/results-{number}.jsonl"
        return gpu_noise.main(["train", str(tmp_path), "--at-once", "2", "--results", results, *more])

    assert train(1, "--seconds", "0") == 0 and not gpu_noise.finished(tmp_path)
    assert train(1) == 0 and len(gpu_noise.finished(tmp_path)) == 8
    whole = (tmp_path / "results-1.jsonl").read_text()
    (tmp_path / "results-1.jsonl").write_text(whole[:-20])
    assert len(gpu_noise.finished(tmp_path)) == 7 and train(2) == 0
    assert len((tmp_path / "results-2.jsonl").read_text().splitlines()) == 1 and len(gpu_noise.finished(tmp_path)) == 8
    assert gpu_noise.main(["collect", str(tmp_path)]) == 0
    assert re.search(r"\| .*tiny.yaml \| 8 \| ", capsys.readouterr().out)
    noise = fit_noise(str(tmp_path / "home"), proxy, "a test")
    assert (noise.tokens, noise.mixtures, noise.degrees) == (512, 1, 1) and noise.components.level > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["3m", "15m"])
def test_50_steps_of_the_proxies_for_a_gpu(tmp_path, name):
    """Of one sequence each: a whole batch takes a core minutes."""
    proxy = load_proxy(name)
    ready_for_noise(tmp_path, {name: proxy}, 1, 512)
    runs = json.loads((tmp_path / gpu_noise.RUNS).read_text())[:1]
    (tmp_path / gpu_noise.RUNS).write_text(json.dumps(runs))
    given = [
        "train",
        str(tmp_path),
        "--steps",
        "50",
        "--seconds",
        "3000",
        "--results",
        str(tmp_path / "results-1.jsonl"),
    ]
    assert gpu_noise.main(given) == 0
    [one] = gpu_noise.finished(tmp_path).values()
    assert one["tokens"] == 50 * proxy.model.seq_len and 0 < one["start"] < one["seconds"]
    assert all(bits > 0 for bits in one["losses"]["bits"])
