"""A takedown by text finds near copies in three sources and two exports; its receipt finds what is left, and what is
planted afterwards."""

import gzip
import json
import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.explore.dependents import receipt as receipts
from gristmill.flows.explore.dependents import takedown
from gristmill.flows.explore.dependents.documents import Alike, find_documents
from gristmill.flows.explore.dependents.erasure import LIKE, Request, Target, find_targets
from gristmill.flows.explore.dependents.scan import scan
from gristmill.flows.machine.runs import RunRecorder, all_runs
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.dependents.graph import HomeGraph, graph_of
from gristmill.flows.stages.export import export
from gristmill.flows.stages.mixture import training_data
from gristmill.tasks.search.file_texts import NotSearchedError, texts_of, visible
from gristmill.tasks.search.marks import MARKS, Marks, phrases
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

SOURCES, DOCUMENTS = ("web", "books", "news"), 24
WORDS = "mill stone river wheel grain miller sack flour barn wagon meadow bridge village harvest winter summer".split()


def text(seed: int, words: int = 120) -> str:
    """Words in an order that no other text has."""
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


PLANTED = text(1)


def near(number: int) -> str:
    """The planted text with two other words."""
    words = PLANTED.split()
    words[10 * number], words[-3] = "changed", f"word{number}"
    return " ".join(words)


@pytest.fixture(scope="module")
def crawl(tmp_path_factory) -> Path:
    folder, prose = tmp_path_factory.mktemp("crawl"), pydoc_paragraphs()
    for number, source in enumerate(SOURCES):
        rows = [
            {"text": prose[number * DOCUMENTS + i], "url": f"https://{source}.example/{i}"} for i in range(DOCUMENTS)
        ]
        rows[5] = {"text": near(number) if number else PLANTED, "url": f"https://{source}.example/planted"}
        (folder / f"{source}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def recipe(crawl: Path, name: str, *before: dict, **more: object) -> dict:
    sources = [{"name": one, "jsonl": [f"{crawl}/{one}.jsonl"], "url_column": "url"} for one in SOURCES]
    return {
        "name": name,
        "sources": sources,
        "steps": [*before, {"step": "extract"}],
        "tokenizer": {"vocab_size": 350, "sample_bytes": 20_000},
        "mixture": {"weights": dict.fromkeys(SOURCES, 1), "heldout_fraction": 0.05},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 16},
        "training": {"steps": 4, "batch": 2, "micro_batch": 1, "warmup_steps": 1},
        **more,
    }


def make(home: str, given: dict) -> None:
    """Run a recipe up to its mixture, with its export, and record the run."""
    loaded, here = load(given), context(home)
    recorder = RunRecorder(home, loaded.name, flow="tokens", recipe=loaded.model_dump(mode="json"))
    here = here.noting(lambda one: recorder.add(one.label))
    *_, last = curate(here, loaded)
    training_data(here, loaded, last.left)
    exported = export(here, loaded, last.left)
    if exported is not None:
        recorder.exported(exported.label, exported.folder)
    recorder.finished()


def with_text(folder: Path) -> set[str]:
    """The tables below a folder with a part of the planted texts, by a search for a piece of each that no other has."""
    pieces = [" ".join(near(number).split()[40:60]) for number in range(3)]
    found = set()
    for path in folder.rglob("*.parquet"):
        table = pq.read_table(path)
        if "text" in table.column_names and any(piece in one for one in table["text"].to_pylist() for piece in pieces):
            found.add(str(path))
    return found


@pytest.fixture(scope="module")
def taken(crawl, tmp_path_factory) -> dict:
    """The whole way of a takedown, with the receipt after each part of it."""
    folder = tmp_path_factory.mktemp("taken")
    home, listed = str(folder / "home"), folder / "takedown.txt"
    settings = MachineSettings(home=home)
    listed.write_text("# taken down\n")
    (folder / "page.txt").write_text(PLANTED)
    given = recipe(crawl, "taken", takedowns=[str(listed)])
    make(home, given | {"export": {"to": str(folder / "tables")}})
    make(home, given | {"export": {"to": str(folder / "lines"), "format": "jsonl", "where": "source != 'none'"}})
    plan = takedown.plan(settings, load(given), Request(texts=(str(folder / "page.txt"),)))
    untouched = listed.read_text()
    receipt = takedown.write(settings, plan)
    make(home, given)
    removed = takedown.remove_released(settings, receipt, "taken")
    first = receipts.search(settings, graph_of(home), receipt)
    held = with_text(folder)
    again = recipe(crawl, "taken", {"step": "url", "takedowns": [str(listed)]}, takedowns=[str(listed)])
    make(home, again)
    removed_again = takedown.remove_released(settings, receipt, "taken")
    second = receipts.search(settings, graph_of(home), first)
    return {
        **{"folder": folder, "settings": settings, "list": listed, "plan": plan, "untouched": untouched},
        **{"removed": removed, "first": first, "held": held, "removed_again": removed_again, "second": second},
    }


@pytest.mark.extended
def test_the_plan_has_the_text_and_its_near_copies_in_three_sources_and_two_exports(taken):
    plan = taken["plan"]
    assert {target.source for target in plan.targets} == {*SOURCES} and len(plan.targets) == 3
    assert {target.url for target in plan.targets} == {f"https://{source}.example/planted" for source in SOURCES}
    assert {Path(one.address).name for one in plan.report.exports} == {"tables", "lines"}
    command = "after the run: gristmill export documents RECIPE --to NEW_FOLDER --format"
    said = [line for line in takedown.plan_lines(plan) if line.startswith("export that stays")]
    assert {line.rpartition("/")[2] for line in said} == {
        f"tables; {command} parquet",
        f"""lines; {command} jsonl --where 'source != '"'"'none'"'"''""",
    }
    assert all(len(target.marks) == MARKS for target in plan.targets)
    assert taken["untouched"] == "# taken down\n", "a plan changes nothing"
    assert {*plan.lines} == {target.url for target in plan.targets}
    assert plan.work.makes_something and plan.work.certain[0].label.startswith("takedowns-")
    lines = taken["list"].read_text().splitlines()
    assert lines[0] == "# taken down" and lines[1].startswith("# takedown ") and {*lines[2:]} == {*plan.lines}


@pytest.mark.extended
def test_the_receipt_says_what_was_there_and_what_learned_from_it(taken):
    value = taken["first"].value
    assert sum(one["tokens"] for one in value["stages"] if one["stage"].startswith("tokens-")) > 300
    assert [one["stage"].partition("-")[0] for one in value["trained_on_it"]] == ["tokenizer"]
    assert {Path(path).name for path in value["source_files"]} == {f"{source}.jsonl" for source in SOURCES}
    assert all(len(one["digest"]) == 32 for one in value["documents"])
    assert PLANTED[:40] not in Path(taken["first"].path).read_text()
    assert PLANTED[:40] not in Path(taken["first"].path.replace(".json", ".txt")).read_text()


@pytest.mark.extended
def test_the_run_with_the_list_releases_the_tokens_and_the_search_finds_extraction_and_exports(taken):
    assert {label.partition("-")[0] for label in taken["removed"]} >= {"tokens", "mixture"}
    first = taken["first"]
    paths = {one["path"] for one in first.last["remnants"]}
    tables = {path for path in paths if path.endswith(".parquet")}
    assert tables == taken["held"], "by a search for the texts themselves"
    assert {Path(path).relative_to(taken["folder"]).parts[0] for path in paths} == {"home", "tables", "lines"}
    assert not any("/tokens-" in path for path in paths) and not first.is_clean
    lines = [one for one in first.last["remnants"] if one["path"].endswith(".jsonl.zst")]
    assert len({one["path"] for one in lines}) == 3
    for target in taken["plan"].targets:  # one file has all of it, and those with the other copies have most of it
        shares = sorted(one["marks"] / one["of"] for one in lines if one["document"] == target.id)
        assert len(shares) == 3 and shares[-1] == 1 and 0.6 < shares[0] < 1
    [left] = [one for one in first.last["remaining_stages"] if one["stage"].startswith("documents-")]
    assert left["kept_by_recipes"] == ["taken"]
    assert {Path(one).name for one in first.last["to_delete"]} == {"tables", "lines"}
    assert any(line == f"delete the export {taken['folder']}/tables, and its copies" for line in receipts.lines(first))
    assert any(line.startswith("NOT CLEAN") for line in receipts.lines(first))


@pytest.mark.extended
def test_after_a_new_extraction_and_without_the_exports_nothing_is_found_until_a_copy_is_planted(taken):
    folder, settings = taken["folder"], taken["settings"]
    assert any(label.startswith("documents-") for label in taken["removed_again"])
    left = {Path(one["path"]).relative_to(folder).parts[0] for one in taken["second"].last["remnants"]}
    assert left == {"tables", "lines"}
    for name in ("tables", "lines"):
        for path in sorted((folder / name).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (folder / name).rmdir()

    def search(*exports: str) -> receipts.Receipt:
        return receipts.search(
            settings, graph_of(settings.home), receipts.read(settings.home, taken["second"].id), exports
        )

    clean = search()
    assert {Path(one).name for one in clean.last["gone"]} == {"tables", "lines"} and not clean.last["to_delete"]
    assert clean.is_clean and clean.last["files"] > 20, clean.last
    assert [*receipts.lines(clean)][-1] == "nothing of the documents was found in the files that were searched"
    assert {run.name for run in all_runs(settings.home)} == {"taken"}

    copies = {
        "reports/page.html": f"<html><p>{near(1).upper().replace(' STONE ', ' <b>STONE</b> ')}</p></html>".encode(),
        "reports/part.txt": f"a note. {' '.join(PLANTED.split()[50:70])}".encode(),
        "reports/packed.json.gz": gzip.compress(json.dumps({"a": [{"text": near(2)}]}).encode()),
    }
    for name, data in copies.items():
        path = Path(settings.home, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        found = search()
        assert {one["path"] for one in found.last["remnants"]} == {str(path)} and not found.is_clean
        path.unlink()
    other = folder / "other"
    other.mkdir()
    pq.write_table(pa.table({"rows": [[{"body": near(2)}], None]}), other / "a.parquet")
    assert {one["document"] for one in search(str(other)).last["remnants"]} == {one.id for one in taken["plan"].targets}
    (other / "a.parquet").write_bytes(b"PAR1 damaged PAR1")
    damaged = search(str(other))
    assert not damaged.is_clean and "a damaged table" in damaged.last["unread"][0]
    assert not search().is_clean, "what was searched once is searched again"
    with pytest.raises(FileNotFoundError, match="export not found: .*/othr. Check --export"):
        search(str(folder / "othr"))


def test_a_recipe_without_a_list_is_told_how_to_get_one(crawl):
    with pytest.raises(ValueError, match=r"has no takedown list that can be written.*takedowns: \[takedown.txt\]"):
        takedown.list_of(load(recipe(crawl, "none")))
    with pytest.raises(FileNotFoundError, match="file not found: /nowhere/page.txt. Check --list and --text-like"):
        find_targets(MachineSettings(home="/nowhere"), graph_of("/nowhere"), Request(texts=("/nowhere/page.txt",)))
    with pytest.raises(LookupError, match="no receipt 0123 in /nowhere; there are none"):
        receipts.read("/nowhere", "0123")


@pytest.mark.extended
def test_workers_find_what_threads_find(taken):
    settings = taken["settings"].model_copy(update={"workers": 2})
    graph = graph_of(settings.home)
    part = next(Path(settings.home, "stages").glob("documents-*/part-00000.parquet"))
    one = pq.read_table(part)["text"][3].as_py()
    match = Alike((one,))
    found = [find_documents(settings, graph, match, ("id", "text"), few=few) for few in (0, 1000)]
    assert found[0] == found[1] and found[0].documents
    marks = Marks.of({"one": phrases([one])[0].tolist()[:MARKS]})
    searched = [scan(settings, graph, marks, [settings.home], few=few) for few in (0, 1 << 40)]
    assert searched[0] == searched[1] and searched[0].remnants


@pytest.mark.extended
def test_marks_find_parts_of_a_text_in_any_case_and_no_other_text():
    [values] = phrases([PLANTED])
    marks = Marks.of({"a": sorted(values.tolist())[:MARKS], "b": phrases([text(2)])[0].tolist()[:MARKS]})
    words = PLANTED.upper().split()
    assert len(marks.places([PLANTED])) == MARKS
    part = marks.places([", ".join(words[30:70])])
    assert 0 < len(part) < MARKS and {int(marks.owners[at]) for at in part} == {0}
    assert not len(marks.places([text(3), *pydoc_paragraphs()[:50], ""])) and not len(marks.places([]))
    assert len(marks.places([PLANTED, text(2)])) == 2 * MARKS


@pytest.mark.extended
def test_texts_are_read_from_every_kind_of_file(tmp_path):
    def read(name: str) -> str:
        return " ".join(each for texts in texts_of(str(tmp_path / name)) for each in texts)

    (tmp_path / "a.json").write_text(json.dumps({"x": ["caf\u00e9", {"y": "two\nlines"}]}))
    (tmp_path / "a.jsonl").write_text('{"x": "caf\\u00e9"}\nno json\n')
    (tmp_path / "a.html").write_text("<p>one<script>hidden()</script> &amp; two</p>")
    (tmp_path / "a.log").write_text("plain text")
    with sqlite3.connect(tmp_path / "a.db") as database:
        database.execute("CREATE TABLE notes (x, y)")
        database.execute("INSERT INTO notes VALUES (?, ?)", ("a note", '{"z": "within JSON"}'))
    assert "caf\u00e9" in read("a.json") and "two\nlines" in read("a.json")
    assert "caf\u00e9" in read("a.jsonl") and "no json" in read("a.jsonl")
    assert visible("<p>one &amp; two</p>").strip() == "one & two" and "one  & two" in read("a.html")
    assert read("a.log") == "plain text"
    assert "a note" in read("a.db") and "within JSON" in read("a.db")
    (tmp_path / "a.bin").write_bytes(b"\x00\x01\x02")
    (tmp_path / "a.order").write_bytes(b"\x00")
    for name, why in (("a.bin", "an unknown format"), ("a.order", "suffix arrays")):
        with pytest.raises(NotSearchedError, match=why):
            read(name)
    long = [f"word{number}" for number in range(900_000)]
    (tmp_path / "long.txt").write_text(" ".join(long))
    [values] = phrases([" ".join(long)])
    marks = Marks.of({"a": values.tolist()})
    seen = {int(at) for texts in texts_of(str(tmp_path / "long.txt")) for at in marks.places(texts)}
    assert len(seen) == len(values), "no phrase is cut between two pieces"


def test_what_is_not_searched_is_named_by_its_stage(tmp_path):
    home, marks = str(tmp_path), Marks.of({"a": phrases([PLANTED])[0].tolist()[:MARKS]})
    names = {
        "word_index-0123456789abcdef/0.store": "indexes of words",
        "quality_model-0123456789abcdef/model-0.bin": "fastText models",
        "perplexity_model-0123456789abcdef/model.bin": "KenLM models",
        "other-0123456789abcdef/x": "an unknown format",
    }
    for name in names:
        path = tmp_path / "stages" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\0\1\2")
    (tmp_path / "note.txt").write_text(PLANTED)
    found = scan(MachineSettings(home=home), HomeGraph(home), marks, [home])
    assert found.skipped == {what: (1, f"{home}/stages/{name}") for name, what in names.items()}
    assert [(one.path, one.marks, one.of) for one in found.remnants] == [(f"{home}/note.txt", MARKS, MARKS)]


def test_near_copies_are_named_as_such():
    target = Target("a", "web", None, "web.jsonl", f"{LIKE}like it, 0.95", "d" * 32, 100, (1, 2))
    value = {"begun": "2026-11-30 05:00:00", "release": "0", "documents": [vars(target)], "stages": [], "searches": []}
    value |= {"trained_on_it": [], "trainings": [], "source_files": [], "unknown": []}
    one = receipts.Receipt("0123", "/home/receipts/0123.json", value)
    lines = [*receipts.lines(one)]
    assert lines[1] == "1 documents, 1 of them near-duplicates of the others:"
    assert lines[-1] == "not searched yet: gristmill home takedown --check 0123" and not one.is_clean
    alone = replace(target, marks=())
    lines = [*receipts.lines(receipts.Receipt("0", "0.json", value | {"documents": [vars(alone)]}))]
    assert any("1 documents have no phrase of 8 words that other documents lack, such as a" in line for line in lines)
