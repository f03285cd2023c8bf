"""Requests in batches: the same answers and bill as from single calls, whatever fails, and each is paid for once."""

import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gristmill.storage import checked_json, files
from gristmill.tasks.engine.options import JobOptions, LanguageModelServer, configure
from gristmill.tasks.language_model import batches
from gristmill.tasks.language_model.answers import AnswerStore
from gristmill.tasks.language_model.ask import BudgetError
from gristmill.tasks.language_model.client import Client, ServerError
from tests.language_model.asking import SETTINGS, ask, asked_about, limits, replayed, stored, texts
from tests.language_model.batch_server import CALL_FAULTS, BatchPlan
from tests.language_model.faults import CONTENTS, Plan
from tests.language_model.serving import Served, serving


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """The server's list has a batch within a second."""
    monkeypatch.setattr(batches, "SETTLE_SECONDS", 2.0)


PATIENT = {"patience_seconds": 60, "timeout_seconds": 30}


def records(home: Path) -> list[Path]:
    return [*(home / "answers" / "batches").rglob("*.json")]


def answers(home: Path) -> dict[str, dict]:
    """The stored answers, without the records of batches."""
    return {name: value for name, value in stored(home).items() if "content" in value}


def check_paid_once(home: Path, server: Served, asked: list[str]) -> None:
    """Each text has the answer that the planted model gives, no request was billed twice, and no record is left."""
    for number, end in enumerate(replayed(home, asked)):
        assert end.values is not None and end.values["grade"] == number % 6, end.problem
    bill = server.bill()
    assert bill["requests"] == bill["distinct"] == len(answers(home))
    assert not records(home)
    inputs = [each["input_file_id"] for each in server.stats()["batch"]["batches"]]
    assert len(inputs) == len(set(inputs)), "a batch that nobody looks at would be paid for, too"


def test_batches_have_the_answers_and_the_bill_of_single_calls(tmp_path):
    """With invalid answers that are repaired, refusals, errors of single requests, and equal texts."""
    asked = [*texts(40), *texts(10), "document=long quality=1 " + "word " * 3000]
    plan = Plan(each_attempt=dict.fromkeys((*CONTENTS, "server_error", "rate_limit"), 0.06))
    with serving(plan=plan, latency=0.0, context=2000) as server, limits(server, **PATIENT):
        single = asked_about(tmp_path / "single", asked)
        bill = server.bill()
    with serving(plan=plan, latency=0.0, context=2000, batches=BatchPlan()) as server:
        with limits(server, batch=25, **PATIENT):
            batched = asked_about(tmp_path / "batched", asked)
        assert server.bill() == bill
        assert server.stats()["requests"] == 0, "no single call"
        with limits(server, batch=25):  # only what the server refused is asked again
            again = asked_about(tmp_path / "batched", asked[:-1])
        assert again["attempts"]["new"] == 0 and server.bill() == bill
    assert batched["bill"] == single["bill"] and batched["bill"]["repaired"] > 3
    assert batched["attempts"]["new"] == single["attempts"]["new"]
    assert answers(tmp_path / "batched") == answers(tmp_path / "single")
    assert not records(tmp_path / "batched")


def test_a_batch_that_was_cancelled_or_refused_ends_a_stage_that_resumes(tmp_path):
    asked = texts(12)
    with serving(latency=0.0, batches=BatchPlan(batches=["cancelled", "invalid"])) as server:
        with limits(server, batch=100), pytest.raises(ServerError, match="was cancelled at 127.0.0.1; its .* answers"):
            ask(tmp_path, asked)
        kept = len(answers(tmp_path))
        assert 0 < kept < 12 and server.bill()["requests"] == kept and not records(tmp_path)
        with limits(server, batch=100), pytest.raises(ServerError, match="refuses the batch batch_0001: Billing hard"):
            ask(tmp_path, asked)
        assert not records(tmp_path)
        with limits(server, batch=100):
            ask(tmp_path, asked)
        check_paid_once(tmp_path, server, asked)
    with serving(latency=0.0) as server, limits(server, batch=100):
        with pytest.raises(ServerError, match=r"has no Files API: .*or set GRISTMILL_LM__BATCH to 0"):
            ask(tmp_path / "other", asked)


@pytest.mark.extended
@pytest.mark.parametrize(
    "fault",
    ["token_limit", "expired", "all_errors", "missing", "duplicate", "strange", "cut_output", "short_output"],
)
def test_each_fault_of_a_batch(tmp_path, fault):
    asked = texts(60)
    with serving(latency=0.0, batches=BatchPlan(batches=[fault, fault], polls=2)) as server:
        with limits(server, batch=30, **PATIENT):
            counts = ask(tmp_path, asked)
        check_paid_once(tmp_path, server, asked)
        batches_ = server.stats()["batch"]["batches"]
        assert len(batches_) > 2 or fault in ("duplicate", "strange", "cut_output", "short_output")
    assert (counts["uncertain"] > 0) == (fault == "missing")


@pytest.mark.extended
@pytest.mark.parametrize("endpoint", ["upload", "create", "retrieve", "list", "content"])
def test_each_fault_of_each_call(tmp_path, endpoint):
    """`list` is called after a lost response of `create`."""
    asked = texts(20)
    calls: dict[str, list[str | None]] = {endpoint: [each for fault in CALL_FAULTS for each in (fault, None)]}
    if endpoint == "list":
        calls["create"] = ["lost_answer"] * len(CALL_FAULTS)
    plan = Plan(late=1.5, retry_after=0.1)
    with serving(latency=0.0, plan=plan, batches=BatchPlan(calls=calls, page=1)) as server:
        with limits(server, batch=2, patience_seconds=60, timeout_seconds=1.0):
            ask(tmp_path, asked)
        faults = server.stats()["faults"]
        assert all(faults[f"{endpoint}_{fault}"] == 1 for fault in CALL_FAULTS)
        check_paid_once(tmp_path, server, asked)


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(3))
def test_all_faults_at_once(tmp_path, seed):
    asked = texts(60)
    kinds = ["expired", "cut_output", "duplicate", "token_limit", "strange", "missing", "all_errors", "short_output"]
    plan = BatchPlan(any_call=0.3, batches=kinds[3 * seed :] + kinds[: 3 * seed], page=2)
    faults = Plan(each_attempt={"server_error": 0.1, "rate_limit": 0.1}, late=1.5, retry_after=0.1)
    with serving(seed=seed, latency=0.0, plan=faults, batches=plan) as server:
        with limits(server, batch=20, patience_seconds=120, timeout_seconds=1.0):
            ask(tmp_path, asked)
        assert len(server.stats()["faults"]) > 5
        check_paid_once(tmp_path, server, asked)


# Kills


def run_until(boundary: int, home: str, base_url: str, asked: list[str]) -> None:
    """Ask in this process, and end it without a trace before or after the given call: of the server, of the record of a
    batch, or of the store of answers."""
    passed = 0

    def wrapped(call: Callable) -> Callable:
        def around(*arguments: Any, **more: Any) -> Any:
            count()
            result = call(*arguments, **more)
            count()
            return result

        return around

    def count() -> None:
        nonlocal passed
        if passed == boundary:
            os._exit(3)
        passed += 1

    original = Client.call

    async def call(self: Client, *arguments: Any, **more: Any) -> Any:
        count()
        result = await original(self, *arguments, **more)
        count()
        return result

    Client.call = call  # type: ignore[method-assign]
    AnswerStore.keep = wrapped(AnswerStore.keep)  # type: ignore[method-assign]
    checked_json.write, files.remove = wrapped(checked_json.write), wrapped(files.remove)
    configure(JobOptions(lm=LanguageModelServer(base_url=base_url, concurrency=4, batch=3)))
    ask(Path(home), asked)
    os._exit(0)


@pytest.mark.extended
def test_a_kill_at_each_point_pays_for_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_SECRET_LM", "test-key")
    monkeypatch.setattr(batches, "SETTLE_SECONDS", 0.0)
    processes = multiprocessing.get_context("fork")
    boundary, resumed, ended = 0, 0, False
    with serving(latency=0.0, batches=BatchPlan(page=1)) as server:
        while not ended:
            home = tmp_path / f"{boundary}"
            asked = [text.replace("document=", f"document=b{boundary}-") for text in texts(5)]
            process = processes.Process(target=run_until, args=(boundary, str(home), server.base_url, asked))
            process.start()
            process.join()
            assert process.exitcode in (0, 3)
            ended = process.exitcode == 0
            resumed += bool(records(home))
            with limits(server, batch=3):
                ask(home, asked)
            assert [end.values["grade"] for end in replayed(home, asked) if end.values] == [n % 6 for n in range(5)]
            assert not records(home)
            bill = server.bill()
            assert bill["requests"] == bill["distinct"] == 5 * (boundary + 1), f"killed at {boundary}"
            inputs = [each["input_file_id"] for each in server.stats()["batch"]["batches"]]
            assert len(inputs) == len(set(inputs)) == 2 * (boundary + 1), f"killed at {boundary}"
            boundary += 1
    assert boundary > 35 and resumed > 20, (boundary, resumed)


def left_behind(home: Path, server: Served, asked: list[str]) -> None:
    """The record of a batch whose run was killed while it waited."""
    process = multiprocessing.get_context("fork").Process(target=run_until, args=(7, str(home), server.base_url, asked))
    process.start()
    process.join()
    assert process.exitcode == 3
    assert records(home)


@pytest.mark.extended
def test_single_calls_take_over_what_a_batch_has_answered(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_SECRET_LM", "test-key")
    asked = texts(8)
    with serving(latency=0.0, batches=BatchPlan(batches=["expired"])) as server:
        left_behind(tmp_path, server, asked)
        with limits(server.url.replace("127.0.0.1", "localhost") + "/v1", batch=3):
            with pytest.raises(
                ServerError, match=r"a batch of http://127.0.0.1.* has not been read. Set GRISTMILL_LM_"
            ):
                ask(tmp_path, asked)
        with limits(server, clients=2), pytest.raises(ServerError, match="Set GRISTMILL_LM__CLIENTS to 1"):
            ask(tmp_path, asked)
        assert records(tmp_path)
        with limits(server):
            ask(tmp_path, asked)
        assert server.stats()["requests"] > 4, "single calls"
        check_paid_once(tmp_path, server, asked)


# Limits


@pytest.mark.extended
def test_the_budget_limits_what_waits_in_batches(tmp_path):
    """A batch is sent early when it may cost what is left. Prices of tokens are estimated from above."""
    asked = texts(200)
    prices = {"price_in": 1e4, "price_out": 1e4}
    short = SETTINGS.model_copy(update={"max_tokens": 60})
    with serving(latency=0.0, batches=BatchPlan()) as server:
        with limits(server, batch=50, budget=40.0, **prices), pytest.raises(BudgetError, match="is 40. Raise it and"):
            ask(tmp_path, asked, short)
        spent = sum(line["prompt_tokens"] + line["completion_tokens"] for line in server.billed()) / 100
        most = max(line["prompt_tokens"] + line["completion_tokens"] for line in server.billed()) / 100
        assert 40 <= spent <= 40 + most
        assert not records(tmp_path)
        with limits(server, batch=50, budget=1000.0, **prices):
            ask(tmp_path, asked, short)
        check_paid_once_of(short, tmp_path, server, asked)


def check_paid_once_of(settings, home: Path, server: Served, asked: list[str]) -> None:
    assert all(end.values is not None for end in replayed(home, asked, settings))
    assert server.bill()["requests"] == server.bill()["distinct"] == len(asked)


@pytest.mark.extended
def test_files_are_within_the_limits_of_the_interface(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "MAX_BYTES", 5_000)
    asked = texts(40)
    with serving(latency=0.0, batches=BatchPlan()) as server, limits(server, batch=15):
        ask(tmp_path, asked)
        sizes = [each["total"] for each in server.stats()["batch"]["batches"]]
        check_paid_once(tmp_path, server, asked)
    assert sum(sizes) == 40 and max(sizes) < 15 and len(sizes) > 3


@pytest.mark.extended
def test_a_server_whose_batches_are_never_answered_ends_a_stage(tmp_path):
    with serving(latency=0.0, batches=BatchPlan(batches=["token_limit"] * 50)) as server:
        with limits(server, batch=15, patience_seconds=1.5):
            begin = time.monotonic()
            with pytest.raises(ServerError, match=r"no request of its batches for .*: Enqueued token limit reached"):
                ask(tmp_path, texts(5))
            assert time.monotonic() - begin > 1.5
        assert server.bill()["requests"] == 0 and not records(tmp_path)


def test_settings_of_batches_that_cannot_be_kept():
    with pytest.raises(ValueError, match="batch is 50001; give at most 50,000"):
        LanguageModelServer(base_url="http://a/v1", batch=50_001)
    with pytest.raises(ValueError, match="batch is 5 and clients 2; set clients to 1"):
        LanguageModelServer(base_url="http://a/v1", batch=5, clients=2)
