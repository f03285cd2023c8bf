"""Held-out loss and the unigram baseline against counts and sums made by hand."""

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.evaluate import heldout
from gristmill.training.evaluate.heldout import (
    heldout_loss,
    heldout_windows,
    token_counts,
    unigram_entropy,
    unigram_loss,
)
from gristmill.training.hub.weights import load_model
from gristmill.training.loss import IGNORE, bits_per_byte, inputs_and_targets, token_losses
from gristmill.training.run.loop import train
from gristmill.training.world import processes, sharded_model


@pytest.fixture
def world():
    with processes(60) as world:
        yield world


def raw_tokens(corpus, part: str) -> dict[str, list[int]]:
    mixture = json.loads(corpus.read_text())
    return {
        source["name"]: [int(t) for s in source["shards"] for t in np.fromfile(corpus.parent / s["path"], dtype="<u2")]
        for source in mixture[part]
    }


def test_windows_cover_each_target_once(corpus):
    """With room for all, the targets of a source are its tokens from the second on, in order."""
    windows = heldout_windows(load_training_manifest(corpus), seq_len=32, eval_tokens=10**9)
    for index, (name, tokens) in enumerate(raw_tokens(corpus, "heldout").items()):
        assert windows.names[index] == f"heldout/{name}"
        mine = windows.targets[windows.source == index]
        assert mine[mine != IGNORE].tolist() == tokens[1:]
        inputs = windows.inputs[windows.source == index]
        assert inputs[mine != IGNORE].tolist() == tokens[:-1]


def test_a_limit_takes_windows_from_all_over(corpus):
    windows = heldout_windows(load_training_manifest(corpus), seq_len=32, eval_tokens=32 * 5)
    every = heldout_windows(load_training_manifest(corpus), seq_len=32, eval_tokens=10**9)
    for source in (0, 1):
        mine, full = windows.inputs[windows.source == source], every.inputs[every.source == source]
        found = [int(np.flatnonzero((full == row).all(1))[0]) for row in mine]
        assert len(set(found)) == 5 and found == sorted(found)
        assert found[-1] > len(full) / 2


def test_unigram_against_a_counter(corpus, world):
    counts = Counter(token for tokens in raw_tokens(corpus, "sources").values() for token in tokens)
    mixture = json.loads(corpus.read_text())
    total = sum(counts.values()) + mixture["vocab_size"]
    targets = [token for tokens in raw_tokens(corpus, "heldout").values() for token in tokens[1:]]
    nats = [-math.log((counts[token] + 1) / total) for token in targets]
    size = sum(mixture["token_bytes"][token] for token in targets)
    loaded = load_training_manifest(corpus)
    metrics = unigram_loss(token_counts(loaded, world), heldout_windows(loaded, 32, 10**9))
    assert metrics["unigram/loss"] == pytest.approx(sum(nats) / len(nats), rel=1e-9)
    assert metrics["unigram/bits_per_byte"] == pytest.approx(sum(nats) / math.log(2) / size, rel=1e-9)


def test_the_entropy_is_that_of_what_training_reads(corpus, world):
    """Sources count by their shares, not by their sizes."""
    loaded = load_training_manifest(corpus)
    tokens, probabilities = raw_tokens(corpus, "sources"), Counter()
    for source in loaded.sources:
        for token, count in Counter(tokens[source.name]).items():
            probabilities[token] += source.share * count / source.tokens
    expected = -sum(p * math.log(p) for p in probabilities.values())
    assert unigram_entropy(loaded, token_counts(loaded, world)) == pytest.approx(expected, rel=1e-9)


def test_of_a_large_source_chunks_from_all_over_are_counted(corpus, world, monkeypatch):
    monkeypatch.setattr(heldout, "CHUNK", 1000)
    monkeypatch.setattr(heldout, "COUNTED", 3000)
    found = token_counts(load_training_manifest(corpus), world)
    for counts, tokens in zip(found, raw_tokens(corpus, "sources").values(), strict=True):
        chunks = -(-len(tokens) // 1000)
        read = [token for i in range(3) for token in tokens[i * chunks // 3 * 1000 :][:1000]]
        assert counts.tolist() == np.bincount(read, minlength=len(counts)).tolist()


def test_heldout_loss_against_one_window_at_a_time(corpus, make_run, tmp_path, world):
    run, mixture = make_run(tmp_path), load_training_manifest(corpus)
    model = sharded_model(run.model, run.training, mixture.vocab_size, mixture.end_of_text, world)
    windows = heldout_windows(mixture, 32, 900)
    metrics = heldout_loss(model, windows, 5, world)
    sums = {name: [0.0, 0, 0] for name in windows.names}
    with torch.no_grad():
        for source, x, y in zip(windows.source, windows.inputs, windows.targets, strict=True):
            logits = model(torch.from_numpy(x)[None])[0].double().log_softmax(-1)
            for place, target in enumerate(y.tolist()):
                if target != IGNORE:
                    part = sums[windows.names[source]]
                    part[0] -= logits[place, target].item()
                    part[1] += 1
                    part[2] += mixture.token_bytes[target]
    total = np.sum(list(sums.values()), axis=0)
    assert metrics["heldout/loss"] == pytest.approx(total[0] / total[1], rel=1e-6)
    assert metrics["heldout/bits_per_byte"] == pytest.approx(total[0] / math.log(2) / total[2], rel=1e-6)
    for name, (nats, _, size) in sums.items():
        assert metrics[f"{name}/bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-6)


def test_a_set_of_one_token_has_no_bits_per_byte_and_ends_no_training(corpus, make_run, tmp_path, world):
    run, manifest = make_run(tmp_path), load_training_manifest(corpus)
    model = sharded_model(run.model, run.training, manifest.vocab_size, manifest.end_of_text, world)
    windows = heldout_windows(manifest, 32, 32 * 4)
    inputs, targets = windows.inputs[:1].copy(), np.full_like(windows.targets[:1], IGNORE)
    targets[0, 0] = manifest.end_of_text
    more = replace(
        windows,
        names=(*windows.names, "survivors/web"),
        source=np.append(windows.source, len(windows.names)),
        inputs=np.concatenate([windows.inputs, inputs]),
        targets=np.concatenate([windows.targets, targets]),
    )
    assert heldout_loss(model, more, 4, world) == pytest.approx(heldout_loss(model, windows, 4, world))


def test_bits_per_byte_of_a_fair_coin():
    """8 bytes, each told by one of 256 equally likely tokens, cost 8 bits a byte, whatever the unit inside."""
    assert bits_per_byte(8 * math.log(256), 8) == pytest.approx(8)


def test_padding_adds_nothing():
    rows = torch.arange(12).reshape(2, 6) % 5
    inputs, targets = inputs_and_targets(rows, 4)
    assert inputs.shape == targets.shape == (4, 5)
    assert (targets[2:] == IGNORE).all()
    x = torch.randn(20, 7, generator=torch.Generator().manual_seed(0))
    losses = token_losses(x, torch.eye(7), targets.flatten(), None).view(4, 5)
    assert (losses[2:] == 0).all() and (losses[:2] > 0).all()


@pytest.mark.extended
def test_a_trained_model_beats_the_unigram(make_run, corpus, tmp_path):
    """The corpus is a chain of 3 followers a word: the model must find what word frequencies cannot tell."""
    run = make_run(tmp_path, training={"steps": 250, "batch": 16, "micro_batch": 16, "checkpoint_every": 250})
    result = train(run)
    assert result["heldout/loss"] < result["unigram/loss"] - 0.7
    assert result["heldout/bits_per_byte"] < 0.85 * result["unigram/bits_per_byte"]
    # and the exported weights give the loss that was reported
    with processes(60) as world:
        windows = heldout_windows(load_training_manifest(corpus), 32, run.training.eval_tokens)
        again = heldout_loss(load_model(tmp_path), windows, 4, world)
    assert again["heldout/loss"] == pytest.approx(result["heldout/loss"], rel=1e-6)
