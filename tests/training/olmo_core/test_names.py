"""Names of parameters in both engines, against a model planted with OLMo-core's modules."""

import pytest
import torch
from torch import nn

from gristmill.training.decoder import Decoder
from gristmill.training.model_config import ModelConfig
from gristmill.training.olmo_core.names import olmo_name, own_name

VOCABULARY = 50


class Norm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))


def planted(config: ModelConfig) -> nn.Module:
    """The modules of olmo_core 3.0.0's Transformer that have parameters, as its own `named_parameters` listed them."""

    def linear(inputs: int, outputs: int) -> nn.Linear:
        return nn.Linear(inputs, outputs, bias=False)

    wide, narrow = config.heads * config.head_dim, config.kv_head_count * config.head_dim
    model = nn.Module()
    model.embeddings = nn.Embedding(VOCABULARY, config.dim)
    model.blocks = nn.ModuleDict()
    for number in range(config.layers):
        block, attention, feed_forward = nn.Module(), nn.Module(), nn.Module()
        attention.w_q, attention.w_k = linear(config.dim, wide), linear(config.dim, narrow)
        attention.w_v, attention.w_out = linear(config.dim, narrow), linear(wide, config.dim)
        if config.qk_norm:
            attention.q_norm, attention.k_norm = Norm(config.head_dim), Norm(config.head_dim)
        feed_forward.w1, feed_forward.w3 = linear(config.dim, config.ffn_dim), linear(config.dim, config.ffn_dim)
        feed_forward.w2 = linear(config.ffn_dim, config.dim)
        block.attention, block.attention_norm = attention, Norm(config.dim)
        block.feed_forward, block.feed_forward_norm = feed_forward, Norm(config.dim)
        model.blocks[str(number)] = block
    model.lm_head = nn.Module()
    model.lm_head.norm, model.lm_head.w_out = Norm(config.dim), linear(config.dim, VOCABULARY)
    if config.tie_embeddings:
        model.lm_head.w_out.weight = model.embeddings.weight
    return model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("qk_norm", [True, False])
def test_each_parameter_of_one_is_one_of_the_other_of_its_shape(tied, qk_norm):
    # no two sizes alike, so that matrices which are exchanged have other shapes
    config = ModelConfig(dim=24, layers=11, heads=3, kv_heads=1, ffn=40, tie_embeddings=tied, qk_norm=qk_norm)
    theirs = {name: each.shape for name, each in planted(config).named_parameters()}
    ours = {name: each.shape for name, each in Decoder(config, VOCABULARY).named_parameters()}
    assert {own_name(name): shape for name, shape in theirs.items()} == ours
    assert {olmo_name(name): shape for name, shape in ours.items()} == theirs


def test_what_wraps_a_block_is_no_part_of_its_names():
    wrapped = "blocks.3._checkpoint_wrapped_module._orig_mod.attention.w_q.weight"
    assert own_name(wrapped) == own_name("blocks.3.attention.w_q.weight") == "layers.3.self_attn.q_proj.weight"


@pytest.mark.parametrize("strange", ["blocks.0.attention.w_qkv.weight", "embedding_norm.weight", "blocks.0.attention"])
def test_a_parameter_that_a_decoder_has_not_is_an_error(strange):
    with pytest.raises(KeyError):
        own_name(strange)
