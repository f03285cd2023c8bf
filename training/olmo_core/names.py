"""Names of parameters: those of our Decoder, and those that OLMo-core's Transformer has for the same tensors.

Each tensor of one is a tensor of the other as it is, of the same shape: both lay the halves of rotary pairs out one
behind the other, and neither joins matrices. Tied embeddings are one parameter in both, that of the embedding.
"""

from __future__ import annotations

import re

# Ours by OLMo-core's; of the parameters in a block the part behind its number.
OUTSIDE = {
    "embeddings.weight": "embed_tokens.weight",
    "lm_head.norm.weight": "norm.weight",
    "lm_head.w_out.weight": "lm_head.weight",
}


INSIDE = {
    "attention_norm.weight": "input_layernorm.weight",
    "attention.w_q.weight": "self_attn.q_proj.weight",
    "attention.w_k.weight": "self_attn.k_proj.weight",
    "attention.w_v.weight": "self_attn.v_proj.weight",
    "attention.w_out.weight": "self_attn.o_proj.weight",
    "attention.q_norm.weight": "self_attn.q_norm.weight",
    "attention.k_norm.weight": "self_attn.k_norm.weight",
    "feed_forward_norm.weight": "post_attention_layernorm.weight",
    "feed_forward.w1.weight": "mlp.gate_proj.weight",
    "feed_forward.w2.weight": "mlp.down_proj.weight",
    "feed_forward.w3.weight": "mlp.up_proj.weight",
}


_WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.")  # of recomputation and of compilation, within a name


_BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")


def own_name(name: str) -> str:
    """The Decoder's name of OLMo-core's parameter `name`. Raises KeyError for one that a Decoder has not."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    block = _BLOCK.fullmatch(name)
    return OUTSIDE[name] if block is None else f"layers.{block[1]}.{INSIDE[block[2]]}"


def olmo_name(name: str) -> str:
    """OLMo-core's name of the Decoder's parameter `name`. Raises KeyError for one that OLMo-core has not."""
    if not name.startswith("layers."):
        return {ours: theirs for theirs, ours in OUTSIDE.items()}[name]
    _, number, inside = name.split(".", 2)
    return f"blocks.{number}.{ {ours: theirs for theirs, ours in INSIDE.items()}[inside] }"
