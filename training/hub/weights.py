"""Final weights as safetensors with a Hugging Face config beside them, and back.

The names are those of LlamaForCausalLM, or with qk-norm of Qwen3ForCausalLM. A model that neither of them computes has
a model type of our own, which `transformers` refuses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from gristmill.storage import files
from gristmill.storage.training_manifest import TrainingManifest
from gristmill.training.config import ModelConfig, RunConfig
from gristmill.training.hub.weight_files import CONFIG, WEIGHTS, check_fits, tokenizer_file, weight_files
from gristmill.training.model.decoder import Decoder
from gristmill.training.parallel.collectives import all_gather, rank_slice
from gristmill.training.parallel.world import World, local, local_part, set_first_weights

# Keys of ours in the config of a model that has one of these settings.
_OWN = ("qk_norm", "logit_softcap")


def public_name(name: str) -> str:
    """A parameter's name in the file of weights."""
    return name if name.startswith("lm_head.") else f"model.{name}"


def own_name(name: str) -> str:
    """The Decoder's name of a parameter in the file of weights."""
    return name.removeprefix("model.")


def hugging_face_config(config: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """The content of config.json.

    Keys: https://huggingface.co/docs/transformers/model_doc/llama and .../qwen3.
    """
    if config.logit_softcap is not None:
        kind = {"model_type": "gristmill", **{name: getattr(config, name) for name in _OWN}}
    elif config.qk_norm:
        kind = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "use_sliding_window": False}
    else:
        kind = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": False}
    return {
        **kind,
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
        "initializer_range": 0.02,
        "torch_dtype": "float32",
    }


def model_config(hub_config: dict[str, Any]) -> ModelConfig:
    """The shape that a config.json of Llama or Qwen3 has, `hugging_face_config`'s or another's; what it does not name
    has the default of `transformers`.

    Raises ValueError for heads of another size than hidden_size over their number, and as ModelConfig does.
    """
    own = {name: hub_config[name] for name in _OWN if name in hub_config}
    dim, heads = hub_config["hidden_size"], hub_config["num_attention_heads"]
    if hub_config.get("head_dim", dim // heads) != dim // heads:
        raise ValueError(
            f"config.json has head_dim {hub_config['head_dim']}, which the decoder here does not compute: its heads "
            f"are of hidden_size / num_attention_heads, {dim // heads}; name another model"
        )
    rope = hub_config.get("rope_parameters") or {}
    return ModelConfig(
        dim=dim,
        layers=hub_config["num_hidden_layers"],
        heads=heads,
        kv_heads=hub_config.get("num_key_value_heads", heads),
        ffn=hub_config["intermediate_size"],
        seq_len=hub_config["max_position_embeddings"],
        rope_theta=rope.get("rope_theta", hub_config.get("rope_theta", 10_000.0)),
        norm_eps=hub_config.get("rms_norm_eps", 1e-6),
        tie_embeddings=hub_config.get("tie_word_embeddings", False),
        **{"qk_norm": hub_config["model_type"] == "qwen3", **own},
    )


def export_model(weights: dict[str, torch.Tensor], config: ModelConfig, vocab_size: int, out: Path) -> Path:
    """Write weights (whole, by the Decoder's names, float32) and config into `out`; returns the weights'
    path.

    Tied embeddings are one tensor here: a model with tie_word_embeddings needs no lm_head.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / CONFIG, hugging_face_config(config, vocab_size))
    temporary = out / f"{WEIGHTS}.tmp"
    save_weights({public_name(name): tensor for name, tensor in weights.items()}, temporary)
    return temporary.replace(out / WEIGHTS)


def save_weights(weights: dict[str, torch.Tensor], path: Path) -> None:
    """Write tensors by their public names."""
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, path, metadata={"format": "pt"})


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load_model(out: Path) -> Decoder:
    """The exported model, unsharded, float32, on the CPU, in evaluation mode."""
    hub_config = json.loads((Path(out) / CONFIG).read_text(encoding="utf-8"))
    model = empty_model(model_config(hub_config), hub_config["vocab_size"])
    weights = load_file(Path(out) / WEIGHTS)
    model.load_state_dict({own_name(name): tensor.float() for name, tensor in weights.items()}, assign=True)
    return model.eval()


def empty_model(config: ModelConfig, vocab_size: int) -> Decoder:
    """A Decoder without memory, to load weights into."""
    with torch.device("meta"):
        return Decoder(config, vocab_size)


def set_initial_weights(model: Decoder, run: RunConfig, manifest: TrainingManifest, world: World) -> None:
    """The weights that a run begins with, in place: those of training.init_from, or drawn; a collective."""
    if run.training.init_from:
        load_initial_weights(model, run, manifest, world)
    else:
        set_first_weights(model, run.training, world)


def load_initial_weights(model: Decoder, run: RunConfig, manifest: TrainingManifest, world: World) -> None:
    """Give a sharded model the weights in training.init_from; a collective. Held: one whole parameter on each rank.

    Raises ValueError, on all ranks, where the files are not those that the run was planned with, do not fit the model,
    or have another tokenizer.
    """
    folder = Path(run.training.init_from or "")
    check_fits(folder, run.model, manifest.vocab_size)
    tokenizer = tokenizer_file(folder)
    paths = {path.name: path for path in (*weight_files(folder), tokenizer)}
    digests = {tokenizer.name: manifest.tokenizer.digest, **run.init_digests}
    read = rank_slice(sorted(paths), run.own_disks)
    mine = [name for name in read if files.checksum(str(paths[name])) != digests.get(name)]
    if wrong := sorted(name for some in all_gather(mine) for name in some):
        raise ValueError(
            f"training.init_from is {folder}, whose {wrong[0]} is another than when the run was planned; put it back, "
            "or run the recipe again"
        )
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for path in weight_files(folder):
            with safe_open(path, framework="pt") as tensors:
                for name in tensors.keys():
                    parameter = parameters.get(own_name(name))
                    if parameter is None:  # the copy of a tied matrix, or positions
                        continue
                    local(parameter).copy_(local_part(tensors.get_tensor(name).float(), parameter))
