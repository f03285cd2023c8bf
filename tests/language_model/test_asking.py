"""A server's faults, limits and errors: each text has one answer, and the home's answers are the server's bill."""

import asyncio
import json
import time

import pytest

from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.language_model.ask import BudgetError
from gristmill.tasks.language_model.client import ServerError, retry_after
from tests.language_model.asking import SETTINGS, TEMPLATE, ask, first_request, limits, replayed, stored, texts
from tests.language_model.faults import CONTENTS, DELIVERIES, KINDS, Plan
from tests.language_model.serving import Served, serving

QUICK = {"retry_after": 0.1, "hang": 5.0, "late": 0.8, "bytes_per_second": 100.0}
# Faults after which a stage goes on; without them there would be no answers.
SURVIVED = tuple(kind for kind in KINDS if kind != "insufficient_quota")
PATIENT = {"timeout_seconds": 0.7, "patience_seconds": 120}


def mixed(kinds: tuple[str, ...], share: float) -> Plan:
    return Plan(each_attempt=dict.fromkeys(kinds, share / len(kinds)), **QUICK)


def check_answers(home, server: Served, asked: list[str], idempotent: bool, counts: dict) -> None:
    """Each text has one answer or a problem, and the server's bill is that of the answers, but for lost ones."""
    ends = replayed(home, asked)
    for number, end in enumerate(ends):
        assert (end.values is None) == bool(end.problem)
        if end.values is not None and len(end.digests) == 1:  # the complaint has no quality
            assert end.values["grade"] == number % 6
    answers, billed = stored(home), server.billed()
    assert set(answers) == {digest for end in ends for digest in end.digests}
    assert {line["key"] for line in billed} == set(answers)
    paid_again = len(billed) - len(answers)
    if idempotent:
        assert paid_again == 0
        known = [line for line in billed if line["fault"] != "no_usage"]
        for name in ("prompt_tokens", "completion_tokens"):
            assert sum(line[name] for line in known) == sum(answer[name] or 0 for answer in answers.values())
    else:
        assert paid_again <= counts["uncertain"] <= counts["retries"]


@pytest.mark.extended
@pytest.mark.parametrize("idempotent", [True, False])
def test_all_faults_at_once_leave_one_paid_answer_to_a_request(tmp_path, idempotent):
    asked = texts(60)
    with serving(plan=mixed(SURVIVED, 0.6), latency=0.01, idempotent=idempotent) as server:
        with limits(server, concurrency=64, **PATIENT):
            counts = ask(tmp_path, asked)
        check_answers(tmp_path, server, asked, idempotent, counts)
        assert len([kind for kind in SURVIVED if server.stats()["faults"].get(kind)]) > 10


@pytest.mark.extended
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("kind", SURVIVED)
def test_each_fault_leaves_one_paid_answer_to_a_request(tmp_path, kind, idempotent):
    asked = texts(40)
    with serving(plan=mixed((kind,), 0.5), latency=0.01, idempotent=idempotent) as server:
        seconds = 0.7 if kind in ("hang", "late", "slow_body") else 60
        with limits(server, concurrency=32, timeout_seconds=seconds, patience_seconds=120):
            counts = ask(tmp_path, asked)
        check_answers(tmp_path, server, asked, idempotent, counts)
        assert server.stats()["faults"][kind] > 5
    if kind not in (*DELIVERIES, *CONTENTS, "disconnect", "hang", "html_page", "bad_gateway"):
        assert counts["uncertain"] == 0, "an error with its status is not billed"
    if kind not in (*CONTENTS, *DELIVERIES):
        assert [end.values is not None for end in replayed(tmp_path, asked)] == [True] * 40


@pytest.mark.extended
@pytest.mark.parametrize("kind", [*CONTENTS, "cut_body", "lost_answer"])
def test_a_fault_that_never_ends_is_a_problem_of_its_text_only(tmp_path, kind):
    """A few texts have the fault at every attempt. Broken connections end the stage, with a sentence."""
    asked = texts(40)
    with serving(plan=Plan(always={kind: 0.6}, **QUICK), latency=0.0, idempotent=True) as server:
        with limits(server, patience_seconds=2):
            if kind in ("cut_body", "lost_answer"):
                with pytest.raises(ServerError, match=r"has not answered for 2 s: .*Start or repair the server"):
                    ask(tmp_path, asked)
                return
            ask(tmp_path, asked)
    ends = replayed(tmp_path, asked)
    failed = [end.problem for end in ends if end.values is None]
    if kind in ("no_usage", "other_model"):
        assert not failed
    else:
        assert 0 < len(failed) < 40


def test_concurrency_is_kept_and_equal_texts_are_asked_once(tmp_path):
    asked = texts(30) * 3
    with serving(latency=0.02) as server:
        with limits(server, concurrency=5):
            counts = ask(tmp_path, asked)
        assert server.stats()["max_in_flight"] == 5
        assert server.bill()["requests"] == server.bill()["distinct"] == 30 == counts["new"]


@pytest.mark.extended
def test_rates_are_kept_from_the_first_request_on(tmp_path):
    """Lower bounds of the moments at which requests came: a slow machine only makes them later."""
    with serving(latency=0.0) as server:
        begin = time.monotonic()
        with limits(server, concurrency=8, requests_per_minute=1800):
            ask(tmp_path / "requests", texts(40))
        came = sorted(each["came"] for each in server.requests())
        assert len(came) == 40
        assert all(moment >= begin + number * 60 / 1800 for number, moment in enumerate(came))

        begin, before = time.monotonic(), len(server.requests())
        per_minute = 120_000
        with limits(server, concurrency=2, tokens_per_minute=per_minute):
            ask(tmp_path / "tokens", texts(40))
        came = sorted(each["came"] for each in server.requests()[before:])
        sizes = [line["prompt_tokens"] + line["completion_tokens"] for line in server.billed()[-40:]]
    # before a request, the tokens of all answers but those of the last two requests were paid for in time
    for number, moment in enumerate(came):
        assert moment >= begin + 60 / per_minute * sum(sorted(sizes)[: max(0, number - 2)])
    assert 60 / per_minute * sum(sizes) > 0.5, "there was something to wait for"


@pytest.mark.extended
def test_a_wait_for_the_rate_does_not_use_up_the_patience(tmp_path):
    """The last request waits 2 s for its turn, then has an error; the patience is shorter than that."""
    plan = Plan(each_attempt={"server_error": 1.0}, faulty_attempts=1)
    with serving(plan=plan, latency=0.0) as server, limits(server, requests_per_minute=180, patience_seconds=1.2):
        assert ask(tmp_path, texts(4))["retries"] == 4


@pytest.mark.extended
def test_a_pause_that_the_server_asks_for_is_kept(tmp_path):
    plan = Plan(from_request={}, each_attempt={"rate_limit_seconds": 1.0}, faulty_attempts=1, retry_after=1)
    with serving(plan=plan, latency=0.0) as server:
        begin = time.monotonic()
        with limits(server, concurrency=1):
            ask(tmp_path, texts(1))
        first, second = (each["came"] for each in server.requests())
    assert second >= first + 1 > begin + 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": "99999"}, 3600),
        # neither seconds nor a date in the future: the client's own waits, which grow
        *(({"retry-after": value}, None) for value in ("soon", "", "-5", "0", "nan", "inf", "-inf", "1e999")),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"retry-after-ms": "nan"}, None),
        ({"retry-after-ms": "-1"}, None),
    ],
)
def test_retry_after(headers, seconds):
    assert retry_after(headers) == seconds


def test_the_budget_ends_a_stage_that_resumes_and_pays_nothing_again(tmp_path):
    asked = texts(60) * 2  # equal texts are paid for once
    prices = {"price_in": 1e4, "price_out": 1e4}
    with serving(latency=0.01) as server:
        with limits(server, concurrency=4, budget=10.0, **prices), pytest.raises(BudgetError) as raised:
            ask(tmp_path, asked)
        lines = server.billed()
        spent = [(line["prompt_tokens"] + line["completion_tokens"]) / 100 for line in lines]
        assert 10 <= sum(spent)
        # before the last four were sent, less than the budget had been answered
        assert sum(sorted(spent)[:-4]) < 10
        message = str(raised.value)
        assert message.startswith(f"annotate: the answers have cost {sum(spent):.2f}, and GRISTMILL_LM__BUDGET is 10")
        assert message.endswith(f"Raise it and run again; the {len(lines)} answers are kept")
        with limits(server, concurrency=4, budget=10.0, **prices), pytest.raises(BudgetError):
            ask(tmp_path, asked)
        assert len(server.billed()) == len(lines), "nothing is paid for with a budget that is spent"
        with limits(server, concurrency=4, budget=1000.0, **prices):
            ask(tmp_path, asked)
        assert server.bill()["requests"] == server.bill()["distinct"] == 60


def test_repairs_return_an_invalid_answer_to_the_model(tmp_path):
    plan = Plan(each_attempt={"not_json": 0.5, "misses_schema": 0.5}, faulty_attempts=1)
    always = Plan(always={"misses_schema": 0.5, "refusal": 0.5})
    asked = texts(12)
    with serving(plan=plan, latency=0.0, idempotent=True) as server, limits(server):
        once = SETTINGS.model_copy(update={"repairs": 0})
        ask(tmp_path / "0", asked, once)
        assert server.bill()["requests"] == 12
        assert all(end.problem.startswith("invalid: ") for end in replayed(tmp_path / "0", asked, once))
    with serving(plan=always, latency=0.0) as server, limits(server):
        ask(tmp_path / "2", asked)
        ends = replayed(tmp_path / "2", asked)
        requests = {each["hash"]: each["body"] for each in server.requests()}
        lines = server.billed()
    by_text: dict[str, list[dict]] = {}
    for line in lines:
        by_text.setdefault(line["key"], []).append(line)
    assert all(len(each) == 1 for each in by_text.values())
    for end in ends:
        answered = [by_text[digest][0] for digest in end.digests]
        refused = [line["fault"] == "refusal" for line in answered]
        assert sum(refused) <= 1 and not any(refused[:-1]), "a refusal is not returned"
        assert len(answered) == 3 or refused[-1]
        assert end.problem.startswith("refusal: " if refused[-1] else "invalid: ")
        for earlier, later in zip(answered, answered[1:], strict=False):
            one, other = (requests[line["hash"]]["messages"] for line in (earlier, later))
            assert other[: len(one)] == one
            assert [each["role"] for each in other[len(one) :]] == ["assistant", "user"]
            assert other[len(one)]["content"] == (earlier["content"] or "")
            assert "not valid" in other[-1]["content"]


# Errors that end a stage


def ends(home, server: Served | str, asked: list[str], **settings) -> str:
    with limits(server, **{"patience_seconds": 1.0, "concurrency": 4, **settings}):
        with pytest.raises(ServerError) as raised:
            ask(home, asked)
    return str(raised.value)


def test_errors_of_the_server_end_a_stage_with_a_fix(tmp_path):
    with serving(latency=0.0) as server:
        wrong = Served(server.url, "other-key", server.log, server.record, server.process)
        message = ends(tmp_path, wrong, texts(50))
        assert message.startswith("127.0.0.1 refuses the key: ") and "Set GRISTMILL_SECRET_LM" in message
        message = ends(tmp_path, server.url, texts(50))
        assert "GRISTMILL_LM__BASE_URL, which usually ends with /v1" in message
        other = SETTINGS.model_copy(update={"model": "other"})
        with limits(server), pytest.raises(ServerError, match=r"127.0.0.1 has no model other .*Correct `model`"):
            ask(tmp_path, texts(50), other)
        assert server.bill()["requests"] == 0
        assert stored(tmp_path) == {}
        # the fixes work
        with limits(server):
            ask(tmp_path, texts(5))
    with serving(latency=0.0, plan=Plan(from_request={"insufficient_quota": 10})) as server:
        message = ends(tmp_path / "quota", server, texts(50))
        assert "has no quota left" in message and "Add credit and run again" in message
        assert len(stored(tmp_path / "quota")) == 10 == server.bill()["requests"]
        message = ends(tmp_path / "quota", server, texts(50))
        assert server.bill()["requests"] == 10


@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.extended)])
def test_a_server_that_refuses_every_request_ends_a_stage(tmp_path, count):
    """Also if there are few."""
    with serving(latency=0.0, context=20) as server:
        message = ends(tmp_path, server, texts(count))
        assert message.startswith("127.0.0.1 refuses every request: This model's maximum context length is 20 tokens")
        assert "Correct the step or the server" in message
        assert server.stats()["requests"] < 40
    with serving(latency=0.0) as server, limits(server):
        ask(tmp_path, texts(count))
        assert server.bill()["requests"] == count
    assert all(end.values is not None for end in replayed(tmp_path, texts(count)))


@pytest.mark.extended
def test_a_refused_request_is_asked_again_by_the_next_run_only(tmp_path):
    asked = [*texts(10), "word " * 2000]
    with serving(latency=0.0, context=800) as server, limits(server):
        ask(tmp_path, asked)
        assert [end.problem.partition(":")[0] for end in replayed(tmp_path, asked)] == [""] * 10 + ["error"]
    with serving(latency=0.0) as server, limits(server):
        ask(tmp_path, asked)
        assert server.bill()["requests"] == 1
        ask(tmp_path, asked)
        assert server.bill()["requests"] == 1
    assert replayed(tmp_path, asked)[-1].values is not None


@pytest.mark.extended
def test_a_server_that_is_not_there_or_stops_ends_a_stage_that_resumes(tmp_path, caplog):
    message = ends(tmp_path, "http://127.0.0.1:9/v1", texts(5))
    assert message.startswith("127.0.0.1 has not answered for 1 s: no connection: ")
    assert "Start or repair the server" in message
    assert any("127.0.0.1 has not answered" in each.message for each in caplog.records), "the wait is logged"
    with limits(""), pytest.raises(ServerError, match="Set GRISTMILL_LM__BASE_URL"):
        ask(tmp_path, texts(5))
    with serving(latency=0.02) as server, limits(server, concurrency=4, patience_seconds=1.0):
        with pytest.raises(ServerError, match="has not answered for 1 s"):
            ask_and_stop(tmp_path, server, texts(200))
        billed = len(server.log.read_text().splitlines())
    answers = len(stored(tmp_path))
    assert 0 < answers <= billed <= answers + 4
    with serving(latency=0.0) as server, limits(server):
        counts = ask(tmp_path, texts(200))
        assert counts["new"] == 200 - answers == server.bill()["requests"]


def ask_and_stop(home, server: Served, asked: list[str]) -> None:
    """End the server once it has answered some."""

    def items():
        for number, text in enumerate(asked):
            if number == 60:
                server.process.terminate()
                server.process.wait()
            yield len(text), SETTINGS.conversations(text, {})

    from gristmill.tasks.language_model.ask import ask_all

    ask_all("annotate", str(home), TEMPLATE, items)


def test_the_key_is_in_no_message_and_no_answer(tmp_path):
    """Also of servers that repeat it."""

    async def repeat(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length"))
        await reader.readexactly(size)
        status, body = bodies[0], bodies[1]
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    def with_server(status: str, body: str) -> str:
        bodies[:] = status, body

        async def run() -> str:
            async with await asyncio.start_server(repeat, "127.0.0.1", 0) as listener:
                url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
                return await asyncio.to_thread(ends, tmp_path, url, texts(3), patience_seconds=0.1)

        return asyncio.run(run())

    bodies: list[str] = ["", ""]
    error = json.dumps({"error": {"message": "Incorrect API key provided: test-key."}})
    for status in ("401 Unauthorized", "400 Bad Request", "500 Error"):
        assert "***" in (message := with_server(status, error)) and "test-key" not in message
    assert "***" in (message := with_server("200 OK", "<p>Bearer test-key</p>")) and "test-key" not in message
    assert "test-key" not in json.dumps(stored(tmp_path))


def test_settings_of_the_server_that_cannot_be_kept():
    with pytest.raises(ValueError, match="clients is 3 and concurrency 2"):
        LanguageModelServer(base_url="http://a/v1", clients=3, concurrency=2)
    for name in ("requests_per_minute", "budget", "price_in"):
        with pytest.raises(ValueError, match=name):
            LanguageModelServer(base_url="http://a/v1", **{name: float("nan")})


def test_requests_have_the_digest_as_their_idempotency_key(tmp_path):
    with serving(latency=0.0) as server, limits(server):
        ask(tmp_path, texts(2))
        assert {line["key"] for line in server.billed()} == {first_request(text) for text in texts(2)}
