"""Start the server for a test, and read its bill."""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.language_model.batch_server import BatchPlan
from tests.language_model.faults import Plan

ROOT = Path(__file__).resolve().parents[2]


def lines(path: Path) -> list[dict]:
    """The JSON lines of a bill or of a record."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def bill(log: Path) -> dict[str, int]:
    """The sums of a bill: `distinct` counts requests that differ, so `requests - distinct` were paid again."""
    billed = lines(log)
    return {
        "requests": len(billed),
        "distinct": len({line["hash"] for line in billed}),
        "prompt_tokens": sum(line["prompt_tokens"] for line in billed),
        "completion_tokens": sum(line["completion_tokens"] for line in billed),
    }


@dataclass(frozen=True)
class Served:
    """A server that runs: `base_url` is what clients call so, with `/v1`."""

    url: str
    key: str
    log: Path
    record: Path
    process: subprocess.Popen

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def stats(self) -> dict:
        request = urllib.request.Request(f"{self.url}/_stats", headers={"Authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def settle(self) -> dict:
        """Wait until no request is in flight, also those whose client has gone, and return the counts."""
        while (counts := self.stats())["in_flight"]:
            time.sleep(0.01)
        return counts

    def bill(self) -> dict[str, int]:
        self.settle()
        return bill(self.log)

    def billed(self) -> list[dict]:
        self.settle()
        return lines(self.log)

    def requests(self) -> list[dict]:
        """Every request as it came, also those that were refused or got a fault: `hash`, `body`, and `came`, the moment
        by `time.monotonic`, which the processes of a machine share."""
        return lines(self.record)


@contextmanager
def serving(
    folder: Path | None = None,
    *,
    seed: int = 7,
    plan: Plan | None = None,
    batches: BatchPlan | None = None,
    noise: dict[int, float] | None = None,
    key: str = "test-key",
    **options: object,
) -> Iterator[Served]:
    """A server in a process of its own, which ends with the block or with this process.

    `folder` has its bill and its record, which outlive it. `options` are those of the command line, as
    `latency=0.05`, `max_in_flight=8`, `mode="rewrite"`, `idempotent=True`.
    """
    with tempfile.TemporaryDirectory() as temporary:
        home = folder or Path(temporary)
        paths = {name: home / f"{name}.jsonl" for name in ("log", "record")}
        for path in paths.values():
            path.touch()
        command = [sys.executable, "-m", "tests.language_model.server", "--end-with-stdin", f"--seed={seed}"]
        command += [f"--key={key}", *(f"--{name}={path}" for name, path in paths.items())]
        if plan is not None:
            (Path(temporary) / "plan.json").write_text(plan.text())
            command.append(f"--faults={temporary}/plan.json")
        if batches is not None:
            (Path(temporary) / "batches.json").write_text(batches.text())
            command.append(f"--batches={temporary}/batches.json")
        if noise is not None:
            command.append(f"--noise={json.dumps(noise)}")
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            command += [flag] if value is True else [] if value is False else [f"{flag}={value}"]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"The server did not start: exit code {process.wait()}.")
            yield Served(url, key, paths["log"], paths["record"], process)
        finally:
            process.stdin.close()
            code = process.wait(timeout=30)
            process.stdout.close()
        if code != 0:
            raise RuntimeError(f"The server ended with exit code {code}.")
