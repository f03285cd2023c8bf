"""The objective masked: what is masked, against BERT's rule (Devlin et al. 2018, appendix A.1); its loss, against the
formula; a run and its evaluation; and what it refuses."""

import json
import math
import os
from collections import Counter

import numpy as np
import pytest
import torch

from gristmill.samples.order import Order
from gristmill.storage import checked_json
from gristmill.storage.tokenizer_files import load_tokenizer, read_tokenizer
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.config import RunConfig, TrainingConfig
from gristmill.training.decoder import Decoder, flops_per_token
from gristmill.training.denoisers import MASK, missing_tokens
from gristmill.training.evaluate.heldout import heldout_windows
from gristmill.training.evaluate.sample import sample_text, verbatim
from gristmill.training.evaluate.task_scores import task_scores
from gristmill.training.evaluate.tasks import Example, Task
from gristmill.training.hub.model_folder import write_model_folder
from gristmill.training.hub.weight_files import hugging_face_config, read_config
from gristmill.training.hub.weights import export_model, load_model, open_model
from gristmill.training.loss import IGNORE, inputs_and_targets
from gristmill.training.model_config import ModelConfig
from gristmill.training.objectives import Objective
from gristmill.training.run.loop import train
from gristmill.training.step.monitor import largest_logit
from gristmill.training.world import processes

pytestmark = pytest.mark.extended

SEQ_LEN = 100


@pytest.fixture(scope="module")
def manifest(masked_corpus):
    return load_training_manifest(masked_corpus)


@pytest.fixture(scope="module")
def mask(manifest) -> int:
    path = manifest.tokenizer.path
    return read_tokenizer(path.read_bytes(), str(path)).names.index(MASK)


def settings(**more) -> TrainingConfig:
    return TrainingConfig(objective="masked", **more)


def decoded(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inputs, targets = inputs_and_targets(torch.from_numpy(rows), len(rows))
    return inputs.numpy(), targets.numpy()


def near(count: int, total: int, share: float) -> bool:
    """Within five standard deviations of a binomial distribution."""
    return abs(count - share * total) < 5 * math.sqrt(share * (1 - share) * total)


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_of_the_targets_eight_tenths_are_masked_one_is_random_and_one_stays(rate, manifest, mask):
    samples = 1000
    objective = Objective(settings(corruption_rate=rate), SEQ_LEN, manifest)
    assert objective.tokens == SEQ_LEN + 1
    texts = np.random.default_rng(0).integers(3, 400, (samples, SEQ_LEN + 1))
    rows = np.array([objective(text, sample) for sample, text in enumerate(texts)])
    assert rows.shape == (samples, SEQ_LEN + 1) and rows.dtype == np.int64
    inputs, targets = decoded(rows)
    chosen = targets != IGNORE
    assert (chosen.sum(1) == round(rate * SEQ_LEN)).all()
    assert np.array_equal(targets[chosen], texts[:, :-1][chosen])
    assert np.array_equal(inputs[~chosen], texts[:, :-1][~chosen])
    total, read = int(chosen.sum()), inputs[chosen]
    stays, masked = read == targets[chosen], read == mask
    size = manifest.vocab_size
    assert near(int(masked.sum()), total, 0.8 + 0.1 / size)
    assert near(int(stays.sum()), total, 0.1 + 0.1 / size)
    others = Counter(read[~stays & ~masked].tolist())
    assert near(others.total(), total, 0.1 * (1 - 2 / size))
    assert len(others) > 0.9 * size or rate < 0.4  # of the whole vocabulary, each as often
    assert max(others.values()) < 6 + 3 * others.total() / size
    assert all(near(int(count), samples, rate) for count in chosen.sum(0))  # each place as often


def test_a_sample_depends_on_seed_number_and_text_alone(manifest):
    text = np.random.default_rng(0).integers(3, 400, SEQ_LEN + 1)
    one, again, other = (Objective(settings(seed=seed), SEQ_LEN, manifest) for seed in (0, 0, 1))
    assert np.array_equal(one(text, 5), again(text, 5))
    assert not np.array_equal(one(text, 5), one(text, 6))
    assert not np.array_equal(one(text, 5), other(text, 5))
    # what is chosen, and how it is read, is no matter of the text
    inputs, targets = decoded(np.array([one(text, 5), one(text + 1, 5)]))
    assert np.array_equal(targets[0] != IGNORE, targets[1] != IGNORE)


def test_epochs_of_a_run_mask_the_same_window_anew(manifest):
    objective = Objective(settings(), 40, manifest)
    order = Order(manifest, seq_len=40, batch=8, seed=0, transform=objective)
    first = order.windows_of(range(1))[0]
    later = next(n for n in range(1, 5000) if order.windows_of([n])[0][::2] == first[::2])
    rows = [order.batch(n // 8)[n % 8][None] for n in (0, later)]
    before, after = (decoded(row)[1] for row in rows)
    assert not np.array_equal(before != IGNORE, after != IGNORE)


@pytest.mark.parametrize("block", ["llama", "nanochat"])
def test_the_loss_of_a_batch_is_that_of_the_formula(block, manifest):
    config = ModelConfig(block=block, dim=32, layers=2, heads=4, kv_heads=2, seq_len=40)
    torch.manual_seed(0)
    model = Decoder(config, manifest.vocab_size, causal=False)
    order = Order(manifest, seq_len=40, batch=6, seed=0, transform=Objective(settings(), 40, manifest))
    inputs, targets = inputs_and_targets(torch.from_numpy(order.batch(3)), 7)
    with torch.no_grad():
        nats = [
            -model(row[None])[0, place].double().log_softmax(-1)[target].item()
            for row, row_targets in zip(inputs, targets.tolist(), strict=True)
            for place, target in enumerate(row_targets)
            if target != IGNORE
        ]
        assert len(nats) == 6 * 6
        assert model(inputs, targets)[0].item() == pytest.approx(sum(nats), rel=1e-5)
        assert model.losses(inputs, targets).sum().item() == pytest.approx(sum(nats), rel=1e-5)


def test_the_largest_attention_logit_is_that_of_all_pairs(manifest):
    config = ModelConfig(dim=32, layers=1, heads=4, seq_len=8)
    torch.manual_seed(0)
    for causal in (False, True):
        attention = Decoder(config, 50, causal=causal).layers[0].self_attn
        model = Decoder(config, 50)
        x, (cos, sin) = torch.randn(1, 8, 32), model.angles(torch.zeros(1, 8))
        q, k, _ = attention.heads(x, cos, sin)
        pairs = (q @ k.transpose(2, 3))[0] / math.sqrt(8)
        expected = max(pairs[:, a, b].max() for a in range(8) for b in range(8) if b <= a or not causal)
        assert largest_logit(attention, x, cos, sin, None).item() == pytest.approx(expected.item(), rel=1e-5)


def test_heldout_windows_are_masked_the_same_way_each_time(manifest):
    plain = heldout_windows(manifest, 32, 10**9)
    assert np.array_equal(plain.inputs, heldout_windows(manifest, 32, 10**9, TrainingConfig(objective="ul2")).inputs)
    one, other = (heldout_windows(manifest, 32, 10**9, settings(seed=seed, order_seed=seed)) for seed in (0, 7))
    few = heldout_windows(manifest, 32, 320, settings())
    assert np.array_equal(one.inputs, other.inputs) and np.array_equal(one.targets, other.targets)
    known = {(source, *row) for source, row in zip(one.source, one.targets.tolist(), strict=True)}
    assert (
        len(few.source) == 20 and {(s, *row) for s, row in zip(few.source, few.targets.tolist(), strict=True)} <= known
    )
    chosen = one.targets != IGNORE
    whole = [i for i in range(len(plain.source)) if (plain.targets[i] != IGNORE).all()]
    assert (chosen[whole].sum(1) == round(0.15 * 32)).all() and len(whole) == len(plain.source) - 2
    assert np.array_equal(one.targets[whole][chosen[whole]], plain.inputs[whole][chosen[whole]])
    for i in set(range(len(plain.source))) - set(whole):  # the last window of a set: what is missing ends texts
        length = int((plain.targets[i] != IGNORE).sum())
        assert chosen[i, :length].any() and not chosen[i, length:].any()
        assert (one.inputs[i, length:] == manifest.end_of_text).all()
    assert one.sizes().sum() == np.array(manifest.token_bytes)[one.targets[chosen]].sum()


@pytest.fixture(scope="module")
def trained(make_run, masked_corpus, tmp_path_factory) -> RunConfig:
    out = tmp_path_factory.mktemp("masked")
    training = {"objective": "masked", "steps": 90, "optimizer": "muon", "batch": 8, "micro_batch": 4}
    training |= {"eval_every": 30, "checkpoint_every": 30, "keep_checkpoints": 3, "monitor_every": 30}
    run = make_run(out, {"qk_norm": True}, training, data=masked_corpus)
    train(run)
    checked_json.write(str(out / "run.json"), run.model_dump(mode="json"))
    return run


def test_a_run_learns_and_its_loss_is_that_of_masked_heldout_text(trained, manifest):
    lines = [json.loads(line) for line in (trained.out / "metrics.jsonl").read_text().splitlines()]
    losses = [line["heldout/loss"] for line in lines if "heldout/loss" in line]
    assert len(losses) == 3 and losses[2] < losses[1] < losses[0] and losses[2] < losses[0] - 0.1
    result = json.loads((trained.out / "result.json").read_text())
    assert result["sample"] is None and result["heldout/loss"] == losses[2]
    assert losses[2] < result["unigram/loss"]  # it reads what is around a masked token
    assert result["tokens"] == 90 * 8 * round(0.15 * 32)
    assert result["flops"] == flops_per_token(trained.model, manifest.vocab_size) * 90 * 8 * 32

    windows = heldout_windows(manifest, 32, trained.training.eval_tokens, trained.training)
    model = load_model(trained.out)
    nats, tokens, size = 0.0, 0, 0
    with torch.no_grad():
        for x, y in zip(windows.inputs, windows.targets, strict=True):
            logits = model(torch.from_numpy(x)[None])[0].double().log_softmax(-1)
            for place in np.flatnonzero(y != IGNORE):
                nats -= logits[place, y[place]].item()
                tokens += 1
                size += manifest.token_bytes[y[place]]
    assert result["heldout/loss"] == pytest.approx(nats / tokens, rel=1e-5)
    assert result["heldout/bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-5)


def test_an_evaluation_afterwards_says_what_the_run_said_at_each_checkpoint(trained, monkeypatch, tmp_path):
    from gristmill.flows.experiments.models.evaluation import evaluate

    monkeypatch.chdir(tmp_path)
    lines = [json.loads(line) for line in (trained.out / "metrics.jsonl").read_text().splitlines()]
    by_step = {line["step"]: line["heldout/loss"] for line in lines if "heldout/loss" in line}
    checkpoints = {step: trained.out / "checkpoints" / f"step-{step:08}" for step in (30, 60, 90)}
    for step, folder in [*checkpoints.items(), (90, trained.out)]:
        assert evaluate(str(folder), None).heldout["heldout/loss"] == pytest.approx(by_step[step], rel=1e-5)
    (tmp_path / "tasks").mkdir()
    row = {"query": "a", "choices": ["b", "c"], "gold": 0}
    (tmp_path / "tasks" / "planted.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match="objective masked, so it predicts no next token"):
        evaluate(str(trained.out), tmp_path / "tasks")


def test_a_resume_ends_as_the_run_did(trained, make_run, masked_corpus, tmp_path):
    """From the middle checkpoint: the same samples, so on a CPU the same figures."""
    from gristmill.training.checkpoint.keeping import committed

    middle = committed(trained.out / "checkpoints")[30]
    again = trained.model_copy(update={"out": tmp_path, "resume_from": middle})
    train(again)
    first, second = (json.loads((out / "result.json").read_text()) for out in (trained.out, tmp_path))
    assert first["heldout/loss"] == second["heldout/loss"]


def test_what_asks_for_next_tokens_is_refused(trained, manifest, tmp_path):
    model, tokenizer = open_model(trained.out).load(), manifest.tokenizer.path
    assert not model.causal
    with pytest.raises(ValueError, match="predicts no next token; use a model"):
        sample_text(model, tokenizer, 4, temperature=0, top_k=0, seed=0)
    with pytest.raises(ValueError, match="predicts no next token; use a model"):
        verbatim(model, np.zeros((1, 8), np.int64), 2)
    task = Task("planted", "choice", (Example((("a", "b"), ("a", "c")), 0),))
    with processes(60) as world, pytest.raises(ValueError, match="predicts no next token; use a model"):
        task_scores(model, [task], load_tokenizer(tokenizer), world)
    with pytest.raises(ValueError, match="training.objective is masked.*train with another"):
        write_model_folder(open_model(trained.out), tmp_path / "model", "masked")
    assert not os.listdir(tmp_path)
    with pytest.raises(ValueError, match="of the type gristmill-masked"):  # as first weights, or to import
        read_config(trained.out)


@pytest.mark.parametrize("setting", [{"document_mask": True}, {"eval_tasks": "tasks"}])
def test_settings_that_it_cannot_have_are_refused(setting):
    [name] = setting
    with pytest.raises(ValueError, match=f"objective masked.*{name}"):
        settings(**setting)
    TrainingConfig(**setting)


def test_losses_of_documents_are_refused(make_run, tmp_path):
    make_run(tmp_path, document_losses=True)
    with pytest.raises(ValueError, match="document_losses is true, but objective masked"):
        make_run(tmp_path, training={"objective": "masked"}, document_losses=True)


def test_a_tokenizer_without_the_mask_is_refused(corpus):
    wrong = missing_tokens(settings(), SEQ_LEN, ("a", "b"))
    assert MASK in wrong and "tokenizer.path" in wrong
    assert not missing_tokens(settings(), SEQ_LEN, ("a", MASK))
    with pytest.raises(ValueError, match=r"<\|mask\|>"):
        Objective(settings(), SEQ_LEN, load_training_manifest(corpus))


@pytest.mark.parametrize("block", ["llama", "nanochat"])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_a_model_comes_back_as_it_was(block, softcap, tmp_path):
    config = ModelConfig(block=block, dim=32, layers=2, heads=4, seq_len=32, logit_softcap=softcap)
    model = Decoder(config, 100, causal=False).eval()
    export_model({n: p.detach() for n, p in model.named_parameters()}, config, 100, tmp_path, causal=False)
    again = load_model(tmp_path)
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(again(tokens), model(tokens))
    assert hugging_face_config(config, 100)["model_type"] != "gristmill-masked"
    assert "architectures" not in json.loads((tmp_path / "config.json").read_text())
