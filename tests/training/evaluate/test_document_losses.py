"""Losses of held-out documents against one document at a time in float64, and what they may not depend on."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gristmill.samples.order import Order
from gristmill.storage import checked_json, parquet
from gristmill.storage.tokenizer_files import load_tokenizer
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.config import DOCUMENT_LOSSES
from gristmill.training.decoder import Decoder
from gristmill.training.evaluate.heldout import LENGTHS, document_losses, passes
from gristmill.training.run.launch import launch
from gristmill.training.run.loop import train
from gristmill.training.world import World, processes, sharded_model


def documents(corpus) -> list[tuple[str, list[int]]]:
    """Set and tokens, end-of-text tokens left out."""
    mixture, found = json.loads(corpus.read_text()), []
    for held in mixture["heldout"]:
        for shard in held["shards"]:
            rest = np.fromfile(corpus.parent / shard["path"], dtype="<u2").tolist()
            while rest:
                end = rest.index(mixture["end_of_text"])
                found.append((held["name"], rest[:end]))
                rest = rest[end + 1 :]
    return found


@pytest.fixture
def world():
    with processes(60) as world:
        yield world


@pytest.fixture
def model(make_run, tmp_path, corpus, world):
    run, manifest = make_run(tmp_path), load_training_manifest(corpus)
    return sharded_model(run.model, run.training, manifest.vocab_size, manifest.end_of_text, world)


def test_against_one_document_at_a_time_in_float64(corpus, make_run, tmp_path, world, model):
    run, manifest = make_run(tmp_path), load_training_manifest(corpus)
    found = document_losses(model, manifest, world)
    exact = Decoder(run.model, manifest.vocab_size).double()
    exact.load_state_dict({name: value.full_tensor().double() for name, value in model.state_dict().items()})
    pieces = load_tokenizer(manifest.tokenizer.path)
    expected = documents(corpus)
    assert found.sets == [name for name, _ in expected]
    assert found.index.tolist() == [*range(20), *range(20)]
    for at, (_, text) in enumerate(expected):
        assert found.sizes[at] == len(pieces.decode(text).encode())
        tokens, nats = [manifest.end_of_text, *text, manifest.end_of_text], 0.0
        for start in range(0, len(tokens) - 1, 32):
            window = torch.tensor(tokens[start : start + 33])
            with torch.no_grad():
                logs = exact(window[None, :-1])[0].log_softmax(-1)
            nats -= logs[torch.arange(len(window) - 1), window[1:]].sum().item()
        assert found.bits[at] == pytest.approx(nats / math.log(2), rel=1e-6)


OWN = ("checksum", "file")  # keys that a checked file has of itself


def test_a_document_does_not_depend_on_the_others(corpus, world, model, tmp_path):
    whole = document_losses(model, load_training_manifest(corpus), world)
    mixture = json.loads(corpus.read_text())
    for name, tokens in documents(corpus)[5:8]:
        array = np.array([*tokens, mixture["end_of_text"]], "<u2")
        array.tofile(tmp_path / "one.bin")
        one = mixture | {
            "heldout": [{"name": name, "shards": [{"path": "one.bin", "tokens": len(array), "digest": ""}]}]
        }
        for part in one["sources"]:
            part["shards"] = [shard | {"path": str(corpus.parent / shard["path"])} for shard in part["shards"]]
        checked_json.write(str(tmp_path / "mixture.json"), {k: v for k, v in one.items() if k not in OWN})
        alone = document_losses(model, load_training_manifest(tmp_path / "mixture.json"), world)
        (bits,) = alone.bits
        assert np.isclose(whole.bits[:20], bits, rtol=1e-6, atol=0).sum() == 1


class Half(World):
    """One of two ranks, whose sums are its own."""

    def sum(self, values):
        return values


@pytest.mark.extended
def test_two_ranks_have_the_bits_of_one(corpus, world, model):
    """Both in this process: what each has found, added."""
    manifest = load_training_manifest(corpus)
    one = document_losses(model, manifest, world, 64)
    halves = [document_losses(model, manifest, Half(rank, 2, world.device, world.mesh), 64).bits for rank in range(2)]
    assert all((half > 0).any() and (half < one.bits).any() for half in halves)
    assert np.allclose(halves[0] + halves[1], one.bits, rtol=1e-14, atol=0)
    assert np.allclose(one.bits, document_losses(model, manifest, world).bits, rtol=1e-6, atol=0)


@given(st.integers(1, 40), st.integers(1, 200), st.data())
def test_each_window_is_in_one_pass_of_few_shapes(seq_len, tokens, data):
    sizes = data.draw(st.lists(st.integers(1, seq_len), max_size=60))
    found = passes(sizes, seq_len, tokens)
    assert sorted(number for one in found for number in one.pieces) == list(range(len(sizes)))
    assert all(sizes[number] <= one.length <= seq_len for one in found for number in one.pieces)
    assert all(one.rows == 1 or one.rows * one.length <= tokens for one in found)
    assert len({(one.length, one.rows) for one in found}) <= LENGTHS
    assert all(len(one.pieces) == one.rows for one in found[:-1]) and all(one.pieces for one in found)


def test_a_held_out_set_without_an_end_is_refused(corpus, world, model, tmp_path):
    for path in corpus.parent.iterdir():
        shutil.copy(path, tmp_path)
    mixture = json.loads((tmp_path / "mixture.json").read_text())
    shard = mixture["heldout"][1]["shards"][0]
    np.fromfile(tmp_path / shard["path"], "<u2")[:-1].tofile(tmp_path / shard["path"])
    shard["tokens"] -= 1
    checked_json.write(str(tmp_path / "mixture.json"), {k: v for k, v in mixture.items() if k not in OWN})
    with pytest.raises(ValueError, match=r"books.*books-heldout\.bin does not end with the end-of-text token"):
        document_losses(model, load_training_manifest(tmp_path / "mixture.json"), world)


@pytest.mark.extended
def test_the_order_has_a_seed_of_its_own(corpus, make_run, tmp_path):
    """The loss of the first step: of the weights by `seed`, on the first batch by `order_seed`."""
    training = {"steps": 1, "warmup_steps": 0, "sample_tokens": 0, "seed": 7}
    run, manifest = make_run(tmp_path / "alone", training=training), load_training_manifest(corpus)
    expected = {}
    with processes(60) as world, torch.no_grad():
        model = sharded_model(run.model, run.training, manifest.vocab_size, manifest.end_of_text, world)
        for order_seed, key in ((None, 7), (3, 3)):
            rows = torch.from_numpy(Order(manifest, seq_len=32, batch=7, seed=key).batch(0))
            losses = torch.nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            expected[order_seed] = losses.item()
    assert expected[None] != pytest.approx(expected[3], rel=1e-5)
    for order_seed, loss in expected.items():
        run = make_run(tmp_path / str(order_seed), training=training | {"order_seed": order_seed}, document_losses=True)
        assert train(run)["train/loss"] == pytest.approx(loss, rel=1e-6)
        assert parquet.rows(str(run.out / DOCUMENT_LOSSES)) == 40


@pytest.mark.slow
def test_two_ranks_give_the_bytes_of_one(make_run, tmp_path):
    """Both from one finished checkpoint, so that no weight is rounded otherwise; and one with wider passes."""
    first = make_run(tmp_path / "first", training={"sample_tokens": 0, "steps": 20})
    train(first)
    given = {"training": {"sample_tokens": 0, "steps": 20}, "resume_from": first.out / "checkpoints" / "step-00000020"}
    files = []
    for name, ranks, micro_batch in (("one", 1, 2), ("two", 2, 2), ("wide", 1, 7)):
        given["training"]["micro_batch"] = micro_batch
        run = make_run(tmp_path / name, document_losses=True, **given)
        run.out.mkdir()
        checked_json.write(str(run.out / "run.json"), run.model_dump(mode="json"))
        assert launch(run.out / "run.json", ranks, run.out / "log.txt") == 0
        files.append(run.out / DOCUMENT_LOSSES)
    assert files[0].read_bytes() == files[1].read_bytes()
    one, wide = (parquet.read_table(str(path)).to_pandas() for path in (files[0], files[2]))
    assert np.allclose(one["bits"], wide["bits"], rtol=1e-6, atol=0) and one["bytes"].equals(wide["bytes"])
