"""The step `annotate` by the real command: executors, kills, and where the key is.

GRISTMILL_TEST_KILLS: how many runs are killed for each executor, of GRISTMILL_TEST_KILLS_DOCUMENTS documents;
GRISTMILL_TEST_KILLS_SEED: at which moments.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.language_model.asking import recipe, stored, texts
from tests.language_model.faults import Plan
from tests.language_model.serving import Served, serving

COMMAND = "import sys; from gristmill.flows.cli import main; sys.argv[0] = 'gristmill'; main()"
KILLS = int(os.environ.get("GRISTMILL_TEST_KILLS", "15"))
DOCUMENTS = int(os.environ.get("GRISTMILL_TEST_KILLS_DOCUMENTS", "1500"))
SEED = int(os.environ.get("GRISTMILL_TEST_KILLS_SEED", "23"))
KEY = "key-that-nobody-else-has-7141"
FAULTS = {
    **{"not_json": 0.05, "misses_schema": 0.02, "refusal": 0.02, "length": 0.02, "other_model": 0.01},
    **{"rate_limit": 0.01, "rate_limit_seconds": 0.01, "server_error": 0.02, "disconnect": 0.01},
    **{"cut_body": 0.02, "lost_answer": 0.01, "html_page": 0.005},
}
EXECUTORS = ("serial", "threads", "local")


def recipe_file(folder: Path, documents: list[str], files: int = 6) -> Path:
    """A recipe over so many files with the texts."""
    whole = recipe(folder, {"web": []})
    (folder / "web").mkdir(exist_ok=True)
    for number in range(files):
        lines = [json.dumps({"text": text}) for text in documents[number::files]]
        (folder / "web" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(whole))
    return path


def environment(home: Path, server: Served | None, executor: str, **limits: object) -> dict[str, str]:
    theirs = ("PREFECT_", "GRISTMILL_", "MLFLOW_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    lm = {"concurrency": 8, "base_url": "" if server is None else server.base_url, **limits}
    return {
        **kept,
        **{f"GRISTMILL_LM__{name.upper()}": str(value) for name, value in lm.items() if value != ""},
        "GRISTMILL_SECRET_LM": KEY,
        "GRISTMILL_HOME": str(home),
        "GRISTMILL_EXECUTOR": executor,
        "GRISTMILL_WORKERS": "1" if executor == "serial" else "2",
    }


def started(path: Path, home: Path, server: Served | None, executor: str, **limits: object) -> subprocess.Popen:
    with open(f"{home}.log", "a") as log:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, "corpus", str(path)],
            env=environment(home, server, executor, **limits),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def run(path: Path, home: Path, server: Served | None, executor: str = "threads", **limits: object) -> str:
    """Run to the end. Returns what it printed."""
    code = started(path, home, server, executor, **limits).wait()
    printed = Path(f"{home}.log").read_text()
    assert code == 0, printed[-3000:]
    return printed


def stage(home: Path) -> Path:
    (folder,) = [each for each in home.glob("stages/annotate-*") if (each / "manifest.json").exists()]
    return folder


def parts(home: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(stage(home).glob("part-*.parquet"))]


def bill_of(home: Path) -> dict:
    return json.loads((stage(home) / "manifest.json").read_text())["result"]["answers"]


def check_bill(home: Path, server: Served) -> None:
    billed, bill = server.bill(), bill_of(home)
    assert billed["requests"] == billed["distinct"]
    assert {name: bill[name] for name in ("requests", "prompt_tokens", "completion_tokens")} == {
        name: billed[name] for name in ("requests", "prompt_tokens", "completion_tokens")
    }


def kill(process: subprocess.Popen) -> None:
    """The run and all its workers."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.extended
def test_all_executors_give_equal_parts_and_the_key_is_nowhere(tmp_path):
    path = recipe_file(tmp_path, texts(60))
    plan = Plan(each_attempt={"server_error": 0.1, "not_json": 0.1, "lost_answer": 0.1, "refusal": 0.1})
    for executor in EXECUTORS:
        with serving(latency=0.01, plan=plan, idempotent=True, key=KEY) as server:
            run(path, tmp_path / executor, server, executor, concurrency=6, clients=2)
            assert server.stats()["max_in_flight"] <= 6
            check_bill(tmp_path / executor, server)
    one, *others = (parts(tmp_path / executor) for executor in EXECUTORS)
    assert len(one) == 6 and all(other == one for other in others)
    for executor in EXECUTORS:
        for found in [*(tmp_path / executor).rglob("*"), tmp_path / f"{executor}.log"]:
            assert not found.is_file() or KEY.encode() not in found.read_bytes(), found


@pytest.mark.extended
def test_a_refused_key_is_nowhere_in_what_a_run_leaves(tmp_path):
    path = recipe_file(tmp_path, texts(20))
    with serving(latency=0.0, key="another") as server:
        assert started(path, tmp_path / "home", server, "threads").wait() != 0
    printed = (tmp_path / "home.log").read_text()
    assert "127.0.0.1 refuses the key: " in printed and "Set GRISTMILL_SECRET_LM to a valid key" in printed
    for found in [*(tmp_path / "home").rglob("*"), tmp_path / "home.log"]:
        assert not found.is_file() or KEY.encode() not in found.read_bytes(), found
    assert "Traceback" not in printed


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("executor", ["local", "threads"])
def test_kills_at_random_moments_pay_for_nothing_twice(tmp_path, executor, idempotent):
    """Without idempotency a kill costs at most the answers that were in flight."""
    documents, draw = texts(DOCUMENTS), random.Random(SEED)
    path = recipe_file(tmp_path, documents)
    plan = Plan(each_attempt=FAULTS, retry_after=0.2)
    with serving(latency=0.0, plan=plan, idempotent=True, key=KEY) as server:
        run(path, tmp_path / "undisturbed", server, executor, concurrency=16)
        check_bill(tmp_path / "undisturbed", server)
    home = tmp_path / "killed"
    moments = []
    with serving(latency=0.05, plan=plan, idempotent=idempotent, key=KEY) as server:
        for _ in range(KILLS):
            process = started(path, home, server, executor, concurrency=4)
            before = server.stats()["requests"]
            limit = before + draw.randint(1, len(documents) // KILLS)
            while process.poll() is None and server.stats()["requests"] < limit:
                time.sleep(0.05)
            if process.poll() is not None:
                break
            kill(process)
            moments.append(len(stored(home)))
        assert len(moments) == KILLS, moments
        run(path, home, server, executor, concurrency=4)
        if idempotent:
            check_bill(home, server)
        billed, bill = server.bill(), bill_of(home)
        assert bill["requests"] == billed["distinct"] == len(stored(home))
        assert billed["requests"] - billed["distinct"] <= 4 * KILLS
        print(f"{executor}, idempotent {idempotent}: kills after {moments} answers; {billed}")
    if idempotent:
        assert parts(home) == parts(tmp_path / "undisturbed")
