"""SQL over a finished run: the documented queries, the tables beside the files they come from, and what is refused."""

import csv
import io
import re
from collections import Counter
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import gristmill
from gristmill.flows.cli import app
from gristmill.flows.reports.run import sql
from gristmill.flows.reports.run.rows import Rows
from gristmill.flows.reports.run.sql import QueryError
from tests.flows.reports.test_open import make, project

pytestmark = pytest.mark.extended

PAGE = Path(__file__).parents[3] / "docs/guides/sql.md"


def documented() -> dict[str, str]:
    """The queries of the page by their questions."""
    _, _, questions = PAGE.read_text(encoding="utf-8").partition("## Twenty questions")
    questions, _, _ = questions.partition("\n## ")
    blocks = re.findall(r"^### (.+?)\n\n```sql\n((?:(?!```).+\n)+)```$", questions, re.MULTILINE)
    return {question: query for question, query in blocks}


@pytest.fixture(scope="module")
def run(undisturbed, recipe):
    return gristmill.open(recipe, home=str(undisturbed.home("undisturbed")))


def test_there_are_twenty_questions():
    assert len(documented()) == 20


@pytest.mark.parametrize("question", documented())
def test_documented_queries_run(run, question):
    run.sql(documented()[question]).fetchall()


UNUSUAL = [
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3) "
    "select i, count(*) from n, documents group by i",
    "with d as materialized (select id, url from documents) "
    "select count(*) from d a join d b using (id) where a.url like '%1%'",
    "select source, (select count(*) from ledger l where l.file = e.file) from extracted e order by id limit 20",
    "select id, row_number() over (partition by source order by url) as r from documents qualify r <= 2 order by id",
    "select d.source from documents d where d.id in (select id from tokens where tokens > 300) order by d.id",
    "select id from documents except select id from tokens order by id",
    "select unnest([source, url]) as x, count(*) from documents group by x order by x limit 9",
    "select e.id, t.tokens from extracted e asof join tokens t on e.id >= t.id order by e.id limit 9",
]


@pytest.mark.parametrize("query", [*documented().values(), *UNUSUAL])
def test_columns_that_are_not_read_change_no_result(run, query, monkeypatch):
    """Columns that DuckDB's plan does not scan are null in the streams; here all columns are read beside it."""
    narrow = run.sql(query).fetchall()
    monkeypatch.setattr(sql, "_scanned", lambda node: iter([""]))
    assert repr(run.sql(query).fetchall()) == repr(narrow)


def test_only_the_columns_of_the_plan_are_read(run, monkeypatch):
    asked, reader = [], Rows.reader
    monkeypatch.setattr(Rows, "reader", lambda self, names: asked.append(list(names)) or reader(self, names))
    run.sql("with e as (select * from extracted) select source, count(*) from e where kept group by 1").fetchall()
    run.sql("select count(*) from documents").fetchall()
    assert [set(names) for names in asked] == [{"source", "kept"}, {"id"}]


def test_tables_have_the_rows_of_the_run(run):
    documents, scores, ledger = (rows.to_pandas() for rows in (run.documents, run.scores, run.ledger))
    assert run.sql("select id, text from documents").fetchall() == [
        *zip(documents["id"], documents["text"], strict=True)
    ]
    kept = dict(zip(scores["id"], scores["kept"], strict=True))
    assert dict(run.sql("select id, kept from extracted").fetchall()) == kept
    by_rule = Counter(zip(ledger["step"], ledger["rule"], strict=True))
    counted = run.sql("select step, rule, count(*) from ledger group by all").fetchall()
    assert {(step, rule): count for step, rule, count in counted} == by_rule
    assert run.sql("select sum(tokens) from tokens").fetchall() == [(run.tokens,)]
    assert run.sql("select documents_out from funnel order by position").fetchall() == [
        (row.documents_out,) for row in run.steps
    ]
    records = sum(source["records"] for source in run.corpus.extracted.result["sources"].values())
    assert run.sql("select sum(records), sum(shards) from sources").fetchall() == [(records, len(run.corpus.sources))]
    assert run.sql("select count(*) from clusters").fetchall() == [(len(run.clusters),)]


def test_results_are_frames_tables_and_repeatable(run):
    result = run.sql("select source, count(*) as documents from documents group by source order by source")
    assert result.df()["documents"].sum() == len(run.documents)
    assert result.to_arrow_table().to_pylist() == result.df().to_dict("records")
    joined = run.sql("select count(*) from documents a join documents b using (id) join extracted using (id)")
    assert joined.fetchall() == [(len(run.documents),)]


def test_columns_have_types_and_comments(run):
    comments = dict(
        run.sql("select column_name, comment from duckdb_columns() where table_name = 'documents'").fetchall()
    )
    assert comments["url"] == "address of the document"
    assert all(comments.values())
    described = run.sql("describe ledger").fetchall()
    assert [row[0] for row in described] == ["stage", *run.ledger.schema.names[1:]]


def test_functions_of_urls_are_those_of_expressions(run):
    assert run.sql(
        "select host('https://A.example:80/x'), tld('http://a.b.is/'), mime('Text/HTML; a=b')"
    ).fetchall() == [("a.example", "is", "text/html")]


@pytest.mark.parametrize(
    ("url", "domain"),
    [
        ("https://news.BBC.co.uk/x", "bbc.co.uk"),
        ("http://a.b.github.io/", "github.io"),
        ("http://192.168.0.1/", "192.168.0.1"),
        ("http://localhost/", "localhost"),
        ("mailto:a@b.is", None),
        ("http://a..b/x", None),
        ("", None),
        (None, None),
    ],
)
def test_domains_are_those_under_public_suffixes(run, url, domain):
    literal = "null" if url is None else f"'{url}'"
    assert run.sql(f"select domain({literal})").fetchall() == [(domain,)]


ATTACKS = [
    "copy documents to '{home}/stages/out.csv'",
    "copy (select 1) to '/tmp/gristmill-out.csv'",
    "attach '{home}/stages/new.db' as new",
    "attach '/tmp/gristmill-new.db' as new",
    "export database '{home}/stages/out'",
    "create table taken as select * from documents",
    "create view taken as select 1",
    "insert into documents select * from documents",
    "delete from ledger",
    "drop view documents",
    "set enable_external_access = true",
    "pragma database_list",
    "install httpfs",
    "load httpfs",
    "call duckdb_settings()",
    "select 1; copy (select 1) to '{home}/out.csv'",
    "select * from read_text('/etc/passwd')",
    "select * from read_blob('{home}/stages/*/manifest.json')",
    "select * from '{part}'",
    "select * from read_parquet('{part}')",
    "select * from read_csv('/etc/passwd')",
    "select * from read_json('{home}/stages/*/manifest.json')",
    "select * from glob('{home}/*')",
    "select * from read_parquet('https://example.com/a.parquet')",
    "select * from os",
    "select * from query('copy (select 1) to ''/tmp/gristmill-out.csv''')",
    "explain analyze copy (select 1) to '{home}/out.csv'",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_writing_attaching_and_reading_elsewhere_is_refused(run, attack):
    home = Path(run.settings.home)
    before = sorted(str(path) for path in home.rglob("*"))
    query = attack.format(home=home, part=run.corpus.kept.part(0))
    with pytest.raises(QueryError):
        run.sql(query).fetchall()
    assert sorted(str(path) for path in home.rglob("*")) == before
    assert not [*Path("/tmp").glob("gristmill-out*"), *Path("/tmp").glob("gristmill-new*")]


def test_settings_are_locked(run):
    with pytest.raises(Exception, match="locked"):
        run.sql("select 1").query("t", "set threads = 2")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select * from nothing", "the tables are documents, extracted"),
        ("selekt 1", "syntax error"),
        ("select nothing from documents", "nothing"),
        ("", "one SELECT"),
        ("select 1; select 2", "one SELECT"),
    ],
)
def test_errors_are_one_sentence(run, query, message):
    with pytest.raises(QueryError) as error:
        run.sql(query).fetchall()
    assert message in str(error.value) and "\n" not in str(error.value)


def test_the_command_prints_tables_csv_json_and_writes_parquet(undisturbed, recipe, run, tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(undisturbed.home("undisturbed")))
    path = tmp_path / "recipe.json"
    path.write_bytes(orjson.dumps(recipe))
    query = "select id, source, tokens from documents join tokens using (id) order by id"
    expected = run.sql(query).fetchall()

    def call(*arguments: str, **more) -> str:
        result = CliRunner().invoke(app, ["sql", str(path), *arguments], **more)
        assert result.exit_code == 0, result.output
        return result.output

    assert "first 50 rows" in call(query) and expected[0][0] in call(query)
    header, *rows = csv.reader(io.StringIO(call(query, "--csv")))
    assert header == ["id", "source", "tokens"]
    assert [(a, b, int(c)) for a, b, c in rows] == expected
    assert [tuple(orjson.loads(line).values()) for line in call(query, "--json").splitlines()] == expected
    assert f"wrote {len(expected)} rows to" in call(query, "--parquet", str(tmp_path / "rows.parquet"))
    assert [tuple(row.values()) for row in pq.read_table(tmp_path / "rows.parquet").to_pylist()] == expected
    assert expected[0][0] in call(input=query)
    failed = CliRunner().invoke(app, ["sql", str(path), "select cast(url as int) from documents"])
    assert failed.exit_code != 0 and "Could not convert string" in str(failed.exception)
    assert "\\x1b[31mx" in call("select chr(27) || '[31mx' as a")
    refused = CliRunner().invoke(app, ["sql", str(path), query, "--csv", "--json"])
    assert refused.exit_code != 0 and "exclude each other" in str(refused.exception)


def test_a_home_in_an_object_store_is_queried_alike(s3, tmp_path):
    path = project(tmp_path / "project")
    make(path, "s3://crawl/home")
    run = gristmill.open(path, home="s3://crawl/home")
    assert run.sql("select rule, count(*) from ledger group by rule order by rule").fetchall() == [
        ("near_duplicate", 1),
        ("words", 2),
    ]
    assert run.sql("select count(*), min(length(text)) > 100 from documents").fetchall() == [(7, True)]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Documents whose own columns have odd names, types and values."""
    folder = tmp_path_factory.mktemp("odd") / "project"
    path = project(folder)
    rows = [orjson.loads(line) for line in (folder / "pages.jsonl").read_bytes().splitlines()]
    table = pa.table(
        {
            "text": [row["text"] for row in rows],
            "url": [row["url"] for row in rows],
            "kept": [f"mine {number}" for number in range(len(rows))],
            "My Column": list(range(len(rows))),
            "my column": list(range(100, 100 + len(rows))),
            "half": pa.array(range(len(rows)), pa.float16()),
            "meta": [{"lang": "is", "n": number} for number in range(len(rows))],
            "raw": [b"\xff"] * len(rows),
            "title": ["one\rtwo"] * len(rows),
        }
    )
    pq.write_table(table, folder / "pages.parquet")
    recipe = yaml.safe_load(path.read_text())
    recipe["sources"] = [{"name": "web", "parquet": ["pages.parquet"], "url_column": "url", "columns": "*"}]
    path.write_text(yaml.safe_dump(recipe))
    make(path, str(folder / ".gristmill"))
    return path


def test_queries_name_columns_that_their_plan_does_not_need(odd):
    run = gristmill.open(odd, home=str(odd.parent / ".gristmill"))
    for query, expected in (
        ("with d as (select id, url, length(text) n from documents) select count(*) from d", [(7,)]),
        ("select source, count(*) from (select *, host(url) h from extracted) group by 1", [("web", 10)]),
        ("select count(*) from documents d where exists (select e.url from extracted e where e.id = d.id)", [(7,)]),
        ("select typeof(half) from extracted limit 1", [("FLOAT",)]),
        ("select count(*) from documents where source = 'web' or true", [(7,)]),
        ("select meta.n, meta.lang from extracted order by 1 limit 1", [(0, "is")]),
        ("select max(struct_extract(meta, 'n')) from extracted", [(9,)]),
        ("select sum(half) from extracted", [(45.0,)]),
        ("select kept, count(*) from extracted group by 1 order by 1", [(False, 3), (True, 7)]),
    ):
        assert run.sql(query).fetchall() == expected, query
    with pytest.raises(QueryError, match="My Column, my column, whose names are equal in SQL"):
        run.sql('select "My Column" from documents')


def test_values_survive_csv_and_json(odd, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(odd.parent / ".gristmill"))
    query = "select title, meta, raw, map {'a': 1} as pairs from extracted limit 2"

    def call(*arguments: str):
        return CliRunner().invoke(app, ["sql", str(odd), *arguments])

    rows = [*csv.reader(io.StringIO(call(query, "--csv").output, newline=""))]
    assert rows[1:] == [["one\rtwo", f'{{"lang":"is","n":{n}}}', "ff", '{"a":1}'] for n in range(2)]
    [first, _] = map(orjson.loads, call(query, "--json").output.splitlines())
    assert first == {"title": "one\rtwo", "meta": {"lang": "is", "n": 0}, "raw": "ff", "pairs": {"a": 1}}
    assert "two columns have the same name: a" in str(call("select 1 as a, 2 as a", "--json").exception)
