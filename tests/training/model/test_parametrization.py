"""muP and CompleteP against networks with explicit multipliers, and by what they are made for."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from gristmill.flows.experiments.options import TransferOptions
from gristmill.flows.experiments.scaling.transfer import coordinates
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.config import Parametrization, TrainingConfig
from gristmill.training.decoder import Decoder, initial
from gristmill.training.evaluate.heldout import Evaluator
from gristmill.training.hub.weight_files import hugging_face_config
from gristmill.training.hub.weights import load_model
from gristmill.training.model_config import ModelConfig
from gristmill.training.parametrization import multipliers
from gristmill.training.run.loop import train
from gristmill.training.step.optimizer import optimizers
from gristmill.training.step.state import begun_state
from gristmill.training.world import processes

VOCABULARY = 50
SHAPES = {
    "tied": {"tie_embeddings": True},
    "untied, grouped": {"tie_embeddings": False, "kv_heads": 2},
    "qk-norm": {"qk_norm": True},
    "nanochat": {"block": "nanochat"},
}


class Explicit(torch.nn.Module):
    """The forward pass as the papers have it, with multipliers, around the weights of a Decoder: logits by `output`,
    attention logits by `attention`, what sublayers add by `residual`."""

    def __init__(self, inner: Decoder, output: float, attention: float, residual: float) -> None:
        super().__init__()
        self.inner, self.output, self.attention, self.residual = inner, output, attention, residual

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inner = self.inner
        cos, sin = inner.angles(tokens)
        x = inner.embedded(tokens)
        for layer in inner.layers:
            own = layer.self_attn
            q, k, v = own.heads(layer.input_layernorm(x), cos, sin)
            groups = q.shape[1] // k.shape[1]
            scores = q @ k.repeat_interleave(groups, 1).transpose(2, 3) * self.attention
            seen = torch.ones(scores.shape[-2:]).tril().bool()
            y = scores.masked_fill(~seen, -math.inf).softmax(-1) @ v.repeat_interleave(groups, 1)
            x = x + self.residual * own.o_proj(y.transpose(1, 2).flatten(2))
            x = x + self.residual * layer.mlp(layer.post_attention_layernorm(x))
        head = inner.embed_tokens if inner.lm_head is None else inner.lm_head
        return self.output * F.linear(inner.norm(x), head.weight)


@pytest.mark.parametrize("shape", SHAPES)
def test_folded_weights_learn_as_with_the_papers_multipliers(shape):
    """Width 2 times, depth 3 times, heads twice as wide as the base's: the table of CompleteP, alpha = 1."""
    torch.manual_seed(0)
    m, depth, lr, decay, eps = 2.0, 3.0, 0.01, 0.1, 1e-8
    config = ModelConfig(dim=32, layers=3, heads=4, seq_len=16, **SHAPES[shape])
    rule = {"rule": "completep", "base_dim": 16, "base_layers": 1, "base_head_dim": 4}
    attention = math.sqrt(4) / 8
    if config.block == "nanochat":  # whose queries cannot be scaled
        rule["base_head_dim"], attention = None, 1 / math.sqrt(8)
    training = TrainingConfig(optimizer="adamw", parametrization=rule, eps=eps, weight_decay=decay)
    ours, theirs = (Decoder(config, VOCABULARY) for _ in range(2))
    groups = []
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            drawn = initial(name, parameter.shape, config, 0)
            parameter.copy_(drawn * multipliers(name, config, training).initial)
        for name, parameter in theirs.named_parameters():
            drawn, matrix = initial(name, parameter.shape, config, 0), parameter.ndim == 2
            block = name.startswith("layers.")
            if matrix and block:
                drawn *= m**-0.5  # variance 1/m
                if name.endswith(("o_proj.weight", "down_proj.weight", "fc2.weight")):
                    drawn *= math.sqrt(depth)  # the base has one layer
            parameter.copy_(drawn)
            rate = lr / m if matrix and block else lr
            decays = decay * m if matrix and block else decay if name.startswith("lm_head") else 0.0
            groups.append(
                {
                    "params": [parameter],
                    "lr": rate,
                    "weight_decay": decays,
                    "eps": eps / (m * depth) if block else eps / m,
                }
            )
    explicit = Explicit(theirs, output=1 / m, attention=attention, residual=1 / depth)
    reference, folded = torch.optim.AdamW(groups, betas=(0.9, 0.95)), optimizers(ours, training)
    for _ in range(5):
        rows = torch.randint(VOCABULARY, (4, 17))
        losses = [
            F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()) for model in (ours, explicit)
        ]
        for loss in losses:
            loss.backward()
        assert losses[0].item() == pytest.approx(losses[1].item(), abs=2e-5)
        folded.step(lr, torch.ones(()), torch.zeros((), dtype=torch.bool))
        reference.step()
        reference.zero_grad()
    assert losses[0].item() < math.log(VOCABULARY) + 0.5


def test_the_base_is_the_standard_model():
    config = ModelConfig(dim=32, layers=3, heads=4)
    for optimizer in ("adamw", "muon"):
        rule = {"rule": "completep", "base_dim": 32, "base_layers": 3}
        training = TrainingConfig(parametrization=rule, optimizer=optimizer)
        for name, _ in Decoder(config, VOCABULARY).named_parameters():
            assert multipliers(name, config, training) == (1, 1, 1, 1)


def test_an_update_of_muon_has_one_spectral_norm_over_widths_and_adamw_moves_what_it_writes_alike():
    norms = []
    for dim in (32, 64, 128):
        config = ModelConfig(dim=dim, layers=1, heads=4, ffn=2 * dim)
        training = TrainingConfig(optimizer="muon", weight_decay=0, parametrization={"rule": "mup", "base_dim": 32})
        model = Decoder(config, VOCABULARY)
        muon = optimizers(model, training)
        matrix = model.layers[0].mlp.down_proj.weight
        before = matrix.detach().clone()
        rows = torch.randint(VOCABULARY, (4, 17), generator=torch.Generator().manual_seed(0))
        F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()).backward()
        muon.step(1.0, torch.ones(()), torch.zeros((), dtype=torch.bool))
        norms.append(torch.linalg.matrix_norm(matrix.detach() - before, 2).item())
    assert max(norms) < 1.25 * min(norms)  # Newton-Schulz gives singular values between .7 and 1.2


@pytest.mark.extended
@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("muon", marks=pytest.mark.slow)])
def test_coordinates_are_flat_over_widths(optimizer):
    check = TransferOptions([32, 64, 128], [2], seeds=2, batch=4, seq_len=16, optimizer=optimizer)
    flat, standard = (coordinates(check, rule, 0.01).slopes for rule in ("mup", "standard"))
    assert np.abs(flat).max() < 0.35
    assert max(standard) > 0.5 + max(flat)


@pytest.mark.extended
def test_what_is_exported_is_a_plain_model(make_run, tmp_path):
    """The same names and config as of a standard run, and the held-out loss of training is that of the plain model."""
    rule = {"rule": "completep", "base_dim": 16, "base_layers": 1}
    run = make_run(tmp_path, training={"parametrization": rule, "steps": 10, "eval_every": 10, "sample_tokens": 0})
    result, manifest = train(run), load_training_manifest(run.data)
    assert json.loads((run.out / "config.json").read_text()) == hugging_face_config(run.model, manifest.vocab_size)
    loaded = load_model(run.out)
    assert loaded.norm.weight.mean() < 0.6  # 1/m of the logits is in it
    with processes(60) as world:
        state = begun_state(run.model, TrainingConfig(), manifest.vocab_size, manifest.end_of_text, world)
        with torch.no_grad():
            for name, parameter in state.model.named_parameters():
                parameter.to_local().copy_(loaded.get_parameter(name))
        found = Evaluator(run, manifest, world)(state.model, True)
    assert found["heldout/loss"] == pytest.approx(result["heldout/loss"], abs=1e-6)


@pytest.mark.parametrize(
    "given", [{"rule": "completep", "base_dim": 8}, {"rule": "mup", "base_dim": 8, "base_layers": 2}]
)
def test_what_a_rule_needs_and_does_not_know_is_said(given):
    with pytest.raises(ValidationError, match="completep requires base_layers"):
        Parametrization(**given)
