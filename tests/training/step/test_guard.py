"""Planted trouble: what the guard decides, that a run recovers unattended, and that its decisions can be replayed."""

import json
import math
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from gristmill.samples.order import Order, batch_number
from gristmill.storage import checked_json
from gristmill.training import batches
from gristmill.training.checkpoint.commit import Progress
from gristmill.training.config import GuardConfig, TrainingConfig
from gristmill.training.run import loop
from gristmill.training.run.loop import train
from gristmill.training.run.record import Record
from gristmill.training.step import guard
from gristmill.training.step.guard import EVENTS, Event, Losses, read_events, skipped_updates, windows_left_out
from gristmill.training.step.state import APPLIED, NOT_FINITE, OUTLIER, Outliers

ROOT = Path(__file__).resolve().parents[3]
BAD = range(62, 72)  # batches
LATE = range(130, 150)
SHORT = {"steps": 100, "eval_every": 100, "checkpoint_every": 20, "sample_tokens": 0, "keep_checkpoints": 3}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=5))
def test_batches_outside_of_windows_come_in_order(found):
    windows = [(first, first + length) for first, length in found]
    left = [i for i in range(120) if not any(first <= i < end for first, end in windows)]
    assert [batch_number(step, windows) for step in range(50)] == left[:50]


def spikes(series: list[float]) -> list[guard.Spike]:
    losses = Losses([])
    return [spike for step, loss in enumerate(series, 1) if (spike := losses.see(step, loss))]


def falling(steps: int, noise: float = 0.05) -> list[float]:
    rng = random.Random(0)
    return [2 + 4 * math.exp(-step / 40) + rng.gauss(0, noise) for step in range(steps)]


def test_a_rise_that_stays_is_a_spike_and_a_short_one_is_none():
    assert spikes(falling(500)) == []
    series = falling(200)
    series[150] = series[151] = series[160] = 30.0
    series[170] = math.nan
    assert spikes(series) == []
    series[180:] = [loss + 1 for loss in series[180:]]
    first = spikes(series)[0]
    assert first.began == 181 and 184 <= first.seen <= 186
    assert first.level == pytest.approx(2.1, abs=0.1)
    assert spikes([4.0, 3.9, *[math.nan] * 8])[0].began == 3
    assert spikes([math.inf] * 7) == []


@pytest.mark.parametrize("finite", range(5))
def test_a_spike_that_no_level_comes_before_is_described(finite):
    """Half of the first losses are numbers: the median of all is one, and there is no level to compare it with."""
    losses = Losses([])
    spike = next(filter(None, (losses.see(i, 9.0 if i <= finite else math.nan) for i in range(1, 12))))
    figures = guard.finite_figures(loss_before=spike.level, loss=spike.loss, learning_rate=1.0, grad_norm=math.nan)
    assert figures.loss_before is None and figures.loss is None and figures.grad_norm is None
    event = Event(step=spike.seen, what="stop", why=guard.cause(spike, 0.0, []), began=spike.began, figures=figures)
    assert guard.described(event) == "loss or gradient was not finite"
    assert "loss or gradient was not finite from step" in guard.sentence(event, [event], 100, "guard.json")


def test_losses_that_are_not_finite_are_above_all_others():
    """Whatever the finite ones are, with a level before them and without."""
    assert not spikes([*[9.0] * 5, *[math.nan] * 3])
    assert spikes([*[9.0] * 4, *[math.inf] * 4]) == [guard.Spike(5, 8, None, None)]
    (first, *_) = spikes([*[1e9] * 20, *[math.nan] * 5])
    assert first == guard.Spike(21, 24, 1e9, None)
    assert guard.cause(first, 6e8, []) == "data window" and guard.cause(first, 4e8, []) == "learning rate"
    assert not spikes([9.0, math.nan, 9.0, 9.0] * 20), "noise of the level, and no spike"
    kept = Progress.model_validate_json(Progress(losses=[2.0, None]).model_dump_json()).losses
    assert Losses(kept).suspicious()


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50))), st.integers(1, 60))
def test_the_rate_falls_with_each_rollback_to_an_earlier_step(found, step):
    events = [Event(step=begun + to, what="rollback", why="x", to=to) for begun, to in found]
    events += skips([1, 2, 3])
    rate = 1.0
    for event in events:
        if event.what == "rollback" and step > event.to:
            rate /= 2
    assert guard.rate_after_rollbacks(events, step, 0.5) == rate
    assert guard.rate_after_rollbacks(events, step, 1.0) == 1.0


def test_losses_go_on_from_what_a_checkpoint_holds():
    series = falling(80) + [9.0] * 8
    before = Losses([])
    for step, loss in enumerate(series[:70], 1):
        before.see(step, loss)
    after = Losses(json.loads(json.dumps(before.kept)))
    seen = [after.see(step, loss) for step, loss in enumerate(series[70:], 71)]
    assert [spike for spike in seen if spike] == spikes(series)


def test_the_window_covers_the_spike_and_grows_if_the_trouble_goes_on():
    training = TrainingConfig(steps=10_000, warmup_steps=1)
    skip = guard.skip_steps(training, 1000, [])
    assert skip == 200
    assert guard.window(1000, 1004, 500, skip) == (900, 1100)
    assert guard.window(1000, 1004, 980, skip) == (980, 1180)
    assert guard.window(1000, 1300, 980, skip) == (980, 1301)
    assert guard.skip_steps(training, 1102, [(900, 1100)]) == 400
    assert guard.skip_steps(training, 1200, [(900, 1100)]) == 200


def test_the_cause_of_a_spike():
    spike = guard.Spike(100, 104, 3.0, 6.0)
    assert guard.cause(spike, 4.0, []) == "data window"
    assert guard.cause(spike, 0.1, [5, 4, 6, 5]) == "learning rate"
    assert guard.cause(spike, 0.1, [5, 10, 40, 90]) == "structure"


def skips(steps, why="outlier") -> list[Event]:
    return [Event(step=step, what="skip", why=why, figures={"loss": 2.0, "grad_norm": 9.0}) for step in steps]


def test_outliers_in_a_row_are_a_spike():
    losses = Losses([2.1] * 20)
    back = Event(step=60, what="rollback", why="data window", began=53, to=50, window=(50, 62))
    assert losses.skipped(skips(range(50, 57))) is None
    assert losses.skipped(skips([*range(49, 52), *range(53, 58)])) is None
    assert losses.skipped([*skips(range(50, 54)), *skips([54], "not finite"), *skips(range(55, 58))]) is None
    assert losses.skipped([*skips(range(53, 61)), back, *skips(range(51, 58))]) is None
    spike = losses.skipped([*skips([3]), *skips(range(50, 58))])
    assert spike == guard.Spike(50, 57, 2.1, 2.0)
    event = Event(step=57, what="stop", why="x", began=50, figures={"loss_before": 2.1, "loss": 2.0, "grad_norm": 9.0})
    assert guard.described(event) == "8 gradient norms in a row were outliers, at last 9,"
    # the norm alone says nothing of the data: a loss that is high on the batches does
    assert guard.cause(spike, 0.05, []) == "learning rate"
    assert guard.cause(spike, 1.5, []) == "data window"


def test_a_loss_must_fall_below_that_of_frequencies():
    assert Losses([5.0] * 31).below(4.5)  # too few of them
    assert not Losses([5.0] * 32).below(4.5)
    assert not Losses([1.0] * 8 + [4.5] * 17 + [1.0] * 15).below(4.5)
    assert Losses([5.0] * 8 + [4.4] * 17 + [5.0] * 15).below(4.5)
    assert guard.learned_by(TrainingConfig(steps=100, warmup_steps=10)) > 100  # never
    share = math.ceil(guard.LEARNED_BY * 9000)
    assert guard.learned_by(TrainingConfig(steps=10_000, warmup_steps=1000)) == 1000 + share


def test_the_tokens_frequencies_judge_only_what_is_distributed_as_they_are():
    def judged(objective: str) -> bool:
        training = TrainingConfig(steps=10_000, warmup_steps=10, objective=objective)
        return guard.learned_by(training) <= training.steps

    assert judged("causal") and judged("prefix_lm")
    assert not any(map(judged, ("span_corruption", "ul2", "fill_in_the_middle", "masked")))


def test_outliers_against_the_rule_written_out():
    rng = np.random.default_rng(0)
    figures = np.exp(rng.normal(0, 0.1, (300, 2)))
    figures[[70, 71, 200], [0, 1, 1]] = 5.0
    figures[90, 1], figures[91, 0] = np.nan, np.inf
    figures[250:, 1] *= 30
    outliers = Outliers(GuardConfig(window=32), torch.device("cpu"))
    found = [outliers.judge(*torch.tensor(row)).item() for row in figures]
    expected, accepted = [], []
    for row in figures:
        verdict = APPLIED
        if not np.isfinite(row).all():
            verdict = NOT_FINITE
        elif len(accepted) >= 32:
            last = np.log(accepted[-32:])
            if (np.log(row) > last.mean(0) + 6 * last.std(0, ddof=1)).any():
                verdict = OUTLIER
        if verdict == APPLIED:
            accepted.append(row)
        expected.append(verdict)
    assert found == expected
    assert {70, 71, 90, 91, 200} <= {i for i, verdict in enumerate(found) if verdict}
    assert found[250:] == [OUTLIER] * 50


def test_skips_of_steps_that_were_left_behind_are_no_more():
    found = [
        Event(step=3, what="skip", why="outlier"),
        Event(step=8, what="skip", why="outlier"),
        Event(step=9, what="rollback", why="data window", began=7, to=5, window=(6, 9)),
        Event(step=6, what="skip", why="not finite"),
    ]
    assert skipped_updates(found) == {3: "outlier", 6: "not finite"}
    assert windows_left_out(found) == [(6, 9)]


def plant(monkeypatch, bad: range) -> None:
    """Batches of one token alone, as a broken shard gives them."""
    read = Order.batch

    def batch(self, step, rank=0, world=1):
        rows = read(self, step, rank, world)
        return np.full_like(rows, 7) if step in bad else rows

    monkeypatch.setattr(Order, "batch", batch)


def decisions(out: Path) -> list[Event]:
    return read_events(out / EVENTS)


def assert_same_end(ours: Path, expected: Path) -> None:
    weights, wanted = (load_file(out / "model.safetensors") for out in (ours, expected))
    assert all(torch.equal(weights[name], wanted[name]) for name in wanted)
    assert (ours / "metrics.jsonl").read_bytes() == (expected / "metrics.jsonl").read_bytes()
    assert decisions(ours) == decisions(expected)


@pytest.mark.slow
def test_a_phase_of_other_data_is_no_spike(make_run, tmp_path, monkeypatch):
    """Batches of one token, of which the model has learned nothing, raise the loss for good: a phase may do that."""
    phase = range(62, 200)
    plant(monkeypatch, phase)
    with suppress(FloatingPointError):
        train(make_run(tmp_path / "within", training=SHORT))
    assert any(event.what == "rollback" for event in decisions(tmp_path / "within"))
    monkeypatch.setattr(Order, "begins_phase", lambda self, step, windows: step == phase.start)
    train(make_run(tmp_path / "phase", training=SHORT))
    assert decisions(tmp_path / "phase") == []


def test_updates_of_a_new_phase_are_not_compared_with_those_before():
    outliers = Outliers(GuardConfig(window=16), torch.device("cpu"))
    low, high = torch.tensor(2.0, dtype=torch.float64), torch.tensor(9.0, dtype=torch.float64)
    for step in range(20):
        assert outliers.judge(low * (1 + step / 100), low) == APPLIED
    assert outliers.judge(high, low) == OUTLIER
    outliers.begin()
    assert [int(outliers.judge(high, low)) for _ in range(16)] == [APPLIED] * 16


@pytest.mark.slow
def test_a_rollback_is_replayed_and_outlasts_a_crash(make_run, tmp_path, monkeypatch):
    plant(monkeypatch, BAD)
    run = make_run(tmp_path / "run", training=SHORT)
    train(run)
    first = decisions(run.out)[0]
    assert (first.what, first.why, first.to) == ("rollback", "data window", 40)
    assert first.began == BAD.start + 1 and first.samples[0] == BAD.start * 7
    left_out = {i for begin, end in windows_left_out(decisions(run.out)) for i in range(begin, end)}
    assert left_out >= set(BAD) and len(decisions(run.out)) <= 2
    again = make_run(tmp_path / "again", training={**SHORT, "log_every": 7}, replay=run.out / EVENTS)
    train(again)
    assert_same_end(again.out, run.out)

    crashed = make_run(tmp_path / "crashed", training=SHORT)
    begin = batches.Batches.go_to

    def crash(self, step, windows):
        if windows:
            raise KeyboardInterrupt
        begin(self, step, windows)

    with monkeypatch.context() as patch:
        patch.setattr(batches.Batches, "go_to", crash)
        patch.setattr(
            "gristmill.training.checkpoint.keeping.Keeper.remove_after", lambda *_: None
        )  # it came before that, even
        with pytest.raises(KeyboardInterrupt):
            train(crashed)
    train(crashed)
    assert_same_end(crashed.out, run.out)


@pytest.mark.slow
def test_the_rate_after_a_rollback_is_lower_also_when_resumed_and_replayed(make_run, tmp_path, monkeypatch):
    few = {**SHORT, "steps": 60, "checkpoint_every": 10, "guard": {"window": 1000, "rate_factor": 0.5}}
    plain = make_run(tmp_path / "plain", training=few)
    rates = [line["train/learning_rate"] for line in trained(plain)]
    plant(monkeypatch, range(32, 42))
    run = make_run(tmp_path / "run", training=few)
    ours = [line["train/learning_rate"] for line in trained(run)]
    backs = [event.to for event in decisions(run.out) if event.what == "rollback"]
    assert backs and 20 <= min(backs) <= max(backs) < 40
    # the schedule goes by the tokens of the steps, so each step has the rate of the plain run, or a part of it
    assert ours == [rate * 0.5 ** sum(to < step for to in backs) for step, rate in enumerate(rates, 1)]

    again = make_run(tmp_path / "again", training=few, replay=run.out / EVENTS)
    trained(again)
    assert_same_end(again.out, run.out)
    write = Record.write

    def interrupted(self, heldout):
        if self.progress.step == 50:
            raise KeyboardInterrupt
        return write(self, heldout)

    stopped = make_run(tmp_path / "stopped", training=few)
    with monkeypatch.context() as patch:
        patch.setattr(Record, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(stopped)
    trained(stopped)
    assert_same_end(stopped.out, run.out)


def trained(run) -> list[dict]:
    train(run)
    return [json.loads(line) for line in (run.out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.extended
def test_the_outcome_of_a_run_without_a_checkpoint_to_go_back_to(make_run, tmp_path):
    with pytest.raises(FloatingPointError, match="likely cause is the learning rate") as raised:
        train(make_run(tmp_path, training={"learning_rate": 1e30, "warmup_steps": 0, "clip_norm": 1e30, "steps": 80}))
    found = decisions(tmp_path)
    assert [event.what for event in found if event.what != "skip"] == ["rollback"] * 3 + ["stop"]
    assert {event.to for event in found if event.what == "rollback"} == {0}
    report = json.loads((tmp_path / "guard.json").read_text())
    assert report["error"] == str(raised.value) and report["cause"] == "learning rate"
    with pytest.raises(ValueError, match="stopped by its guard"):
        train(make_run(tmp_path / "replay", replay=tmp_path / EVENTS))


# A run that ends where the loss is flat: before that, any two runs differ by more than 0.02.
UNTIED = {"tie_embeddings": False}
LONG = {
    **SHORT,
    "steps": 160,
    "batch": 28,
    "micro_batch": 14,
    "learning_rate": 0.03,
    "warmup_steps": 20,
    "eval_every": 160,
    "eval_tokens": 4000,
}


@pytest.mark.slow
def test_a_bad_data_window_is_recovered_from(make_run, tmp_path, monkeypatch):
    clean = train(make_run(tmp_path / "clean", UNTIED, LONG))["heldout/loss"]
    assert decisions(tmp_path / "clean") == []
    plant(monkeypatch, LATE)
    found = {
        name: train(make_run(tmp_path / name, UNTIED, {**LONG, "guard": given}))["heldout/loss"]
        for name, given in [("without", {"enabled": False}), ("rolled_back", {"window": 1000}), ("defaults", {})]
    }
    print("held-out loss: clean", clean, found)
    assert {event.what for event in decisions(tmp_path / "rolled_back")} == {"rollback"}
    assert {event.what for event in decisions(tmp_path / "defaults")} == {"skip", "rollback"}
    assert abs(found["rolled_back"] - clean) < 0.02 and abs(found["defaults"] - clean) < 0.02
    assert found["without"] - clean > 0.02


@pytest.mark.slow
def test_a_learning_rate_eight_times_too_high_ends_the_run_and_is_named(make_run, tmp_path, monkeypatch):
    """From the middle on: from the start, a model of this size learns with it."""
    rate = loop.learning_rate
    monkeypatch.setattr(
        loop, "learning_rate", lambda tokens, *rest: rate(tokens, *rest) * (8 if tokens > 80 * 28 * 32 else 1)
    )
    with pytest.raises(FloatingPointError, match="likely cause is the learning rate"):
        train(make_run(tmp_path, UNTIED, LONG))
    assert [event.what for event in decisions(tmp_path)] == ["rollback"] * 3 + ["stop"]


HOT = {**LONG, "steps": 400, "batch": 11, "micro_batch": 11, "eval_every": 400, "learning_rate": 8 * 0.08}


@pytest.mark.slow
def test_a_learning_rate_eight_times_too_high_from_the_start_ends_the_run_and_is_named(make_run, tmp_path):
    with pytest.raises(
        FloatingPointError, match="not lower than the 4.53.* likely cause is the learning rate"
    ) as raised:
        train(make_run(tmp_path, training=HOT))
    *_, stop = decisions(tmp_path)
    assert (stop.what, stop.why, stop.step) == ("stop", "learning rate", guard.learned_by(TrainingConfig(**HOT)))
    report = json.loads((tmp_path / "guard.json").read_text())
    assert report["cause"] == "learning rate" and report["error"] == str(raised.value)
    assert "rollbacks" not in report["error"]


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.001, 0.003, 0.01, 0.03, 0.08])
def test_a_clean_run_is_not_stopped(rate, make_run, tmp_path):
    train(make_run(tmp_path, training={**HOT, "learning_rate": rate}))
    assert {event.what for event in decisions(tmp_path)} <= {"skip"} and len(decisions(tmp_path)) < 5


@pytest.mark.extended
def test_a_run_that_learns_nothing_is_stopped(make_run, tmp_path):
    """Its shortest form: without data to compare with, no update is an outlier."""
    given = {"steps": 48, "learning_rate": 2.0, "guard": {"window": 8, "deviations": 1e9, "max_rollbacks": 0}}
    with pytest.raises(FloatingPointError, match="not lower than the 4.53"):
        train(make_run(tmp_path, training=given))
    (stop,) = decisions(tmp_path)
    assert stop.step == 32 and stop.figures.loss > stop.figures.unigram_loss


def launched(run, *arguments: str) -> subprocess.CompletedProcess:
    run.out.mkdir(parents=True, exist_ok=True)
    path = run.out / "run.json"
    checked_json.write(str(path), run.model_dump(mode="json"))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.training.poisoned_rank", str(path), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_nan_on_one_rank_is_recovered_from(make_run, tmp_path):
    clean, guarded, without = (
        make_run(tmp_path / name, UNTIED, {**LONG, "guard": {"enabled": name != "without"}})
        for name in ("clean", "guarded", "without")
    )
    assert launched(clean, "nan").returncode == 0
    assert launched(guarded, "nan", "70", "71", "72").returncode == 0
    assert launched(without, "nan", "70", "71", "72").returncode != 0  # it has no held-out loss at all
    assert [(event.step, event.what, event.why) for event in decisions(guarded.out)] == [
        (step, "skip", "not finite") for step in (70, 71, 72)
    ]
    ends = [json.loads((run.out / "result.json").read_text())["heldout/loss"] for run in (clean, guarded)]
    print(f"held-out loss: clean {ends[0]:.4f}, with NaN on one rank {ends[1]:.4f}")
    assert abs(ends[1] - ends[0]) < 0.02
    replayed = make_run(tmp_path / "replayed", UNTIED, LONG, replay=guarded.out / EVENTS)
    assert (
        launched(replayed, "nan").returncode == 0
    )  # the machine is well again: the same updates are left out all the same
    weights, wanted = (load_file(run.out / "model.safetensors") for run in (replayed, guarded))
    assert all(torch.equal(weights[name], wanted[name]) for name in wanted)
