"""How much of a server's throughput one client uses: printed, and compared with a bare client that keeps no answer.

A client is bound by its core; `GRISTMILL_LM__CLIENTS` has more of them.
"""

import asyncio
import os
import time

import aiohttp
import pytest

from tests.language_model.asking import SETTINGS, ask, conversation, limits
from tests.language_model.serving import Served, serving

DOCUMENTS = int(os.environ.get("GRISTMILL_TEST_REQUESTS", "10000"))
CONCURRENCY, LATENCY = 64, 0.2


def long_texts(count: int) -> list[str]:
    return [f"document=b{number} quality={number % 6}\n" + f"word{number} " * 150 for number in range(count)]


async def bare(server: Served, asked: list[str]) -> None:
    """Post the same requests, so many in flight, and read the answers."""
    bodies = iter([conversation(text).request for text in asked])
    headers = {"Authorization": f"Bearer {server.key}"}

    async def work(session: aiohttp.ClientSession) -> None:
        for each in bodies:
            body = {"model": each.model, "messages": list(each.messages), **each.parameters}
            async with session.post(f"{server.base_url}/chat/completions", json=body, headers=headers) as response:
                assert response.status == 200
                await response.json()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY)) as session:
        await asyncio.gather(*(work(session) for _ in range(CONCURRENCY)))


@pytest.mark.bench
def test_throughput_at_64_in_flight(tmp_path):
    asked = long_texts(DOCUMENTS)
    few = asked[: max(CONCURRENCY, DOCUMENTS // 5)]
    with serving(latency=LATENCY, jitter=0.0) as server:
        begin = time.monotonic()
        asyncio.run(bare(server, few))
        most = len(few) / (time.monotonic() - begin)
    with serving(latency=LATENCY, jitter=0.0) as server, limits(server, concurrency=CONCURRENCY):
        begin, cpu = time.monotonic(), time.process_time()
        ask(tmp_path, asked, SETTINGS)
        seconds, cpu = time.monotonic() - begin, time.process_time() - cpu
        assert server.stats()["max_in_flight"] <= CONCURRENCY
        assert server.bill()["requests"] == DOCUMENTS
    rate = DOCUMENTS / seconds
    print(
        f"\n{DOCUMENTS:,} documents, {CONCURRENCY} in flight, {LATENCY} s: {rate:.0f} requests/s with "
        f"{1000 * cpu / DOCUMENTS:.1f} ms of CPU time each; {rate * LATENCY / CONCURRENCY:.0%} of {CONCURRENCY} / "
        f"{LATENCY} s; {rate / most:.0%} of the {most:.0f} requests/s of a bare client"
    )
