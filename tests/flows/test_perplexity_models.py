"""A recipe that names models of languages: its files are checked, its documents put into buckets and cut."""

import json
import random
from contextlib import chdir
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.curation import curate
from gristmill.flows.experiments.models.recipe_data import texts_of_recipe
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.whatif import whatif
from gristmill.storage import parquet
from gristmill.tasks.documents.selection import Heldout, select
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import StageSpec
from tests.conftest import FRENCH
from tests.corpora import build_in, context, ledger
from tests.planted.text import pydoc_paragraphs

PROSE = pydoc_paragraphs()
SHARES = {"head": 0.3, "middle": 0.3, "tail": 0.4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Documents in two files, and a model of English that the command makes."""
    folder = tmp_path_factory.mktemp("perplexity")
    (folder / "home").mkdir()
    draw = random.Random(3)
    texts = ["\n".join(draw.sample(PROSE[400:], 3)) for _ in range(60)] + [" ".join(FRENCH)] * 4
    for name, given in (("good", PROSE[:400]), ("web", texts)):
        for half in range(2):
            lines = [json.dumps({"text": text}) for text in given[half::2]]
            (folder / f"{name}-{half}.jsonl").write_text("\n".join(lines) + "\n")
    made = CliRunner().invoke(
        app,
        ["train", "lm", "en", "--out", str(folder), "--jsonl", f"{folder}/good-*.jsonl", "--vocabulary", "600"],
        catch_exceptions=False,
    )
    assert made.exit_code == 0 and f"models: {{en: {folder}/en.arpa.bin}}" in made.output
    return folder


def recipe(folder: Path, **given) -> dict:
    step = {"step": "perplexity", "models": {"en": "{home}/../en.arpa.bin"}, "max_percentile": 90, **given}
    return {
        "name": "models",
        "sources": [{"name": "web", "jsonl": [f"{folder}/web-*.jsonl"]}],
        "steps": [{"step": "extract"}, {"step": "language", "keep": ["en", "fr"], "min_score": 0}, step],
    }


@pytest.mark.extended
def test_documents_are_put_into_buckets_and_cut_by_language(folder):
    given = recipe(folder, keep_buckets=["head", "middle"])
    home = MachineSettings(home=str(folder / "home"))
    assert check(given, home).findings == ()
    *_, passed = curate(context(home.home), load(given))
    shards = passed.arriving.places.shards()
    scores = {stage.name: stage for stage in passed.left.measured if stage.name.startswith("perplexity")}
    assert list(scores) == ["perplexity_bucket", "perplexity"]
    table = pa.concat_tables(
        parquet.read_table(scores["perplexity"].part(i)).append_column(
            "bucket", parquet.read_table(scores["perplexity_bucket"].part(i))["perplexity_bucket"]
        )
        for i in shards
    )
    counts = {each["values"]: each["counts"] for each in pc.value_counts(table["bucket"]).to_pylist()}
    english = pc.sum(pc.equal(table["language"], "en")).as_py()
    assert english >= 55 and counts.pop("all") == len(table) - english >= 4
    assert counts == {name: pytest.approx(share * english, abs=1) for name, share in SHARES.items()}
    dropped = ledger(passed.left.kept, shards)
    tail = table.filter(pc.equal(table["bucket"], "tail"))["id"].to_pylist()
    assert sorted(dropped["id"].to_pylist()) == sorted(tail)

    replay = whatif(given, {"perplexity.keep_buckets": ["middle", "tail"]}, home)
    head = table.filter(pc.equal(table["bucket"], "head"))["id"].to_pylist()
    gone = [row for i in shards for row in replay.shard(i).dropped.to_pylist()]
    assert {row["id"] for row in gone if row["rule"] == "bucket"} == {*head}
    # buckets are the same whichever are kept
    *_, again = curate(context(home.home), load(recipe(folder, keep_buckets=["head"])))
    assert again.left.measured[-2].key == scores["perplexity_bucket"].key


def test_cutoffs_are_known_by_their_content(folder, tmp_path):
    keys = []
    for name, middle in (("one", 200), ("two", 200), ("three", 300)):
        path = tmp_path / f"{name}.csv"
        path.write_text(f",en\n30,100\n60,{middle}\n")
        *_, passed = curate(context(str(folder / "home")), load(recipe(folder, cutoffs=str(path))))
        keys.append((passed.left.measured[-2].key, passed.left.kept.key))
    assert keys[0] == keys[1]
    assert keys[0][0] != keys[2][0] and keys[0][1] != keys[2][1]


def test_a_model_with_a_relative_path_is_found_by_workers_in_another_folder(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    build = build_in(str(tmp_path))

    def elsewhere(spec: StageSpec) -> StageResult:
        with chdir(tmp_path):
            return build(spec)

    given = load(recipe(folder, models={"en": "en.arpa.bin"}))
    *_, passed = curate(RunContext(MachineSettings(home=str(tmp_path)), elsewhere), given)
    assert passed.left.measured[-1].name == "perplexity"


def test_rows_that_cannot_be_learned_from_are_counted(folder, tmp_path):
    rows = [json.dumps({"text": text}) for text in PROSE[:50]]
    rows[10:10] = ["{broken", json.dumps({"txt": "x"}), json.dumps({"text": 3})]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    options = ["--jsonl", f"{tmp_path}/rows.jsonl", "--vocabulary", "300", "--prune", "0", "--order", "2"]
    made = CliRunner().invoke(app, ["train", "lm", "en", "--out", str(tmp_path), *options], catch_exceptions=False)
    assert made.exit_code == 0
    assert "skipped: 1 damaged_record, 2 no_text" in made.output
    assert "50 documents" in made.output


def test_what_is_wrong_with_models_is_found_before_a_run(folder, tmp_path):
    home = MachineSettings(home=str(folder / "home"))
    broken = tmp_path / "en.arpa.bin"
    broken.write_bytes(b"no model")
    cutoffs = tmp_path / "cutoff.csv"
    cutoffs.write_text(",en\n30,1\n50,2\n")
    models = {"en": str(broken), "de": f"{folder}/de.arpa.bin"}
    found = check(recipe(folder, models=models, cutoffs=str(cutoffs)), home).findings
    assert [(finding.key, finding.message.partition("; ")[2] != "") for finding in found] == [
        ("steps.perplexity.models.en", True),
        ("steps.perplexity.models.de", True),
        ("steps.perplexity.cutoffs", True),
    ]
    assert f"{broken} is not a valid KenLM model" in found[0].message
    given = recipe(folder)
    given["steps"].pop(1)
    [finding] = check(given, home).findings
    assert "put the step `language` before it" in finding.message


def test_a_model_is_trained_on_the_documents_that_a_recipe_keeps(folder, tmp_path, monkeypatch):
    given = recipe(folder)
    given["steps"].pop()
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(given))
    monkeypatch.setenv("GRISTMILL_HOME", str(folder / "home"))
    list(curate(context(str(folder / "home")), load(given)))
    options = ["--recipe", str(path), "--source", "web", "--vocabulary", "300", "--prune", "0", "--order", "2"]
    made = CliRunner().invoke(app, ["train", "lm", "fr", "--out", str(tmp_path), *options], catch_exceptions=False)
    assert made.exit_code == 0 and "skipped" not in made.output
    told = json.loads((tmp_path / "fr.arpa.bin.json").read_text())
    assert told["documents"] == 4 and told["settings"]["prune"] == [0]
    # half of the documents held out: the model sees the others alone
    path.write_text(json.dumps(given | {"mixture": {"weights": {"web": 1}, "heldout_fraction": 0.5}}))
    loaded = load(str(path))
    *_, passed = curate(context(str(folder / "home")), loaded)
    heldout, all_texts, seen = Heldout(fractions={"web": 0.5}), [], []
    for documents, kept in passed.left.places.parts(("web",)):
        table = select(documents, kept, ["source", "text"])
        all_texts += table["text"].to_pylist()
        seen += table.filter(pa.array(~heldout.mask(table)))["text"].to_pylist()
    found = [
        text
        for language in ("en", "fr")
        for text in texts_of_recipe(str(path), ["web"], language, MachineSettings(home=str(folder / "home")))
    ]
    assert 0 < len(seen) < len(all_texts) and sorted(found) == sorted(seen)
    for wrong, options in (
        ("models has no source wob; its sources are web", ["--recipe", str(path), "--source", "wob"]),
        ("the texts need one of", []),
    ):
        with pytest.raises(ValueError, match=wrong):
            CliRunner().invoke(app, ["train", "lm", "fr", "--out", str(tmp_path), *options], catch_exceptions=False)
