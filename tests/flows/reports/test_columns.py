"""`columns` beside duckdb on the rows of the run, and beside a count of texts by brute force."""

import json
import math
import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.columns import known_columns
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.columns import QUANTILES, columns
from gristmill.flows.stats import distributions
from gristmill.flows.stats.distributions import Distribution
from gristmill.storage import layout, parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.expressions import column
from gristmill.tasks.documents.step import Clause
from tests.corpora import context

pytestmark = pytest.mark.extended

duckdb = pytest.importorskip("duckdb", reason="duckdb is in the extra `dev`")

FILES = 4
STEPS = [
    {"step": "extract", "engine": "plain"},
    {"step": "textbook", "min_characters": 0, "max_repeated_lines": 1.0, "max_special_characters": 1.0},
    {"step": "gopher_quality", "min_words": 12, "min_stop_words": 0, "min_mean_word_length": 1},
    {"step": "where", "keep": "rank is null or rank < 900"},
    {"step": "content_dedup"},
]


def pages() -> list[dict]:
    draw = random.Random(5)
    made = []
    for number in range(400):
        page = {"text": " ".join(draw.choices("the mill grinds grain of many kinds".split(), k=draw.randrange(5, 60)))}
        page |= {"url": f"https://{draw.choice('aabc')}.example/{number}", "score": draw.random() ** 4}
        page |= {"topic": draw.choice([None, "law", "science", "science"]), "open": draw.random() < 0.3}
        page |= {"tags": draw.choices(["x", "y"], k=draw.randrange(3))}
        made.append(page | ({"rank": draw.randrange(1000)} if number % 7 else {}))
    return made


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for part in range(FILES):
        lines = [json.dumps(page) for page in pages()[part::FILES]]
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    own = {name: name for name in ("topic", "rank", "score", "open", "tags")}
    source = {"name": "web", "jsonl": [f"{folder}/*.jsonl"], "url_column": "url", "columns": own}
    return load({"name": "described", "sources": [source], "steps": STEPS})


@pytest.fixture(scope="module")
def home(recipe, tmp_path_factory):
    found = str(tmp_path_factory.mktemp("home"))
    for _ in curate(context(found), recipe):
        pass
    return found


def arrived(recipe, home, at) -> pa.Table:
    """The documents at the place of a step, by the parts of its pass and a replay of the steps before it."""
    passes = list(curate(context(home), recipe))
    if not at:
        corpus, rules = passes[-1].left, []
    else:
        passed = next(each for each in passes if at in [step.step for step in each.steps])
        names = [step.step for step in passed.steps]
        corpus, rules = passed.arriving, passed.steps[: names.index(at)]
    kept = {i for n in range(FILES) for i in parquet.read_table(corpus.kept.part(n), ["id"])["id"].to_pylist()}
    whole = pa.concat_tables([parquet.read_table(layout.part(corpus.documents.folder, n)) for n in range(FILES)])
    whole = whole.filter(pa.array([one in kept for one in whole["id"].to_pylist()]))
    for step in rules:
        [(_, gone)] = decide(whole, [(step.step, step.decisions())])
        lost = {*gone["id"].to_pylist()}
        whole = whole.filter(pa.array([one not in lost for one in whole["id"].to_pylist()]))
    return whole


@pytest.mark.parametrize("at", ["", "where", "gopher_quality", "content_dedup"])
def test_values_are_those_that_duckdb_finds(recipe, home, at):
    rows = arrived(recipe, home, at)
    found = columns(recipe, at, MachineSettings(home=home))
    assert found.documents == len(rows) > 0
    by_name = {one.name: one for one in found.columns}
    ask = duckdb.connect()
    ask.register("rows", rows.select([name for name in rows.column_names if name != "text"]))

    def answer(what: str):
        return ask.sql(f"select {what} from rows").fetchall()[0][0]

    for name in ("rank", "score", "characters", "topic", "open", "date", "tags", "textbook_special_characters"):
        assert by_name[name].nulls == answer(f"avg(({name} is null)::double)"), name
    for name, exact in (("rank", True), ("characters", True), ("score", False), ("textbook_special_characters", False)):
        expected = answer(f"quantile_disc({name}, {[*QUANTILES]})")
        got = [*by_name[name].quantiles.values()]
        assert got == expected if exact else got == pytest.approx(expected, rel=1e-3), name
    for name, what in (("topic", "topic"), ("host", "split_part(url, '/', 3)"), ("open", "if(open, 'True', 'False')")):
        counted = Counter(row[0] for row in ask.sql(f"select {what} from rows").fetchall() if row[0] is not None)
        assert Counter({t: round(s * len(rows)) for t, s in by_name[name].common}) == counted, name
    assert by_name["rank"].kind == "number" and by_name["tags"].kind == "list" and by_name["open"].kind == "boolean"
    assert ("gopher_quality_words" in by_name) == (at != "gopher_quality")


def test_every_column_that_is_listed_can_be_named(recipe, home):
    """With that very type: an expression about it comes to true, false or null."""
    rows = arrived(recipe, home, "where")
    asks = {"text": "{} == 'x'", "number": "{} > 1", "boolean": "{}", "list": "length({}) > 1", "time": "year({}) > 1"}
    listed = columns(recipe, "where", MachineSettings(home=home)).columns
    assert len(listed) > 35
    for one in listed:
        decide(rows, [("where", [Clause("one", asks[one.kind].format(column(one.name).sql), "true")])])


def test_without_a_run_types_and_meanings_are_there(recipe, tmp_path):
    found = columns(recipe, "", MachineSettings(home=str(tmp_path)))
    assert found.documents is None and "is not finished" in found.remark
    by_name = {one.name: one for one in found.columns}
    words = by_name["gopher_quality_words"]
    assert (words.kind, words.step, words.nulls) == ("number", "gopher_quality", None)
    assert by_name["rank"].kind is None and "`rank` of the files of web" in by_name["rank"].meaning
    assert all(one.meaning for one in found.columns)


def test_each_shipped_step_describes_its_columns():
    for name in ("demo", "fineweb", "refinedweb", "ccnet"):
        for one in known_columns(load(name)):
            assert one.kind and one.meaning and "\n" not in one.meaning, one


def test_a_step_that_is_not_there_has_near_names(recipe, tmp_path):
    with pytest.raises(LookupError, match="--at wher: .* did you mean `where`"):
        columns(recipe, "wher", MachineSettings(home=str(tmp_path)))
    with pytest.raises(LookupError, match="makes the documents"):
        columns(recipe, "extract", MachineSettings(home=str(tmp_path)))


def test_the_command_prints_lines_and_json(recipe, home, tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", home)
    path = tmp_path / "described.yaml"
    path.write_text(json.dumps(recipe.model_dump(mode="json")))
    shown = CliRunner().invoke(app, ["recipe", "columns", str(path), "--at", "where"])
    assert shown.exit_code == 0, shown.output
    assert "described, at the step `where`" in shown.stdout and "'science' " in shown.stdout
    whole = json.loads(CliRunner().invoke(app, ["recipe", "columns", str(path), "--json"]).stdout)
    assert {"name", "kind", "meaning", "step", "nulls", "quantiles", "common"} <= {*whole["columns"][0]}


@given(st.lists(st.lists(st.sampled_from("abcdefghijkl"), max_size=40), max_size=6), st.integers(1, 5))
def test_no_text_that_is_more_frequent_than_the_error_is_missed(shards, most):
    held = distributions.MAX_TEXTS
    distributions.MAX_TEXTS = most
    try:
        whole = Distribution()
        for shard in shards:
            one = Distribution()
            one.add(pa.array(shard, pa.string()))
            whole.join(one)
    finally:
        distributions.MAX_TEXTS = held
    counted = Counter(text for shard in shards for text in shard)
    texts = dict(whole.most_common())
    assert len(texts) <= most
    assert whole.error * (most + 1) <= counted.total()
    for text, count in counted.items():
        assert 0 <= count - texts.get(text, 0) <= whole.error


@given(st.lists(st.lists(st.floats(-1e9, 1e9), max_size=30), min_size=1, max_size=5))
def test_quantiles_are_as_near_as_it_is_said(shards):
    whole = Distribution()
    for shard in shards:
        one = Distribution()
        one.add(pa.array(shard, pa.float64()))
        whole.join(one)
    ordered = sorted(number for shard in shards for number in shard)
    quantiles = {share: value for share in QUANTILES if (value := whole.quantile(share)) is not None}
    for share, value in quantiles.items():
        exact = ordered[max(0, math.ceil(round(share * len(ordered), 6)) - 1)]
        assert abs(value) <= abs(exact) and math.isclose(value, exact, rel_tol=1e-3, abs_tol=1e-300)
    assert bool(ordered) == bool(quantiles)
