"""Final weights as safetensors with a Hugging Face Llama config beside them, and back."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from training.config import ModelConfig
from training.model import Decoder

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def _public(name: str) -> str:
    return name if name.startswith("lm_head.") else f"model.{name}"


def export(weights: dict[str, torch.Tensor], config: ModelConfig, vocab_size: int, out: Path) -> Path:
    """Write weights (whole, by the Decoder's names, float32) and config into `out`; returns the weights'
    path.

    Tied embeddings are one tensor here: LlamaForCausalLM with tie_word_embeddings needs no lm_head.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    described = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": config.dim,
        "intermediate_size": config.ffn_dim,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_head_count,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.seq_len,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tie_embeddings,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "torch_dtype": "float32",
    }
    (out / CONFIG).write_text(json.dumps(described, indent=1) + "\n")
    temporary = out / f"{WEIGHTS}.tmp"
    public = {_public(name): tensor.contiguous() for name, tensor in weights.items()}
    save_file(public, temporary, metadata={"format": "pt"})
    return temporary.replace(out / WEIGHTS)


def load(out: Path) -> Decoder:
    """The exported model, unsharded, float32, on the CPU, in evaluation mode."""
    described = json.loads((Path(out) / CONFIG).read_text())
    config = ModelConfig(
        dim=described["hidden_size"],
        layers=described["num_hidden_layers"],
        heads=described["num_attention_heads"],
        kv_heads=described["num_key_value_heads"],
        ffn=described["intermediate_size"],
        seq_len=described["max_position_embeddings"],
        rope_theta=described["rope_theta"],
        norm_eps=described["rms_norm_eps"],
        tie_embeddings=described["tie_word_embeddings"],
    )
    with torch.device("meta"):
        model = Decoder(config, described["vocab_size"])
    weights = load_file(Path(out) / WEIGHTS)
    model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in weights.items()}, assign=True)
    return model.eval()
