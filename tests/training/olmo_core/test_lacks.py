"""What an engine lacks is said by name, and nothing that it has."""

import pytest

from gristmill.training.config import TrainingConfig
from gristmill.training.model_config import ModelConfig
from gristmill.training.olmo_core.lacks import lacking

SHAPE = {"dim": 64, "heads": 4, "kv_heads": 2, "ffn": 96, "seq_len": 64}
REFUSED = {
    "model.logit_softcap": ({"logit_softcap": 30.0}, {}, "is 30.0"),
    "training.document_mask": ({}, {"document_mask": True}, "is true"),
    "training.loss_chunks": ({}, {"loss_chunks": 8}, "is 8"),
    "training.reshard_after_forward": ({}, {"reshard_after_forward": False}, "is false"),
    "training.parallel.pipeline": ({}, {"parallel": {"pipeline": 2}}, "is 2"),
    "training.fp8_min_dim": ({}, {"fp8_min_dim": 48, "parallel": {"tensor": 2}}, "is 48"),
    "training.objective": ({}, {"objective": "masked"}, "is masked"),
    "training.precision": ({}, {"precision": "fp16"}, "is fp16"),
    "training.optimizer": ({}, {"optimizer": "muon", "parallel": {"tensor": 2}}, "is muon"),
    "training.parallel.tensor": ({}, {"parallel": {"tensor": 4}}, "is 4, but model.kv_heads is 2"),
    "training.parallel.context": ({}, {"parallel": {"context": 4}}, "is 4, but model.kv_heads is 2"),
}
REMEDIES = {
    "training.fp8_min_dim": "; use at most the smallest, and multiples of 16, or set it to null",
    "training.parallel.tensor": "; change one of them",
    "training.parallel.context": "; change one of them",
}


def said(model: dict, training: dict, engine: str = "olmo_core") -> dict[str, str]:
    given = TrainingConfig(**{"engine": engine, "optimizer": "adamw", **training})
    return {".".join(path): sentence for path, sentence in lacking(ModelConfig(**SHAPE | model), given)}


@pytest.mark.parametrize("name", REFUSED)
def test_what_olmo_core_lacks_is_named_with_its_value_and_a_remedy(name):
    model, training, value = REFUSED[name]
    [(path, sentence)] = said(model, training).items()
    assert path == name and sentence.startswith(value)
    assert REMEDIES.get(name, "; set ") in sentence


HAD = {
    "tensor and context": {"parallel": {"tensor": 2}},
    "context": {"parallel": {"context": 2}},
    "replicas and shards": {"parallel": {"replicas": 2, "shard": 4}},
    "Muon": {"optimizer": "muon", "parallel": {"replicas": 2}},
    "a larger model's rate": {"parametrization": {"rule": "mup", "base_dim": 32}},
    "batches that grow": {"batch_ramp": [{"tokens": 1000, "times": 2}]},
    "spans": {"objective": "span_corruption"},
    "fp8": {"fp8_min_dim": 48},
    "fp8 and tensor": {"fp8_min_dim": 32, "parallel": {"tensor": 2}},
    "recomputation": {"recompute": "selective", "precision": "bf16", "reduce_dtype": "bf16", "z_loss": 1e-4},
}


@pytest.mark.parametrize("name", HAD)
def test_what_olmo_core_has_is_not_refused(name):
    assert said({}, HAD[name]) == {}


def test_tensor_and_context_divide_the_heads_together():
    both = {"parallel": {"tensor": 2, "context": 2}}
    assert said({"kv_heads": 4}, both) == {}
    [(name, sentence)] = said({}, both).items()
    assert name == "training.parallel.tensor"
    assert sentence == "is 2, with context 2, but model.kv_heads is 2, which is not a multiple of 4; change one of them"


@pytest.mark.parametrize("name", ["tensor", "context", "pipeline"])
def test_our_own_engine_has_replicas_and_shards_alone(name):
    [(path, sentence)] = said({}, {"parallel": {name: 2}}, "gristmill").items()
    assert path == f"training.parallel.{name}" and sentence.startswith(
        "is 2, which the engine gristmill does not support"
    )
    assert said({}, {"parallel": {"replicas": 2, "shard": 2}, "optimizer": "muon"}, "gristmill") == {}
