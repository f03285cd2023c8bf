"""Damaged folders of models of other programs: each fault is one sentence with the file and what to do."""

import json
from types import SimpleNamespace

import pytest
import torch

from gristmill.training.decoder import Decoder
from gristmill.training.hub.model_folder import shape_of
from gristmill.training.hub.weight_files import CONFIG, INDEX, WEIGHTS
from gristmill.training.hub.weights import export_model
from gristmill.training.model_config import ModelConfig

SHAPE = ModelConfig(dim=32, layers=1, heads=4, seq_len=32, tie_embeddings=False, qk_norm=False)
VOCABULARY = 64
DATA = SimpleNamespace(vocab_size=VOCABULARY, tokenizer=SimpleNamespace(path="tokenizer.model", digest=""))


@pytest.fixture
def folder(tmp_path):
    weights = {name: torch.zeros_like(tensor) for name, tensor in Decoder(SHAPE, VOCABULARY).state_dict().items()}
    export_model(weights, SHAPE, VOCABULARY, tmp_path)
    return tmp_path


def test_a_whole_folder_has_its_shape(folder):
    shape = shape_of(folder, DATA)
    assert (shape.dim, shape.layers, shape.heads, shape.seq_len) == (32, 1, 4, 32)


def changed(**values) -> bytes:
    """The config.json with other values; None takes a key out."""

    def change(config: bytes) -> bytes:
        merged = json.loads(config) | values
        return json.dumps({name: value for name, value in merged.items() if value is not None}).encode()

    return change


# The file, what it holds instead, and what the sentence says of it.
FAULTS = {
    "cut config": (CONFIG, lambda old: old[: len(old) // 2], "config.json is not a valid config.json of a model: "),
    "config of a list": (CONFIG, lambda old: b"[1]", "config.json is not a config.json of a model: it is a list"),
    "config of bytes": (CONFIG, lambda old: b"\xff\xfe\x00", "config.json is not a valid config.json of a model: "),
    "no heads": (CONFIG, changed(num_attention_heads=None), "config.json has no num_attention_heads, but a model"),
    "heads of text": (CONFIG, changed(num_attention_heads="4"), "has num_attention_heads '4', but a model needs a num"),
    "no layers": (CONFIG, changed(num_hidden_layers=0), "config.json has num_hidden_layers 0, but a model needs a num"),
    "no vocabulary": (CONFIG, changed(vocab_size=None), "config.json has no vocab_size, but a model needs a number"),
    "rope of text": (CONFIG, changed(rope_parameters="x"), "has rope_parameters 'x', which is not a JSON object"),
    "uneven heads": (CONFIG, changed(num_attention_heads=5), "config.json"),
    "other kind": (CONFIG, changed(model_type="gpt2"), "model of the type gpt2; give one of llama, qwen3 or nanochat"),
    "no kind": (CONFIG, changed(model_type=None), "model of the type None; give one of llama, qwen3 or nanochat"),
    "cut weights": (WEIGHTS, lambda old: old[:100], "model.safetensors is not a valid file of safetensors: "),
    "empty weights": (WEIGHTS, lambda old: b"", "model.safetensors is not a valid file of safetensors: "),
    "weights of HTML": (WEIGHTS, lambda old: b"<html>" * 99, "model.safetensors is not a valid file of safetensors: "),
    "cut index": (INDEX, lambda old: b"{", "index.json is not a valid index of safetensors: "),
    "index of a list": (INDEX, lambda old: b"[]", "index.json is not a valid index of safetensors: "),
    "index without map": (
        INDEX,
        lambda old: b"{}",
        "index.json is not a valid index of safetensors: ",
    ),
    "index elsewhere": (
        INDEX,
        lambda old: b'{"weight_map": {"a": "../b.safetensors"}}',
        "which is not a *.safetensors f",
    ),
    "index of numbers": (INDEX, lambda old: b'{"weight_map": {"a": 5}}', "has 5, which is not a *.safetensors file"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_folder_is_one_sentence(folder, fault):
    name, change, sentence = FAULTS[fault]
    path = folder / name
    path.write_bytes(change(path.read_bytes() if path.exists() else b""))
    with pytest.raises(ValueError, match=r"; |: ") as refused:
        shape_of(folder, DATA)
    assert sentence in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
