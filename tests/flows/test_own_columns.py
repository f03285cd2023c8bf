"""Columns of a source's own come through a whole run: typed as their files have them, named or all."""

import datetime
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gristmill.flows.curation import curate
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.lineage import trace
from gristmill.flows.reports.status import show
from gristmill.flows.stages.export import export
from gristmill.flows.stages.heldout import heldout
from gristmill.flows.stages.tokens import grouped_tokens, tokenizer, tokens
from gristmill.storage import parquet
from gristmill.storage.remote.config import DEFAULT
from gristmill.storage.schema import own_of
from gristmill.tasks.reading.own_columns import ColumnError
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

LICENCES = ["cc0", "by", "by-sa"]
DAY = datetime.datetime(2026, 5, 18, 12, 30, tzinfo=datetime.UTC)


def row(n: int) -> dict:
    prose = pydoc_paragraphs()
    return {
        "text": f"{prose[3 * n]}\n{prose[3 * n + 1]}\n{prose[3 * n + 2]}",
        "title": f"Title {n}",
        "license": LICENCES[n % 3],
        "score": n if n % 2 else n / 4,
        "rank": n,
        "draft": n % 5 == 0,
        "tags": [f"t{n % 4}"] * (n % 3),
        "meta": {"editor": {"name": f"E{n}", "years": [n, n + 1]}} if n % 2 else {"pages": n},
        "when": "2026-05-18",
        "language": "xx",
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    rows = [row(n) for n in range(90)]
    for name, part in {"a": rows[:30], "b": rows[30:60]}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in part))
    columns = {name: [each[name] for each in rows[60:]] for name in ("text", "title", "license", "score", "tags")}
    pq.write_table(pa.table(columns | {"seen": pa.array([DAY] * 30, pa.timestamp("us", "UTC"))}), folder / "c.parquet")
    return folder


def sources(folder, columns="*", tables="*") -> list[dict]:
    renamed = {name: name for name in row(1) if name not in ("text", "language")} | {"site_language": "language"}
    return [
        {"name": "lines", "jsonl": [f"{folder}/*.jsonl"], "columns": renamed if columns == "*" else columns},
        {"name": "tables", "parquet": [f"{folder}/*.parquet"], "columns": tables},
        {"name": "plain", "text": [f"{folder}/a.jsonl"]},
    ]


def curated(home, given: list[dict], steps=(), **more):
    steps = [{"step": "extract"}, {"step": "language"}, *steps]
    recipe = load({"name": "own", "sources": given, "steps": steps} | more)
    *_, last = curate(context(str(home)), recipe)
    RunRecorder(str(home), "own").add(*(stage.label for stage in last.left.stages))
    return recipe, last.left


def documents(corpus) -> list[dict]:
    parts = [corpus.documents.part(i) for i in range(len(corpus.sources))]
    assert len({parquet.schema(part) for part in parts}) == 1, "shards have other columns, or types"
    return [each for part in parts for each in parquet.read_table(part).to_pylist()]


@pytest.mark.extended
def test_values_and_types_are_those_of_the_files_through_edits_and_cuts(tmp_path, folder):
    steps = [{"step": "pii"}, {"step": "line_dedup"}]
    _, corpus = curated(tmp_path / "home", sources(folder), steps)
    schema = parquet.schema(corpus.documents.part(0))
    types = {name: str(schema.field(name).type) for name in own_of(schema)}
    assert corpus.documents.name != "documents"  # a stage that wrote the documents again
    assert types == {
        "title": "string", "license": "string", "score": "double", "rank": "int64", "draft": "bool",
        "tags": "list<element: string>", "when": "string", "site_language": "string",
        "meta": "struct<editor: struct<name: string, years: list<element: int64>>, pages: int64>",
        "seen": "timestamp[us, tz=UTC]",
    } or types["meta"].startswith("struct<pages: int64, editor")  # fmt: skip
    found = {each["title"]: each for each in documents(corpus) if each["source"] != "plain"}
    assert len(found) > 80
    for n in range(90):
        if (given := found.get(f"Title {n}")) is None:
            continue
        truth = row(n)
        assert (given["license"], given["score"], given["tags"]) == (truth["license"], truth["score"], truth["tags"])
        if n >= 60:
            assert given["seen"] == DAY and given["rank"] is None and given["meta"] is None
            continue
        assert (given["rank"], given["draft"], given["site_language"]) == (n, truth["draft"], "xx")
        whole = {"editor": None, "pages": None} | truth["meta"]
        assert given["meta"] == whole and given["seen"] is None


@pytest.mark.extended
@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_exports_shows_and_lineage_have_them(tmp_path, folder, format):
    to = {"export": {"to": str(tmp_path / "out"), "format": format}}
    recipe, corpus = curated(tmp_path / "home", sources(folder), **to)
    export(context(str(tmp_path / "home")), recipe, corpus)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| license | string |" in card and "- name: meta\n    struct:" in card and "sequence: string" in card
    if format == "parquet":
        table = pa.concat_tables(pq.read_table(path) for path in sorted((tmp_path / "out" / "data").glob("*.parquet")))
        assert table.num_rows > 80
        for each in table.to_pylist():
            if each["title"] is not None:
                assert each["license"] == LICENCES[int(each["title"].split()[1]) % 3]
        assert table.schema.field("seen").type == pa.timestamp("us", "UTC")
    [shown] = show(str(tmp_path / "home"), "documents", 1)
    assert shown.documents[0].row["license"] == "cc0" and shown.documents[0].row["title"] == "Title 0"
    [found] = trace(str(tmp_path / "home"), shown.documents[0].row["id"], DEFAULT)
    assert found.columns["license"] == "cc0" and "license" not in found.signals
    assert found.record is not None and not found.trouble


@pytest.mark.extended
def test_groups_of_a_mixture_are_a_column_of_the_sources(tmp_path, folder):
    mixture = {"by": ["license"], "weights": {"cc0": 3, "by": 1, "by-sa": 1}, "heldout_fraction": 0.1}
    given = sources(folder, ["license"], ["license"])[:2]
    recipe, corpus = curated(
        tmp_path / "home", given, mixture=mixture, tokenizer={"vocab_size": 400, "sample_bytes": 50_000}
    )
    at = context(str(tmp_path / "home"))
    split = heldout(at, recipe, corpus)
    model = tokenizer(at, recipe, split.train)
    shards = tokens(at, split.train, model)
    grouped = grouped_tokens(at, recipe, split.train, model, shards)
    counted: dict[str, int] = {}
    for record in grouped.records("group"):
        for name, _, _, count in record["groups"]:
            counted[name] = counted.get(name, 0) + count
    kept = [id for i in range(len(corpus.sources)) for id in parquet.read_table(split.stage.part(i))["id"].to_pylist()]
    licences = {each["id"]: each["license"] for each in documents(corpus)}
    assert counted == {name: sum(licences[id] == name for id in kept) for name in LICENCES}


def test_a_name_of_ours_is_refused_with_a_remedy_that_works(tmp_path, folder):
    for columns, at in ((["language"], "sources"), (["url"], "sources"), (["language_score"], "sources")):
        with pytest.raises(RecipeError) as refused:
            curated(tmp_path / "home", sources(folder, columns))
        assert columns[0] in str(refused.value) and at in str(refused.value)
        [remedy] = re.findall(r"`columns: (\{their_\w+: \w+\})`", str(refused.value))
        load({"name": "x", "sources": [{"name": "a", "jsonl": ["x"], "columns": {remedy[1:].split(":")[0]: "x"}}],
              "steps": [{"step": "extract"}, {"step": "language"}]})  # fmt: skip
    every = {"name": "lines", "jsonl": [f"{folder}/*.jsonl"], "columns": "*"}
    with pytest.raises(ColumnError) as refused:
        curated(tmp_path / "home", [every])
    recipe = {"name": "own", "sources": [every], "steps": [{"step": "extract"}]}
    checked = check(recipe, MachineSettings(home=str(tmp_path / "home"))).findings
    assert [str(refused.value) in str(finding) for finding in checked] == [True]
    [remedy] = re.findall(r"write `columns: (\{.*\})`", str(refused.value))
    _, corpus = curated(tmp_path / "other", [every | {"columns": yaml.safe_load(remedy)}])
    assert {each["their_language"] for each in documents(corpus)} == {"xx"}
    with pytest.raises(ColumnError, match="no column licence.*its columns are .*license"):
        curated(tmp_path / "home", sources(folder, ["licence"]))


def test_a_key_within_an_object_is_carried(tmp_path, folder):
    columns = {"editor": "meta.editor.name", "pages": "meta.pages"}
    source = {"name": "web", "jsonl": [f"{folder}/a.jsonl"], "columns": columns}
    *_, last = curate(context(str(tmp_path)), load({"name": "n", "sources": [source], "steps": [{"step": "extract"}]}))
    table = pa.concat_tables(parquet.read_table(part, ["text", *columns]) for part in last.left.places.documents)
    expected = {row(n)["text"]: (f"E{n}", None) if n % 2 else (None, n) for n in range(30)}
    assert {each["text"]: (each["editor"], each["pages"]) for each in table.to_pylist()} == expected


def test_a_clash_of_types_names_both_places(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "The first of all the texts.", "year": 1999}) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "This is the second text.", "year": "MCMXCIX"}) + "\n")
    source = {"name": "lines", "jsonl": [f"{tmp_path}/*.jsonl"], "columns": ["year"]}
    with pytest.raises(ColumnError) as clash:
        curated(tmp_path / "home", [source])
    assert f"int64 in {tmp_path}/a.jsonl, line 1, string in {tmp_path}/b.jsonl, line 1" in str(clash.value)
    (tmp_path / "b.jsonl").write_text(
        '{"text": "This is the second text.", "year": 2.5}\n{"text": "There are three.", "year": null}\n'
    )
    _, corpus = curated(tmp_path / "home", [source])
    assert [each["year"] for each in documents(corpus)] == [1999.0, 2.5, None]


def test_a_string_that_is_not_utf8_costs_its_row(tmp_path):
    texts = pa.array(["This is one of the texts.", "This is the other one."])
    names = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff\xfe", b"fine"]).buffers())
    pq.write_table(pa.table({"text": texts, "author": names}), tmp_path / "a.parquet")
    source = {"name": "tables", "parquet": [f"{tmp_path}/a.parquet"], "columns": ["author"]}
    _, corpus = curated(tmp_path / "home", [source])
    assert [each["author"] for each in documents(corpus)] == ["fine"]
    assert corpus.stages[0].step_counts[0]["drops"] == {"damaged_record": 1}


def test_one_of_many_columns_is_carried(tmp_path):
    """Of lines with a thousand keys the last one."""
    rows = [{"text": pydoc_paragraphs()[n], **{f"key{k}": k + n for k in range(1000)}} for n in range(2)]
    (tmp_path / "wide.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    source = {"name": "web", "jsonl": [f"{tmp_path}/wide.jsonl"], "columns": ["key999"]}
    given = {"name": "wide", "sources": [source], "steps": [{"step": "extract"}]}
    *_, last = curate(context(str(tmp_path / "home")), load(given))
    assert parquet.read_table(last.left.documents.part(0), ["key999"])["key999"].to_pylist() == [999, 1000]
