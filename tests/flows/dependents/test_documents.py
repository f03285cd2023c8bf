"""Documents of a home by id, URL, host and text, against a reading of all its tables, in real runs of small recipes."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.explore.dependents.affected import affected
from gristmill.flows.explore.dependents.documents import listing, matching
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.dependents.things import Thing
from gristmill.flows.stages.mixture import training_data
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.rules import gopher_quality
from gristmill.tasks.rules.gopher_quality import GopherQuality
from tests.corpora import Texts, context
from tests.flows.dependents.planted import run
from tests.planted.text import pydoc_paragraphs

SHARDS, DOCUMENTS = 3, 20


def recipe(folder: Path, name: str, *steps: dict, **more: object) -> dict:
    return {
        "name": name,
        "sources": [{"name": "web", "jsonl": [f"{folder}/web-*.jsonl"], "url_column": "url"}],
        "steps": [{"step": "extract"}, *steps],
        "tokenizer": {"vocab_size": 350, "sample_bytes": 20_000},
        "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.1},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 16},
        "training": {"steps": 4, "batch": 2, "micro_batch": 1, "warmup_steps": 1},
        **more,
    }


def make(home: str, given: dict) -> set[str]:
    """Run a recipe up to its mixture; the labels of its stages, as the context has given them."""
    noted: list[StageResult] = []
    here: RunContext = context(home).noting(noted.append)
    loaded = load(given)
    *_, last = curate(here, loaded)
    training_data(here, loaded, last.left)
    run(home, loaded.name, *noted)
    return {one.label for one in noted}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Three recipes in one home: two with the quality rules of version 1, one of them with duplicates removed, one with
    other rules; then the first again with the rules of another version."""
    folder = tmp_path_factory.mktemp("crawl")
    prose = pydoc_paragraphs()
    for shard in range(SHARDS):
        rows = [
            {"text": prose[shard * DOCUMENTS + i], "url": f"https://site{i % 4}.example/{shard}/{i}"}
            for i in range(DOCUMENTS)
        ]
        (folder / f"web-{shard}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    home = str(tmp_path_factory.mktemp("home"))
    quality = {"step": "gopher_quality", "min_words": 5, "min_stop_words": 0}
    first = recipe(folder, "first", quality)
    stages = {
        "first": make(home, first),
        "second": make(home, recipe(folder, "second", quality, {"step": "minhash", "unit": "words"})),
        "other": make(home, recipe(folder, "other", {"step": "textbook", "min_characters": 20})),
    }
    with pytest.MonkeyPatch.context() as patched:
        version = GopherQuality.work_version
        patched.setattr(GopherQuality, "work_version", version + 1)
        count = gopher_quality.real_words
        patched.setattr(gopher_quality, "real_words", lambda text: count(text) + 1)
        stages["again"] = make(home, first)
    return home, folder, stages, version


@pytest.mark.extended
def test_the_stages_of_a_planted_step_version_are_those_of_the_recipes_with_it(given):
    home, _, stages, version = given
    settings = MachineSettings(home=home)
    old = stages["first"] | stages["second"]
    assert not old & stages["other"]
    # what the new version made with the same contents as before is not made again after it
    new = {label for label in stages["again"] - old}
    assert {label.rpartition("-")[0] for label in new} >= {"documents", "rules", "heldout", "tokens"}
    found = affected(settings, f"gopher_quality@{version}")
    assert {one.stage for one in found.stages} == old
    assert {one.run.partition("/")[0] for one in found.runs} == {"first", "second"}
    found = affected(settings, f"gopher_quality@{version + 1}")
    assert {one.stage for one in found.stages} == stages["again"] - old


@pytest.mark.parametrize("host", ["bücher.example", "xn--bcher-kva.example", "BÜCHER.EXAMPLE"])
def test_documents_are_found_by_any_spelling_of_their_host(host, tmp_path):
    urls = ["https://bücher.example/a", "http://xn--bcher-kva.example:80/a", "https://bucher.example/a"]
    Texts([[{"id": f"{n:032x}", "url": url, "text": "a text"} for n, url in enumerate(urls)]]).corpus(str(tmp_path))
    for thing in (host, f"https://{host}/a", f"https://{host}:443/*"):
        found = affected(MachineSettings(home=str(tmp_path)), thing).found
        assert {one.url for one in found.documents} == {*urls[:2]}


ODD = [
    *(
        "https://Host.example/a",
        "http://www.host.example:80/a/b",
        "http://sub.host.example",
        "http://nothost.example/a",
    ),
    *(
        "https://host.example.:443/a/",
        "http://user:pw@host.example/a#b",
        "http:\\\\host.example\\a",
        "ho%73t.example/a",
    ),
    *(
        "http://ho\tst.example/a",
        " http://host.example/a ",
        "http://ho%53t.example/a",
        "http://ｈｏｓｔ.example/a",
        None,
        "",
    ),
    *("http://0x7f.1/a", "http://127.1:80/a", "http://127.0.0.1/a", "http://[::1]/a", "http://[0:0::1]:80/a"),
    *("http://bücher.example/a", "http://B%C3%BCcher.example/a", "http://xn--bcher-kva.example/a", "//host.example/a"),
    *("http://other.example/?to=http://host.example/a", "urn:host.example", "https://host.example/a?b=1", "mailto:a@b"),
]


@pytest.mark.parametrize(
    "name, kind",
    [
        *(("host.example", "host"), ("www.host.example", "host"), ("example", "host"), ("127.0.0.1", "host")),
        *(("[::1]", "host"), ("bücher.example", "host"), ("http://host.example/a", "url"), ("f" * 32, "document")),
        *(("https://www.host.example/a/*", "url"), ("http://127.0.0.1/a", "url"), ("https://bücher.example/a", "url")),
    ],
)
def test_a_thing_matches_as_an_entry_of_a_list(name, kind, tmp_path):
    table = pa.table({"id": [f"{n:032x}" for n in range(len(ODD))] + ["f" * 32], "url": [*ODD, "http://own.example"]})
    (tmp_path / "entry").write_text(f"{name}\n")
    with listing([str(tmp_path / "entry")]) as by_list, matching(Thing(kind, name)) as (match, _):
        expected = by_list(None, table).to_pylist()
        assert match(None, table).to_pylist() == expected
        assert match(None, table[:0]).to_pylist() == []
    assert any(expected)


def holds(home: str, ids: set[str]) -> dict[str, tuple[set[str], int]]:
    """By stage the ids among some that its tables have, and their tokens: every table of the home is read whole."""
    held: dict[str, tuple[set[str], int]] = {}
    for path in Path(home, "stages").rglob("*.parquet"):
        label = path.relative_to(Path(home, "stages")).parts[0]
        table = pq.read_table(path)
        if "id" not in table.column_names or path.parent.name in ("ledger", "edits"):
            continue
        rows = [row for row in table.to_pylist() if row["id"] in ids]
        if rows:
            before, tokens = held.get(label, (set(), 0))
            more = (
                sum(row["length"] for row in rows)
                if {"offset", "length"} <= {*rows[0]} and "text" not in rows[0]
                else 0
            )
            held[label] = before | {row["id"] for row in rows}, tokens + more
    return held


@pytest.mark.extended
@pytest.mark.parametrize("thing", ["https://site1.example/1/5", "site2.example", "https://site0.example/2/*", "ID"])
def test_documents_are_in_the_stages_whose_tables_have_them(given, thing):
    home, _, stages, _ = given
    table = pq.read_table(next(Path(home, "stages").glob("documents-*/part-00001.parquet")))
    text = table["id"][3].as_py() if thing == "ID" else thing
    report = affected(MachineSettings(home=home), text)
    expected = {"https://site1.example/1/5": 1, "site2.example": 15, "https://site0.example/2/*": 5, "ID": 1}
    assert len(report.found.ids) == expected[thing]
    held = holds(home, report.found.ids)
    counted = {one.stage: (one.documents, one.tokens or 0) for one in report.stages if one.documents}
    assert counted == {label: (len(ids), tokens) for label, (ids, tokens) in held.items()}
    assert {one.stage for one in report.stages} == set().union(*stages.values())
    [shards] = {one.shards for one in report.stages if one.stage.startswith("documents-")}
    assert shards == ((0, 1, 2) if thing == "site2.example" else (2,) if "2/*" in thing else (1,))


@pytest.mark.extended
def test_the_shards_and_tokens_of_a_source_file_are_those_of_its_documents(given):
    home, folder, stages, _ = given
    report = affected(MachineSettings(home=home), str(folder / "web-1.jsonl"))
    assert {one.stage for one in report.stages} == set().union(*stages.values())
    for one in report.stages:
        if one.stage.startswith("tokens-"):
            index = pq.read_table(f"{home}/stages/{one.stage}/train-00001.parquet")
            assert (one.shards, one.all_tokens) == ((1,), sum(index["length"].to_pylist()))
    by_name = affected(MachineSettings(home=home), "web-1.jsonl")
    assert [one.stage for one in by_name.stages] == [one.stage for one in report.stages]
    with pytest.raises(LookupError, match="no stage in .* has the source file web-9.jsonl"):
        affected(MachineSettings(home=home), "web-9.jsonl", kind="source-file")


@pytest.mark.extended
def test_documents_like_a_text_are_found_and_others_are_not(given, tmp_path):
    home, *_ = given
    table = pq.read_table(next(Path(home, "stages").glob("documents-*/part-00002.parquet")))
    longest = max(table.to_pylist(), key=lambda row: len(row["text"]))
    words = longest["text"].split()
    (tmp_path / "page.txt").write_text(" ".join([*words[:-2], "another", "end"]))
    report = affected(MachineSettings(home=home), text_like=str(tmp_path / "page.txt"))
    assert report.found.ids == {longest["id"]} and report.kind == "text"
    (tmp_path / "page.txt").write_text("a text that nobody wrote, of a dozen words or a few more of them")
    with pytest.raises(LookupError, match="no document in .* matches the text .*fewer than 25: only documents"):
        affected(MachineSettings(home=home), text_like=str(tmp_path / "page.txt"))
    (tmp_path / "page.txt").write_text("...")
    with pytest.raises(ValueError, match="has no words"):
        affected(MachineSettings(home=home), text_like=str(tmp_path / "page.txt"))


@pytest.mark.extended
def test_a_part_of_a_text_is_found_or_the_report_says_that_it_is_too_short(given, tmp_path):
    home, *_ = given
    table = pq.read_table(next(Path(home, "stages").glob("documents-*/part-00000.parquet")))
    longest = max(table.to_pylist(), key=lambda row: len(row["text"]))
    words = longest["text"].split()
    part = tmp_path / "part.txt"
    part.write_text(" ".join(words[: len(words) // 2]))
    report = affected(MachineSettings(home=home), text_like=str(part))
    assert longest["id"] in report.found.ids and not any("fewer than" in gap for gap in report.gaps)
    part.write_text(" ".join(words[:8]))
    with pytest.raises(LookupError, match="not longer ones that contain it"):
        affected(MachineSettings(home=home), text_like=str(part))


@pytest.mark.extended
def test_a_page_is_named_with_its_query_and_what_no_list_may_have_is_one_error(given):
    home, *_ = given
    with pytest.raises(LookupError, match=r"matches the url https://site1\.example/1/5\?a=1"):
        affected(MachineSettings(home=home), "https://user:word@site1.example/1/5?a=1")
    with pytest.raises(ValueError, match="documents are not found by 'url http://'; give an id, a host") as caught:
        affected(MachineSettings(home=home), "http://")
    assert "shard" not in str(caught.value)
