"""First weights from a folder: the training begins with them, for any number of files; what does not fit is refused."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from gristmill.storage import checked_json, files
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.config import RunConfig, TrainingConfig
from gristmill.training.decoder import Decoder
from gristmill.training.evaluate.heldout import heldout_loss, heldout_windows
from gristmill.training.hub.model_folder import write_model_folder
from gristmill.training.hub.weight_files import INDEX, WEIGHTS, check_fits, shapes, weight_files
from gristmill.training.hub.weights import load_initial_weights, open_model
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.loop import train
from gristmill.training.world import processes, sharded_model

pytestmark = pytest.mark.extended

MODEL = {"qk_norm": True, "tie_embeddings": False}


@pytest.fixture(scope="module")
def exported(make_run, tmp_path_factory):
    """An exported model of a short run."""
    out = tmp_path_factory.mktemp("first")
    run = make_run(out, model=MODEL, training={"steps": 30, "checkpoint_every": 30})
    train(run)
    checked_json.write(str(out / "run.json"), run.model_dump(mode="json"))
    to = tmp_path_factory.mktemp("export") / "model"
    write_model_folder(open_model(out), to, "first")
    return to


@pytest.fixture
def copied(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "copied")


def pinned(folder) -> dict:
    return {path.name: files.checksum(str(path)) for path in weight_files(folder)}


def split(folder) -> None:
    """The weights in three files with an index, as Hugging Face writes large models."""
    weights = load_file(folder / WEIGHTS)
    names = {name: f"model-{i % 3 + 1:05d}-of-00003.safetensors" for i, name in enumerate(sorted(weights))}
    for file in set(names.values()):
        save_file({name: weights[name] for name in weights if names[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))
    (folder / WEIGHTS).unlink()


def begun(folder, make_run, out, world, **more):
    """A sharded model and its run, with the weights of the folder."""
    given = {"init_digests": pinned(folder), **more}
    run = make_run(out, model=MODEL, training={"init_from": str(folder)}, **given)
    manifest = load_training_manifest(run.data)
    model = sharded_model(run.model, run.training, manifest.vocab_size, manifest.end_of_text, world)
    load_initial_weights(model, run, manifest, world)
    return model, run, manifest


@pytest.mark.parametrize("whole", [True, False])
def test_the_weights_are_those_of_the_folder(whole, exported, copied, make_run, tmp_path):
    if not whole:
        split(copied)
    expected = dict(open_model(exported).load().named_parameters())
    with processes(60) as world:
        model, _, _ = begun(copied, make_run, tmp_path / "out", world)
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter.full_tensor(), expected[name])


def test_training_goes_on_from_there(exported, make_run, tmp_path):
    """With hardly any learning rate the held-out loss stays that of the exported model, far below a fresh one's."""
    training = {"steps": 2, "warmup_steps": 0, "learning_rate": 1e-9, "weight_decay": 0, "checkpoint_every": 1}
    fresh = make_run(tmp_path / "fresh", model=MODEL, training=training)
    run = make_run(
        tmp_path / "on",
        model=MODEL,
        training={**training, "init_from": str(exported)},
        init_digests=pinned(exported),
    )
    result = train(run)
    windows = heldout_windows(load_training_manifest(run.data), 32, run.training.eval_tokens)
    with processes(60) as world:
        before = heldout_loss(open_model(exported).load(), windows, 4, world)
    assert result["heldout/loss"] == pytest.approx(before["heldout/loss"], rel=1e-5)
    assert train(fresh)["heldout/loss"] > before["heldout/loss"] + 0.3
    # its checkpoints are of these weights, wherever they lie: a run with others does not take them
    moved = shutil.copytree(exported, tmp_path / "moved")
    again = run.model_copy(update={"training": run.training.model_copy(update={"init_from": str(moved)})})
    assert train(again) == result
    with pytest.raises(ValueError, match="init_digests"):
        train(run.model_copy(update={"init_digests": {WEIGHTS: "0" * 32}}))


def test_files_that_have_changed_are_refused(copied, make_run, tmp_path):
    before = pinned(copied)
    weights = load_file(copied / WEIGHTS)
    weights["model.norm.weight"] += 1
    save_file(weights, copied / WEIGHTS)
    with processes(60) as world:
        with pytest.raises(ValueError, match="whose model.safetensors has changed since the run was planned"):
            begun(copied, make_run, tmp_path / "out", world, init_digests=before)
        (copied / "tokenizer.model").write_bytes(b"another")
        with pytest.raises(ValueError, match="whose tokenizer.model has changed since the run was planned"):
            begun(copied, make_run, tmp_path / "out", world)


@pytest.mark.parametrize(
    "config", [ModelConfig(dim=48, heads=6, kv_heads=2, ffn=96, qk_norm=False), ModelConfig(**MODEL)]
)
def test_shapes_are_those_of_the_decoder(config):
    with torch.device("meta"):
        model = Decoder(config, 321)
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert {name.removeprefix("model."): shape for name, shape in shapes(config, 321)} == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dim": 64}, "has 32 for model.dim, but the recipe has 64; set model.dim: 32"),
        ({"layers": 3}, "set model.layers: 2"),
        ({"kv_heads": 4}, "set model.kv_heads: 2"),
        ({"rope_theta": 5e5}, "set model.rope_theta: 10000.0"),
        ({"norm_eps": 1e-6}, "set model.norm_eps: 1e-05"),
        ({"tie_embeddings": True}, "set model.tie_embeddings: false"),
        ({"qk_norm": False}, "set model.qk_norm: true"),
        ({"logit_softcap": 5.0}, "set model.logit_softcap: null"),
    ],
)
def test_another_shape_is_refused(change, said, exported, make_run, tmp_path):
    run = make_run(tmp_path, model={**MODEL, **change})
    with pytest.raises(ValueError) as error:
        check_fits(exported, run.model)
    assert said in str(error.value) and str(exported) in str(error.value)


def test_other_weights_are_refused(exported, copied, make_run, tmp_path):
    model = make_run(tmp_path, model={**MODEL, "seq_len": 512}).model
    check_fits(exported, model)  # the context is free
    with pytest.raises(ValueError, match="model.embed_tokens.weight is .*require .999, 32."):
        check_fits(exported, model, 999)
    weights, described = load_file(copied / WEIGHTS), json.loads((copied / "config.json").read_text())
    more = {**weights, "model.layers.0.self_attn.q_proj.bias": torch.zeros(32)}
    save_file(more, copied / WEIGHTS)
    with pytest.raises(ValueError, match="weights have model.layers.0.self_attn.q_proj.bias"):
        check_fits(copied, model)
    save_file({n: t for n, t in weights.items() if n != "lm_head.weight"}, copied / WEIGHTS)
    with pytest.raises(ValueError, match="weights lack lm_head.weight"):
        check_fits(copied, model)
    scaled = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}
    for other, said in (
        ({"model_type": "gpt2"}, "type gpt2"),
        ({"attention_bias": True}, "attention_bias"),
        (scaled, "llama3"),
    ):
        (copied / "config.json").write_text(json.dumps({**described, **other}))
        with pytest.raises(ValueError, match=said):
            check_fits(copied, model)
    (copied / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": "../../secret.safetensors"}}))
    with pytest.raises(ValueError, match="which is not a ..safetensors file in the same folder"):
        weight_files(copied)
    with pytest.raises(FileNotFoundError, match="training.init_from is .* which has no config.json"):
        weight_files(tmp_path)


def test_weights_without_digests_are_no_run(tmp_path):
    with pytest.raises(ValueError, match="give both or neither"):
        RunConfig(model=ModelConfig(), training=TrainingConfig(init_from="x"), data=tmp_path, out=tmp_path)
