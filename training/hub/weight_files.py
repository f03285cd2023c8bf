"""The files of weights in a folder as Hugging Face lays it out, and whether a model of ours has their shapes.

Imports no torch: a recipe is checked before anything is trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import safe_open

from gristmill.storage.damage import opening
from gristmill.training.model_config import ModelConfig

KEY = "training.init_from"  # what names the folder, in errors
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.model", "tokenizer.json")  # of SentencePiece, of Hugging Face; the first is taken
# of a config.json, without which no model has a shape
_SIZES = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("max_position_embeddings", "vocab_size"),
)
_TYPES = ("llama", "qwen3", "nanochat", "gristmill")  # of models, whose decoder is the one here
_OWN = ("block", "qk_norm", "logit_softcap")  # keys of ours, in the config of a model that `transformers` lacks
MASKED = "gristmill-masked"  # type of a model that is not causal, which nothing takes for one of _TYPES
ACTIVATIONS = {"llama": "silu", "nanochat": "relu2"}  # of blocks, as `transformers` names them
_FIX = "write the folder again with the converter of its trainer"
_UNUSED = ("rotary_emb.inv_freq",)  # which old exports of Llama have, and which follows from rope_theta


def weight_files(folder: Path, key: str = KEY) -> list[Path]:
    """The files of weights: those that model.safetensors.index.json lists, or model.safetensors.

    `key`: what names the folder, in errors. Raises FileNotFoundError where there are none, ValueError for an index
    that names other places.
    """
    folder = Path(folder)
    names = {WEIGHTS}
    if (folder / INDEX).is_file():
        with opening(f"{folder / INDEX}", "index of safetensors", _FIX):
            names = {str(name) for name in json.loads((folder / INDEX).read_bytes())["weight_map"].values()}
        if strange := sorted(name for name in names if Path(name).name != name or not name.endswith(".safetensors")):
            raise ValueError(
                f"{folder / INDEX} has {strange[0]}, which is not a *.safetensors file in the same folder; fix it"
            )
    if missing := sorted(name for name in (*names, CONFIG) if not (folder / name).is_file()):
        raise FileNotFoundError(
            f"{key} is {folder}, which has no {missing[0]}; give a folder with {CONFIG}, {WEIGHTS} and "
            f"{TOKENIZERS[0]}, as `gristmill export model` writes it"
        )
    return [folder / name for name in sorted(names)]


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a model's folder. Raises ValueError, which names the file, for a file that is not a JSON
    object, or lacks a size of the model."""
    path = Path(folder) / CONFIG
    with opening(f"{path}", "config.json of a model", _FIX):
        hub_config = json.loads(path.read_bytes())
    if not isinstance(hub_config, dict):
        raise ValueError(f"{path} is not a config.json of a model: it is a {type(hub_config).__name__}; {_FIX}")
    if (kind := hub_config.get("model_type")) not in _TYPES:
        raise ValueError(f"{path} is of a model of the type {kind}; give one of llama, qwen3 or nanochat")
    for name in _SIZES:
        size = hub_config.get(name)
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            what = f"has {name} {size!r:.60}" if name in hub_config else f"has no {name}"
            raise ValueError(f"{path} {what}, but a model needs a number above 0; {_FIX}")
    for name in ("rope_parameters", "rope_scaling"):
        if not isinstance(hub_config.get(name) or {}, dict):
            raise ValueError(f"{path} has {name} {hub_config[name]!r:.60}, which is not a JSON object; {_FIX}")
    return hub_config


def hugging_face_config(config: ModelConfig, vocab_size: int, causal: bool = True) -> dict[str, Any]:
    """The content of config.json.

    Keys: https://huggingface.co/docs/transformers/model_doc/llama, .../qwen3 and .../nanochat.
    """
    if config.block == "nanochat" and causal:
        kind = {
            "architectures": ["NanoChatForCausalLM"],
            "model_type": "nanochat",
            "final_logit_softcapping": config.logit_softcap,
            "pad_token_id": None,
        }
    elif config.logit_softcap is not None or not causal:
        kind = {"model_type": "gristmill" if causal else MASKED, **{name: getattr(config, name) for name in _OWN}}
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
        "hidden_act": ACTIVATIONS[config.block],
        "attention_bias": False,
        "initializer_range": 0.02,
        "torch_dtype": "float32",
    }


def model_config(hub_config: dict[str, Any]) -> ModelConfig:
    """The shape that a config.json of Llama, Qwen3 or NanoChat has, `hugging_face_config`'s or another's; what it does
    not name has the default of `transformers`.

    Raises ValueError for heads of another size than hidden_size over their number, and as ModelConfig does.
    """
    own = {name: hub_config[name] for name in _OWN if name in hub_config}
    if hub_config["model_type"] == "nanochat":
        own = {"block": "nanochat", "qk_norm": True, "logit_softcap": hub_config.get("final_logit_softcapping", 15.0)}
    dim, heads = hub_config["hidden_size"], hub_config["num_attention_heads"]
    if hub_config.get("head_dim", dim // heads) != dim // heads:
        raise ValueError(
            f"config.json has head_dim {hub_config['head_dim']}, but this decoder only supports hidden_size "
            f"/ num_attention_heads, {dim // heads}"
        )
    rope = hub_config.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"config.json has rope_type {rope['rope_type']}, which this decoder does not support")
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


def tokenizer_file(folder: Path) -> Path:
    """The tokenizer of a folder. Raises FileNotFoundError if there is none."""
    for name in TOKENIZERS:
        if (path := Path(folder) / name).is_file():
            return path
    raise FileNotFoundError(
        f"{KEY} is {folder}, which has no {' and no '.join(TOKENIZERS)} to tokenize texts with; give a "
        "folder that `gristmill export model` wrote"
    )


def check_fits(folder: Path, config: ModelConfig, vocab_size: int | None = None, key: str = KEY) -> None:
    """Raise ValueError, which names key, value and remedy, if the weights in a folder are not a model of this shape.

    `vocab_size`: None before the tokenizer is known. The length of the context is free. Not checked: whether the
    weights were trained on the tokens of the tokenizer beside them.
    """
    files = weight_files(folder, key)
    hub_config = read_config(folder)
    with opening(str(Path(folder) / CONFIG), "config.json of a supported model", "use other weights"):
        compared = list(_settings(config, hub_config))
    for name, ours, theirs in compared:
        if ours != theirs:
            raise ValueError(
                f"{key} is {folder}, whose {CONFIG} has {theirs} for {name}, but the recipe has {ours}; set "
                f"{name}: {json.dumps(theirs)}, or use other weights"
            )
    for name, expected_value in (
        ("hidden_act", ACTIVATIONS[config.block]),
        ("attention_bias", False),
        ("mlp_bias", False),
        ("rope_scaling", None),
    ):
        if hub_config.get(name, expected_value) != expected_value:
            raise ValueError(
                f"{key} is {folder}, whose {CONFIG} has {name} {hub_config[name]}, which this decoder does "
                "not support; use other weights"
            )
    file_shapes = _shapes(files)
    vocab_size = vocab_size or hub_config["vocab_size"]
    expected = dict(shapes(config, vocab_size))
    if config.tie_embeddings:
        file_shapes.pop("lm_head.weight", None)
    if other := sorted(file_shapes.keys() ^ expected.keys()):
        what = "lack" if other[0] in expected else "have"
        raise ValueError(
            f"{key} is {folder}, whose weights {what} {other[0]}, unlike the recipe's `model`; change the "
            "recipe's `model`, or use other weights"
        )
    for name, shape in expected.items():
        if file_shapes[name] != shape:
            raise ValueError(
                f"{key} is {folder}, whose {name} is {list(file_shapes[name])}, but `model` and the "
                f"vocabulary of {vocab_size} require {list(shape)}; change `model`, or use other weights"
            )


def _settings(config: ModelConfig, hub_config: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Keys of the recipe that decide the weights' shapes or what is computed with them, with its value and the value of
    config.json."""
    theirs = model_config(hub_config)
    ours, others = ({**one.model_dump(exclude={"seq_len"}), **one.filled} for one in (config, theirs))
    for name, value in ours.items():
        yield f"model.{name}", value, others[name]


def _shapes(files: list[Path]) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors by their public names; reads the files' headers only."""
    all_shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        with opening(f"{path}", "file of safetensors", _FIX), safe_open(path, framework="numpy") as tensors:
            all_shapes |= {
                n: tuple(tensors.get_slice(n).get_shape()) for n in tensors.keys() if not n.endswith(_UNUSED)
            }
    return all_shapes


def shapes(config: ModelConfig, vocab_size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Public names and shapes of a Decoder's parameters."""
    d, ffn, head = config.dim, config.ffn_dim, config.head_dim
    wide, narrow = config.heads * head, config.kv_head_count * head
    attention: dict[str, tuple[int, ...]] = {
        "q_proj": (wide, d),
        "k_proj": (narrow, d),
        "v_proj": (narrow, d),
        "o_proj": (d, wide),
    }
    if config.norm_gains and config.qk_norm:
        attention |= {"q_norm": (head,), "k_norm": (head,)}
    if config.block == "llama":
        feed_forward = {"gate_proj": (ffn, d), "up_proj": (ffn, d), "down_proj": (d, ffn)}
    else:
        feed_forward = {"fc1": (ffn, d), "fc2": (d, ffn)}
    norms = (("input_layernorm", (d,)), ("post_attention_layernorm", (d,)))
    first, second = ({name: shape} if config.norm_gains else {} for name, shape in norms)
    inside: dict[str, tuple[int, ...]] = {
        **first,
        **{f"self_attn.{name}": shape for name, shape in attention.items()},
        **second,
        **{f"mlp.{name}": shape for name, shape in feed_forward.items()},
    }
    yield "model.embed_tokens.weight", (vocab_size, d)
    for layer in range(config.layers):
        for name, shape in inside.items():
            yield f"model.layers.{layer}.{name}.weight", shape
    if config.norm_gains:
        yield "model.norm.weight", (d,)
    if not config.tie_embeddings:
        yield "lm_head.weight", (vocab_size, d)
