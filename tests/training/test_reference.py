"""Real runs against `reference`, step by step, for every setting that decides the weights and for mixes of them.

    python -m pytest -m slow tests/training/test_reference.py

has the option sets that the default run leaves out. Both start from the same random weights: large ones, so that
attention looks at few places, and gains that are not 1.

A run computes in float32, the reference in float64. An entry whose gradient is near 0 has an AdamW update of either
sign, whatever the gradient's size, which only eps dampens: three steps agree to 1e-6, six in the worst sets to 1.6e-6.
"""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from gristmill.samples.order import Order
from gristmill.storage import files
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.hub.weight_files import hugging_face_config, shapes
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.loop import train
from tests.training import reference

MODEL = {
    "block": "llama", "dim": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 48, "seq_len": 20,
    "rope_theta": 10_000.0, "norm_eps": 1e-5, "tie_embeddings": False, "qk_norm": False, "logit_softcap": None,
}  # fmt: skip
TRAINING = {
    "seed": 3, "order_seed": None, "steps": 6, "batch": 5, "micro_batch": 2, "learning_rate": 0.01,
    "embedding_rate": 1.0, "head_rate": 1.0, "vector_rate": 1.0, "warmup_steps": 2, "schedule": "cosine",
    "decay_ratio": 0.5, "final_ratio": 0.1, "optimizer": "adamw", "momentum": 0.95, "betas": (0.9, 0.95), "eps": 1e-6,
    "weight_decay": 0.1, "clip_norm": 1e9, "document_mask": False, "z_loss": 0.0, "precision": "fp32",
    "fp8_min_dim": None, "compile": False, "recompute": "none", "loss_chunks": 1, "log_every": 1,
    "guard": {"enabled": False}, "monitor_every": 10**6, "eval_every": 10**6, "eval_tasks": None, "eval_tokens": 21,
    "checkpoint_every": 10**6, "sample_tokens": 0,
}  # fmt: skip
NANOCHAT = {"block": "nanochat", "qk_norm": True}
ALONE = [
    {}, {"kv_heads": None}, {"rope_theta": 50.0}, {"tie_embeddings": True}, {"qk_norm": True}, {"logit_softcap": 3.0},
    {"batch": 4, "micro_batch": 4}, {"head_rate": 0.2}, {"schedule": "wsd"}, {"betas": (0.8, 0.999)},
    {"clip_norm": 0.5}, {"document_mask": True}, NANOCHAT, {"clip_norm": None},
    {"weight_decay": 5.0}, {"z_loss": 0.1}, {"kv_heads": 1}, {"ffn": None}, {"norm_eps": 0.1},
    {"layers": 3, "heads": 2}, {"micro_batch": 1}, {"order_seed": 9}, {"embedding_rate": 5.0}, {"vector_rate": 3.0},
    {"warmup_steps": 0}, {"warmup_steps": 5}, {"schedule": "linear"}, {"final_ratio": 0.0}, {"betas": (0.0, 0.9)},
    {"eps": 1e-2}, {"weight_decay": 0.0}, {"recompute": "full"}, {"recompute": "selective"}, {"loss_chunks": 3},
    *({**NANOCHAT, **options} for options in (
        {"tie_embeddings": True}, {"kv_heads": None}, {"kv_heads": 1}, {"ffn": None}, {"logit_softcap": 3.0},
        {"document_mask": True}, {"z_loss": 0.1}, {"rope_theta": 50.0}, {"norm_eps": 0.1}, {"layers": 3, "heads": 2},
        {"vector_rate": 3.0}, {"weight_decay": 5.0}, {"recompute": "full"}, {"recompute": "selective"},
        {"loss_chunks": 3},
    )),
]  # fmt: skip
MIXES = [
    {"qk_norm": True, "kv_heads": 1, "document_mask": True, "tie_embeddings": True, "weight_decay": 2.0},
    {"qk_norm": True, "logit_softcap": 3.0, "z_loss": 0.1, "loss_chunks": 2, "micro_batch": 1},
    {"tie_embeddings": True, "embedding_rate": 4.0, "head_rate": 7.0, "vector_rate": 2.0, "weight_decay": 1.0},
    {"tie_embeddings": True, "logit_softcap": 2.0, "z_loss": 0.05, "clip_norm": 0.3},
    {"schedule": "wsd", "decay_ratio": 0.8, "warmup_steps": 1, "final_ratio": 0.3, "eps": 1e-3},
    {"schedule": "linear", "warmup_steps": 0, "final_ratio": 0.0, "betas": (0.5, 0.5), "clip_norm": 1.0},
    {"head_rate": 3.0, "weight_decay": 3.0, "embedding_rate": 0.3, "document_mask": True, "recompute": "full"},
    {"logit_softcap": 4.0, "recompute": "selective", "loss_chunks": 3, "document_mask": True, "kv_heads": None},
    {**NANOCHAT, "tie_embeddings": True, "logit_softcap": 3.0, "z_loss": 0.1, "document_mask": True, "kv_heads": 1},
    {**NANOCHAT, "ffn": None, "recompute": "selective", "loss_chunks": 3, "head_rate": 3.0, "weight_decay": 2.0},
    {**NANOCHAT, "kv_heads": None, "logit_softcap": 4.0, "recompute": "full", "micro_batch": 1, "clip_norm": 0.3},
    {**NANOCHAT, "tie_embeddings": True, "embedding_rate": 4.0, "vector_rate": 2.0, "weight_decay": 1.0, "ffn": None},
    {**NANOCHAT, "document_mask": True, "z_loss": 0.05, "loss_chunks": 2, "kv_heads": 1, "schedule": "wsd"},
]
MUON = [
    {}, NANOCHAT, {"tie_embeddings": True}, {"qk_norm": True, "clip_norm": 0.3},
    {"weight_decay": 3.0, "schedule": "wsd"}, {"betas": (0.5, 0.8), "eps": 1e-3},
    {"embedding_rate": 3.0, "head_rate": 0.3, "vector_rate": 4.0},
    {"document_mask": True, "z_loss": 0.1, "kv_heads": 1, "ffn": 24}, {"ffn": 32, "kv_heads": None},
    *({**NANOCHAT, **options} for options in (
        {"tie_embeddings": True, "logit_softcap": 3.0, "z_loss": 0.1}, {"document_mask": True, "kv_heads": 1},
        {"ffn": None, "weight_decay": 3.0, "schedule": "wsd"}, {"ffn": 32, "kv_heads": None, "clip_norm": 0.3},
        {"embedding_rate": 3.0, "head_rate": 0.3, "vector_rate": 4.0},
    )),
]  # fmt: skip


def named(options: dict) -> str:
    return "-".join(f"{name}={value}" for name, value in options.items()) or "plain"


def some(sets: list[dict], default: int) -> list:
    """All of them, of which the default run has the first `default`; `-m slow` has the others."""
    return [*sets[:default], *(pytest.param(options, marks=pytest.mark.slow) for options in sets[default:])]


def settings(options: dict) -> tuple[dict, dict]:
    """Those of the model, and of training."""
    assert options.keys() <= MODEL.keys() | TRAINING.keys()
    return tuple({name: options.get(name, value) for name, value in group.items()} for group in (MODEL, TRAINING))


def first_weights(folder, corpus, model: ModelConfig) -> dict:
    """Random ones in a folder as `init_from` takes it."""
    manifest = load_training_manifest(corpus)
    rng = torch.Generator().manual_seed(0)
    weights = {}
    for name, shape in shapes(model, manifest.vocab_size):
        drawn = torch.randn(shape, generator=rng)
        weights[name] = drawn * 1.5 / shape[-1] ** 0.5 if len(shape) == 2 else 1 + 0.3 * drawn
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(hugging_face_config(model, manifest.vocab_size)))
    shutil.copy(manifest.tokenizer.path, folder / "tokenizer.model")
    return weights


def both(make_run, corpus, folder, options: dict):
    """(loss, gradient norm, learning rate) of each step, and the last weights: of a real run, and of the reference."""
    model, training = settings(options)
    shape, init = ModelConfig(**model), folder / "first"
    weights = first_weights(init, corpus, shape)
    digests = {"model.safetensors": files.checksum(str(init / "model.safetensors"))}
    run = make_run(folder / "out", model, {**training, "init_from": str(init)}, init_digests=digests)
    train(run)
    lines = [json.loads(line) for line in (run.out / "metrics.jsonl").read_text().splitlines()]
    real = [tuple(line[f"train/{name}"] for name in ("loss", "grad_norm", "learning_rate")) for line in lines]
    manifest = load_training_manifest(corpus)
    order = Order(manifest, seq_len=shape.seq_len, batch=training["batch"], seed=run.training.data_seed)
    batches = [order.batch(step) for step in range(training["steps"])]
    assert any(manifest.end_of_text in batch[:, 1:-1] for batch in batches)
    expected, after = reference.train(weights, batches, manifest.end_of_text, model, training)
    return real, load_file(run.out / "model.safetensors"), expected, after


def check_equal(real, expected, losses: float, norms: float) -> None:
    assert len(real) == len(expected)
    for step, (got, wanted) in enumerate(zip(real, expected, strict=True), start=1):
        assert got[0] == pytest.approx(wanted[0], rel=losses), f"loss of step {step}"
        assert got[1] == pytest.approx(wanted[1], rel=norms), f"gradient norm of step {step}"
        assert got[2] == pytest.approx(wanted[2], rel=1e-12), f"learning rate of step {step}"


@pytest.mark.parametrize("options", [*some(MIXES, default=6), *some(ALONE, default=8)], ids=named)
def test_adamw_equals_the_reference(options, make_run, corpus, tmp_path):
    real, _, expected, _ = both(make_run, corpus, tmp_path, options)
    check_equal(real[:3], expected[:3], 1e-6, 1e-4)
    check_equal(real, expected, 5e-6, 1e-4)


@pytest.mark.parametrize("options", some(MUON, default=2), ids=named)
def test_muon_equals_the_reference(options, make_run, corpus, tmp_path):
    real, _, expected, _ = both(make_run, corpus, tmp_path, {**options, "optimizer": "muon"})
    check_equal(real[:3], expected[:3], 1e-6, 1e-4)
    check_equal(real, expected, 5e-6, 1e-4)


@pytest.mark.parametrize("block", [{}, NANOCHAT], ids=named)
def test_an_update_of_muon_equals_the_reference(block, make_run, corpus, tmp_path):
    """One update is that of the reference to float32's precision."""
    options = {"optimizer": "muon", "steps": 1, "warmup_steps": 0, "weight_decay": 0.0, "seq_len": 60}
    _, weights, _, after = both(make_run, corpus, tmp_path, {**block, **options})
    first = load_file(tmp_path / "first" / "model.safetensors")
    errors = []
    for name in (name for name, w in after.items() if name.startswith("model.layers.") and w.ndim == 2):
        expected = after[name] - first[name].double()
        errors.append(float((weights[name] - first[name] - expected).norm() / expected.norm()))
    assert max(errors) < 1e-4
