"""Static embedders beside model2vec's own code, where it is installed, and beside the mean by hand."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import Whitespace

from gristmill.tasks.models.embedders import Embedder, SentenceEmbedder, embedder_files
from gristmill.tasks.models.model_files import ModelFileError

WORDS = "[UNK] river mill wheel stone grain flour a the of ##s ##ing grind".split()
TEXTS = (
    "the river of the mill",
    "grinding stones, a wheel",
    "nothing that it knows",
    "",
    "a a a flour " * 40,
)


def tokenizer() -> Tokenizer:
    made = Tokenizer(WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    return made


def write(folder: Path, name: str = "embeddings", **more: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    tensors = {name: rng.standard_normal((len(WORDS), 16)).astype(np.float32)} | more
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    tokenizer().save(str(folder / "tokenizer.json"))
    return tensors


def loaded(folder: Path, **settings) -> SentenceEmbedder:
    return SentenceEmbedder(embedder_files(str(folder), "static"), Embedder(kind="static", **settings))


MAPPING = np.array([0, 1, 2, 3, 3, 2, 1, 0, 0, 4, 5, 6, 4], np.int64)
WEIGHTS = np.linspace(0.1, 2, len(WORDS), dtype=np.float32)
KINDS = {"plain": {}, "weighted": {"weights": WEIGHTS}, "mapped": {"weights": WEIGHTS, "mapping": MAPPING}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_is_the_mean_of_its_tokens(tmp_path, kind):
    tensors = write(tmp_path, **KINDS[kind])
    embedder = loaded(tmp_path, normalize=False)
    known = [WORDS.index(word) for word in ("grind", "##ing", "stone", "##s", "a", "wheel")]
    rows = [MAPPING[token] if kind == "mapped" else token for token in known]
    weights = [1.0 if kind == "plain" else WEIGHTS[token] for token in known]
    expected = np.mean([tensors["embeddings"][row] * by for row, by in zip(rows, weights, strict=True)], axis=0)
    found = embedder.vector("grinding stones, a wheel")
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, atol=2e-3)
    np.testing.assert_allclose(
        loaded(tmp_path).vector("grinding stones, a wheel"), expected / np.linalg.norm(expected), atol=2e-3
    )
    assert not embedder.vector("nothing known").any() and embedder.dimension == 16
    four = list(zip(rows, weights, strict=True))[:4]
    first = loaded(tmp_path, normalize=False, max_tokens=4).vector("x y z grinding stones, a wheel")
    np.testing.assert_allclose(first, np.mean([tensors["embeddings"][row] * by for row, by in four], axis=0), atol=2e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_model2vec(tmp_path, kind):
    model2vec = pytest.importorskip("model2vec", reason="pip install model2vec")
    tensors = write(tmp_path, **KINDS[kind])
    theirs = model2vec.StaticModel(
        tensors["embeddings"],
        tokenizer(),
        normalize=True,
        weights=tensors.get("weights"),
        token_mapping=tensors.get("mapping"),
    )
    ours = loaded(tmp_path)
    for text in TEXTS:
        np.testing.assert_allclose(ours.vector(text), theirs.encode([text])[0], atol=1e-3)


def test_the_table_of_sentence_transformers_has_another_name(tmp_path):
    first, second = write(tmp_path / "a"), write(tmp_path / "b", "embedding.weight")
    assert np.array_equal(first["embeddings"], second["embedding.weight"])
    assert np.array_equal(loaded(tmp_path / "a").vector(TEXTS[0]), loaded(tmp_path / "b").vector(TEXTS[0]))


def test_files_that_are_no_static_embedder(tmp_path):
    with pytest.raises(ModelFileError, match=r"has no model\.safetensors; save the embedder with model2vec"):
        embedder_files(str(tmp_path), "static")
    write(tmp_path, "weight")
    with pytest.raises(ModelFileError, match="has no table embeddings or embedding.weight, but weight"):
        loaded(tmp_path)
    with pytest.raises(ModelFileError, match=r"has neither model\.onnx nor .*; write `kind: static`"):
        embedder_files(str(tmp_path), "onnx")
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ModelFileError, match="is not a valid safetensors file"):
        loaded(tmp_path)
    write(tmp_path)
    save_file({"embeddings": np.ones((3, 4), np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match="has no vector for some tokens"):
        loaded(tmp_path)


def test_settings_that_a_static_embedder_has_not():
    with pytest.raises(ValueError, match="has pooling: cls, but `kind: static` only supports pooling: mean"):
        Embedder(kind="static", pooling="cls")
