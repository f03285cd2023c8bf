"""Samples of the objectives against the rules of the papers, restated token by token; nothing of a text is lost.

`python -m pytest -m slow tests/training/data/test_objectives.py` looks at ten times as many windows.
"""

import collections
import json
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.config import TrainingConfig
from gristmill.training.denoisers import missing_tokens, own_tokens, tokens_read
from gristmill.training.objectives import Objective
from gristmill.training.run.loop import train

SEQ_LEN, END, FIRST_OWN = 120, 2, 1000
MANY = 10_000  # windows
SOME = [1000, pytest.param(MANY, marks=pytest.mark.slow)]


@dataclass
class Manifest:
    """What an objective asks of a manifest; the tokenizer's file is replaced by the names that a test gives."""

    end_of_text: int = END
    vocab_size: int = FIRST_OWN
    row_length: int | None = None
    tokenizer: object = field(default=None)


@pytest.fixture
def made(monkeypatch):
    def make(seq_len=SEQ_LEN, **training) -> tuple[Objective, list[str]]:
        settings = TrainingConfig(**training)
        names = [*(f"word {i}" for i in range(FIRST_OWN)), *own_tokens(settings, seq_len)]
        path = type("File", (), {"read_bytes": lambda self: b""})()
        monkeypatch.setattr(
            "gristmill.training.objectives.read_tokenizer", lambda *_: type("Read", (), {"names": names})()
        )
        manifest = Manifest(tokenizer=type("Recorded", (), {"path": path})())
        return Objective(settings, seq_len, manifest), names

    return make


def texts(tokens: int, count: int = MANY):
    rng = np.random.default_rng(0)
    for sample in range(count):
        text = rng.integers(3, FIRST_OWN, tokens)
        text[rng.random(tokens) < 0.03] = END
        yield sample, text


def read_and_targets(row: np.ndarray) -> tuple[list[int], list[int]]:
    """What is read and no target, then what is a target; asserts that nothing but padding comes after."""
    ids = row.tolist()
    while ids and ids[-1] == ~END:
        ids.pop()
    turn = next(place for place, token in enumerate(ids) if token >= 0)
    assert all(token >= 0 for token in ids[turn:])
    return [~token for token in ids[:turn]], ids[turn:]


def by_t5(text: list[int], noise: list[bool], names: list[str]) -> tuple[list[int], list[int]]:
    """Figure 2 of Raffel et al.: each run of corrupted tokens is a sentinel in the input; the output has each sentinel
    and its run, and a last sentinel."""
    inputs, outputs, number = [], [], -1
    for place, (token, gone) in enumerate(zip(text, noise, strict=True)):
        if not gone:
            inputs.append(token)
            continue
        if place == 0 or not noise[place - 1]:
            number += 1
            mark = names.index(f"<extra_id_{number}>")
            inputs.append(mark)
            outputs.append(mark)
        outputs.append(token)
    return inputs, [*outputs, names.index(f"<extra_id_{number + 1}>")]


def split(ids: list[int], names: list[str]) -> tuple[list[list[int]], list[str]]:
    """The parts between tokens of an objective's own, and the names of those."""
    parts, own = [[]], []
    for token in ids:
        if token < FIRST_OWN:
            parts[-1].append(token)
        else:
            own.append(names[token])
            parts.append([])
    return parts, own


def check_spans(text, row, names, mode: list[str]) -> tuple[int, int, int]:
    """(corrupted tokens, spans, first corrupted place). The text is there again, and its corrupted runs give this."""
    inputs, targets = read_and_targets(row)
    for name in mode:
        assert names[inputs.pop(0)] == name
    kept, marks = split(inputs, names)
    gone, again = split(targets, names)
    assert kept.pop() == [] and gone.pop(0) == [] and gone.pop() == []
    assert marks == again[:-1]
    rebuilt, noise = [], []
    for stays, goes in zip(kept, gone, strict=True):
        assert stays and goes
        rebuilt += [*stays, *goes]
        noise += [False] * len(stays) + [True] * len(goes)
    assert rebuilt == text.tolist()
    assert (inputs, targets) == by_t5(rebuilt, noise, names)
    return sum(noise), len(gone), len(kept[0])


def by_the_rule(tokens: int, rate: float, mean: float) -> tuple[int, int]:
    """random_spans_noise_mask of T5's code."""
    noise = min(max(int(np.round(tokens * rate)), 1), tokens - 1)
    return noise, max(int(np.round(noise / mean)), 1)


@pytest.mark.parametrize("windows", SOME)
@pytest.mark.parametrize("rate, mean", [(0.15, 3.0), (0.5, 8.0), (0.3, 1.0)])
def test_span_corruption_is_that_of_t5(rate, mean, windows, made):
    objective, names = made(objective="span_corruption", corruption_rate=rate, mean_span=mean)
    firsts = []
    for sample, text in texts(objective.tokens, windows if rate == 0.15 else 300):
        row = objective(text, sample)
        assert len(row) == SEQ_LEN + 1
        corrupted, spans, first = check_spans(text, row, names, [])
        assert (corrupted, spans) == by_the_rule(len(text), rate, mean)
        firsts.append(first)
    # each composition of the kept tokens is as likely: the first of `spans` parts is a spans-th of them on average
    kept = objective.tokens - corrupted
    assert abs(np.mean(firsts) - kept / spans) < 6 * np.std(firsts) / math.sqrt(len(firsts))
    # and no longer text would fit
    lengths = {n: n + 2 * by_the_rule(n, rate, mean)[1] + 1 for n in range(8, SEQ_LEN + 2)}
    assert objective.tokens == max(n for n, length in lengths.items() if length <= SEQ_LEN + 1)


@pytest.mark.parametrize("windows", SOME)
def test_ul2_draws_its_seven_denoisers(windows, made):
    objective, names = made(objective="ul2")
    table = [("r", 3, 0.15), ("r", 8, 0.15), ("x", 3, 0.5), ("x", 8, 0.5), ("x", 64, 0.15), ("x", 64, 0.5)]
    known = collections.Counter()
    for sample, text in texts(objective.tokens, windows):
        row = objective(text, sample)
        assert len(row) == SEQ_LEN + 1
        mode = names[~row[0]]
        if mode == "<|mode_s|>":
            inputs, targets = read_and_targets(row)
            assert inputs[1:] + targets == text.tolist()
            assert len(targets) == round(len(text) / 4)
            known["s"] += 1
        else:
            corrupted, spans, _ = check_spans(text, row, names, [mode])
            known[mode[-3], corrupted, spans] += 1
    expected = collections.Counter({"s": 1})
    for mode, mean, rate in table:
        expected[(mode, *by_the_rule(objective.tokens, rate, mean))] += 1
    assert known.keys() == expected.keys()
    for key, count in expected.items():
        share = count / 7
        assert abs(known[key] / windows - share) < 5 * math.sqrt(share * (1 - share) / windows)


def test_a_prefix_ends_anywhere(made):
    objective, _ = made(objective="prefix_lm")
    assert objective.tokens == SEQ_LEN + 1
    ends = collections.Counter()
    for sample, text in texts(objective.tokens):
        row = objective(text, sample).tolist()
        end = next(place for place, token in enumerate(row) if token >= 0)
        assert [~token for token in row[:end]] + row[end:] == text.tolist()
        ends[end] += 1
    assert ends.keys() == set(range(1, SEQ_LEN + 1))
    assert max(ends.values()) < 2 * min(ends.values()) + 40


@pytest.mark.parametrize("windows", SOME)
@pytest.mark.parametrize("rate, spm", [(0.5, 0.5), (1.0, 0.0), (0.9, 1.0), (0.0, 0.5)])
def test_fill_in_the_middle_rearranges_documents(rate, spm, windows, made):
    """Each document is prefix, suffix, middle, in the order of PSM or of SPM, or as it was; all are targets."""
    objective, names = made(400, objective="fill_in_the_middle", fim_rate=rate, fim_spm_rate=spm)
    could, moved, prefixes, suffixes = 0, 0, [], []
    for sample, text in texts(objective.tokens, windows if rate == 0.5 else 300):
        ids = objective(text, sample).tolist()
        assert len(ids) == 401
        while ids[-1] == ~END:
            ids.pop()
        assert all(token >= 0 for token in ids)
        documents: list[list[int]] = [[]]
        for token in ids:
            documents[-1].append(token)
            if token == END:
                documents.append([])
        rebuilt, room = [], 401 - len(text)
        for document in documents:
            (before, *parts), own = split(document, names)
            size = sum(token not in (END, *range(FIRST_OWN, FIRST_OWN + 3)) for token in document)
            could += room >= 3 and size > 0
            if not own:
                rebuilt += before
                continue
            room -= 3
            moved += 1
            assert own == ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"] and before == []
            prefix, suffix, last = parts
            end = [last.pop()] if last and last[-1] == END else []
            rebuilt += [*prefix, *last, *suffix, *end]
            if size > 20:
                prefixes.append(len(prefix) / size)
                suffixes.append(len(suffix) / size)
        assert rebuilt == text.tolist()
        assert room >= 0
    assert abs(moved / could - rate) < 0.03
    if rate:
        # two uniform places cut three parts of a third each; SPM has its prefix behind <middle>
        assert abs(np.mean(suffixes) - 1 / 3) < 0.04
        assert abs(np.mean(prefixes) - (1 - spm) / 3) < 0.04
        assert spm < 1 or not any(prefixes)


@pytest.mark.parametrize("name", ["prefix_lm", "span_corruption", "ul2", "fill_in_the_middle", "masked"])
def test_ranks_and_resumes_read_the_same(name, made, corpus):
    seq_len = 40
    objective, _ = made(seq_len, objective=name)
    manifest = load_training_manifest(corpus)

    def order():
        return Order(manifest, seq_len=seq_len, batch=7, seed=3, transform=objective)

    plain = Order(manifest, seq_len=objective.tokens - 1, batch=7, seed=3)
    for step in (0, 5, 2):
        whole = order().batch(step)
        assert whole.shape == (7, seq_len + 1)
        for row, (text, sample) in zip(
            whole, zip(plain.batch(step), range(7 * step, 7 * step + 7), strict=True), strict=True
        ):
            assert np.array_equal(row, objective(text, sample))
        for world in (2, 3):
            for rank in range(world):
                assert np.array_equal(order().batch(step, rank, world), whole[rank::world])
    another, _ = made(seq_len, objective=name, seed=1)
    assert any(not np.array_equal(objective(text, i), another(text, i)) for i, text in enumerate(plain.batch(0)))


@pytest.mark.parametrize("name", ["prefix_lm", "span_corruption", "ul2", "fill_in_the_middle", "masked"])
@pytest.mark.parametrize("seq_len", [16, 17, 64, 255, 1024])
def test_every_context_has_room(name, seq_len, made):
    objective, names = made(seq_len, objective=name)
    for sample, text in texts(objective.tokens, 60):
        assert len(objective(text, sample)) == seq_len + 1
    assert objective.tokens > 0.5 * seq_len


def test_what_is_missing_is_said(made, corpus):
    training = TrainingConfig(objective="span_corruption")
    wrong = missing_tokens(training, SEQ_LEN, ("<extra_id_0>",))
    assert "<extra_id_1>" in wrong and "tokenizer.path" in wrong
    with pytest.raises(ValueError, match="tokenizer.path"):
        Objective(training, SEQ_LEN, load_training_manifest(corpus))
    with pytest.raises(ValueError, match=r"model\.seq_len is 8"):
        tokens_read(TrainingConfig(objective="ul2"), 8)
    with pytest.raises(ValueError, match="document_mask"):
        TrainingConfig(objective="ul2", document_mask=True)


@pytest.mark.extended
def test_a_run_learns_from_prefixes(make_run, tmp_path):
    """No tokens of its own; its loss falls, and evaluation is that of any run."""
    result = train(make_run(tmp_path, training={"objective": "prefix_lm", "steps": 12, "sample_tokens": 0}))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["train/loss"] < lines[0]["train/loss"] - 0.3
    assert result["heldout/loss"] < 6
