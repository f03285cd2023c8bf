"""Figures of the inside of a model against the same written out plainly."""

import json
import math

import pytest
import torch

from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.decoder import Decoder, flops_per_token, initial, rotary
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.loop import train
from gristmill.training.step import monitor
from gristmill.training.world import processes


@pytest.mark.extended
@pytest.mark.parametrize("documents", [False, True])
def test_looks_equal_plain_attention(documents, make_run, tmp_path):
    shape = {"qk_norm": True, "seq_len": 32}
    run = make_run(
        tmp_path,
        shape,
        {"steps": 5, "warmup_steps": 2, "monitor_every": 1, "document_mask": documents, "sample_tokens": 0},
    )
    train(run)
    first = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])
    later = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[4])
    manifest = load_training_manifest(run.data)
    model = Decoder(run.model, manifest.vocab_size, manifest.end_of_text if documents else None)
    from safetensors.torch import load_file

    weights = {name.removeprefix("model."): t for name, t in load_file(tmp_path / "model.safetensors").items()}
    model.load_state_dict(weights)
    tokens = torch.from_numpy(Order(manifest, seq_len=32, batch=7, seed=0).batch(4))[:1, :-1]
    outputs, inputs = [], []
    for layer in model.layers:
        layer.self_attn.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
        layer.register_forward_hook(lambda _, given, output: outputs.append(output))
    with torch.no_grad():
        model(tokens)
        document = (tokens[0] == manifest.end_of_text).cumsum(0)
        for i, layer in enumerate(model.layers):
            assert later[f"monitor/activation_rms/layer_{i:02}"] == pytest.approx(
                outputs[i].square().mean().sqrt().item(), rel=1e-5
            )
            q, k, _ = layer.self_attn.heads(inputs[i], *rotary(32, 8, 10_000.0, torch.device("cpu")))
            largest = max(
                (q[0, head, a] @ k[0, head // 2, b]).item() / math.sqrt(8)
                for head in range(4)
                for a in range(32)
                for b in range(a + 1)
                if not documents or document[a] == document[b]
            )
            assert later[f"monitor/attention_logit/layer_{i:02}"] == pytest.approx(largest, rel=1e-5)
    assert 0 < first["monitor/update_ratio"] < 1


def test_the_ratio_of_an_update_is_that_of_the_weights(make_run, tmp_path):
    from safetensors.torch import load_file

    run = make_run(tmp_path, training={"steps": 1, "warmup_steps": 0, "monitor_every": 1})
    train(run)
    (line,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    weights = {name.removeprefix("model."): t for name, t in load_file(tmp_path / "model.safetensors").items()}
    change = size = 0.0
    for name, after in weights.items():
        if name.startswith("layers.") and after.ndim == 2:
            change += (after - initial(name, after.shape, run.model, 0)).double().square().sum().item()
            size += after.double().square().sum().item()
    assert line["monitor/update_ratio"] == pytest.approx(math.sqrt(change / size), rel=1e-5)


def test_utilization_in_both_conventions():
    model = ModelConfig(dim=64, layers=2, heads=4, seq_len=128)
    with processes(60) as world:
        machine = monitor.Machine(model, 420, world, None)
        found = machine(1000.0)
    peak = machine.peaks["mfu_measured"]
    assert found["train/mfu_measured"] == pytest.approx(1000 * flops_per_token(model, 420) / peak)
    # q k and its product with v: 2 products, 3 passes, 2 operations for each pair of positions, half of them unseen
    unseen = 2 * 3 * 2 * 2 * 64 * 128 / 2
    assert found["train/mfu_measured_causal"] == pytest.approx(1000 * (flops_per_token(model, 420) - unseen) / peak)
    assert "train/mfu" not in found  # no data sheet for a CPU


def test_devices_of_the_data_sheets():
    assert monitor.data_sheet_flops("NVIDIA H100 80GB HBM3") == 989.5e12
    assert monitor.data_sheet_flops("NVIDIA H100 PCIe") == 756e12
    assert monitor.data_sheet_flops("NVIDIA A100-SXM4-80GB") == 312e12
    assert monitor.data_sheet_flops("Tesla T4") is None


@pytest.mark.extended
def test_an_attention_logit_that_overflows_leaves_a_checkpoint_to_go_on_from(make_run, tmp_path, monkeypatch):
    probe = monitor.Monitor.probe
    monkeypatch.setattr(monitor.Monitor, "probe", lambda *given: torch.full_like(probe(*given), math.inf))
    short = {"steps": 8, "checkpoint_every": 4, "eval_every": 8, "monitor_every": 2, "sample_tokens": 0}
    run = make_run(tmp_path, training=short)
    ended = train(run)
    assert train(run) == ended
