"""The training loop beside nanoGPT's around the same model, on this machine's CPU, in alternating blocks of one run.

nanoGPT's own `train.py` runs from a checkout (`--nanogpt FOLDER`), with a `model` module that wraps our Decoder, on the
same tokens, batch and precision. Prints the time of a step of each and the ratio.
"""

import json
import pickle
import re
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gristmill.storage import checked_json, files
from gristmill.training.config import RunConfig, TrainingConfig
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.launch import launch

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
SHAPE = {"dim": 128, "layers": 4, "heads": 4, "seq_len": 256, "qk_norm": False}
VOCABULARY, BATCH, MICRO = 4096, 8, 4
STEPS, SETTLING, BLOCKS = 30, 5, 5
LEAST = 1.0

SHIM = """
import sys
from dataclasses import dataclass
import torch
import torch.nn.functional as F
sys.path.insert(0, {root!r})
from gristmill.training.model_config import ModelConfig
from gristmill.training.decoder import Decoder, initial

@dataclass
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
        self.config = config
        shape = ModelConfig(**{shape!r})
        self.decoder = Decoder(shape, config.vocab_size)
        with torch.no_grad():
            for name, parameter in self.decoder.named_parameters():
                parameter.copy_(initial(name, parameter.shape, shape, 0))
    def forward(self, x, y):
        logits = self.decoder(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1), ignore_index=-1)
    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        matrices = [p for p in self.parameters() if p.dim() >= 2]
        rest = [p for p in self.parameters() if p.dim() < 2]
        groups = [dict(params=matrices, weight_decay=weight_decay), dict(params=rest, weight_decay=0.0)]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas)
    def estimate_mfu(self, rows, seconds):
        return 0.0
"""


@pytest.fixture(scope="module")
def nanogpt(request) -> Path:
    folder = request.config.getoption("--nanogpt")
    if not folder:
        pytest.skip("nanoGPT's code: pass --nanogpt FOLDER, a checkout of github.com/karpathy/nanoGPT")
    return Path(folder).resolve()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory) -> Path:
    """A folder that both read: random tokens, as the time of a step does not depend on them."""
    folder = tmp_path_factory.mktemp("tokens")
    np.random.default_rng(0).integers(0, VOCABULARY, 2_000_000).astype("<u2").tofile(folder / "train.bin")
    np.random.default_rng(1).integers(0, VOCABULARY, 20_000).astype("<u2").tofile(folder / "val.bin")
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": VOCABULARY}))

    def shard(name: str, count: int) -> dict:
        return {"path": name, "tokens": count, "digest": files.checksum(str(folder / name))}

    manifest = {
        "vocab_size": VOCABULARY,
        "end_of_text": 2,
        "tokenizer": {"path": "tokenizer.model", "digest": "0" * 32},
        "token_bytes": [1] * VOCABULARY,
        "sources": [
            {"name": "r", "share": 1, "tokens": 2_000_000, "epochs": 1, "shards": [shard("train.bin", 2_000_000)]}
        ],
        "heldout": [{"name": "r", "shards": [shard("val.bin", 20_000)]}],
    }
    checked_json.write(str(folder / "mixture.json"), manifest)
    return folder


def ours(tokens: Path, out: Path) -> list[float]:
    """Seconds of each step."""
    training = TrainingConfig(
        steps=STEPS, batch=BATCH, micro_batch=MICRO, warmup_steps=0, learning_rate=1e-3, sample_tokens=0,
        optimizer="adamw",
        eval_every=STEPS, eval_tokens=256, checkpoint_every=STEPS,
    )  # fmt: skip
    run = RunConfig(model=ModelConfig(**SHAPE), training=training, data=tokens / "mixture.json", out=out)
    out.mkdir()
    checked_json.write(str(out / "run.json"), run.model_dump(mode="json"))
    assert launch(out / "run.json", 1, out / "log.txt") == 0
    lines = [json.loads(line) for line in (out / "timing.jsonl").read_text().splitlines()]
    return [BATCH * SHAPE["seq_len"] / line["train/tokens_per_second"] for line in lines]


def theirs(nanogpt: Path, tokens: Path, folder: Path) -> list[float]:
    folder.mkdir()
    (folder / "model.py").write_text(SHIM.format(root=str(ROOT), shape=SHAPE))
    (folder / "configurator.py").write_bytes((nanogpt / "configurator.py").read_bytes())
    (folder / "data").mkdir()
    (folder / "data" / "tokens").symlink_to(tokens)
    given = {
        "dataset": "tokens", "device": "cpu", "dtype": "float32", "compile": False, "eval_iters": 1,
        "eval_interval": 10_000, "log_interval": 1, "max_iters": STEPS, "batch_size": MICRO,
        "gradient_accumulation_steps": BATCH // MICRO, "block_size": SHAPE["seq_len"], "n_layer": SHAPE["layers"],
        "n_head": SHAPE["heads"], "n_embd": SHAPE["dim"], "warmup_iters": 0, "lr_decay_iters": STEPS,
    }  # fmt: skip
    command = "import sys; sys.path.insert(0, '.'); exec(compile(open(sys.argv.pop(1)).read(), 'train.py', 'exec'))"
    options = [f"--{name}={value}" for name, value in given.items()]
    done = subprocess.run(
        [sys.executable, "-c", command, nanogpt / "train.py", *options],
        cwd=folder, check=True, timeout=600, capture_output=True, text=True,
    )  # fmt: skip
    return [float(ms) / 1000 for ms in re.findall(r"time ([\d.]+)ms", done.stdout)]


def test_the_loop_is_no_slower_than_nanogpt(nanogpt, tokens, tmp_path):
    steps: dict[str, list[float]] = {"gristmill": [], "nanoGPT": []}
    for block in range(BLOCKS):
        turns = {
            "gristmill": lambda block=block: ours(tokens, tmp_path / f"ours-{block}"),
            "nanoGPT": lambda block=block: theirs(nanogpt, tokens, tmp_path / f"theirs-{block}"),
        }
        for name in turns if block % 2 else reversed(turns):
            steps[name] += turns[name]()[SETTLING:STEPS]
    medians = {name: statistics.median(found) for name, found in steps.items()}
    ratio = medians["nanoGPT"] / medians["gristmill"]
    print(f"\nseconds a step: {medians}; tokens a second, gristmill over nanoGPT's loop: {ratio:.3f}")
    assert ratio >= LEAST
