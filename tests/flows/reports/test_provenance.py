"""The papers of a run: every number beside the query that is printed with it and beside an independent count, and the
annotation table beside the records of the crawl."""

import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner
from warcio.archiveiterator import ArchiveIterator

import gristmill
from gristmill.flows.cli import app
from gristmill.flows.reports.funnel import funnel
from gristmill.flows.reports.provenance.annotations import timestamp
from gristmill.flows.reports.provenance.folder import write_papers
from gristmill.flows.reports.provenance.papers import cell, command, size_range
from gristmill.flows.reports.run import Run, sql
from gristmill.samples.order import Order, batch_number
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.config import TrainingConfig
from gristmill.training.step.guard import Event, windows_left_out
from tests.flows.reports.test_open import make, project

pytestmark = pytest.mark.extended

NAMES = {"croissant.json", "data-card.md", "figures.json", "top-domains.csv", "training-summary.md"}
PRINTED = re.compile(r'gristmill sql RECIPE "([^"]+)"')


@pytest.fixture(scope="module")
def run(undisturbed, recipe) -> Run:
    return gristmill.open(recipe, home=str(undisturbed.home("undisturbed")))


@pytest.fixture(scope="module")
def papers(run, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("papers") / "out"
    write_papers(run, str(folder))
    return folder


@pytest.fixture(scope="module")
def figures(papers) -> dict[str, dict]:
    return {each["name"]: each for each in json.loads((papers / "figures.json").read_text())["figures"]}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def numbers(figures: dict[str, dict]) -> int:
    cells = [each["value"] if isinstance(each["value"], list) else [{"": each["value"]}] for each in figures.values()]
    return sum(isinstance(value, int | float) for rows in cells for row in rows for value in row.values())


def test_each_number_is_that_of_its_query(undisturbed, recipe, figures, tmp_path, monkeypatch):
    """By the command that is printed."""
    monkeypatch.setenv("GRISTMILL_HOME", str(undisturbed.home("undisturbed")))
    path = tmp_path / "recipe.json"
    path.write_bytes(orjson.dumps(recipe))
    assert len(figures) >= 25 and numbers(figures) >= 100
    for figure in figures.values():
        result = CliRunner().invoke(app, ["sql", str(path), figure["query"], "--json"])
        assert result.exit_code == 0, result.output
        rows = [json.loads(line) for line in result.output.splitlines()]
        given = figure["value"] if isinstance(figure["value"], list) else None
        assert (rows if given is not None else [*rows[0].values()]) == (
            given if given is not None else [figure["value"]]
        )


def test_each_query_is_printed_beside_its_number(papers, figures):
    queries = {figure["query"] for figure in figures.values()}
    card, summary = ((papers / name).read_text() for name in ("data-card.md", "training-summary.md"))
    printed = {*PRINTED.findall(card), *PRINTED.findall(summary)}
    of_file = {query for query in printed if f"{query} limit 20" in queries}
    assert len(of_file) == 1 and printed - of_file == queries
    for figure in figures.values():
        if not isinstance(figure["value"], list):
            value = cell(figure["value"])
            row = f"| {value} | {figure['unit']} | `{command(figure['query'])}` |"
            assert row in card or row in summary


def test_numbers_are_those_of_the_run(run, figures):
    value = {name: each["value"] for name, each in figures.items()}
    documents = run.documents.to_pandas(["source", "text", "url"])
    steps = funnel(run.document_stages)
    assert value["documents"] == len(documents) == funnel(run.corpus.stages)[-1].documents_out
    assert value["records"] == steps[0].documents_in
    assert [row["documents_out"] for row in value["funnel"]] == [step.documents_out for step in steps]
    assert value["dropped"] == sum(sum(step.drops.values()) for step in steps) == len(run.ledger)
    by_rule = {(step.step, rule): n for step in steps for rule, n in step.drops.items() if n}
    assert {(row["step"], row["rule"]): row["documents"] for row in value["drops"]} == by_rule
    assert {row["source"]: row["bytes"] for row in value["sizes"]} == {
        **{source: sum(len(text.encode()) for text in texts) for source, texts in documents.groupby("source")["text"]},
        "all sources": sum(len(text.encode()) for text in documents["text"]),
    }
    assert value["sizes"][-1]["characters"] == sum(map(len, documents["text"])) == steps[-2].characters_out
    assert value["duplicates"] == by_rule["minhash", "near_duplicate"]
    assert value["tokens"] == run.tokens == sum(row["tokens"] for row in value["tokens_by_source"])
    assert value["tokens_read"] == run.result["tokens"]
    assert value["domains"] == len({url.split("/")[2] for url in documents["url"]})
    assert value["latest"] == "2024-01-01"


def test_top_domains_are_a_tenth_by_size(run, papers, figures):
    sizes = Counter()
    for row in run.documents.to_pandas(["url", "text"]).itertuples():
        sizes[row.url.split("/")[2]] += len(row.text.encode())
    with (papers / "top-domains.csv").open() as file:
        rows = [*csv.DictReader(file)]
    expected = sizes.most_common(-(-len(sizes) // 10))
    assert [(row["domain"], int(row["bytes"])) for row in rows] == expected
    assert figures["top_domains_share"]["value"] == len(expected)


def samples_by_step(run: Run, left_out: list[tuple[int, int]]) -> Counter:
    """The samples of each source in all batches of a training, one batch after the other."""
    record = run.trained.model.manifest["record"]
    training, seq_len = TrainingConfig.model_validate(record["training"]), record["model"]["seq_len"]
    manifest = load_training_manifest(Path(run.data.mixture.folder) / "mixture.json")
    order = Order(manifest, seq_len=seq_len, batch=training.batches(seq_len), seed=training.data_seed)
    counts = Counter()
    for step in range(training.steps):
        for source, _, _ in order.windows_of(order.samples(batch_number(step, left_out))):
            counts[manifest.sources[source].name] += 1
    return counts


@pytest.mark.parametrize("windows", [[], [(3, 5)], [(0, 2), (1, 4), (9, 10)], [(11, 12)]])
def test_what_training_read_is_counted_without_batches_that_were_left_out(run, monkeypatch, windows):
    events = [Event(step=12, what="rollback", why="outlier", to=1, window=window) for window in windows]
    monkeypatch.setattr(sql, "read_events", lambda path: events)
    rows = run.sql("select source, samples, tokens_read, epochs, tokens from training").fetchall()
    expected = samples_by_step(run, windows_left_out(events))
    assert {row[0]: row[1] for row in rows} == expected and sum(expected.values()) == 48
    for _, samples, read, epochs, tokens in rows:
        assert read == samples * 64 and epochs == samples / ((tokens - 1) // 64)


def test_annotations_are_the_records_of_the_crawl(run, crawl, papers):
    table = pa.concat_tables(map(pq.read_table, sorted((papers / "annotations").glob("*.parquet")))).to_pylist()
    records = {}
    for path in crawl.folder.glob("*.warc.gz"):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                headers = record.rec_headers
                source = path.name.partition("-")[0]
                records[source, headers["WARC-Target-URI"]] = headers["WARC-Payload-Digest"]
    assert len(table) == len(records) and {(row["source"], row["url"]) for row in table} == {*records}
    trained = {row[0] for row in run.sql("select id from tokens").fetchall()}
    ledger = {row["id"]: f"{row['step']}.{row['rule']}" for row in pa.table(run.ledger).to_pylist()}
    for row in table:
        host, number = row["url"].removeprefix("https://").split(".example/")
        assert row["surt"] == f"example,{host})/{number}"
        assert (row["verdict"] == "kept") == (row["id"] in trained) and row["rule"] == ledger.get(row["id"])
        is_document = row["timestamp"] is not None
        assert is_document or row["rule"].startswith("extract.")
        if is_document:
            assert row["timestamp"] == "20240101000000"
            assert row["digest"] == records[row["source"], row["url"]]


def test_croissant_is_valid_and_its_derivations_are_those_of_the_manifests(run, papers):
    value = json.loads((papers / "croissant.json").read_text())
    sets = {each["name"]: each.get("data") for each in value["recordSet"]}
    edges = {(row["derivations/stage"], row["derivations/derived_from"]) for row in sets["derivations"]}
    read = {(stage.label, label) for _, stage in run.built for label in stage.manifest["read"].values()}
    sources = {(run.corpus.extracted.label, f"urn:gristmill:source:{name}") for name in ("web", "reference")}
    assert edges == read | sources
    assert [row["stages/stage"] for row in sets["stages"]] == [stage.label for _, stage in run.built]
    assert all(row["stages/run_ended"].endswith("Z") for row in sets["stages"])
    croissants = pytest.importorskip("mlcroissant", reason="mlcroissant validates Croissant: pip install mlcroissant")
    found = croissants.Dataset(str(papers / "croissant.json"))
    issues = found.metadata.ctx.issues
    assert not issues.errors
    gaps = ("license", "datePublished", "citeAs")
    assert all(any(f"/{gap}" in warning for gap in gaps) for warning in issues.warnings)
    assert len([*found.records("records")]) == sum(1 for _ in found.records("records")) == 234


def test_the_same_home_gives_the_same_bytes_wherever_it_is(undisturbed, recipe, papers, tmp_path):
    shutil.copytree(undisturbed.home("undisturbed"), tmp_path / "home", symlinks=True)
    write_papers(gristmill.open(recipe, home=str(tmp_path / "home")), str(tmp_path / "out"))
    first, second = contents(papers), contents(tmp_path / "out")
    assert first == second and {name for name in first if "/" not in name} == NAMES
    assert not [name for name, data in first.items() if str(undisturbed.folder).encode() in data]


def test_a_corpus_without_tokens_has_gaps(tmp_path):
    path = project(tmp_path / "project")
    make(path, str(tmp_path / "home"))
    run = gristmill.open(path, home=str(tmp_path / "home"))
    written = write_papers(run, str(tmp_path / "out"))
    assert (written.annotations, written.model) == (10, False)
    card, summary = ((tmp_path / "out" / name).read_text() for name in ("data-card.md", "training-summary.md"))
    assert "The home has no finished training of this recipe." in card
    assert "The recipe masks no personal data." in card and "The recipe masks no personal data." in summary
    assert "Size of the text: unknown" in summary and "| unknown | unknown | 7 | 7 |" in card
    table = pq.read_table(tmp_path / "out/annotations/part-00000.parquet")
    assert table["timestamp"].null_count == table["digest"].null_count == 10
    assert Counter(table["verdict"].to_pylist()) == {"kept": 7, "dropped": 3}


def test_other_files_are_refused_and_the_same_run_is_written_again(run, papers, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(papers, copy)
    (copy / "data-card.md").write_text("damaged")
    write_papers(run, str(copy))
    assert contents(copy) == contents(papers)
    (copy / "figures.json").write_text('{"key": "of another run"}')
    with pytest.raises(FileExistsError, match="papers of another run"):
        write_papers(run, str(copy))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="other files"):
        write_papers(run, str(tmp_path))


@pytest.mark.parametrize(
    ("tokens", "name"),
    [
        (0, "less than 1 billion tokens"),
        (10**9 - 1, "less than 1 billion tokens"),
        (10**9, "1 billion to 10 trillion tokens"),
        (10**13, "1 billion to 10 trillion tokens"),
        (10**13 + 1, "more than 10 trillion tokens"),
    ],
)
def test_sizes_are_in_ranges_of_the_template(tokens, name):
    assert size_range(tokens) == name


@pytest.mark.parametrize(
    ("date", "digits"),
    [
        ("2024-05-18T01:58:10Z", "20240518015810"),
        ("2024-05-18T01:58:10.123456Z", "20240518015810"),
        ("20080430204825", "20080430204825"),
        ("2024-05-18", None),
        ("2024-05-18T01:58:10+02:00", None),
        ("", None),
        (None, None),
    ],
)
def test_timestamps_have_fourteen_digits_or_are_unknown(date, digits):
    assert timestamp(date) == digits


def test_values_of_a_crawl_cannot_break_a_page():
    assert cell("<script>\n| a") == "&lt;script&gt;\\n| a"
    assert cell(None) == "unknown" and cell(1234567) == "1,234,567"


def test_the_command_writes_and_prints(undisturbed, recipe, papers, tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(undisturbed.home("undisturbed")))
    path = tmp_path / "recipe.json"
    path.write_bytes(orjson.dumps(recipe))
    result = CliRunner().invoke(app, ["export", "provenance", str(path), "--to", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["annotations"] == 234
    assert contents(tmp_path / "out") == contents(papers)
