"""`gristmill settings` lists what is read of the environment, and every command refuses what is not."""

import json
import re

import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.machine.variables import HIDDEN, OTHERS, check_names, variables
from tests.documented import ROOT

PASSWORD = "hunter2"
SET = {
    "GRISTMILL_WORKERS": "3",
    "gristmill_memory": "5",
    "GRISTMILL_STEPS": "one, two",
    "GRISTMILL_REDIS": f"redis://user:{PASSWORD}@host:6379/0",
    "GRISTMILL_MLFLOW_URI": f"http://user:{PASSWORD}@host:5000",
    "GRISTMILL_SECRET_MIRROR": PASSWORD,
    "GRISTMILL_WEBHOOK": f"https://hooks.example.org/{PASSWORD}",
    "GRISTMILL_REMOTE_IO__PER_HOST": "9",
}
FOLDERS = ("README.md", "CONTRIBUTING.md", "docs", "docker", "examples", "flows", "gristmill", "storage", "tasks")
FOLDERS += ("tests", "tools", "training")
# Names in the tree that are beginnings, or examples of wrong ones.
EXAMPLES = {"GRISTMILL_DASK_TLS", "GRISTMILL_TRAINING", "GRISTMILL_WORKES", "GRISTMILL_", "GRISTMILL"}


@pytest.fixture
def listed(monkeypatch) -> dict[str, dict]:
    for name, value in SET.items():
        monkeypatch.setenv(name, value)
    shown = CliRunner().invoke(app, ["settings", "--json"], catch_exceptions=False).stdout
    assert PASSWORD not in shown
    return {row["name"]: row for row in json.loads(shown)}


def test_every_setting_is_listed_with_value_origin_and_meaning(listed):
    groups = {"GRISTMILL_REMOTE_IO", "GRISTMILL_LM"}
    names = {f"GRISTMILL_{name.upper()}" for name in MachineSettings.model_fields} - groups
    names |= {f"GRISTMILL_REMOTE_IO__{name.upper()}" for name in vars(MachineSettings().remote_io)}
    names |= {f"GRISTMILL_LM__{name.upper()}" for name in vars(MachineSettings().lm)}
    assert names | {*OTHERS, "GRISTMILL_SECRET_MIRROR"} == {*listed}
    assert all(row["description"] for row in listed.values())
    values = {name: (row["value"], row["origin"]) for name, row in listed.items()}
    assert values["GRISTMILL_WORKERS"] == (3, "environment") and values["GRISTMILL_MEMORY"] == (5, "environment")
    assert values["GRISTMILL_STEPS"] == ("one,two", "environment")
    assert values["GRISTMILL_EXECUTOR"] == ("local", "default")
    assert values["GRISTMILL_REMOTE_IO__PER_HOST"] == (9, "environment")
    assert values["GRISTMILL_REMOTE_IO__GAP_BYTES"] == (1 << 20, "default")


def test_secrets_are_not_shown(listed, monkeypatch):
    assert listed["GRISTMILL_REDIS"]["value"] == "redis://host:6379/0"
    assert listed["GRISTMILL_MLFLOW_URI"]["value"] == "http://host:5000"
    assert listed["GRISTMILL_SECRET_MIRROR"]["value"] == listed["GRISTMILL_WEBHOOK"]["value"] == HIDDEN
    secret = {name for name, field in MachineSettings.model_fields.items() if field.annotation is SecretStr}
    assert secret == {"redis"}
    shown = CliRunner().invoke(app, ["settings"], catch_exceptions=False).stdout
    assert PASSWORD not in shown and "GRISTMILL_SECRET_MIRROR" in shown


def test_one_object_for_all_remote_settings_is_their_origin(monkeypatch):
    monkeypatch.setenv("GRISTMILL_REMOTE_IO", '{"per_host": 2}')
    rows = {row.name: row for row in variables({"GRISTMILL_REMOTE_IO": ""})}
    assert rows["GRISTMILL_REMOTE_IO__PER_HOST"].value == 2
    assert rows["GRISTMILL_REMOTE_IO__PER_HOST"].origin == "GRISTMILL_REMOTE_IO"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("GRISTMILL_WORKES", ". Did you mean GRISTMILL_WORKERS?"),
        ("GRISTMILL_REMOTE_IO__PER_HOTS", ". Did you mean GRISTMILL_REMOTE_IO__PER_HOST?"),
        ("gristmill_hme", ". Did you mean GRISTMILL_HOME?"),
        ("GRISTMILL_MLFLOW_PROT", ". Did you mean GRISTMILL_MLFLOW_PORT?"),
        ("GRISTMILL_SECRET_", ". Did you mean GRISTMILL_SECRET_*?"),
        ("GRISTMILL_X", "."),
    ],
)
def test_a_variable_that_nothing_reads_is_refused(name, near):
    with pytest.raises(ValueError) as raised:
        check_names({name: "1"})
    assert str(raised.value) == f"unknown setting: {name}{near} List all settings with `gristmill settings`"


def test_every_command_refuses_it_and_help_does_not(monkeypatch):
    monkeypatch.setenv("GRISTMILL_WORKES", "3")
    for words in (["settings"], ["recipe", "rules"], ["home", "status"], ["rules"], ["check", "demo"]):
        assert "unknown setting: GRISTMILL_WORKES" in str(CliRunner().invoke(app, words).exception), words
    for words in (["--help"], ["check", "--help"], ["home", "--help"], ["--version"]):
        assert CliRunner().invoke(app, words).exit_code == 0


def test_what_others_write_is_let_through():
    services = {
        "GRISTMILL_SERVICE_HOST": "10.0.0.1",
        "GRISTMILL_PORT": "tcp://10.0.0.1:80",
        "GRISTMILL_TRAINING_PORT_29500_TCP": "tcp://10.0.0.1:29500",
        "GRISTMILL_TRAINING_PORT_29500_TCP_ADDR": "10.0.0.1",
        "GRISTMILL_A1B2_SCHEDULER_SERVICE_PORT_TCP_COMM": "8786",
    }
    check_names(services | {"_GRISTMILL_COMPLETE": "x", "OTHER": "x", "GRISTMILL_REMOTE_IO": "{}"})


def test_every_variable_that_the_tree_names_is_known():
    names = set()
    for folder in FOLDERS:
        for path in [ROOT / folder] if (ROOT / folder).is_file() else (ROOT / folder).rglob("*"):
            if (
                path.is_file()
                and path.suffix in {".md", ".py", ".yaml", ".sh", ".sbatch", ""}
                and path.name != "test_settings.py"
            ):
                names |= {*re.findall(r"\bGRISTMILL_[A-Z0-9_]*[A-Z0-9]\b", path.read_text(errors="replace"))}
    assert len(names) > 40
    check_names(dict.fromkeys(names - EXAMPLES, ""))
