"""Vectors of a small ONNX model, beside the same model in numpy; files that are no embedder."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel

from gristmill.storage import parquet
from gristmill.tasks.models.embedders import (
    Embedder,
    SentenceEmbedder,
    embed_shard,
    embedder_files,
    vector_table,
    vectors_of,
)
from gristmill.tasks.models.model_files import ModelFileError
from tests import embedders
from tests.embedders import DIMENSION, hidden

pytest.importorskip("onnxruntime", reason="onnxruntime is in the extra `embedding`")

TEXT = "river mill of stone , the cheap offer"
ROOT = Path(__file__).resolve().parents[4]


def load(folder: Path, **given) -> SentenceEmbedder:
    settings = Embedder(**given)
    return SentenceEmbedder(embedder_files(str(folder), settings.kind), settings)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == np.float16 and found.shape == (DIMENSION,)
    assert np.abs(found - expected).max() < 2e-3 * max(1, np.abs(expected).max())


def test_vectors_are_those_of_the_same_model_in_numpy(tmp_path):
    embedders.write(tmp_path)
    tokens = ["[CLS]", *TEXT.split(), "[SEP]"]
    of_tokens = hidden(tokens)
    mean = of_tokens.mean(axis=0)
    close(load(tmp_path, normalize=False).vector(TEXT), mean)
    close(load(tmp_path).vector(TEXT), mean / np.linalg.norm(mean))
    close(load(tmp_path, pooling="cls", normalize=False).vector(TEXT), of_tokens[0])
    prefixed = hidden(["[CLS]", "query:", *TEXT.split(), "[SEP]"]).mean(axis=0)
    close(load(tmp_path, prefix="query: ", normalize=False).vector(TEXT), prefixed)
    cut = hidden(["[CLS]", *TEXT.split()[:3], "[SEP]"]).mean(axis=0)
    close(load(tmp_path, max_tokens=5, normalize=False).vector(TEXT), cut)
    close(load(tmp_path, characters=len("river mill of"), normalize=False).vector(TEXT), cut)
    close(load(tmp_path, normalize=False).vector(""), hidden(["[CLS]", "[SEP]"]).mean(axis=0))


def test_a_model_that_pools_itself_and_lies_in_a_folder_onnx(tmp_path):
    data = embedders.model(pooled=True, inputs=("input_ids", "attention_mask", "token_type_ids"))
    embedders.write(tmp_path, data, "onnx/model.onnx")
    close(load(tmp_path, pooling="none", normalize=False).vector(TEXT), hidden(["[CLS]", *TEXT.split(), "[SEP]"])[0])


def test_other_documents_change_no_bit_of_a_vector(tmp_path, shard):
    folder = embedders.write(tmp_path / "model")
    files, settings = embedder_files(folder, "onnx"), Embedder()
    draw = np.random.default_rng(5)
    texts = {f"d{i}": " ".join(draw.choice(embedders.WORDS, draw.integers(0, 40))) for i in range(60)}
    found = []
    for number, ids in enumerate([list(texts), sorted(texts, reverse=True), ["d7"]]):
        parts = shard(f"web{number}", {i: texts[i] for i in ids})
        assert embed_shard(str(tmp_path / f"{number}"), 0, *parts, files, settings) == {"rows": len(ids)}
        table = parquet.read_table(str(tmp_path / f"{number}" / "part-00000.parquet"))
        assert table["vector"].type == pa.list_(pa.float16(), DIMENSION)
        found.append(dict(zip(table["id"].to_pylist(), map(bytes, vectors_of(table)), strict=True)))
    assert found[0] == found[1] and found[2] == {"d7": found[0]["d7"]}
    assert len({*found[0].values()}) > 50
    nothing = shard("nothing", {})
    assert embed_shard(str(tmp_path / "none"), 0, *nothing, files, settings) == {"rows": 0}
    assert vectors_of(parquet.read_table(str(tmp_path / "none" / "part-00000.parquet"))).shape == (0, DIMENSION)


def test_vectors_come_back_from_parquet_as_they_were(tmp_path):
    vectors = np.random.default_rng(1).standard_normal((70_000, 3)).astype(np.float16)
    path = str(tmp_path / "part-00000.parquet")
    parquet.write_table(path, vector_table([str(i) for i in range(len(vectors))], vectors))
    read = parquet.read_table(path)
    assert np.array_equal(vectors_of(read), vectors)
    assert np.array_equal(vectors_of(read[100:200]), vectors[100:200])
    groups = [vectors_of(group) for group in parquet.groups(path)]
    assert len(groups) > 1 and np.array_equal(np.concatenate(groups), vectors)


def test_a_file_that_was_cut_anywhere_is_refused(tmp_path):
    data = embedders.model()
    for size in (0, 1, 2, 40, len(data) // 2, len(data) - 8, len(data) - 5, len(data) - 1):
        embedders.write(tmp_path, data[:size])
        with pytest.raises(ModelFileError, match="model.onnx is not a valid ONNX model .* copy or export it again"):
            load(tmp_path)


@pytest.mark.parametrize(
    "data,settings,why",
    [
        (embedders.model(inputs=("tokens_in",)), {}, "has no input input_ids; export it as a sentence embedder"),
        (embedders.model(inputs=("input_ids", "position_ids")), {}, "has the input position_ids; export it"),
        (embedders.model(pooled=True), {}, "gives one vector a text as vector, .* try `pooling: none`"),
        (embedders.model(), {"pooling": "none"}, r"an array of shape \(1, 512, 12\) .* try `pooling: mean`"),
        (embedders.model(beside="tokenizer.json"), {}, "with its weights in the same file"),
        (b"not a model", {}, "is not a valid ONNX model"),
    ],
)
def test_a_model_of_another_form_is_refused(tmp_path, monkeypatch, data, settings, why):
    embedders.write(tmp_path, data)
    monkeypatch.chdir(tmp_path)  # where ONNX Runtime would look for the weights of a model that it is given as bytes
    with pytest.raises(ModelFileError, match=why):
        load(tmp_path, **settings)


def test_weights_in_another_file_are_not_read_from_the_current_folder(tmp_path, monkeypatch):
    tokens, _ = embedders.weights()
    embedders.write(tmp_path, embedders.model(beside="weights.bin"))
    (tmp_path / "weights.bin").write_bytes(tokens.tobytes())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError, match="weights in the same file"):
        load(tmp_path)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(ModelFileError, match="has neither model.onnx nor onnx/model.onnx; export the embedder"):
        load(tmp_path)
    embedders.write(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(ModelFileError, match="tokenizer.json is not a valid tokenizer.json: .*; copy it again"):
        load(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelFileError, match="tokenizer.json is missing; copy the tokenizer"):
        load(tmp_path)


def test_a_tokenizer_of_another_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(embedders.VOCABULARY, "unheard", 9_999)
    embedder = embedders.write(tmp_path)
    with pytest.raises(ModelFileError, match="use both files of the same embedder"):
        load(Path(embedder)).vector("the unheard mill")


def test_a_model_that_reads_fewer_tokens_is_refused_before_it_reads_a_document(tmp_path):
    embedders.write(tmp_path, embedders.model(positions=8))
    tokens = ["[CLS]", *TEXT.split()[:6], "[SEP]"]
    close(load(tmp_path, max_tokens=8, normalize=False).vector(TEXT), hidden(tokens).mean(axis=0))
    with pytest.raises(ModelFileError, match="lower `max_tokens` if the model reads fewer"):
        load(tmp_path, max_tokens=9)


def test_a_tokenizer_without_a_token_is_refused(tmp_path):
    embedders.write(tmp_path)
    for strange, why in ((BPE(), "makes no token for a letter; copy"), (WordLevel({}), "cannot read a text: .*UNK")):
        Tokenizer(strange).save(str(tmp_path / "tokenizer.json"))
        with pytest.raises(ModelFileError, match=why):
            load(tmp_path)


def test_a_vector_that_16_bits_do_not_hold_is_refused(tmp_path):
    embedders.write(tmp_path, embedders.model(tanh=False, scale=1e6))
    with pytest.raises(ValueError, match="numbers that are not finite, or over 65504.*write `normalize: true`"):
        load(tmp_path, normalize=False)
    assert np.isfinite(load(tmp_path).vector(TEXT)).all()


def test_a_device_that_the_package_is_not_made_for_is_refused(tmp_path):
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this build of ONNX Runtime has CUDA")
    embedders.write(tmp_path)
    with pytest.raises(ImportError, match="`device: cuda` needs another build .* pip install onnxruntime-gpu"):
        load(tmp_path, device="cuda")


SILENT = """
import os, sys
from gristmill.tasks.models.embedders import Embedder
from gristmill.tasks.models.embedders import SentenceEmbedder, embedder_files
SentenceEmbedder(embedder_files(sys.argv[1], "onnx"), Embedder()).vector("river mill")
print(os.environ["ORT_DISABLE_TELEMETRY"], *sorted(os.listdir(".")))
"""


def test_onnx_runtime_sends_nothing_to_its_makers(tmp_path):
    """Where it does, it keeps a file of what is to be sent in the current folder, or the user's."""
    folder = embedders.write(tmp_path / "model")
    here = tmp_path / "here"
    here.mkdir()
    kept = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": str(here), "ORT_DISABLE_TELEMETRY": "0"}
    run = [sys.executable, "-B", "-c", SILENT, folder]
    done = subprocess.run(run, cwd=here, env=kept, capture_output=True, text=True)
    assert done.stdout.split() == ["1"], done.stderr
    assert [*here.iterdir()] == []
