"""Groups of parameters against the modules that own them, and their rates against what an update moves."""

import pytest
import torch

from gristmill.training.config import TrainingConfig
from gristmill.training.decoder import Decoder
from gristmill.training.model_config import ModelConfig
from gristmill.training.step.optimizer import optimizers, parameter_groups

UNTIED = ModelConfig(dim=32, layers=2, heads=4, kv_heads=2, seq_len=16, qk_norm=True, tie_embeddings=False)
TIED = UNTIED.model_copy(update={"tie_embeddings": True})
OWNERS = {torch.nn.Embedding: "embedding", torch.nn.RMSNorm: "vectors", torch.nn.Linear: "matrices"}


@pytest.mark.parametrize("shape", [TIED, UNTIED], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_every_parameter_is_in_the_group_of_its_module(shape, kind):
    model = Decoder(shape, 50)
    groups = parameter_groups(model, TrainingConfig(optimizer=kind, weight_decay=0.2))
    of = {name: group.treatment for group in groups for name in group.parameters}
    named = dict(model.named_parameters())
    assert of.keys() == named.keys() and sum(len(group.parameters) for group in groups) == len(named)
    assert all(group.parameters[name] is named[name] for group in groups for name in group.parameters)
    for name, module in model.named_modules():
        if (owner := OWNERS.get(type(module))) is None:
            continue
        its = of[f"{name}.weight"]
        linear = isinstance(module, torch.nn.Linear)
        assert its.group == ("head" if module is model.lm_head else owner)
        assert its.weight_decay == (0.2 if linear else 0)
        assert its.optimizer == ("muon" if kind == "muon" and its.group == "matrices" else "adamw")


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_group_moves_by_its_share_of_the_rate(kind):
    ratios = {"embedding_rate": 3.0, "head_rate": 0.25, "vector_rate": 5.0}

    def moved(**given: float) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        model = Decoder(UNTIED, 50)
        optimizer = optimizers(model, TrainingConfig(optimizer=kind, weight_decay=0.3, **given))
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        optimizer.step(0.01, torch.tensor(1.0), torch.tensor(False))
        return {name: parameter.detach() - before[name] for name, parameter in model.named_parameters()}

    alike = moved(embedding_rate=1.0)
    for name, change in moved(**ratios).items():
        group = (
            "embedding" if "embed" in name else "head" if "lm_head" in name else "vector" if "norm" in name else None
        )
        ratio = ratios[f"{group}_rate"] if group else 1.0  # a first step and its decay are linear in the rate
        torch.testing.assert_close(change, ratio * alike[name], rtol=1e-4, atol=1e-6, msg=name)
