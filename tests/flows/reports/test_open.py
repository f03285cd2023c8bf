"""A finished run from Python: its rows are those of the files, and every example of a docstring gives what it says."""

import doctest
import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

import gristmill
from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import run as report_module
from gristmill.flows.reports.run import Run, rows
from gristmill.flows.stages.export import export
from gristmill.storage import layout, parquet
from gristmill.storage.damage import DamagedFileError
from gristmill.tasks.engine.make import NotFinishedError
from tests.corpora import build_in
from tests.planted.text import prose

pytestmark = pytest.mark.extended

WORDS = [20, 20, 56, *[200] * 6]


def project(folder: Path) -> Path:
    """Ten documents: two are too short, the last is another one's near-duplicate."""
    rng = Random(3)
    texts = [" ".join(" ".join(prose(rng, "en", 260)).split()[:count]) for count in WORDS]
    texts.append(texts[-1].rsplit(" ", 9)[0] + " and so on")
    documents = [{"url": f"https://a.example/0/{at}", "text": text, "license": "CC0"} for at, text in enumerate(texts)]
    folder.mkdir()
    (folder / "pages.jsonl").write_text("\n".join(map(json.dumps, documents)))
    recipe = {
        "name": "planted",
        "sources": [{"name": "web", "jsonl": ["pages.jsonl"], "url_column": "url", "columns": ["license"]}],
        "steps": [{"step": name} for name in ("extract", "gopher_quality", "minhash")],
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "recipe.yaml"


def make(path: Path, home: str) -> None:
    settings, recipe = MachineSettings(home=home), load(path)
    last, build = RunRecorder(home, recipe.name), build_in(home)
    for _ in curate(
        RunContext(settings, lambda spec: last.add(spec.label(home)) or build(spec), outside=last.outside), recipe
    ):
        pass
    last.finished()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("open") / "project"
    make(project(folder), str(folder / ".gristmill"))
    return folder


@pytest.fixture
def run(folder) -> Run:
    return gristmill.open(folder / "recipe.yaml", home=str(folder / ".gristmill"))


EXAMPLES = [
    test
    for module, name, thing in [
        (gristmill, "open", gristmill.open),
        (report_module, "Run", Run),
        (rows, "Rows", rows.Rows),
    ]
    for test in doctest.DocTestFinder().find(thing, name, module=module)
    if test.examples
]


def test_what_a_user_calls_has_an_example():
    public = {f"Run.{n}" for n in ("documents", "scores", "ledger", "clusters", "show", "dropped", "lineage")}
    public |= {f"Run.{n}" for n in ("decisions", "similar", "whatif")} | {"open", "Run", "Rows"}
    assert public <= {test.name for test in EXAMPLES}


@pytest.mark.parametrize("test", EXAMPLES, ids=lambda test: test.name)
def test_an_example_gives_what_it_says(test, run, folder, monkeypatch, tmp_path):
    if "to_datasets" in test.docstring:
        config = pytest.importorskip("datasets.config")
        monkeypatch.setattr(config, "HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GRISTMILL_HOME", raising=False)
    test.globs = {"run": run, "gristmill": gristmill, "pyarrow": pa}
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert runner.run(test, out=said.append).failed == 0, "".join(said)


def test_documents_are_those_of_an_export(run, tmp_path):
    recipe = load(load(run.recipe).model_dump() | {"export": {"to": str(tmp_path / "out")}})
    context = RunContext(run.settings, build_in(run.settings.home))
    export(context, recipe, run.corpus)
    exported = pa.concat_tables(map(pq.read_table, sorted((tmp_path / "out/data").glob("*.parquet"))))
    assert pa.table(run.documents).equals(exported) and len(exported) == len(run.documents) == 7
    assert exported["license"].to_pylist() == ["CC0"] * 7
    [batches] = [run.documents.reader(["url"], pc.field("gopher_quality_words") == 56)]
    assert batches.read_all().to_pylist() == [{"url": "https://a.example/0/2"}]
    first = run.documents.to_pandas(n=2)
    assert first.equals(exported.slice(0, 2).to_pandas()) and run.documents.to_pandas(n=0).empty


def test_scores_are_those_of_all_documents(run):
    found = pa.table(run.scores).to_pylist()
    assert [row["gopher_quality_words"] for row in found] == [*WORDS, 194]
    assert [row["kept"] for row in found] == [False, False, *[True] * 7, False]
    # only documents kept have a cluster
    assert [row["cluster_size"] for row in found] == [None, None, *[1] * 6, 2, None]


def test_the_ledger_has_the_rows_of_all_stages(run):
    found = run.ledger.reader().read_all()
    assert found.drop_columns("stage").to_pylist() == [
        row
        for stage in run.stages
        for shard in range(1)
        if Path(layout.ledger_part(stage.folder, shard)).exists()
        for row in parquet.read_table(layout.ledger_part(stage.folder, shard)).to_pylist()
    ]
    assert [name.rpartition("-")[0] for name in found["stage"].to_pylist()] == ["rules", "rules", "near_duplicates"]


def test_clusters_name_who_stays(run):
    gone = pa.table(run.ledger).to_pylist()[-1]
    found = {row["id"]: row for row in pa.table(run.clusters).to_pylist()}
    assert len(found) == 2 and {row["representative"] for row in found.values()} == {gone["representative"]}
    assert found[gone["id"]]["jaccard"] == gone["value"]


def test_a_damaged_file_is_not_read(folder, tmp_path):
    make(project(tmp_path / "project"), str(tmp_path / "home"))
    run = gristmill.open(tmp_path / "project/recipe.yaml", str(tmp_path / "home"))
    part = Path(run.documents.parts[0])
    data = bytearray(part.read_bytes())
    data[20] ^= 1
    part.write_bytes(data)
    damage = "is damaged between bytes .* remove the stage's folder"
    with pytest.raises(DamagedFileError, match=damage):
        run.documents.to_pandas()
    with pytest.raises(pa.ArrowException, match=damage):
        pa.table(run.documents)


def test_wrong_names_are_sentences(run, tmp_path):
    with pytest.raises(LookupError, match="no column txt; did you mean `text`. the columns are id, text"):
        run.documents.to_pandas(["txt"])
    with pytest.raises(LookupError, match="no document in .* has an id that begins with nowhere"):
        run.lineage("nowhere")
    with pytest.raises(LookupError, match="documents have an id that begins with : give more characters of it"):
        run.lineage("")
    path = tmp_path / "my recipe.yaml"
    path.write_text(yaml.safe_dump(run.recipe.model_dump(mode="json")))
    for recipe, argument in ((run.recipe, "RECIPE"), (path, f"'{path}'")):
        sentence = rf"the corpus of planted is not finished in .*: run `gristmill corpus {argument}`, which resumes"
        with pytest.raises(NotFinishedError, match=sentence):
            gristmill.open(recipe, str(tmp_path / "empty"))


def test_the_copy_for_hugging_face_has_the_same_rows(run, monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    made = run.documents.to_datasets()
    assert made.to_list() == pa.table(run.documents).to_pylist()
    assert made.cache_files == run.documents.to_datasets().cache_files, "found again"
    assert run.scores.to_datasets(["kept"])[0] == {"kept": False}


def test_without_it_the_remedy_is_named(run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ImportError, match="pip install datasets"):
        run.documents.to_datasets()
