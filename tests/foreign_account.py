"""Another account of the machine, which tries every port that it is told: uid 65534, where the tests run as root.

    python -m tests.foreign_account FILE < PORTS      a line for each try: "PORT done|refused: WHAT ..."

It has none of a run's keys and logins. It tries each way of Dask's to run a function, which would make FILE, by plain
TCP and with keys of its own; the pages of Dask and of Prefect; and raw bytes, to which any answer counts that is no
refusal.
"""

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
from distributed import rpc
from distributed.protocol.pickle import dumps
from distributed.security import Security

PAGES = ("", "info/main/workers.html", "json/identity.json", "metrics", "status", "api/version", "api/admin/settings")
ASKED = (("POST", "api/flow_runs/filter"), ("GET", "api/collections/views/aggregate-worker-metadata"))
RAW = (b"GET / HTTP/1.0\r\n\r\n", bytes(64), b"\x80\x04\x95" + bytes(200))
TRIES = 4 + len(PAGES) + len(ASKED) + len(RAW)
NOBODY = 65534
# each has loaded what it needs before the account changes, which may not read these files
WAYS = {"tcp": Security().get_connection_args("client"), "tls": Security.temporary().get_connection_args("client")}


async def call(address: str, arguments: dict, method: str, file: str) -> Any:
    async with rpc(address, connection_args=arguments, timeout=2) as remote:
        code = dumps(lambda path=file: open(path, "w").close())
        return await getattr(remote, method)(function=code, args=dumps(()), kwargs=dumps({}))


def page(port: int, method: str, path: str) -> bytes:
    body = b"{}" if method == "POST" else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", body, method=method)
    return urllib.request.urlopen(request, timeout=2).read()


async def raw(port: int, sent: bytes) -> bytes:
    """What is answered, if that is neither TLS's nor HTTP's way to say no. Raises PermissionError for no or nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        answer = await asyncio.wait_for(reader.read(4096), 2)
    finally:
        writer.close()
    if not answer or answer[0] == 0x15 or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")):
        raise PermissionError
    return answer


def attacks(port: int, file: str) -> Iterator[tuple[str, Any]]:
    for protocol, arguments in WAYS.items():
        for method in ("run", "run_function"):
            at = call(f"{protocol}://127.0.0.1:{port}", arguments, method, file)
            yield f"{method} by {protocol}", asyncio.wait_for(at, 5)
    for method, path in (*(("GET", path) for path in PAGES), *ASKED):
        yield f"read {method} /{path}", asyncio.to_thread(page, port, method, path)
    for sent in RAW:
        yield f"raw {sent[:8]!r}", raw(port, sent)


async def outcome(port: int, what: str, attack: Any) -> str:
    try:
        return f"{port} done: {what} {(await attack)!r:.200}"
    except Exception as error:
        return f"{port} refused: {what} {type(error).__name__}"


async def attack(port: int, file: str) -> None:
    for said in await asyncio.gather(*(outcome(port, *each) for each in attacks(port, file))):
        print(said, flush=True)


async def main(file: str) -> None:
    async with asyncio.TaskGroup() as group:
        while line := await asyncio.to_thread(sys.stdin.readline):
            group.create_task(attack(int(line), file))


class ForeignAccount:
    """The account as a process, to be told ports while a run goes on."""

    def __init__(self, planted: Path) -> None:
        root = Path(__file__).resolve().parents[1]
        self.told: set[int] = set()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.foreign_account", str(planted)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, ports: Iterable[int]) -> None:
        assert self.process.stdin is not None
        for port in sorted(set(ports) - self.told):
            self.told.add(port)
            self.process.stdin.write(f"{port}\n")
            self.process.stdin.flush()

    def outcomes(self) -> list[str]:
        """A line for each try, when all were made."""
        shown, _ = self.process.communicate()
        assert self.process.returncode == 0
        lines = shown.splitlines()
        assert len(lines) == TRIES * len(self.told)
        return lines


def attacked(ports: set[int], planted: Path) -> list[str]:
    """The tries that were not refused."""
    account = ForeignAccount(planted)
    account.tell(ports)
    return [line for line in account.outcomes() if " done: " in line]


def listening(*processes: psutil.Process) -> dict[int, str]:
    """The ports that processes and their children listen on, each with the address and the commands: two may have a
    socket together. All are TCP's: one of UDP is an error."""
    found: dict[int, str] = {}
    for each in {child for process in processes for child in (process, *process.children(recursive=True))}:
        try:
            for at in each.net_connections("inet"):
                if at.status == psutil.CONN_LISTEN:
                    command = f"{at.laddr.ip} {' '.join(each.cmdline())}"
                    found[at.laddr.port] = "; ".join(filter(None, (found.get(at.laddr.port), command)))
                elif not at.raddr and at.status == psutil.CONN_NONE:
                    raise AssertionError(f"UDP: {at}")
        except psutil.NoSuchProcess:
            continue
    return found


if __name__ == "__main__":
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    asyncio.run(main(sys.argv[1]))
