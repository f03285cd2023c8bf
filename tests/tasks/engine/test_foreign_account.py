"""A local cluster beside other processes of the machine: without the run's keys nothing runs on it or is read."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gristmill.tasks.engine.executors import executor

# Each way of Dask's to run a function, by plain TCP and with keys of its own, and the pages of each address.
ATTACK = """
import asyncio, sys, urllib.request
from distributed import rpc
from distributed.protocol.pickle import dumps
from distributed.security import Security

async def call(address, security, method):
    async with rpc(address, connection_args=security.get_connection_args("client"), timeout=2) as remote:
        code = dumps(lambda path=sys.argv[1]: open(path, "w").close())
        return await getattr(remote, method)(function=code, args=dumps(()), kwargs=dumps({}))

def attacks(port):
    for security, protocol in ((Security(), "tcp"), (Security.temporary(), "tls")):
        for method in ("run", "run_function"):
            address = f"{protocol}://127.0.0.1:{port}"
            yield method, address, asyncio.wait_for(call(address, security, method), 5)
    for path in ("", "info/main/workers.html", "json/identity.json", "metrics", "health", "status"):
        page = f"http://127.0.0.1:{port}/{path}"
        yield "read", page, asyncio.to_thread(lambda page=page: urllib.request.urlopen(page, timeout=2).read())

async def outcome(what, where, attack):
    try:
        return " ".join(["done:", what, where, repr(await attack)[:200]])
    except Exception as error:
        return " ".join(["refused:", what, where, type(error).__name__])

async def main():
    print(*await asyncio.gather(*(outcome(*each) for port in sys.argv[2:] for each in attacks(port))), sep="\\n")

asyncio.run(main())
"""


def listening() -> set[int]:
    """Ports that this process and its children listen on."""
    me = psutil.Process()
    return {
        at.laddr.port
        for process in [me, *me.children(recursive=True)]
        for at in process.net_connections("inet")
        if at.status == psutil.CONN_LISTEN
    }


def attacked(ports: set[int], planted: Path) -> list[str]:
    command = [sys.executable, "-c", ATTACK, str(planted), *map(str, sorted(ports))]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    assert len(shown) == 10 * len(ports)
    return [line for line in shown if not line.startswith("refused:")]


@pytest.mark.timeout(240)
def test_nothing_runs_and_nothing_is_read(tmp_path):
    before = listening()
    with executor("local", 1) as running:
        assert sorted(running.map(abs, [-1, 2])) == [(0, 1), (1, 2)]
        ports = listening() - before
        assert len(ports) >= 3  # the scheduler, a worker, its nanny
        assert attacked(ports, tmp_path / "planted") == []
        assert not (tmp_path / "planted").exists()
        assert sorted(running.map(abs, [-3])) == [(0, 3)]
    assert listening() == before


@pytest.mark.timeout(240)
def test_the_same_attack_on_an_open_cluster_succeeds(tmp_path):
    from distributed import LocalCluster

    before = listening()
    with LocalCluster(n_workers=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL):
        done = attacked(listening() - before, tmp_path / "planted")
    assert (tmp_path / "planted").exists()
    assert {line.split()[1] for line in done} == {"run", "run_function", "read"}
