"""Training on files of nanoGPT's and llm.c's: the manifest names them where they are, and training reads their ids."""

import json
import struct

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.experiments.models.token_training import load, train_tokens, write_manifest
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.errors import RecipeError
from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.tokens.tokenizer import load as load_tokenizer
from gristmill.tasks.tokens.tokenizer import train_byte_bpe
from tests.planted.text import pydoc_paragraphs
from tests.recorded import recorded

MODEL = {"dim": 32, "layers": 1, "heads": 2, "seq_len": 32}
TRAINING = {"steps": 20, "batch": 4, "warmup_steps": 2, "eval_every": 20, "eval_tokens": 2048, "checkpoint_every": 20}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The folder of two sources, nanoGPT's files and llm.c's, and the ids of their training files."""
    folder = tmp_path_factory.mktemp("prepared")
    texts = pydoc_paragraphs()[:300]
    (folder / "tokenizer.json").write_bytes(train_byte_bpe(iter(texts), 400, ())[0])
    tokenizer = load_tokenizer(recorded(folder / "tokenizer.json"))
    end, encoded = tokenizer.end_of_text, [tokenizer.encode(text) for text in texts]
    appended = [np.array([*ids, end], "<u2") for ids in encoded]
    prefixed = [np.array([end, *ids], "<u2") for ids in encoded]
    np.concatenate(appended[:120]).tofile(folder / "owt-train.bin")
    np.concatenate(appended[120:140]).tofile(folder / "owt-val.bin")
    for name, part in (
        ("train_000001", prefixed[140:200]),
        ("train_000002", prefixed[200:280]),
        ("val", prefixed[280:]),
    ):
        ids = np.concatenate(part)
        header = struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253)
        (folder / f"fineweb_{name}.bin").write_bytes(header + ids.tobytes())
    return folder, {"owt": np.concatenate(appended[:120]), "fineweb": np.concatenate(prefixed[140:280])}


def written(folder, at, **more):
    given = {
        "sources": {"owt": [f"{folder}/owt-train.bin"], "fineweb": [f"{folder}/fineweb_train_*.bin"]},
        "heldout": {"owt": [f"{folder}/owt-val.bin"], "fineweb": [f"{folder}/fineweb_val.bin"]},
        "tokenizer": f"{folder}/tokenizer.json",
        "model": MODEL,
        "training": TRAINING,
        **more,
    }
    path = at / "settings.yaml"
    path.write_text(yaml.safe_dump(given))
    return path


def test_training_reads_the_ids_of_the_files(prepared, tmp_path):
    folder, ids = prepared
    manifest = load_training_manifest(write_manifest(load(written(folder, tmp_path)), tmp_path / "data"))
    total = sum(map(len, ids.values()))
    assert {source.name: source.share for source in manifest.sources} == pytest.approx(
        {name: len(given) / total for name, given in ids.items()}
    )
    order = Order(manifest, seq_len=32, batch=4, seed=0)
    for source, tokens in zip(order.sources, order.tokens, strict=True):
        assert (tokens.read(0, len(tokens)) == ids[source.name]).all()
    assert len(manifest.token_bytes) == 400 and manifest.token_bytes[manifest.end_of_text] == 0


def test_weights_choose_among_the_sources(prepared, tmp_path):
    folder, _ = prepared
    given = load(written(folder, tmp_path, weights={"owt": 2}))
    manifest = load_training_manifest(write_manifest(given, tmp_path / "data"))
    assert [(source.name, source.share) for source in manifest.sources] == [("owt", 1)]


def test_what_is_wrong_is_named(prepared, tmp_path):
    folder, _ = prepared
    with pytest.raises(RecipeError, match="weights has books, which are not sources"):
        load(written(folder, tmp_path, weights={"books": 1}))
    with pytest.raises(FileNotFoundError, match="owt: no file matches .*gone"):
        write_manifest(load(written(folder, tmp_path, sources={"owt": [f"{folder}/gone*.bin"]})), tmp_path)
    for given in (
        {"sources": {"owt": [f"{folder}/owt-*.bin"]}},
        {"sources": {"owt": [f"{folder}/owt-train.bin"], "again": [f"{folder}/owt-tr*.bin"]}},
    ):
        with pytest.raises(ValueError, match="owt-.*.bin is listed more than once in `sources` and `heldout`; list it"):
            write_manifest(load(written(folder, tmp_path, **given)), tmp_path)
    other = tmp_path / "llama.bin"
    other.write_bytes(struct.pack("<256i", 20240801, 7, 2, *[0] * 253) + struct.pack("<2I", 1, 2))
    with pytest.raises(ValueError, match="llama.bin has tokens of 4 bytes, but ids of the tokenizer take 2"):
        write_manifest(load(written(folder, tmp_path, sources={"owt": [str(other)]})), tmp_path)


def test_several_machines_are_refused(tmp_path):
    settings = MachineSettings(training_nodes=2, training_rendezvous="127.0.0.1:29500")
    with pytest.raises(ValueError, match="GRISTMILL_TRAINING_NODES is 2, but this command trains on one machine"):
        train_tokens(None, tmp_path, settings)


@pytest.mark.slow
def test_a_model_is_trained_and_evaluated(prepared, tmp_path, monkeypatch):
    folder, _ = prepared
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GRISTMILL_TRAINING_PROCESSES", "1")
    out = tmp_path / "model"
    done = CliRunner().invoke(app, ["train", "from-tokens", str(written(folder, tmp_path)), "--to", str(out)])
    assert done.exit_code == 0, done.output
    result = json.loads((out / "result.json").read_text())
    assert result["steps"] == 20 and result["heldout/loss"] < 6 and f"{result['heldout/loss']:.4f}" in done.output
    shown = CliRunner().invoke(app, ["train", "evaluate", str(out)])
    assert shown.exit_code == 0 and "fineweb" in shown.output, shown.output
