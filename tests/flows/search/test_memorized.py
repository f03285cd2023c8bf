"""What a model has by heart: planted copies are counted, memorized the more the more copies there are, and less where
near-duplicates were removed. Real trainings."""

import json
import random
from dataclasses import asdict
from pathlib import Path

import pytest
from pydantic_core import to_json
from typer.testing import CliRunner

import gristmill
from gristmill.flows.cli import app
from gristmill.flows.experiments.models.evaluation import trained_model
from gristmill.flows.explore.search.memorized import Memorized, memorized, write
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.search.opened import opened
from gristmill.flows.stages.indexes import search_index_spec, trained_texts
from tests.corpora import context

WORDS = 70  # of a document
UNIQUE = 2_000
PLANTED = {64: 6, 16: 12, 4: 24}  # how many documents have so many copies


def documents() -> list[str]:
    draw = random.Random(8)
    known = ["".join(draw.choices("abcdefghiklmnoprstuvwy", k=draw.randint(2, 8))) for _ in range(1_500)]

    def text() -> str:
        return " ".join(draw.choices(known, k=WORDS))

    texts = [text() for _ in range(UNIQUE)]
    for copies, count in PLANTED.items():
        for _ in range(count):
            planted = text()
            texts += [f"{planted} {' '.join(draw.choices(known, k=3))}" for _ in range(copies)]
    draw.shuffle(texts)
    return texts


def recipe(folder: Path, steps: list[dict]) -> dict:
    return {
        "name": "by-heart",
        "sources": [{"name": "web", "jsonl": [f"{folder}/web.jsonl"]}],
        "steps": [{"step": "extract"}, *steps],
        "tokenizer": {"vocab_size": 2_000, "sample_bytes": 1_000_000},
        "mixture": {"weights": {"web": 1}, "heldout_documents": 100, "max_epochs": 4},
        "model": {"dim": 128, "layers": 2, "heads": 4, "seq_len": 128},
        "training": {"steps": 700, "batch": 8, "micro_batch": 8, "warmup_steps": 50},
    }


def measured(runs, home: str, given: dict) -> Memorized:
    runs.run(home, ("pipeline", given))
    settings = MachineSettings(home=str(runs.home(home)))
    path = runs.home(home).parent / f"{home}.yaml"
    path.write_text(json.dumps(given))
    model = trained_model(str(path), settings)
    assert model.report is not None and model.report.data is not None
    run = context(settings.home)
    run.build(search_index_spec(run, load(given), trained_texts(model.report.data)))
    index = opened(load(given), settings)
    assert index is not None
    found = memorized(index, prompts=3_000, prompt=20, continuation=20)
    assert found == memorized(index, prompts=3_000, prompt=20, continuation=20)
    assert Path(write(found, settings.home)).read_text().count("<svg") == 1
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two trainings, five minutes on two idle cores
def test_more_copies_are_memorized_more_and_fewer_are_left_after_deduplication(runs, tmp_path, monkeypatch):
    (tmp_path / "web.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents()))
    raw = measured(runs, "raw", recipe(tmp_path, []))
    monkeypatch.setenv("GRISTMILL_HOME", str(runs.home("raw")))
    target = str(runs.home("raw").parent / "raw.yaml")
    said = CliRunner().invoke(app, ["train", "evaluate", target, "--memorized", "--prompts", "300", "--json"])
    assert said.exit_code == 0, said.output
    from_python = gristmill.memorized(gristmill.open_index(target), prompts=300)
    page = json.loads(said.stdout)
    assert {name: each for name, each in page.items() if name != "page"} == json.loads(to_json(asdict(from_python)))
    clean = measured(runs, "clean", recipe(tmp_path, [{"step": "minhash", "unit": "words"}]))
    for found in (raw, clean):
        print(*found.groups, sep="\n")
    groups = {group.least: group for group in raw.groups}
    assert set(groups) == {0, 1, 4, 16, 64}
    # where one copy is held out all are taken out of the training, most of those with 64
    assert min(groups[least].prompts for least in PLANTED) > 20
    assert groups[0].share < 0.01 and groups[1].share < 0.01
    assert groups[1].share <= groups[4].share <= groups[16].share < groups[64].share
    assert groups[64].low > max(groups[4].high, groups[0].high)
    assert {group.least for group in clean.groups} == {0, 1}
    everything = [group for group in raw.groups if group.least]
    share = sum(group.share * group.prompts for group in everything) / sum(group.prompts for group in everything)
    [left] = [group for group in clean.groups if group.least]
    assert share > left.high
