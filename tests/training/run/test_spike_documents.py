"""The documents of a spike: losses by document are those of the tokens, and planted documents are the ones named."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch

from gristmill.samples.order import Order
from gristmill.storage import checked_json, files
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.evaluate.batch_losses import batch_losses
from gristmill.training.hub.weights import load_model
from gristmill.training.run.loop import train
from gristmill.training.step.guard import EVENTS, read_events
from gristmill.training.world import processes
from tests.training.conftest import documents

pytestmark = pytest.mark.extended

SHORT = {"steps": 100, "eval_every": 100, "checkpoint_every": 20, "sample_tokens": 0, "keep_checkpoints": 3}
FIRST_BAD, END_BAD = 62, 70  # batches


def test_losses_by_document_add_up_to_those_of_the_tokens(run_small):
    """Compared with the losses of each window by itself; its targets are given to documents by counting ends."""
    manifest, training = load_training_manifest(run_small.data), run_small.training
    order = Order(manifest, seq_len=32, batch=7, seed=3)
    model = load_model(run_small.out)
    with processes(60) as world:
        found = batch_losses(model, order, [2, 5], training, manifest.end_of_text, world)
        highest = found.highest(2.0, 5)
    expected: dict[tuple, list[float]] = defaultdict(lambda: [0, 0.0])
    for sample in (*range(14, 21), *range(35, 42)):
        source, _, window = order.window_of(sample)
        shards = manifest.sources[source].shards
        ids = np.concatenate([np.fromfile(shard.path, "<u2") for shard in shards]).astype(np.int64)
        begins = np.concatenate([[0], np.flatnonzero(ids == manifest.end_of_text) + 1])
        row = torch.from_numpy(ids[window * 32 : window * 32 + 33])[None]
        with torch.no_grad():
            losses = torch.nn.functional.cross_entropy(model(row[:, :-1])[0], row[0, 1:], reduction="none")
        for place, loss in enumerate(losses.tolist(), window * 32 + 1):
            begin = int(begins[begins <= place].max())
            key = begin - shards[0].tokens if begin >= shards[0].tokens else begin
            path = shards[begin >= shards[0].tokens].path
            total = expected[manifest.sources[source].name, str(path), key]
            total[0] += 1
            total[1] += loss
    assert {each[:3]: each.tokens for each in found.documents} == {key: n for key, (n, _) in expected.items()}
    for each in found.documents:
        assert each.nats == pytest.approx(expected[each[:3]][1], rel=1e-5)
    assert found.tokens == 2 * 7 * 32 and found.nats == pytest.approx(sum(n for _, n in expected.values()), rel=1e-6)
    by_excess = sorted(expected, key=lambda key: expected[key][0] * 2.0 - expected[key][1])
    assert [each[:3] for each in highest] == by_excess[:5]


@pytest.fixture(scope="module")
def spoilt(corpus, tmp_path_factory):
    """The mixture with a third source, half of it, in which the windows of eight batches are drawn tokens."""
    folder = tmp_path_factory.mktemp("spoilt")
    mixture = checked_json.read(str(corpus))
    for part in (*mixture["sources"], *mixture["heldout"]):
        for shard in part["shards"]:
            shard["path"] = str(corpus.parent / shard["path"])
    mixture["tokenizer"]["path"] = str(corpus.parent / mixture["tokenizer"]["path"])
    pieces = sentencepiece.SentencePieceProcessor(model_file=mixture["tokenizer"]["path"])
    ids = np.concatenate([[*pieces.encode(text), pieces.eos_id()] for text in documents(9, 600)]).astype("<u2")
    bad = {"name": "bad", "share": 0.5, "tokens": len(ids), "epochs": 4}
    for source, share in zip(mixture["sources"], (0.3, 0.2), strict=True):
        source["share"] = share
    mixture["sources"].append(bad)

    def write() -> Path:
        ids.tofile(folder / "bad.bin")
        digest = files.checksum(str(folder / "bad.bin"))
        bad["shards"] = [{"path": "bad.bin", "tokens": len(ids), "digest": digest}]
        checked_json.write(str(folder / "mixture.json"), mixture)
        return folder / "mixture.json"

    order = Order(load_training_manifest(write()), seq_len=32, batch=7, seed=0)
    draw = np.random.default_rng(0)
    for window in windows_of_bad(order, FIRST_BAD, END_BAD):
        ids[window * 32 + 1 : window * 32 + 33] = draw.integers(10, mixture["vocab_size"], 32)
    return write()


def windows_of_bad(order: Order, first: int, end: int) -> list[int]:
    """The windows of the source `bad` that the batches read."""
    found = order.windows_of(order.samples(first, end))
    return [window for source, _, window in found if order.sources[source].name == "bad"]


@pytest.mark.extended
def test_the_guard_names_the_planted_documents(spoilt, make_run, tmp_path):
    guard = {"max_rollbacks": 0}
    run = make_run(tmp_path, training={**SHORT, "guard": guard}, data=spoilt)
    with pytest.raises(FloatingPointError, match="the likely cause is the data window"):
        train(run)
    [event] = [event for event in read_events(tmp_path / EVENTS) if event.what == "stop"]
    assert FIRST_BAD <= event.began - 1 <= FIRST_BAD + 2
    report = json.loads((tmp_path / "guard.json").read_text())
    assert report["events"][-1]["documents"] == [each.model_dump() for each in event.documents]
    named = {(each.shard, each.token) for each in event.documents if each.loss > 6}
    # the documents in which the planted windows of the spike's batches lie, by counting the ends of documents
    manifest = load_training_manifest(spoilt)
    order = Order(manifest, seq_len=32, batch=7, seed=0)
    ids = np.fromfile(spoilt.parent / "bad.bin", "<u2")
    begins = np.concatenate([[0], np.flatnonzero(ids == manifest.end_of_text) + 1])
    planted: set[tuple[str, int]] = set()
    for window in windows_of_bad(order, event.began - 1, min(event.step, END_BAD)):
        planted.add((f"{spoilt.parent.name}/bad.bin", int(begins[begins <= window * 32 + 1].max())))
    assert 10 < len(planted) <= 32
    assert len(named & planted) / len(named) >= 0.95  # precision
    assert len(named & planted) / len(planted) >= 0.9  # recall
