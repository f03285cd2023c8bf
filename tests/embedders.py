"""A small sentence embedder as ONNX: its protobuf, written byte by byte, its tokenizer, and the same in numpy.

The model is one layer of attention: `tanh(softmax(xW x') x)` of the vectors x of the tokens.
"""

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

WORDS = "river mill wheel stone grain flour click offer cheap login cart sale the a of and to is".split()
VOCABULARY = {word: number for number, word in enumerate(["[UNK]", "[CLS]", "[SEP]", "query:", *WORDS])}
DIMENSION = 12
_FLOAT, _INT64 = 1, 7  # TensorProto.DataType


def weights(seed: int = 1, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Of the tokens, float32 (words, DIMENSION), and of the attention, float32 (DIMENSION, DIMENSION)."""
    rng = np.random.default_rng(seed)
    tokens = scale * rng.standard_normal((len(VOCABULARY), DIMENSION))
    return tokens.astype(np.float32), rng.standard_normal((DIMENSION, DIMENSION)).astype(np.float32)


def hidden(words: list[str], seed: int = 1) -> np.ndarray:
    """What the model gives for each token, by numpy in 64 bits."""
    tokens, attention = weights(seed)
    x = tokens[[VOCABULARY.get(word, 0) for word in words]].astype(np.float64)
    logits = x @ attention @ x.T
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.tanh(shares / shares.sum(axis=1, keepdims=True) @ x)


def write(folder: Path, data: bytes | None = None, at: str = "model.onnx") -> str:
    """An embedder in a folder, or another model in its place; returns the folder."""
    (folder / at).parent.mkdir(parents=True, exist_ok=True)
    (folder / at).write_bytes(model() if data is None else data)
    tokenizer = Tokenizer(WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    special = [(name, VOCABULARY[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def model(
    seed: int = 1,
    inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
    pooled: bool = False,
    tanh: bool = True,
    scale: float = 1.0,
    beside: str = "",
    positions: int = 0,
) -> bytes:
    """The model. `inputs`: the first are the tokens; `pooled`: it gives the first token's vector alone; `tanh`: the
    last layer; `beside`: the file with the weights of the tokens, instead of the model itself; `positions`: it has
    vectors, of zeros, for so many places in a text, and cannot read a longer one."""
    tokens, attention = weights(seed, scale)
    nodes = [
        _node("Gather", ["tokens", inputs[0]], "placed" if positions else "x"),
        _node("MatMul", ["x", "attention"], "xw"),
        _node("Transpose", ["x"], "xt", _ints("perm", [0, 2, 1])),
        _node("MatMul", ["xw", "xt"], "logits"),
        _node("Softmax", ["logits"], "shares", _int("axis", 2)),
        _node("MatMul", ["shares", "x"], "mixed"),
        _node("Tanh" if tanh else "Identity", ["mixed"], "hidden"),
    ]
    if positions:
        nodes[1:1] = [
            _node("Shape", [inputs[0]], "shape"),
            _node("Slice", ["shape", "1", "2", "0"], "length"),
            _node("Slice", ["positions", "0", "length", "0"], "places"),
            _node("Add", ["placed", "places"], "x"),
        ]
    if pooled:
        nodes.append(_node("Gather", ["hidden", "first"], "vector", _int("axis", 1)))
    output = _value("vector", _FLOAT, 2) if pooled else _value("hidden", _FLOAT, 3)
    graph = b"".join(
        [
            *(_field(1, node) for node in nodes),
            _field(2, b"graph"),
            _field(5, _tensor("tokens", tokens, beside)),
            _field(5, _tensor("attention", attention)),
            *(_field(5, _tensor(str(i), np.array([i]))) for i in range(3 if positions else 0)),
            *([_field(5, _tensor("positions", np.zeros((positions, DIMENSION), np.float32)))] if positions else []),
            *([_field(5, _tensor("first", np.array(0, np.int64)))] if pooled else []),
            *(_field(11, _value(name, _INT64, 2)) for name in inputs),
            _field(12, output),
        ]
    )
    return _varint_field(1, 8) + _field(7, graph) + _field(8, _field(1, b"") + _varint_field(2, 17))


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _field(number: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _node(kind: str, inputs: list[str], output: str, *attributes: bytes) -> bytes:
    return b"".join(
        [*(_field(1, name) for name in inputs), _field(2, output), _field(4, kind), *(_field(5, a) for a in attributes)]
    )


def _int(name: str, value: int) -> bytes:
    return _field(1, name) + _varint_field(3, value) + _varint_field(20, 2)


def _ints(name: str, values: list[int]) -> bytes:
    return _field(1, name) + b"".join(_varint_field(8, value) for value in values) + _varint_field(20, 7)


def _tensor(name: str, values: np.ndarray, beside: str = "") -> bytes:
    kind = _FLOAT if values.dtype == np.float32 else _INT64
    head = b"".join(_varint_field(1, size) for size in values.shape) + _varint_field(2, kind) + _field(8, name)
    if beside:
        return head + _field(13, _field(1, "location") + _field(2, beside)) + _varint_field(14, 1)
    return head + _field(9, values.tobytes())


def _value(name: str, kind: int, axes: int) -> bytes:
    shape = b"".join(_field(1, _field(2, f"{name}{axis}")) for axis in range(axes))
    return _field(1, name) + _field(2, _field(1, _varint_field(1, kind) + _field(2, shape)))
