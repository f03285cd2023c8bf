"""What models are evaluated on is a property of the sources and of the texts that a recipe names."""

import json
import random
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.recipe import load
from gristmill.flows.run.compared import comparable, tracked_names
from gristmill.flows.stages.evaluation.documents import read
from gristmill.flows.stages.heldout import Data, heldout
from gristmill.flows.stages.mixture import training_data
from gristmill.storage import parquet
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.models.compiled import kenlm
from gristmill.training.evaluate.heldout import heldout_windows
from gristmill.training.loss import IGNORE
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

RARE = "quixotrine"  # stands in one text that the recipe names, and in the pages that hold it


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Two sources, a third of whose pages are of one host; texts apart, which one page of each source quotes."""
    folder, draw = tmp_path_factory.mktemp("sources"), random.Random(2)
    prose = pydoc_paragraphs()
    apart = [f"{' '.join(draw.sample(' '.join(prose[:200]).split(), 40))} {RARE}", *prose[-6:]]
    for at, name in enumerate(("web", "books")):
        texts = [" ".join(draw.sample(prose[200:800], 2)) for _ in range(150)]
        texts[7] = f"{texts[7]} {apart[0]}"
        rows = [{"text": t, "url": f"https://site{i % 3}.example/{at}/{i}"} for i, t in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "apart.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in apart))
    (folder / "hosts.txt").write_text("site1.example\n")
    return folder


def recipe(folder: Path, *steps: dict, **given) -> dict:
    return {
        "name": "sets",
        "sources": [
            {"name": name, "jsonl": [f"{folder}/{name}.jsonl"], "url_column": "url"} for name in ("web", "books")
        ],
        "steps": [{"step": "extract"}, *steps],
        "tokenizer": {"vocab_size": 400, "sample_bytes": 40_000},
        "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.1, "max_epochs": 50},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 32},
        "training": {"steps": 4, "batch": 2, "micro_batch": 1, "warmup_steps": 1, "eval_tokens": 4000},
        **given,
    }


def made(given: dict, home: Path) -> Data:
    loaded, run = load(given), context(str(home))
    *_, last = curate(run, loaded)
    return training_data(run, loaded, last.left)


def texts(data: Data) -> dict[str, dict[str, str]]:
    """By set the texts that models are evaluated on, by id."""
    found: dict[str, dict[str, str]] = {}
    for stage in data.evaluation:
        for row in read(stage).to_pylist():
            found.setdefault(row["set"], {})[row["id"]] = row["text"]
    return found


def trained_on(data: Data) -> dict[str, str]:
    """The documents of the token shards, with the texts that the sources give them."""
    indexes = sorted(Path(data.tokens.folder).glob("train-*.parquet"))
    ids = {name for path in indexes for name in parquet.read_table(str(path), ["id"])["id"].to_pylist()}
    parts = [data.corpus.documents.part(i) for i in data.corpus.places.shards()]
    rows = [row for part in parts for row in parquet.read_table(part, ["id", "text"]).to_pylist()]
    return {row["id"]: row["text"] for row in rows if row["id"] in ids}


@pytest.mark.extended
def test_recipes_with_other_steps_seeds_and_mixtures_are_evaluated_on_the_same_bytes(folder, tmp_path):
    short = {"step": "gopher_quality", "min_words": 120, "min_stop_words": 0, "min_alpha_words": 0}
    url = {"step": "url", "blocklists": [f"{folder}/hosts.txt"]}
    pii = {"step": "pii"}
    whole = recipe(folder)
    found = {
        "whole": made(whole, tmp_path),
        "short": made(recipe(folder, short, pii, seed=9), tmp_path),
        "hosts": made(whole | {"steps": [url, {"step": "extract"}]}, tmp_path),
        "other": made(whole | {"mixture": whole["mixture"] | {"weights": {"web": 1, "books": 3}}}, tmp_path),
        "tokens": made(whole | {"tokenizer": {"vocab_size": 600, "sample_bytes": 40_000}}, tmp_path),
    }
    sets = {name: texts(data) for name, data in found.items()}
    for each in ("heldout/web", "heldout/books"):
        assert len(sets["whole"][each]) > 5
        assert all(of[each] == sets["whole"][each] for of in sets.values())
    assert len({comparable(data) for data in found.values()}) == 1
    # survivors are those that a recipe keeps, so they differ, and so do the names of their metrics
    for name, data in found.items():
        parts = [data.corpus.kept.part(i) for i in data.corpus.places.shards()]
        kept = {i for part in parts for i in parquet.read_table(part, ["id"])["id"].to_pylist()}
        for each in ("web", "books"):
            own = sets[name][f"heldout/{each}"]
            assert sets[name][f"survivors/{each}"] == {i: own[i] for i in own if i in kept}
        assert not trained_on(data).keys() & {i for of in sets["whole"].values() for i in of}
    shown = {name: tracked_names(data)("survivors/bits_per_byte") for name, data in found.items()}
    assert shown["whole"] == shown["other"] == shown["tokens"]
    assert len({shown[name] for name in ("whole", "short", "hosts")}) == 3
    # another tokenizer cuts the same bytes into other tokens: all of them are evaluated, the very first token apart
    sizes = {}
    for name, data in found.items():
        manifest = load_training_manifest(Path(data.mixture.folder) / "mixture.json")
        windows = heldout_windows(manifest, 32, 100)
        of = windows.source == windows.names.index("heldout/web")
        sizes[name] = int(windows.sizes()[of].sum()), int((windows.targets[of] != IGNORE).sum())
    size = sum(len(text.encode()) for text in sets["whole"]["heldout/web"].values())
    assert all(size - 40 < there <= size for there, _ in sizes.values())
    assert sizes["tokens"][1] < sizes["whole"][1]


@pytest.mark.extended
def test_another_limit_fraction_or_extraction_has_other_names(folder, tmp_path):
    whole = made(recipe(folder), tmp_path)
    mixture = recipe(folder)["mixture"]
    for given in (
        recipe(folder, limit=100),
        recipe(folder, mixture=mixture | {"heldout_fraction": 0.05}),
        recipe(folder, {"step": "normalize"}, training=recipe(folder)["training"] | {"eval_tokens": 500}),
    ):
        assert comparable(made(given, tmp_path)) != comparable(whole)


@pytest.mark.extended
def test_texts_that_a_recipe_names_are_evaluated_on_and_no_model_is_trained_on_them(folder, tmp_path):
    learned = {"step": "perplexity", "reference": ["books"], "max_percentile": 100, "order": 2}
    given = recipe(folder, learned)
    plain = made(given, tmp_path)
    assert sum(RARE in text for text in trained_on(plain).values()) >= 1, "there is something to remove"
    [stage] = [each for each in plain.corpus.stages if each.name == "perplexity_model"]
    assert RARE in kenlm.Model(stage.file("model.bin").local())

    named = made(given | {"evaluation": {"apart": f"{folder}/apart.jsonl"}}, tmp_path)
    sets = texts(named)
    wanted = [json.loads(line)["text"] for line in (folder / "apart.jsonl").read_text().splitlines()]
    assert sorted(sets["evaluation/apart"].values()) == sorted(wanted)
    assert not [text for text in trained_on(named).values() if RARE in text]
    [stage] = [each for each in named.corpus.stages if each.name == "perplexity_model"]
    assert RARE not in kenlm.Model(stage.file("model.bin").local())
    # the sources' own set is the same, and the funnel says what became of the pages
    assert comparable(named) == comparable(plain)
    count = named.split.train.kept.step_counts[-1]
    assert count["step"] == "evaluation_removal" and count["drops"]["contains_evaluation_document"] >= 1
    shown = tracked_names(named)("evaluation/apart/bits_per_byte")
    assert shown == f"evaluation-{named.evaluated['evaluation/apart']['digest'][:6]}/apart/bits_per_byte"


def test_texts_that_are_not_there_are_named_before_anything_runs(folder, tmp_path):
    given = recipe(folder, evaluation={"apart": f"{tmp_path}/none.jsonl"})
    with chdir(tmp_path):
        found = check(given, MachineSettings(home=str(tmp_path / "home"))).findings
    assert any("evaluation.apart" in str(each) and "none.jsonl" in str(each) for each in found)


@pytest.mark.extended
def test_the_same_bytes_for_any_home(folder, tmp_path):
    given = recipe(folder, evaluation={"apart": f"{folder}/apart.jsonl"})
    one, other = (made(given, tmp_path / name) for name in ("a", "b"))
    for stages in zip(one.split.train.stages, other.split.train.stages, strict=True):
        assert stages[0].key == stages[1].key
    for stages in zip(one.training_stages, other.training_stages, strict=True):
        assert stages[0].key == stages[1].key
    shards = [sorted(Path(each.evaluation_tokens.folder).glob("heldout-*.bin")) for each in (one, other)]
    assert all(np.array_equal(np.fromfile(a, "<u2"), np.fromfile(b, "<u2")) for a, b in zip(*shards, strict=True))


@pytest.mark.extended
def test_texts_that_a_recipe_names_are_no_documents_of_a_source_that_is_called_alike(folder, tmp_path):
    """Neither where the files have one name, nor where the sources have it, too."""
    (tmp_path / "web.jsonl").write_text((folder / "apart.jsonl").read_text())
    kept, run = [], context(str(tmp_path / "home"))
    for evaluation in ({"apart": f"{folder}/apart.jsonl"}, {"web": f"{tmp_path}/web.jsonl"}):
        loaded = load(recipe(folder, evaluation=evaluation))
        *_, last = curate(run, loaded)
        kept.append(heldout(run, loaded, last.left).train.kept)
    one, other = ([record["rows_out"] for record in stage.records("remove")] for stage in kept)
    assert one == other
    assert not kept[1].step_counts[-1]["drops"].get("evaluation_document")
