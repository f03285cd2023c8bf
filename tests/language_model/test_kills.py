"""A process that asks is killed at random moments, 30 times: what it paid for is in the home.

Whole runs that are killed: test_annotate_runs.py.
"""

import multiprocessing
import random
import time

import pytest

from gristmill.tasks.engine.options import JobOptions, LanguageModelServer, configure
from gristmill.tasks.language_model.annotate import AnnotationSettings
from gristmill.tasks.language_model.ask import ask_all
from tests.language_model.asking import SETTINGS, TEMPLATE, ask, limits, replayed, stored, texts
from tests.language_model.faults import Plan
from tests.language_model.serving import serving

KILLS, DOCUMENTS, CONCURRENCY = 30, 900, 6


def ask_here(home: str, base_url: str, asked: list[str], settings: AnnotationSettings) -> None:
    """Ask in this process, as a job does."""
    configure(JobOptions(lm=LanguageModelServer(base_url=base_url, concurrency=CONCURRENCY)))
    ask_all("annotate", home, TEMPLATE, lambda: ((len(text), settings.conversations(text, {})) for text in asked))


@pytest.mark.extended
@pytest.mark.parametrize("idempotent", [True, False])
def test_kills_at_random_moments_pay_for_nothing_twice(tmp_path, monkeypatch, idempotent):
    """Without idempotency a kill costs at most the answers that were in flight."""
    asked, draw = texts(DOCUMENTS), random.Random(7)
    processes = multiprocessing.get_context("forkserver")  # they have imported everything when they begin
    processes.set_forkserver_preload(["openai", "aiohttp", __name__])
    plan = Plan(each_attempt={"not_json": 0.05, "refusal": 0.02, "length": 0.02, "server_error": 0.02})
    found = []
    monkeypatch.setenv("GRISTMILL_SECRET_LM", "test-key")
    with serving(latency=0.05, plan=plan, idempotent=idempotent) as server:
        for _ in range(KILLS):
            limit = server.stats()["requests"] + draw.randint(1, DOCUMENTS // KILLS)
            process = processes.Process(target=ask_here, args=(str(tmp_path), server.base_url, asked, SETTINGS))
            process.start()
            while process.is_alive() and server.stats()["requests"] < limit:
                time.sleep(0.005)
            time.sleep(draw.uniform(0, 0.05))
            assert process.is_alive(), "it ended before it was killed"
            process.kill()
            process.join()
            found.append(len(stored(tmp_path)))
        with limits(server, concurrency=CONCURRENCY):
            ask(tmp_path, asked)
        answers, bill, ends = stored(tmp_path), server.bill(), replayed(tmp_path, asked)
    assert set(answers) == {digest for end in ends for digest in end.digests}
    assert bill["distinct"] == len(answers)
    paid_again = bill["requests"] - bill["distinct"]
    assert paid_again <= (0 if idempotent else CONCURRENCY * KILLS)
    assert found == sorted(found) and 0 < found[-1] < DOCUMENTS, "kills lose no answer"
    if idempotent:
        for name in ("prompt_tokens", "completion_tokens"):
            assert bill[name] == sum(answer[name] for answer in answers.values())
    print(
        f"idempotent {idempotent}: answers at the kills {found}; {bill}; {bill['requests'] - len(answers)} paid again"
    )
