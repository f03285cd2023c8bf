"""An engine and a reader of a user's, as docs/guides/add-a-step.md has them: on workers, under guard, in the key."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import dump, load
from gristmill.flows.reports.lineage import trace
from gristmill.storage import parquet
from gristmill.storage.home import Home
from gristmill.storage.remote.config import DEFAULT
from tests.conftest import page, write_warc

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("paragraph_engine", "mail_reader")
RUN = """
import json, sys
from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.tasks.engine.executors import executor
from tests.corpora import context

if __name__ == "__main__":
    recipe, home, kind = sys.argv[1:]
    with executor(kind, 2) as workers:
        *_, last = curate(context(home, workers), load(recipe))
    print(json.dumps([[stage.name, stage.key, stage.reused] for stage in last.left.stages]))
"""
MAIL = """From miller@example.org Mon May 18 2026
Message-ID: <{n}a@example.org>
Subject: Sack {n}
Content-Type: text/plain; charset=utf-8

The sack number {n} is full.
From baker@example.org Tue May 19 2026
Message-ID: <{n}b@example.org>
Subject: Bread {n}
Content-Type: text/html; charset=utf-8

<html><body><div>menu</div><p>The bread of sack {n} is <b>baked</b>.</p></body></html>
"""
WORSE = """
import os

from paragraph_engine import paragraphs as ours


def paragraphs(page):
    if "fatal" in page:
        os.kill(os.getpid(), 11)
    if "error" in page:
        raise KeyError("no such word")
    if "endless" in page:
        while True:
            pass
    return ours(page)
"""


def documented(module: str) -> str:
    """The code that the page shows as `<module>.py`."""
    text = (ROOT / "docs" / "guides" / "add-a-step.md").read_text()
    return text.split(f"`{module}.py`:\n\n```python\n")[1].partition("```")[0]


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    for module in MODULES:
        (tmp_path / "own" / f"{module}.py").write_text(documented(module))
    (tmp_path / "own" / "worse_engine.py").write_text(WORSE)
    (tmp_path / "mail").mkdir()
    for n in range(40):
        (tmp_path / "mail" / f"{n:02d}.mbox").write_text(MAIL.format(n=n))
    (tmp_path / "mail" / "20.mbox").write_bytes(MAIL.format(n=20).encode().replace(b"text/html", b"image/png"))
    pages = [page([f"The mill grinds {text} grain."]) for text in ("good", "fatal", "error", "endless", "fine")]
    given = [(f"https://mill.example/{n}", p, "200 OK", "text/html; charset=utf-8") for n, p in enumerate(pages)]
    write_warc(tmp_path / "web-0.warc.gz", given)
    (tmp_path / "run.py").write_text(RUN)
    monkeypatch.setenv("GRISTMILL_STEPS", "paragraph_engine,mail_reader,worse_engine")
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    yield tmp_path
    for module in (*MODULES, "worse_engine"):
        sys.modules.pop(module, None)


def recipe(place: Path, engine: str = "paragraph_engine:paragraphs") -> dict:
    mail = {"name": "mail", "reader": "mail_reader:mbox", "files": [f"{place}/mail/*.mbox"], "columns": ["title"]}
    return {
        "name": "own",
        "sources": [{"name": "web", "warc": [f"{place}/web-*.warc.gz"]}, mail],
        "steps": [{"step": "extract", "engine": engine, "limits": {"page_seconds": 1}}],
    }


def run(place: Path, given: dict, kind: str) -> tuple[str, bool]:
    """The key of the documents, and whether they were found finished, of a run in a process of its own."""
    (place / "own.yaml").write_text(yaml.safe_dump(given))
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{place / 'own'}"}
    command = [sys.executable, str(place / "run.py"), str(place / "own.yaml"), str(place / "home"), kind]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [[_, key, reused]] = json.loads(done.stdout.splitlines()[-1])
    return key, reused


def rows(place: Path, key: str) -> tuple[list[dict], list[dict]]:
    stage = Home(str(place / "home")).stage(key)
    found = [row for part in stage.parts for row in parquet.read_table(part).to_pylist()]
    ledgers = [parquet.read_table(stage.ledger(n)).to_pylist() for n in range(len(stage.parts))]
    return found, [row for ledger in ledgers for row in ledger]


@pytest.mark.slow
def test_they_run_on_workers_and_their_code_is_in_the_key(place):
    key, reused = run(place, recipe(place), "local")
    found, lost = rows(place, key)
    mail = [(row["file"], row["text"], row["title"]) for row in found if row["source"] == "mail"]
    expected = []
    for n in range(40):
        expected.append((f"{n:02d}.mbox", f"The sack number {n} is full.", f"Sack {n}"))
        if n != 20:
            expected.append((f"{n:02d}.mbox", f"The bread of sack {n} is baked.", f"Bread {n}"))
    assert mail == expected and not reused
    # a message without a body ends its own file, and no other
    assert [(row["file"], row["rule"]) for row in lost] == [("20.mbox", "damaged_record")]
    assert {row["engine"] for row in found if row["source"] == "web"} == {"paragraph_engine:paragraphs"}
    [lineage] = trace(str(place / "home"), found[-1]["id"], DEFAULT)
    assert lineage.record is not None and b"<b>baked</b>" in lineage.record.payload

    assert run(place, recipe(place), "serial") == (key, True)
    for module, change in {
        "paragraph_engine": ("strip()", "strip(' ')"),
        "mail_reader": ('"From the end"', '"From "'),
    }.items():
        path = place / "own" / f"{module}.py"
        path.write_text(path.read_text().replace(*change).replace("b" + change[0], "b" + change[1]))
        other, reused = run(place, recipe(place), "serial")
        assert other != key and not reused
        key = other


@pytest.mark.extended
def test_a_page_that_kills_an_engine_costs_that_page(place):
    key, _ = run(place, recipe(place, "worse_engine:paragraphs"), "local")
    found, lost = rows(place, key)
    assert [row["url"][-1] for row in found if row["source"] == "web"] == ["0", "4"]
    assert {(row["url"][-1], row["rule"]) for row in lost if row["url"]} == {
        ("1", "page_crash"), ("2", "extractor_error"), ("3", "page_timeout"),
    }  # fmt: skip


def test_what_is_not_allowed_or_not_there_is_refused_with_its_remedy(place, monkeypatch):
    settings = MachineSettings(home=str(place / "home"))
    assert load(yaml.safe_load(dump(load(recipe(place))))) == load(recipe(place))
    assert not check(recipe(place), settings, deep=True).findings
    for missing, said in (
        (recipe(place, "paragraph_engine:nothing"), "the module paragraph_engine has no function nothing"),
        (recipe(place, "paragraph_engin"), "there is no engine 'paragraph_engin'"),
        (recipe(place, "bloks"), "did you mean `blocks`?"),
    ):
        assert [said in str(finding) for finding in check(missing, settings, deep=True).findings] == [True]
    monkeypatch.setenv("GRISTMILL_STEPS", "mail_reader")
    with pytest.raises(RecipeError) as refused:
        load(recipe(place))
    [remedy] = re.findall(r"if you trust its code, set GRISTMILL_STEPS=(\S+)", str(refused.value))
    monkeypatch.setenv("GRISTMILL_STEPS", remedy)
    assert load(recipe(place)).extract.engine == "paragraph_engine:paragraphs"


def test_installed_packages_give_them_by_name(place, monkeypatch):
    monkeypatch.delenv("GRISTMILL_STEPS")
    points = {
        "gristmill.engines": ("paragraphs", "paragraph_engine:paragraphs"),
        "gristmill.readers": ("mbox", "mail_reader:mbox"),
    }
    real = importlib.metadata.entry_points

    def planted(*, group: str):
        if group not in points:
            return real(group=group)
        name, value = points[group]
        return importlib.metadata.EntryPoints([importlib.metadata.EntryPoint(name, value, group)])

    monkeypatch.setattr("gristmill.flows.recipe.own_steps.entry_points", planted)
    given = recipe(place, "paragraphs")
    given["sources"][1]["reader"] = "mbox"
    loaded = load(given)
    assert loaded.extract.engine == "paragraph_engine:paragraphs"
    assert loaded.sources[1].reader == "mail_reader:mbox"
    union = {"step": "extract", "engine": "union", "engines": ["paragraphs", "blocks"]}
    united = load(given | {"steps": [union, {"step": "textbook"}]})
    assert united.extract.asked == ("paragraph_engine:paragraphs", "blocks")
    given["sources"][1]["reader"] = "mbx"
    with pytest.raises(RecipeError, match="there is no reader 'mbx'; did you mean `mbox`?"):
        load(given)
