"""What Prefect's pages show of a run: its stages as a graph, and the corpus as tables and a page."""

import json
import sys
from pathlib import Path
from subprocess import run

import pytest
import yaml

from tests.services import begun, free_port, listens

pytestmark = pytest.mark.slow

PROGRAM = """
import json
import gristmill
from prefect.client.orchestration import get_client

report = gristmill.corpus("recipe.yaml")
with get_client(sync_client=True) as client:
    tasks = client.request("POST", "/task_runs/filter", json={}).json()
    artifacts = client.request("POST", "/artifacts/filter", json={}).json()
inputs = {str(task["id"]): [each["id"] for each in task["task_inputs"].get("wait_for", [])] for task in tasks}
names = {str(task["id"]): task["name"] for task in tasks}
print(json.dumps({"graph": {names[id]: [names[of] for of in read] for id, read in inputs.items()},
    "artifacts": {one["key"]: [one["type"], one["data"]] for one in artifacts}}))
"""


@pytest.fixture(scope="module")
def shown(crawl, tmp_path_factory, runs) -> dict:
    folder = tmp_path_factory.mktemp("graph")
    recipe = {
        "name": "small",
        "sources": [{"name": "web", "warc": [f"{crawl.folder}/web-*.warc.gz"]}],
        "steps": [{"step": "extract"}, {"step": "gopher_quality"}, {"step": "content_dedup"}],
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    port = free_port()
    address = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_API_URL": f"http://127.0.0.1:{port}/api"}
    with begun(folder / "services") as services:
        serving = ["-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        services.start("prefect", [sys.executable, *serving], **address)
        services.until("Prefect", listens(port), "prefect")
        environment = runs.environment(str(folder / "home"), executor="serial") | address
        done = run([sys.executable, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_stage_stands_behind_those_that_it_reads(shown):
    read = {name.split("-")[1]: {of.split("-")[1] for of in reads} for name, reads in shown["graph"].items()}
    before = {"documents", "rules"}
    assert read.pop("group_losses") == before | {"content_duplicates"}
    assert read == {"documents": set(), "rules": {"documents"}, "content_duplicates": before}


def test_a_corpus_has_its_funnel_drops_and_page(shown):
    kind, data = shown["artifacts"]["small-drops"]
    assert kind == "table" and {"gopher_quality"} <= {row["step"] for row in json.loads(data)}
    assert shown["artifacts"]["small-funnel"][0] == "table"
    kind, data = shown["artifacts"]["small-page"]
    assert kind == "markdown" and Path(data.partition("](")[2].rstrip(")")).read_text().startswith("<!DOCTYPE html>")
