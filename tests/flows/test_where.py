"""The step `where` as a user runs it: what stays, the ledger's clause, the replay, and what `check` says."""

import copy

import orjson
import pyarrow as pa
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.columns import columns
from gristmill.flows.reports.whatif import funnel, whatif
from gristmill.storage import layout, parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.where import Where
from gristmill.tasks.engine.make import StageResult
from tests.corpora import context

PAGES = 60


def pages() -> list[dict]:
    made = []
    for number in range(PAGES):
        topic = [None, "science", "science", "law", "science"][number % 5]
        url = f"https://{'ab'[number % 2]}.example/{number}"
        made.append(
            {"text": f"Page {number}. " + "Grain is ground here. " * (1 + number % 7), "url": url, "topic": topic}
            | ({"rank": number} if number % 11 else {})
        )
    return made


def recipe(folder, name="chosen", **where) -> dict:
    for part in range(3):
        (folder / f"{part}.jsonl").write_bytes(b"\n".join(orjson.dumps(page) for page in pages()[part::3]))
    return {
        "name": name,
        "sources": [
            {
                "name": "web",
                "jsonl": [f"{folder}/*.jsonl"],
                "url_column": "url",
                "columns": {"topic": "topic", "rank": "rank"},
            }
        ],
        "steps": [
            {"step": "extract", "engine": "plain"},
            {
                "step": "textbook",
                "min_characters": 0,
                "max_repeated_lines": 1.0,
                "max_special_characters": 1.0,
                "max_symbol_word_ratio": 1.0,
            },
            {"step": "where", **where},
        ],
    }


def words(page: dict) -> int:
    return len(page["text"].split())


def outcome(page: dict) -> str | None:
    """The clause that a page fails: false ones in their order before what is missing; None for one that stays."""
    found = [
        ("topic = 'science'", None if page["topic"] is None else page["topic"] == "science"),
        ("host != 'b.example'", "//b." not in page["url"]),
        ("rank < 50", None if "rank" not in page else page["rank"] < 50),
    ]
    false = next((name for name, value in found if value is False), None)
    return false or ("null" if any(value is None for _, value in found) else None)


KEEP = "topic = 'science' and host != 'b.example' and rank < 50"


def losses(folder, shards=3) -> dict[str, tuple[str, str, str]]:
    rows = [row for i in range(shards) for row in parquet.read_table(layout.ledger_part(str(folder), i)).to_pylist()]
    return {row["id"]: (row["step"], row["rule"], row["detail"]) for row in rows}


def urls(folder) -> dict[str, str]:
    parts = [parquet.read_table(layout.part(str(folder), i), ["id", "url"]).to_pylist() for i in range(3)]
    return {row["id"]: row["url"] for part in parts for row in part}


def made(home, recipe: dict) -> list[StageResult]:
    """The stages of a corpus, in their order."""
    *_, last = curate(context(str(home)), load(recipe))
    return last.left.stages


@pytest.mark.extended
def test_each_drop_names_its_clause_and_the_values(tmp_path):
    read, judged = made(tmp_path / "home", recipe(tmp_path, keep=KEEP))
    ids = urls(read.folder)
    found = {ids[i]: row for i, row in losses(judged.folder).items()}
    expected = {page["url"]: outcome(page) for page in pages()}
    assert {url: rule for url, (_, rule, _) in found.items()} == {u: rule for u, rule in expected.items() if rule}
    assert {step for step, _, _ in found.values()} == {"where"}
    page = next(page for page in pages() if expected[page["url"]] == "topic = 'science'")
    assert found[page["url"]][2] == f"topic = {page['topic']}"
    missing = next(page for page in pages() if expected[page["url"]] == "null")
    assert found[missing["url"]][2].startswith(f"topic = {missing['topic'] or 'null'}, url = {missing['url']}, rank = ")

    # another expression, replayed, is what a run with it gives; nothing is read or measured again
    settings = MachineSettings(home=str(tmp_path / "home"))
    other = "topic in ('science', 'law') and characters > 60"
    replay = whatif(recipe(tmp_path, keep=KEEP), {"where.keep": other}, settings)
    row = next(row for row in funnel(replay) if row.step == "where")
    assert row.recorded.documents_out == sum(rule is None for rule in expected.values())
    again = made(tmp_path / "home", recipe(tmp_path, keep=other))
    assert [(stage.name, stage.reused) for stage in again] == [("documents", True), ("rules", False)]
    kept = [parquet.read_table(layout.part(again[-1].folder, i), ["id"])["id"].to_pylist() for i in range(3)]
    assert kept == [replay.shard(i).kept.to_pylist() for i in range(3)]
    assert row.replayed.documents_out == sum(map(len, kept)) != row.recorded.documents_out


@pytest.mark.parametrize(
    ("where", "stays"),
    [
        ({"drop": "topic = 'law' or rank >= 50"}, lambda p: p["topic"] != "law" and p.get("rank", 0) < 50),
        ({"drop": "rank >= 50", "nulls": "drop"}, lambda p: p.get("rank", 99) < 50),
        ({"keep": "rank < 50", "nulls": "keep"}, lambda p: p.get("rank", 0) < 50),
        ({"keep": "rank < 50"}, lambda p: p.get("rank", 99) < 50),
    ],
)
def test_what_is_missing_is_kept_or_dropped_as_it_is_said(where, stays):
    [(_, gone)] = decide(table(), [("where", Where(**where).decisions())])
    assert {page["url"] for page in pages()} - {*gone["id"].to_pylist()} == {p["url"] for p in pages() if stays(p)}


def test_what_is_missing_may_be_an_error_that_says_how_many():
    missing = sum("rank" not in page for page in pages())
    with pytest.raises(ValueError, match=f"rank < 50 is neither true nor false for {missing} documents"):
        decide(table(), [("where", Where(keep="rank < 50", nulls="error").decisions())])


def table() -> pa.Table:
    return pa.table(
        {"id": [page["url"] for page in pages()]} | {n: [p.get(n) for p in pages()] for n in ("topic", "rank")}
    )


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({}, "has neither `keep` nor `drop`"),
        ({"keep": "topik = 'law'"}, "there is no column topik here; did you mean `topic`"),
        ({"keep": "c4_lines > 3"}, "there is no column c4_lines here"),
        ({"keep": "topic is None"}, "write `is null` or `is not null`"),
        ({"keep": "rank > 1", "drop": "rank < 1"}, "has both `keep` and `drop`"),
    ],
)
def test_a_recipe_says_what_is_wrong_with_an_expression(tmp_path, where, said):
    with pytest.raises(RecipeError, match=None) as found:
        load(recipe(tmp_path, **where))
    assert said in str(found.value)


def test_check_knows_types_and_a_column_that_comes_later(tmp_path):
    settings = MachineSettings(home=str(tmp_path / "home"))
    wrong = recipe(tmp_path, keep="status = 'ok' and url > 5")
    found = [finding.message for finding in check(wrong, settings).findings]
    assert any("Cannot compare values of type VARCHAR and type INTEGER" in what for what in found)
    early = copy.deepcopy(recipe(tmp_path, keep="gopher_quality_words > 3"))
    early["steps"].append({"step": "gopher_quality"})
    with pytest.raises(RecipeError) as error:
        load(early)
    assert "there is no column gopher_quality_words here" in str(error.value)


@pytest.mark.extended
def test_two_wheres_are_counted_and_replayed_each_by_its_name(tmp_path):
    """One ahead of deduplication, one behind it: the ledger, the funnel, `whatif` and `columns` know them apart."""
    given = recipe(tmp_path, "twice", keep="rank is null or rank < 50")
    given["steps"] += [
        {"step": "content_dedup"},
        {"step": "where_law", "drop": "topic = 'law' or host = 'b.example'"},
    ]
    stages = made(tmp_path / "home", given)

    first = [page for page in pages() if page.get("rank", 0) >= 50]
    left = [page for page in pages() if page not in first]
    second = {
        page["url"]: "topic = 'law'" if page["topic"] == "law" else "host = 'b.example'"
        for page in left
        if page["topic"] == "law" or "//b." in page["url"]
    }
    ids = urls(stages[0].folder)
    rows = [losses(stage.folder) for stage in stages if stage.name == "rules"]
    found = {ids[i]: (step, rule) for one in rows for i, (step, rule, _) in one.items()}
    assert {url for url, (step, _) in found.items() if step == "where"} == {page["url"] for page in first}
    assert {url: rule for url, (step, rule) in found.items() if step == "where_law"} == second
    assert second

    settings = MachineSettings(home=str(tmp_path / "home"))
    for change, step, stays in (
        ({"where_law.drop": "topic = 'law'"}, "where_law", sum(page["topic"] != "law" for page in left)),
        ({"where.keep": "rank < 10"}, "where", sum(page.get("rank", 99) < 10 for page in pages())),
    ):
        row = next(row for row in funnel(whatif(given, change, settings)) if row.step == step)
        assert (row.position, row.replayed.documents_out) == ("replayed", stays)
    arriving = {place: columns(given, place, settings).documents for place in ("where", "where_law")}
    assert arriving == {"where": PAGES, "where_law": len(left)}
