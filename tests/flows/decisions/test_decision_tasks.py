"""Tasks of a decision: scored apart from training, counted where no recipe trains on them, and screened."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
import yaml

from gristmill.flows.experiments.decisions.tasks import screened, task_sets
from gristmill.flows.stages.evaluation.judge import judged_sets
from gristmill.flows.stats.protocol import Protocol, decide
from gristmill.flows.stats.runs import EvaluationSet, RunRequest
from gristmill.storage import checked_json, parquet
from gristmill.storage.schema import DOCUMENTS
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.evaluation.similar import find_contained, index_examples
from tests.corpora import fresh
from tests.planted.text import phrase, prose

RATES = (0.003, 0.01)


def write(path: Path, rows: list[dict]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_examples_that_stand_in_kept_documents_are_found_and_no_others(tmp_path):
    rng = np.random.default_rng(2)
    asked = [" ".join(fresh(rng, 16)) for _ in range(4)]
    short = " ".join(fresh(rng, 8))
    rows = [{"id": f"quiz:{n}", "text": text} for n, text in enumerate([*asked, short])]
    parquet.write_table(f"{tmp_path}/examples.parquet", pa.Table.from_pylist(rows))
    texts = [" ".join([*fresh(rng, 50), part, *fresh(rng, 50)]) for part in (asked[0], asked[1][:40], short, asked[2])]
    schema = pa.schema([DOCUMENTS.field("id"), DOCUMENTS.field("text")])
    documents = [{"id": f"d{n}", "text": text} for n, text in enumerate(texts)]
    parquet.write_table(f"{tmp_path}/documents.parquet", pa.Table.from_pylist(documents, schema))
    kept = pa.table({"id": pa.array(["d0", "d1", "d2"]).cast(schema.field("id").type)})
    parquet.write_table(f"{tmp_path}/kept.parquet", kept)
    given = {"examples": f"{tmp_path}/examples.parquet", "shingling": Shingling()}
    index_examples(str(tmp_path), 0, **given)
    parts = {"documents": f"{tmp_path}/documents.parquet", "kept": f"{tmp_path}/kept.parquet"}
    found = find_contained(str(tmp_path), 0, **parts, **given, threshold=0.8, least=9)
    # a half of the second, too few words of the last, and of the third the document is not kept
    assert found == {"examples": ["quiz:0"]}


def test_sets_of_tasks_count_if_they_are_named(tmp_path):
    choice = {"context": "Question: Which?\nAnswer:", "choices": ["one", "two"], "answer": 1}
    write(tmp_path / "quiz.jsonl", [choice] * 3)
    write(tmp_path / "blank.jsonl", [{"context": "a b", "target": "c"}] * 2)
    sets = task_sets(tmp_path)
    assert sets == {"task:blank": 2, "task:quiz": 3, "task:quiz:letters": 3}
    assert judged_sets(["web"], ["web"], tuple(sets)) == ("web",)
    assert judged_sets(["web"], ["task:quiz"], tuple(sets)) == ("task:quiz",)
    with pytest.raises(ValueError, match="unknown evaluation set task:quizz; did you mean"):
        judged_sets(["web"], ["task:quizz"], tuple(sets))


def planted_decision(by_arm: dict[str, float], noise: float):
    """A decision on one candidate, and what each run scores on a task: by its arm, more with all of the tokens."""
    evaluation = EvaluationSet(("web",), np.zeros(20, int), np.full(20, 100), ("web",))
    draw = np.random.default_rng(1)

    def run(requests):
        return [100 * draw.normal(2, 0.01, 20) for _ in requests]

    protocol = Protocol(learning_rates=RATES, looks=(4,), worth_pairs=2)
    decision = decide(protocol, evaluation, "base", ["A"], 1000, run)
    halves = [RunRequest("base", pair, rate, 500) for pair in (1, 2) for rate in RATES]
    requests = dict.fromkeys([*decision.runs, *halves])
    return decision, {r: {"quiz": by_arm[r.arm] * r.tokens / 1000 + draw.normal(0, noise)} for r in requests}


def test_the_screen_knows_a_task_that_says_something_from_one_that_does_not():
    def of(by_arm, noise):
        decision, scores = planted_decision(by_arm, noise)
        [found] = screened(decision, {"accuracy": scores}, {"quiz": 0.25}, {"quiz": 300})
        return found

    good = of({"base": 0.5, "A": 0.6}, 0.001)
    assert good.fails == () and good.rises == 1 and good.order == 1
    assert good.above_chance == pytest.approx(0.25 / np.sqrt(0.25 * 0.75 / 300), rel=0.02)
    assert good.signal == pytest.approx(0.1, abs=0.003) and good.noise < 0.003
    chance = of({"base": 0.27, "A": 0.6}, 0.001)
    assert chance.fails == ("at chance",)
    alike = of({"base": 0.5, "A": 0.5}, 0.01)
    assert "noise larger than differences between recipes" in alike.fails
    flat = of({"base": -0.5, "A": -0.6}, 0.001)
    assert "does not rise" in flat.fails


PROXY = {
    "name": "tiny",
    "vocab_size": 400,
    "sample_bytes": 60_000,
    "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
    "tokens": 4_000,
    "training": {"batch": 4, "micro_batch": 4, "warmup_steps": 2},
    "learning_rates": list(RATES),
    "looks": [4],
    "evaluation_documents": 8,
}
SCRIPT = """
import sys, gristmill
given = {"proxy": sys.argv[2], "bank_pairs": 2, "judge": sys.argv[4:]}
if sys.argv[3]:
    given["tasks"] = sys.argv[3]
report = gristmill.ablate(sys.argv[1], raw=True, **given)
print(*report.sentences, report.tasks_note, sep="\\n")
"""


@pytest.mark.slow
def test_tasks_added_to_a_finished_decision_train_nothing_and_decide(runs, tmp_path):
    draw = Random(5)
    texts = [" ".join(prose(draw, "en", 120)) for _ in range(150)]
    short = [" ".join(prose(draw, "en", 50)) for _ in range(60)]  # which the base drops
    source = write(tmp_path / "web.jsonl", [{"text": text} for text in [*texts, *short]])
    rows = [
        {"context": phrase(draw, "en", 14), "choices": [phrase(draw, "en", 4) for _ in range(4)], "answer": n % 4}
        for n in range(40)
    ]
    # examples that stand in many documents, of which some are trained on
    rows += [{"context": " ".join(text.split()[20:50]), "choices": ["yes", "no"], "answer": 0} for text in texts[:30]]
    write(tmp_path / "tasks" / "quiz.jsonl", rows)
    recipe = {
        "name": "tasked",
        "sources": [{"name": "web", "jsonl": [source]}],
        "steps": [{"step": "extract"}, {"step": "gopher_quality", "min_words": 100}],
    }
    proxy = tmp_path / "proxy.yaml"
    proxy.write_text(yaml.safe_dump(PROXY))
    home = runs.home("tasked")

    def decided(*arguments: str) -> None:
        command = [sys.executable, "-c", SCRIPT, str(runs.write(recipe)), str(proxy), *arguments]
        environment = runs.environment("tasked", executor="threads")
        with open(runs.folder / "tasked.log", "a") as log:
            done = subprocess.run(command, env=environment, cwd=runs.folder, stdout=log, stderr=log)
        assert done.returncode == 0, runs.log("tasked")

    def stages(name: str) -> dict[str, int]:
        return {path.parent.name: path.stat().st_mtime_ns for path in home.glob(f"stages/{name}-*/manifest.json")}

    decided("", "web")
    trained, begun = stages("proxy"), len(list(home.glob("stages/proxy-*/training.log")))
    assert trained and not stages("task_losses")
    decided(str(tmp_path / "tasks"), "task:quiz")
    assert stages("proxy") == trained and len(list(home.glob("stages/proxy-*/training.log"))) == begun
    assert len(stages("task_losses")) == len(trained)
    reports = [checked_json.read(str(path)) for path in home.glob("decisions/*.json")]
    [plain] = [found for found in reports if not found["tasks"]]
    [found] = [found for found in reports if found["tasks"]]
    assert [run["key"] for run in found["runs"]] == [run["key"] for run in plain["runs"]]
    [candidate] = found["sets"]
    effects = {one["name"]: one for one in found["sets"][candidate]}
    assert [name for name, one in effects.items() if one["judged"]] == ["task:quiz"]
    assert {"web", "task:quiz", "task:quiz:letters"} == set(effects)
    assert found["sets"][candidate][0] | {"judged": True} == plain["sets"][candidate][0] | {"judged": True}
    [left_out] = found["task_examples_left_out"].values()
    assert 15 <= left_out <= 30, "those of the evaluation documents are in no training data"
    assert {row["name"] for row in found["task_screen"]} == {"quiz", "quiz:letters"}
    assert all(row["examples"] == 70 - left_out for row in found["task_screen"])
    assert "Examples that a recipe trains on are excluded" in runs.log("tasked")
