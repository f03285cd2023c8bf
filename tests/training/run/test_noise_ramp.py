"""A ramp by the noise scale of a finished run against that run, on the same tokens."""

import json

import numpy as np
import pytest
import sentencepiece

from gristmill.flows.experiments.planning.laws import ramp
from gristmill.storage import checked_json, files
from gristmill.training.config import RunConfig, TrainingConfig
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.loop import train
from tests.training.conftest import documents

TRAINING = {
    "steps": 2000,
    "batch": 4,
    "micro_batch": 1,
    "warmup_steps": 100,
    "learning_rate": 0.006,
    "eval_every": 10**6,
    "eval_tokens": 20_000,
    "checkpoint_every": 10**6,
    "sample_tokens": 0,
}


@pytest.fixture(scope="module")
def many(corpus, tmp_path_factory):
    """Documents of the same chain as those of `corpus`, so many that the run does not know them by heart."""
    folder = tmp_path_factory.mktemp("many")
    mixture = checked_json.read(str(corpus))
    (folder / "tokenizer.model").write_bytes((corpus.parent / "tokenizer.model").read_bytes())
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))

    def shard(name: str, seed: int, count: int) -> dict:
        ids = [np.array([*pieces.encode(text), pieces.eos_id()], "<u2") for text in documents(seed, count)]
        np.concatenate(ids).tofile(folder / name)
        return {"path": name, "tokens": sum(map(len, ids)), "digest": files.checksum(str(folder / name))}

    shards = [shard(f"web-{number}.bin", 10 + number, 3000) for number in range(2)]
    tokens = sum(one["tokens"] for one in shards)
    mixture["sources"] = [{"name": "web", "share": 1.0, "epochs": 4, "tokens": tokens, "shards": shards}]
    mixture["heldout"] = [{"name": "web", "shards": [shard("heldout.bin", 101, 200)]}]
    checked_json.write(str(folder / "mixture.json"), mixture)
    return folder / "mixture.json"


@pytest.mark.slow
def test_a_ramp_by_noise_saves_three_steps_of_ten_at_the_same_loss(many, tmp_path):
    """3 of 10 at least, and 0.01 nats a token at most (the rule that a ramp is worth having)."""
    model = ModelConfig(dim=48, layers=3, heads=4, kv_heads=2, seq_len=64)

    def trained(name, **more):
        training = TrainingConfig(**(TRAINING | more))
        run = RunConfig(model=model, training=training, data=many, out=tmp_path / name, timeout_seconds=60)
        run.out.mkdir()
        train(run)
        return run, [json.loads(line) for line in (run.out / "metrics.jsonl").read_text().splitlines()]

    run, lines = trained("fixed")
    found = ramp(lines, run.training, model.seq_len)
    stages = [{"tokens": tokens, "times": times} for tokens, times in found.stages]
    _, ramped = trained("ramp", steps=found.steps, batch_ramp=stages)
    fixed, loss = lines[-1]["heldout/loss"], ramped[-1]["heldout/loss"]
    print(f"{found.setting}: {found.steps} steps of {found.fixed_steps}, loss {loss:.4f}, fixed batch {fixed:.4f}")
    assert ramped[-1]["train/tokens"] >= lines[-1]["train/tokens"]
    assert found.steps <= 0.7 * found.fixed_steps
    assert loss <= fixed + 0.01
