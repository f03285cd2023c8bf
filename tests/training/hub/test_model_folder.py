"""An exported model: the same logits and the same ids, in our own reader and in Hugging Face's."""

import json
import random
import shutil
from dataclasses import replace

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from gristmill.storage import checked_json, files
from gristmill.storage.tokenizer_files import load_tokenizer
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.checkpoint.keeping import committed, upload
from gristmill.training.decoder import Decoder
from gristmill.training.hub.model_folder import write_model_folder
from gristmill.training.hub.tokenizer import check_same_ids, tokenizer_json
from gristmill.training.hub.weight_files import WEIGHTS
from gristmill.training.hub.weights import export_model, load_model, open_model, public_name
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.loop import train

pytestmark = pytest.mark.extended

SHAPES = {
    "tied": ModelConfig(dim=32, layers=2, heads=4, seq_len=32, qk_norm=False),
    "untied, grouped": ModelConfig(
        dim=48, layers=2, heads=6, kv_heads=2, seq_len=32, tie_embeddings=False, qk_norm=False
    ),
    "qk-norm": ModelConfig(dim=32, layers=2, heads=4, kv_heads=2, seq_len=32, qk_norm=True),
    "softcap": ModelConfig(dim=32, layers=2, heads=4, seq_len=32, qk_norm=True, logit_softcap=5.0),
    "nanochat": ModelConfig(block="nanochat", dim=32, layers=2, heads=4, kv_heads=2, seq_len=32, logit_softcap=15.0),
    "nanochat, untied": ModelConfig(block="nanochat", dim=32, layers=2, heads=2, seq_len=32, tie_embeddings=False),
}
KINDS = {
    "llama": {"tie_embeddings": False},
    "qwen3": {"qk_norm": True},
    "nanochat": {"block": "nanochat", "qk_norm": True, "tie_embeddings": False, "logit_softcap": 15.0},
    "nanochat, tied": {"block": "nanochat", "qk_norm": True, "heads": 4, "kv_heads": 2, "ffn": 64},
}
CLASSES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "nanochat": "NanoChatForCausalLM"}
ODD = (
    "",
    " ",
    "\n\n  \n",
    "</s>",
    "a</s><s> b",
    "▁▁ a ▁",
    "<0x41><unk>",
    "\0\r\t",
    "é☃🦀\U0010ffff",
    "  é ",
    "0123 42",
)


def trained(make_run, out, **model):
    """A short run with its run.json, as the launcher writes it."""
    run = make_run(out, model=model, training={"steps": 6, "warmup_steps": 1, "checkpoint_every": 3})
    train(run)
    checked_json.write(str(out / "run.json"), run.model_dump(mode="json"))
    return run


@pytest.fixture(scope="module")
def exported(make_run, tmp_path_factory):
    """(folder of the training, the exported folder) of each kind."""
    found = {}
    for kind, model in KINDS.items():
        out = tmp_path_factory.mktemp("trained")
        trained(make_run, out, **model)
        to = tmp_path_factory.mktemp("exported") / "model"
        assert write_model_folder(open_model(out), to, kind, "name: planted")
        found[kind] = out, to
    return found


@pytest.fixture(scope="module")
def pieces(corpus):
    return load_tokenizer(corpus.parent / "tokenizer.model")


@pytest.fixture(scope="module")
def described(pieces):
    return tokenizer_json(pieces)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_comes_back(shape, tmp_path):
    model = Decoder(SHAPES[shape], 100)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.3)
    export_model({n: p.detach() for n, p in model.named_parameters()}, SHAPES[shape], 100, tmp_path)
    again = load_model(tmp_path)
    assert again.config.model_dump(exclude={"kv_heads", "ffn"}) == SHAPES[shape].model_dump(exclude={"kv_heads", "ffn"})
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(again(tokens), model.eval()(tokens))


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_gives_the_logits_of_the_training(kind, exported):
    out, to = exported[kind]
    tokens = torch.randint(0, 400, (2, 30), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours = open_model(out).load()(tokens)
        assert torch.equal(open_model(to).load()(tokens), ours)
        # the newest checkpoint has the same weights
        assert torch.equal(open_model(out / "checkpoints" / "step-00000006").load()(tokens), ours)
        assert not torch.equal(open_model(out / "checkpoints" / "step-00000003").load()(tokens), ours)


def test_an_export_is_left_as_it_is_and_replaces_nothing(exported, make_run, tmp_path):
    (out, to), (other, _) = exported["llama"], exported["qwen3"]
    before = {path: path.stat().st_mtime_ns for path in to.iterdir()}
    assert not write_model_folder(open_model(out), to, "llama")
    assert {path: path.stat().st_mtime_ns for path in to.iterdir()} == before
    with pytest.raises(FileExistsError, match="has another model, or this one with a different data type"):
        write_model_folder(open_model(other), to, "qwen3")
    with pytest.raises(FileExistsError, match="with a different data type"):
        write_model_folder(open_model(out), to, "llama", dtype="bfloat16")
    (tmp_path / "mine.txt").touch()
    with pytest.raises(FileExistsError, match="contains files that are not an exported model"):
        write_model_folder(open_model(out), tmp_path, "llama")
    # what a killed export left behind is no hindrance, and the same bytes come out
    again = tmp_path / "again"
    (tmp_path / ".again.tmp").mkdir()
    (tmp_path / ".again.tmp" / "half").touch()
    assert write_model_folder(open_model(out), again, "llama", "name: planted")
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in to.iterdir()
    }
    # a damaged file, or one that is gone, is found, and the remedy mends it
    before = {path.name: path.read_bytes() for path in again.iterdir()}
    for name in sorted(before.keys() - {"gristmill.json"}):
        (again / name).write_bytes(b"\0" + before[name][1:])
        with pytest.raises(RuntimeError, match=f"{name} differs from the export; run .gristmill export model"):
            open_model(again).load()
        assert write_model_folder(open_model(out), again, "llama", "name: planted")
        (again / name).unlink()
        with pytest.raises(RuntimeError, match=f"{name} differs from the export; run .gristmill export model"):
            open_model(again).load()
        assert write_model_folder(open_model(out), again, "llama", "name: planted")
        assert {path.name: path.read_bytes() for path in again.iterdir()} == before
    (again / "gristmill.json").write_bytes(b"{}")
    with pytest.raises(FileExistsError, match=f"gristmill.json is not what was written: remove {again} and export"):
        write_model_folder(open_model(out), again, "llama", "name: planted")


def test_what_cannot_be_exported(exported, make_run, tmp_path):
    out, to = exported["llama"]
    for folder in (to, out / "checkpoints" / "step-00000003"):
        with pytest.raises(ValueError, match="is not a finished training run"):
            write_model_folder(open_model(folder), tmp_path / "new", "llama")
    with pytest.raises(ValueError, match="has no trained model"):
        open_model(tmp_path)
    soft = tmp_path / "soft"
    trained(make_run, soft, logit_softcap=30.0)
    with pytest.raises(ValueError, match="model.logit_softcap is 30, which neither"):
        write_model_folder(open_model(soft), tmp_path / "new", "soft")
    moved = tmp_path / "moved"
    shutil.copytree(out, moved)
    run = checked_json.read(str(moved / "run.json"))
    run.pop("checksum", None)
    checked_json.write(str(moved / "run.json"), {**run, "data": str(tmp_path / "gone" / "mixture.json")})
    with pytest.raises(FileNotFoundError, match="gone/mixture.json, which do not exist"):
        open_model(moved)


def test_weights_in_bfloat16_are_the_rounded_ones(exported, tmp_path):
    out, to = exported["qwen3"]
    assert write_model_folder(open_model(out), tmp_path / "half", "qwen3", dtype="bfloat16")
    assert json.loads((tmp_path / "half" / "config.json").read_text())["torch_dtype"] == "bfloat16"
    whole, half = (dict(open_model(folder).load().named_parameters()) for folder in (to, tmp_path / "half"))
    for name, parameter in whole.items():
        assert torch.equal(parameter.bfloat16().float(), half[name])


def test_the_card_has_the_figures_of_the_training(exported):
    out, to = exported["llama"]
    result, card = json.loads((out / "result.json").read_text()), (to / "README.md").read_text()
    assert f"| parameters | {result['parameters']:,} |" in card
    assert f"| loss on held-out text, nats per token | {result['heldout/loss']:.4f} |" in card
    mixture = load_training_manifest(open_model(out).run.data)
    for source in mixture.sources:
        bits = result[f"heldout/{source.name}/bits_per_byte"]
        assert f"| {source.name} | {source.share:.1%} | {source.tokens:,} | {source.epochs:.2f} | {bits:.4f} |" in card
    assert "~~~yaml\nname: planted\n~~~" in card and "License: not filled in" in card


@settings(max_examples=200, deadline=None)
@given(st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("aeioubd ▁é☃<>/s\n"))))
def test_merges_give_the_ids_of_sentencepiece(pieces, described, text):
    check_same_ids(pieces, described, [text])


def test_other_ids_are_refused(pieces, described):
    texts = [pieces.decode(pieces.encode(text)) for text in ("labe do ri", "éa☃ bi")]
    assert check_same_ids(pieces, described, texts) == sum(len(pieces.encode(text)) for text in texts)
    wrong = json.loads(json.dumps(described))
    wrong["model"]["merges"] = wrong["model"]["merges"][::-1]
    learned = [name for name in described["model"]["vocab"] if len(name) > 3 and not name.startswith("<")]
    with pytest.raises(ValueError, match="gives other ids than tokenizer.model for the text"):
        check_same_ids(pieces, wrong, [" ".join(learned)])


def fuzzed(pieces, count: int) -> list[str]:
    draw = random.Random(3)
    learned = [name.replace("▁", " ") for name in pieces.names if not name.startswith("<0x")]
    ranges = ((0, 0x80), (0x80, 0xD800), (0xE000, 0x110000))
    texts = list(ODD)
    for _ in range(count):
        texts.append("".join(draw.choice(learned) for _ in range(draw.randrange(12))))
        texts.append("".join(chr(draw.randrange(*draw.choice(ranges))) for _ in range(draw.randrange(20))))
        texts.append(draw.choice(learned) * draw.randrange(9) + draw.choice(ODD))
    return texts


def test_tokenizers_gives_the_ids_of_sentencepiece(exported, pieces):
    peer = tokenizers.Tokenizer.from_file(str(exported["llama"][1] / "tokenizer.json"))
    peer.encode_special_tokens = True
    for text in fuzzed(pieces, 700):
        ids = peer.encode(text, add_special_tokens=False).ids
        assert ids == pieces.encode(text)
        assert peer.decode(ids, skip_special_tokens=False) == text
        assert peer.encode(text).ids == [pieces.end_of_text, *ids]


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_loads_the_folder(kind, exported, pieces):
    """The same logits, the same ids, and the same text by greedy generation."""
    transformers = pytest.importorskip("transformers")
    out, to = exported[kind]
    ours, peer = open_model(to).load(), transformers.AutoModelForCausalLM.from_pretrained(to).eval()
    assert type(peer).__name__ == CLASSES[kind.partition(",")[0]]
    tokens = torch.randint(0, 400, (3, 32), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        torch.testing.assert_close(peer(tokens).logits, ours(tokens), rtol=1e-4, atol=1e-4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(to)
    for text in fuzzed(pieces, 200):
        ids = [pieces.end_of_text, *pieces.encode(text)]
        assert tokenizer(text)["input_ids"] == ids
        assert tokenizer.decode(ids[1:]) == text
    assert tokenizer.bos_token_id == tokenizer.eos_token_id == pieces.end_of_text
    from gristmill.training.evaluate.sample import generate

    given = tokenizer("labe", return_tensors="pt")["input_ids"]
    made = peer.generate(given, max_new_tokens=20, do_sample=False)[0, given.shape[1] :].tolist()
    expected = generate(ours, given[0].tolist(), 20, temperature=0, top_k=0, seed=0, end=pieces.end_of_text)
    assert [token for token in made if token != pieces.end_of_text] == expected


def test_the_mean_of_checkpoints_is_exported(exported, tmp_path):
    out, _ = exported["llama"]
    saved = open_model(out)
    assert write_model_folder(saved, tmp_path / "mean", "mean", average=2)
    found = load_file(tmp_path / "mean" / "model.safetensors")
    first, last = (dict(open_model(path).load().named_parameters()) for path in committed(out / "checkpoints").values())
    assert found.keys() == {public_name(name) for name in first}
    for name in first:
        mean = ((first[name].double() + last[name].double()) / 2).float()
        torch.testing.assert_close(found[public_name(name)], mean)
    assert "mean of step-00000003, step-00000006" in (tmp_path / "mean" / "README.md").read_text()
    assert not write_model_folder(saved, tmp_path / "mean", "mean", average=2)
    with pytest.raises(FileExistsError, match="has another model"):
        write_model_folder(saved, tmp_path / "mean", "mean")
    with pytest.raises(ValueError, match="keeps 2 checkpoints, fewer than --average 3"):
        write_model_folder(saved, tmp_path / "more", "mean", average=3)

    moved, store = tmp_path / "moved", f"file://{tmp_path}/home/checkpoints"
    shutil.copytree(out, moved)
    for path in committed(out / "checkpoints").values():
        upload(path, store, out)
    shutil.rmtree(moved / "checkpoints")
    there = open_model(moved)
    assert there.run
    there = replace(there, run=there.run.model_copy(update={"store": store}))
    assert write_model_folder(there, tmp_path / "fetched", "mean", average=2)
    assert files.checksum(str(tmp_path / "fetched" / WEIGHTS)) == files.checksum(str(tmp_path / "mean" / WEIGHTS))
