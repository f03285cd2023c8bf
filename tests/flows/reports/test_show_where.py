"""`show --where` and `export documents --where` beside duckdb on all curated documents of the run."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.curation import curate
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.dropped import dropped
from gristmill.flows.reports.run.rows import documents
from gristmill.flows.reports.status import show
from gristmill.flows.stages.export import check_target, export
from gristmill.tasks.documents.expressions import ExpressionError
from gristmill.tasks.reading.members import zstd
from tests.corpora import context

duckdb = pytest.importorskip("duckdb", reason="duckdb is in the extra `dev`")

# Signals of a pass ahead of a corpus step and of one behind it, own columns, and what is derived.
STEPS = [
    {"step": "extract", "engine": "plain"},
    {"step": "gopher_quality", "min_words": 12, "min_stop_words": 0, "min_mean_word_length": 1},
    {"step": "content_dedup"},
    {"step": "textbook", "min_characters": 0, "max_repeated_lines": 1.0, "max_special_characters": 1.0},
]
PAIRS = [
    ("gopher_quality_words > 30", "gopher_quality_words > 30"),
    ("textbook_special_characters < 0.19 and rank > 50", "textbook_special_characters < 0.19 and rank > 50"),
    ("topic = 'law' or topic is null", "topic = 'law' or topic is null"),
    ("not (topic == 'law')", "not (topic = 'law')"),
    ("host == 'b.example' and characters < 150", "split_part(url, '/', 3) = 'b.example' and length(text) < 150"),
    ("'mill mill' in text", "contains(text, 'mill mill')"),
    ("rank > 5000", "rank > 5000"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A recipe, its home, and all curated documents."""
    draw = random.Random(6)
    folder = tmp_path_factory.mktemp("pages")
    for part in range(3):
        lines = []
        for number in range(120):
            text = " ".join(draw.choices("the mill grinds grain, of many kinds".split(), k=draw.randrange(5, 60)))
            if number % 20 == 19:
                text = json.loads(lines[-1])["text"]
            page = {"text": text, "url": f"https://{draw.choice('abc')}.example/{part}/{number}"}
            page |= {"topic": draw.choice([None, "law", "science"]), "rank": draw.randrange(100)}
            lines.append(json.dumps(page))
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    columns = {"topic": "topic", "rank": "rank"}
    source = {"name": "web", "jsonl": [f"{folder}/*.jsonl"], "url_column": "url", "columns": columns}
    recipe = load({"name": "shown", "sources": [source], "steps": STEPS})
    home = str(tmp_path_factory.mktemp("home"))
    *_, last = curate(context(home), recipe)
    RunRecorder(home, "shown").add(*(stage.label for stage in last.left.stages))
    return recipe, home, last.left, pa.table(documents(recipe, last.left))


def ids(rows: pa.Table, condition: str) -> list[str]:
    """By duckdb, in the order of the rows."""
    ask = duckdb.connect()
    ask.register("rows", rows.append_column("place", pa.array(range(len(rows)))))
    return [row[0] for row in ask.sql(f"select id from rows where {condition} order by place").fetchall()]


@pytest.mark.extended
@pytest.mark.parametrize(("expression", "condition"), PAIRS)
def test_shown_are_those_that_duckdb_finds(made, expression, condition):
    recipe, home, corpus, rows = made
    expected = ids(rows, condition)
    texts = dict(zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True))
    for name in ("documents", f"{corpus.kept.name}-{corpus.kept.key}"):
        [found] = show(home, name, 10_000, expression)
        assert [one.row["id"] for one in found.documents] == expected
        assert all(one.text == texts[one.row["id"]] for one in found.documents)
    [first] = show(home, "documents", 4, expression)
    assert [one.row["id"] for one in first.documents] == expected[:4]


def test_the_columns_that_the_expression_names_are_shown(made):
    _, home, _, rows = made
    [found] = show(home, "documents", 1, "gopher_quality_words > 30 and textbook_special_characters >= 0")
    [one] = found.documents
    known = rows.filter(pa.compute.equal(rows["id"], one.row["id"])).to_pylist()[0]
    for name in ("gopher_quality_words", "textbook_special_characters", "topic"):
        assert one.row[name] == known[name]


def test_a_stage_ahead_has_the_columns_of_its_own_documents(made):
    """`content_duplicates` came before `textbook`, whose column it does not have."""
    _, home, _, _ = made
    [found] = show(home, "content_duplicates", 10_000, "gopher_quality_words > 30")
    assert found.documents
    with pytest.raises(LookupError, match="no column textbook_special_characters"):
        list(show(home, "content_duplicates", 1, "textbook_special_characters > 0"))


DROPPED = [
    ("rank > 50 and host == 'b.example'", lambda page, why: page["rank"] > 50 and "//b." in page["url"]),
    ("topic is null", lambda page, why: page["topic"] is None),
    ("rule == 'words' and value < 8", lambda page, why: why == "gopher_quality" and len(page["text"].split()) < 8),
    ("gopher_quality_words >= 12", lambda page, why: len(page["text"].split()) >= 12),
    (
        "'mill mill' in text and step != 'content_dedup'",
        lambda page, why: why[0] == "g" and "mill mill" in page["text"],
    ),
]


@pytest.fixture(scope="module")
def gone(made):
    """The pages of the sources that steps drop, by URL, and the step, as the ledgers of the stages have it."""
    recipe, home, corpus, _ = made
    folder = recipe.sources[0].jsonl[0].removesuffix("*.jsonl")
    lines = [
        line for part in range(3) for line in Path(folder, f"{part}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    pages = {page["url"]: page for page in map(json.loads, lines)}
    documents = [pq.read_table(corpus.extracted.part(shard), columns=["id", "url"]) for shard in range(3)]
    urls = {row["id"]: row["url"] for table in documents for row in table.to_pylist()}
    ledgers = [row for path in Path(home).glob("stages/*/ledger/*.parquet") for row in pq.read_table(path).to_pylist()]
    return {urls[row["id"]]: (pages[urls[row["id"]]], row["step"]) for row in ledgers}


@pytest.mark.extended
@pytest.mark.parametrize(("expression", "truth"), DROPPED)
def test_of_dropped_documents_those_for_which_it_is_true(made, gone, expression, truth):
    _, home, *_ = made
    expected = sorted(url for url, (page, why) in gone.items() if truth(page, why))
    found = [*dropped(home, "dropped", "", 10_000, expression)]
    assert expected
    assert sorted(one.row["url"] for one in found) == expected
    assert all(one.text == gone[one.row["url"]][0]["text"] for one in found)
    by_rule = [one.row["url"] for one in found if one.row["step"] == "gopher_quality"]
    if by_rule:
        assert by_rule == [one.row["url"] for one in dropped(home, "rules", "gopher", 10_000, expression)]
    assert len([*dropped(home, "dropped", "", 1, expression)]) == len({why for _, why in map(gone.get, expected)})


def test_columns_that_dropped_documents_do_not_have(made):
    _, home, *_ = made
    [one, *_] = dropped(home, "dropped", "", 1, "rank >= 0 and topic != 'art'")
    assert {"rank", "topic", "step", "rule", "url"} <= {*one.row}
    for expression, said in (
        ("topik == 'law'", "have no column topik; did you mean `topic`"),
        ("textbook_special_characters > 0", "have no column textbook_special_characters"),
        (
            "rank > 5000",
            "no document was dropped by any rule, with rank > 5000; rules that dropped some: content_dedup",
        ),
    ):
        with pytest.raises(LookupError, match=None) as found:
            list(dropped(home, "dropped", "", 1, expression))
        assert said in str(found.value)


@pytest.mark.parametrize(
    ("expression", "error", "said"),
    [
        ("topik == 'law'", LookupError, "have no column topik; did you mean `topic`"),
        ("rank == 'law'", ExpressionError, "Could not convert string 'law' to INT64"),
        ("rank is None", ExpressionError, "write `is null`"),
    ],
)
def test_what_is_wrong_with_an_expression_is_a_sentence(made, expression, error, said):
    with pytest.raises(error, match=None) as found:
        list(show(made[1], "documents", 1, expression))
    assert said in str(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
@pytest.mark.parametrize(("expression", "condition"), PAIRS)
def test_exported_are_those_that_duckdb_finds(made, tmp_path, format, expression, condition):
    recipe, home, corpus, rows = made
    settings = {"to": str(tmp_path / "out"), "format": format, "where": expression}
    given = load(recipe.model_dump(mode="json") | {"export": settings})
    result = export(context(home), given, corpus).result
    expected = ids(rows, condition)
    if format == "parquet":
        tables = [pq.ParquetFile(path).read() for path in sorted((tmp_path / "out" / "data").iterdir())]
        found = pa.concat_tables(tables)["id"].to_pylist()
    else:
        shards = sorted((tmp_path / "out" / "data").iterdir())
        lines = [line for shard in shards for line in zstd.decompress(shard.read_bytes()).decode().splitlines()]
        found = [json.loads(line)["id"] for line in lines]
    assert found == expected and result["documents"] == len(expected)
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"Of the {len(rows)} documents that the recipe keeps, these are those for which ` {expression} `" in card
    other = load(recipe.model_dump(mode="json") | {"export": settings | {"where": "rank < 3"}})
    with pytest.raises(FileExistsError, match="an export of other documents"):
        check_target(context(home), other)
        export(context(home), other, corpus)


def test_an_export_says_what_is_wrong_before_it_writes(made, tmp_path, monkeypatch):
    recipe, home, corpus, _ = made
    monkeypatch.setenv("GRISTMILL_HOME", home)
    path = tmp_path / "shown.yaml"
    path.write_text(json.dumps(recipe.model_dump(mode="json")))
    for expression, said in (
        ("topik == 'law'", "export.where: there is no column topik; did you mean `topic`?"),
        ("gopher_quality_words == 'law'", "Could not convert string 'law' to INT64"),
        ("topic is None", "write `is null`"),
    ):
        where = ["--to", str(tmp_path / "out"), "--where", expression]
        found = CliRunner().invoke(app, ["export", "documents", str(path), *where])
        assert said in str(found.exception), expression
    given = load(recipe.model_dump(mode="json") | {"export": {"to": str(tmp_path / "out"), "where": "rank > 'b'"}})
    with pytest.raises(ValueError, match=r"export\.where: rank > 'b': Could not convert string 'b'"):
        export(context(home), given, corpus)  # whose own columns have types now
    assert not (tmp_path / "out").exists()
    wrong = recipe.model_dump(mode="json") | {"export": {"to": str(tmp_path / "out"), "where": "urll == 'b'"}}
    found = [f"{one}" for one in check(wrong, MachineSettings(home=home)).findings]
    assert any("export.where: there is no column urll; did you mean `url`?" in one for one in found)
