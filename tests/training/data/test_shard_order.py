"""Whether shards are sorted by the source of their texts, or shuffled, is not seen in a loss curve."""

import ast
import json
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from gristmill.samples import order
from gristmill.storage import checked_json, files
from gristmill.storage.tokenizer_files import JsonTokenizer
from gristmill.tasks.tokens.tokenizer import train_byte_bpe
from gristmill.training.config import GuardConfig, RunConfig, TrainingConfig
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.loop import train
from tests.planted.text import pydoc_paragraphs

VOCABULARY, SHARDS, HELDOUT = 512, 8, 60
STEPS, SEEDS = 120, 10


def functions() -> list[str]:
    """Source code of the standard library's functions."""
    found = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        source = path.read_text(encoding="utf-8", errors="ignore")
        nodes = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
        found += [text for node in nodes if 150 < len(text := ast.get_source_segment(source, node) or "") < 1500]
    return found


@pytest.fixture(scope="module")
def sources() -> tuple[int, list[list[np.ndarray]]]:
    """The end-of-text id, and the ids of the documents of two sources."""
    texts = [pydoc_paragraphs()[:600], functions()[:600]]
    tokenizer = JsonTokenizer(train_byte_bpe(iter(texts[0] + texts[1]), VOCABULARY, ())[0], "tokenizer.json")
    end = tokenizer.end_of_text
    return end, [[np.array([*tokenizer.encode(text), end], "<u2") for text in part] for part in texts]


def manifest(folder: Path, end: int, documents: list[np.ndarray], heldout: list[list[np.ndarray]]) -> Path:
    """A training manifest of one source whose shards have these documents one after the other."""

    def shard(name: str, part: list[np.ndarray]) -> dict:
        np.concatenate(part).tofile(folder / name)
        return {"path": name, "tokens": sum(map(len, part)), "digest": files.checksum(str(folder / name))}

    folder.mkdir()
    per_shard = len(documents) // SHARDS
    shards = [shard(f"{i}.bin", documents[i * per_shard : (i + 1) * per_shard]) for i in range(SHARDS)]
    tokens = sum(each["tokens"] for each in shards)
    mixture = {
        "vocab_size": VOCABULARY,
        "tokenizer": {"path": "none", "digest": ""},
        "end_of_text": end,
        "token_bytes": [1] * VOCABULARY,
        "sources": [{"name": "all", "share": 1, "tokens": tokens, "epochs": 9, "shards": shards}],
        "heldout": [{"name": f"{i}", "shards": [shard(f"heldout-{i}.bin", part)]} for i, part in enumerate(heldout)],
    }
    checked_json.write(str(folder / "mixture.json"), mixture)
    return folder / "mixture.json"


def curves(data: Path, out: Path, seeds: range) -> np.ndarray:
    """Training losses in sixths of each run, and the last held-out loss; (seeds, 7)."""
    found = []
    for seed in seeds:
        run = RunConfig(
            model=ModelConfig(dim=32, layers=1, heads=2, seq_len=64, qk_norm=False),
            training=TrainingConfig(
                seed=seed, steps=STEPS, batch=16, micro_batch=16, optimizer="adamw", learning_rate=0.005,
                warmup_steps=10,
                eval_every=STEPS, checkpoint_every=STEPS, sample_tokens=0, guard=GuardConfig(enabled=False),
            ),
            data=data,
            out=out / str(seed),
        )  # fmt: skip
        heldout = train(run)["heldout/loss"]
        lines = [json.loads(line) for line in (run.out / "metrics.jsonl").read_text().splitlines()]
        losses = np.array([line["train/loss"] for line in lines if "train/loss" in line])
        found.append([*losses.reshape(6, -1).mean(1), heldout])
    return np.array(found)


@pytest.mark.slow
def test_a_loss_curve_on_sorted_shards_is_that_on_shuffled_ones(sources, tmp_path, monkeypatch, capsys):
    end, documents = sources
    heldout = [part[:HELDOUT] for part in documents]
    by_source = [document for part in documents for document in part[HELDOUT:]]
    mixed = [by_source[i] for i in np.random.default_rng(3).permutation(len(by_source))]
    ordered_data = manifest(tmp_path / "sorted", end, by_source, heldout)
    shuffled = curves(manifest(tmp_path / "shuffled", end, mixed, heldout), tmp_path / "a", range(SEEDS))
    ordered = curves(ordered_data, tmp_path / "b", range(SEEDS))
    with monkeypatch.context() as patched:
        patched.setattr(order, "permute", lambda index, size, key: index)
        unpermuted = curves(ordered_data, tmp_path / "c", range(3))
    difference = ordered - shuffled
    errors = difference.std(0, ddof=1) / np.sqrt(SEEDS)
    with capsys.disabled():
        print("\nloss in sixths of the run, and held out at its end; means over seeds")
        print("shuffled             ", shuffled.mean(0).round(3), "deviation", shuffled.std(0, ddof=1).round(3))
        print("sorted               ", ordered.mean(0).round(3))
        print("difference           ", difference.mean(0).round(3), "standard error", errors.round(3))
        print("sorted, as they lie  ", unpermuted.mean(0).round(3))
    # of all figures together, at 1%
    allowed = stats.t.ppf(1 - 0.01 / 2 / len(errors), SEEDS - 1) * errors
    assert (np.abs(difference.mean(0)) < allowed).all()
    assert allowed.max() < 0.05 * shuffled.mean()
    # the same comparison sees shards that are read as they lie
    assert (np.abs((unpermuted - shuffled[:3]).mean(0)) > 2 * allowed).any()
