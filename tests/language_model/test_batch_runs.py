"""Whole stages whose requests are sent in batches: annotations and rewrites of odd corpora, as with single calls."""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import yaml

from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.tasks.engine.executors import Threads
from tests.corpora import context
from tests.language_model.asking import limits, made, parts, recipe, rows
from tests.language_model.batch_server import BatchPlan
from tests.language_model.faults import Plan
from tests.language_model.serving import serving

THAI = "โรงสีบดข้าวสาลีทุกวัน และขายแป้งในตลาด"


def odd(folder: Path, **step) -> dict:
    """Three unequal sources: one document; Thai, longer than a window; English with empty and equal texts."""
    english = [{"text": f"document=e{n % 30} quality={n % 6}\nThe mill grinds {n % 30} sacks."} for n in range(40)]
    sources = {
        "one": [{"text": "document=one quality=3\nA single page."}],
        "thai": [{"text": f"document=t{n} quality={n % 6}\n{THAI * (n + 1)}"} for n in range(7)],
        "english": [*english, {"text": ""}, {"text": " \n"}, {"text": "quality=9 \x00 \ud7ff \U0001f33e"}],
    }
    return recipe(folder, sources, characters=150, windows=3, **step)


@pytest.mark.extended
def test_an_odd_corpus_is_annotated_as_with_single_calls(tmp_path):
    plan = Plan(each_attempt={"not_json": 0.2, "misses_schema": 0.1, "refusal": 0.1, "server_error": 0.1})
    given = odd(tmp_path)
    with serving(latency=0.0, plan=plan) as server, limits(server):
        single = made(tmp_path / "single", given)
        bill = server.bill()
    with serving(latency=0.0, plan=plan, batches=BatchPlan(batches=["expired"])) as server, limits(server, batch=9):
        workers = context(str(tmp_path / "batched"), Threads(2, None))
        *_, last = curate(workers, load(given))
        batched = {stage.name: stage for stage in last.left.stages}
        assert server.bill() == bill and server.stats()["requests"] == 0
    assert parts(batched["annotate"]) == parts(single["annotate"])
    found = rows(batched["annotate"])
    assert len(found) == len(rows(single["documents"])) > 40
    assert sum(row["annotate_grade"] is not None for row in found) > 25
    own = [json.loads((Path(each["annotate"].folder) / "bill.json").read_text()) for each in (single, batched)]
    assert {name: own[0][name] for name in ("requests", "prompt_tokens", "price", "models")} == {
        name: own[1][name] for name in ("requests", "prompt_tokens", "price", "models")
    }


@pytest.mark.extended
def test_one_document(tmp_path):
    given = recipe(tmp_path, {"one": [{"text": "document=one quality=3\nA single page."}]})
    with serving(latency=0.0, batches=BatchPlan()) as server, limits(server, batch=50_000):
        [row] = rows(made(tmp_path / "home", given)["annotate"])
        assert row["annotate_grade"] == 3 and server.bill()["requests"] == 1


def rewriting(folder: Path) -> dict:
    texts = [f"document=r{n} quality=3\nThe mill grinds {n} sacks of wheat. Bread is baked of it." for n in range(30)]
    other = recipe(folder, {"web": [{"text": text} for text in texts]})
    other["steps"] = other["steps"][:1]
    (folder / "other.yaml").write_text(yaml.safe_dump({**other, "name": "other"}))
    rewrite = {
        "recipe": str(folder / "other.yaml"),
        "model": "planted",
        "prompt": {"user": "Write it again: <text>{{ text }}</text>"},
        "min_characters": 10,
        "prompt_words": None,
    }
    return {"name": "again", "sources": [{"name": "again", "rewrite": rewrite}], "steps": []}


@pytest.mark.extended
def test_rewrites_are_those_of_single_calls(tmp_path):
    given = rewriting(tmp_path)
    with serving(latency=0.0, mode="rewrite") as server, limits(server):
        made(tmp_path / "single", given)
    with serving(latency=0.0, mode="rewrite", batches=BatchPlan(batches=["missing"])) as server:
        with limits(server, batch=12):
            made(tmp_path / "batched", given)
        assert server.bill()["requests"] == server.bill()["distinct"] == 30 and server.stats()["requests"] == 0
    single, batched = (
        [path.read_bytes() for path in sorted((tmp_path / name).glob("stages/rewrites-*/part-*.parquet"))]
        for name in ("single", "batched")
    )
    assert batched == single and len(single) == 3


def run(home: str, url: str, given: dict) -> None:
    os.setsid()
    with limits(url, batch=10):
        made(Path(home), given)


@pytest.mark.extended
def test_a_run_that_is_killed_while_it_waits_reads_the_answers_of_its_batches(tmp_path):
    given = odd(tmp_path)
    with serving(latency=0.0, batches=BatchPlan(polls=5)) as server:
        home = tmp_path / "home"
        process = multiprocessing.get_context("spawn").Process(target=run, args=(str(home), server.base_url, given))
        process.start()
        while server.stats()["batch"]["calls"].get("retrieve", 0) < 2:
            assert process.is_alive()
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        sent = len(server.stats()["batch"]["batches"])
        assert sent > 3 and server.bill()["requests"] == 0
        with limits(server, batch=10):
            made(home, given)
        assert len(server.stats()["batch"]["batches"]) == sent, "all requests were sent before"
        assert server.bill()["requests"] == server.bill()["distinct"]
