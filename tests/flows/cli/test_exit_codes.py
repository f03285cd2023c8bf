"""The exit codes of the command line, by which a scheduler tells what may be run again."""

import sys

import pytest

from gristmill.flows import cli
from gristmill.flows.stages.model import InterruptedTrainingError, check_ended_well
from gristmill.training.run.launch import FAILURE, HUNG, KILLED, LOST, STOPPED


@pytest.mark.parametrize(
    ("code", "failure", "expected"),
    [
        (STOPPED, "", 75),
        (HUNG, "training hangs", 75),
        (LOST, "the other machines did not join", 75),
        (KILLED, "a process was killed", 75),
        (-9, "a process was killed", 75),
        (1, "rank 1: ValueError: wrong", 1),
        (1, "", 1),
    ],
)
def test_what_the_same_command_may_resume_has_its_own_code(code, failure, expected, tmp_path, monkeypatch, capsys):
    log = tmp_path / "training.log"
    log.write_text("the end\n")
    if failure:
        (tmp_path / FAILURE).write_text(f"{failure}\n")

    def run() -> None:
        check_ended_well(code, tmp_path, log)

    monkeypatch.setattr(cli, "app", run)
    monkeypatch.setattr(sys, "argv", ["gristmill"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == expected
    assert failure in capsys.readouterr().err
    with pytest.raises(RuntimeError) as raised:
        run()
    assert isinstance(raised.value, InterruptedTrainingError) == (expected == 75)


def test_a_training_that_ended_well_is_no_error(tmp_path):
    check_ended_well(0, tmp_path, tmp_path / "training.log")
