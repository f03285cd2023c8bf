"""Metrics of other trainers: their columns, lines that are none, and what has no number."""

import json

import pytest

from gristmill.flows.experiments.models.imported_run import read_points


def test_json_lines_and_csv_give_the_same_points(tmp_path):
    lines = [{"_step": 0, "train_loss": 5.5, "lr": 0.1}, {"_step": 10, "train_loss": 4.5, "lr": None, "text": "x"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n\n" for line in lines))
    (tmp_path / "a.csv").write_text("_step,train_loss,lr,text\n0,5.5,0.1,\n10,4.5,,x\n")
    expected = [(0, {"train/loss": 5.5, "lr": 0.1}), (10, {"train/loss": 4.5})]
    assert list(read_points(tmp_path / "a.jsonl")) == list(read_points(tmp_path / "a.csv")) == expected


def test_named_columns_win_and_a_second_loss_is_not_taken_for_the_first(tmp_path):
    (tmp_path / "a.csv").write_text("step,update,loss,ce\n4,7,9.0,3.0\n")
    assert list(read_points(tmp_path / "a.csv", "update", "ce")) == [(7, {"step": 4.0, "loss": 9.0, "train/loss": 3.0})]


def test_a_loss_that_is_no_number_is_left_out(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"step": 1, "loss": NaN}\n'.replace("NaN", '"nan"') + '{"step": 2, "loss": 2}\n')
    assert list(read_points(tmp_path / "a.jsonl")) == [(2, {"train/loss": 2.0})]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.csv", "", "has no lines"),
        ("head.csv", "step,loss\n", "has no lines"),
        ("none.jsonl", '{"epoch": 1, "loss": 2}\n', "line 1: it has none of the columns step"),
        ("half.jsonl", '{"step": 1.5, "loss": 2}\n', "line 1: step is 1.5, which is not a step"),
        ("broken.jsonl", '{"step": 1, "loss": 2}\n{"step": 2, "lo', "line 2: not JSON"),
        ("other.csv", "step,perplexity\n1,20\n", "no line has one of the columns"),
        ("huge.jsonl", f'{{"step": {10**19}, "loss": 2}}\n', "which is not a step"),
        ("long.csv", "step,loss\n1," + "9" * 200_000, "is not a valid CSV in UTF-8: field larger"),
    ],
)
def test_an_error_names_file_line_and_remedy(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=said) as caught:
        list(read_points(tmp_path / name))
    assert str(caught.value).startswith(str(tmp_path / name))
