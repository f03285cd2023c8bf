"""Tasks of lm-evaluation-harness: read from its YAML, and scored as it scores them. Needs lm_eval and transformers."""

import json
import math

import pytest
import torch

from gristmill.storage import checked_json
from gristmill.storage.tokenizer_files import load_tokenizer
from gristmill.training.evaluate.task_scores import example_scores
from gristmill.training.evaluate.tasks import read_tasks, write_lm_eval_tasks
from gristmill.training.hub.model_folder import write_model_folder
from gristmill.training.hub.weights import open_model
from gristmill.training.run.loop import train
from gristmill.training.world import processes

OPTIONS = ["do riba", "sunk", "labe labe mo"]
ROWS = [
    {"asked": f"{'riba mo ' * (n % 5 + 1)}labe?", "options": OPTIONS[: 2 + n % 2], "gold": n % 2} for n in range(24)
]
TASK = """task: planted_quiz
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{{{asked}}}}\\nAnswer:"
doc_to_target: gold
doc_to_choice: options
metric_list: [{{metric: acc}}]
"""


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "lm_eval.tasks", None)
    with pytest.raises(ValueError, match="--tasks lm-eval:arc_easy needs lm-evaluation-harness: pip install lm-eval"):
        write_lm_eval_tasks(["arc_easy"], tmp_path)


@pytest.mark.slow
def test_bits_of_each_right_answer_are_those_of_lm_eval_on_the_exported_model(corpus, make_run, tmp_path, monkeypatch):
    tasks = pytest.importorskip("lm_eval.tasks")
    data = tmp_path / "quiz.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "yaml").mkdir()
    (tmp_path / "yaml" / "quiz.yaml").write_text(TASK.format(data=data))
    manager = tasks.TaskManager(include_path=str(tmp_path / "yaml"))
    monkeypatch.setattr(tasks, "TaskManager", lambda: manager)
    [task], _ = read_tasks(write_lm_eval_tasks(["planted_quiz"], tmp_path / "tasks"))
    assert [example.answer for example in task.examples] == [row["gold"] for row in ROWS]
    assert [[text for _, text in example.pairs] for example in task.examples] == [row["options"] for row in ROWS]
    with pytest.raises(ValueError, match="lm-eval has no task planted_quizz"):
        write_lm_eval_tasks(["planted_quizz"], tmp_path / "tasks")

    run = make_run(tmp_path / "out", training={"steps": 6})
    train(run)
    checked_json.write(str(tmp_path / "out" / "run.json"), run.model_dump(mode="json"))  # as the launcher writes it
    exported = tmp_path / "exported"
    write_model_folder(open_model(tmp_path / "out"), exported, "planted")
    pieces = load_tokenizer(corpus.parent / "tokenizer.model")
    with processes(60) as world:
        [ours] = example_scores(open_model(exported).load(), [task], pieces, world)

    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    peer = HFLM(pretrained=str(exported), device="cpu", dtype="float32", batch_size=4)
    pairs = [(example.pairs[example.answer][0], " " + example.pairs[example.answer][1]) for example in task.examples]
    requests = [Instance("loglikelihood", {}, pair, n) for n, pair in enumerate(pairs)]
    with torch.no_grad():
        theirs = [-nats / math.log(2) for nats, _ in peer.loglikelihood(requests, disable_tqdm=True)]
    assert ours.bits.tolist() == pytest.approx(theirs, abs=1e-3)
    assert ours.sizes.tolist() == [len(text.encode()) - 1 for _, text in pairs]
