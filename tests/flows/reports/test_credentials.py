"""User and password of a document's URL are in no paper and on no page."""

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import gristmill
from gristmill.flows.cli import app
from gristmill.flows.explore.browse import document as static
from gristmill.flows.explore.browse.opened import open_recipe
from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports import near_duplicates, run_page
from gristmill.flows.reports.diff import difference as differences
from gristmill.flows.reports.diff import targets
from gristmill.flows.reports.provenance.folder import write_papers
from gristmill.storage import parquet
from tests.flows.reports.test_open import make, project

pytestmark = pytest.mark.extended
USER = "bob:S3CRET@"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = project(tmp_path_factory.mktemp("credentials") / "project")
    pages = path.parent / "pages.jsonl"
    pages.write_text(pages.read_text().replace("https://", f"https://{USER}"))
    make(path, str(path.parent / "home"))
    return path.parent


def test_papers_and_pages_have_urls_without_user_and_password(folder, tmp_path):
    settings = MachineSettings(home=str(folder / "home"))
    run = gristmill.open(folder / "recipe.yaml", home=settings.home)
    assert all(USER in url for url in run.documents.to_pandas(["url"])["url"])
    write_papers(run, str(tmp_path / "papers"))
    tables = [*(tmp_path / "papers/annotations").glob("*.parquet")]
    urls = pa.concat_tables(parquet.read_table(str(path)) for path in tables)["url"].to_pylist()
    assert len(urls) == 10 and all(url.startswith("https://a.example/0/") for url in urls)
    papers = [path for path in (tmp_path / "papers").rglob("*") if path.is_file() and path not in tables]
    shown = {path.name: path.read_text() for path in papers}
    shown["report"] = run_page.page(run)
    pages = Pages(open_recipe(str(folder / "recipe.yaml"), settings))
    shown["funnel"] = pages.funnel({})
    shown["documents"] = pages.documents({})
    ids = {}
    for step in pages.opened.steps:
        shown |= {rule: pages.rule({"step": step.key, "rule": rule}) for rule in step.drops}
    for row in run.ledger.to_pandas().to_dict("records"):
        ids[row["id"]] = row["rule"]
    for row in run.documents.to_pandas(["id"]).to_dict("records")[:2]:
        ids[row["id"]] = "kept"
    for id_, name in ids.items():
        shown[f"document, {name}"] = pages.document({"shard": "0", "id": id_})
    shown["static"] = static.page(pages.opened)
    difference = targets.diff(run.corpus.extracted.label, run.corpus.kept.label, settings)
    shown["diff"] = differences.page(difference)
    shown["duplicates"] = Path(near_duplicates.write(str(folder / "recipe.yaml"), settings)).read_text()
    assert {name for name, page in shown.items() if "a.example/0/" in page} >= {
        *("report", "documents", "document, kept", "static", "diff", "duplicates")
    }
    assert [name for name, page in shown.items() if "S3CRET" in page] == []


def test_commands_print_urls_without_user_and_password(folder, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(folder / "home"))
    recipe = str(folder / "recipe.yaml")
    run = gristmill.open(recipe, home=str(folder / "home"))
    documents = run.documents.to_pandas(["id", "text"])
    id_, text = documents["id"][0], documents["text"][0]
    (folder / "text.txt").write_text(text)
    extracted, kept = run.corpus.extracted.label, run.corpus.kept.label
    commands = [
        *(["explain", "show", "documents"], ["explain", "show", "dropped"], ["explain", "lineage", id_]),
        *(["explain", "similar", id_], ["home", "status"]),
        *(["home", "affected", "a.example", *more] for more in ([], ["--json"])),
        *(["home", "affected", f"https://{USER}a.example/0/3", *more] for more in ([], ["--json"])),
        *(["explain", "find", recipe, " ".join(text.split()[:3]), *more] for more in ([], ["--json"])),
        *(["explain", "find", recipe, "--words", text.split()[0], *more] for more in ([], ["--json"])),
        *(["explain", "trace", recipe, str(folder / "text.txt"), *more] for more in ([], ["--json"])),
        *(["recipe", "columns", recipe, *more] for more in ([], ["--json"])),
        *(["explain", "diff", extracted, kept, *more] for more in ([], ["--json"])),
    ]
    printed = {}
    for command in commands:
        told = CliRunner().invoke(app, command, catch_exceptions=False)
        assert told.exit_code == 0, (command, told.output)
        printed[" ".join(command)] = told.output
    assert [command for command, output in printed.items() if "S3CRET" in output] == []
    assert sum("https://a.example/0/" in output for output in printed.values()) > len(commands) / 2
