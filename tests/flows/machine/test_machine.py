"""Settings of the machine that are wrong, or contradict each other, are refused in plain sentences."""

import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.training.run.heartbeat import Limits
from gristmill.training.run.launch import ALONE, Nodes


def test_a_mistyped_address_of_a_home_is_no_folder(monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", "s3:/bucket/home")
    with pytest.raises(ValueError, match="has one slash after the colon; write s3://"):
        MachineSettings()


def test_nodes_need_a_number_and_a_rendezvous(monkeypatch):
    assert MachineSettings().nodes == ALONE
    assert MachineSettings().training_limits == Limits()
    monkeypatch.setenv("GRISTMILL_TRAINING_NODES", "2")
    for address in ("", "10.0.0.1", "10.0.0.1:port"):
        monkeypatch.setenv("GRISTMILL_TRAINING_RENDEZVOUS", address)
        with pytest.raises(ValueError, match="is not a HOST:PORT"):
            MachineSettings()
    monkeypatch.setenv("GRISTMILL_TRAINING_RENDEZVOUS", "10.0.0.1:29500")
    monkeypatch.setenv("GRISTMILL_TRAINING_NODE", "1")
    monkeypatch.setenv("GRISTMILL_TRAINING_INTERFACE", "eth0")
    assert MachineSettings().nodes == Nodes(2, 1, "10.0.0.1:29500", "eth0")
    monkeypatch.setenv("GRISTMILL_TRAINING_NODE", "2")
    with pytest.raises(ValueError, match="TRAINING_NODE 2 is not below GRISTMILL_TRAINING_NODES 2"):
        MachineSettings()


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        (
            "EXECUTOR",
            "dsk",
            "is 'dsk'; did you mean `dask`? give one of serial, threads, local, dask, kubernetes, slurm",
        ),
        ("LOG_FORMAT", "xml", "is 'xml'; give one of text, json"),
        ("WORKERS", "many", "is 'many'; give a whole number"),
        ("MEMORY", "-1", "is '-1'; give a number of at least 0"),
        ("REMOTE_IO__PER_HOST", "x", "is 'x'; give a whole number"),
        ("REMOTE_IO__PRIVATE_REDIRECTS", "maybe", "is 'maybe'; give true or false"),
        ("REMOTE_IO__PER_HOTS", "3", "is not a setting; did you mean `per_host`?"),
        ("REMOTE_IO", "{", "is not JSON: set variables GRISTMILL_REMOTE_IO__... instead"),
    ],
)
def test_a_wrong_value_is_a_sentence(monkeypatch, variable, value, sentence):
    monkeypatch.setenv(f"GRISTMILL_{variable}", value)
    with pytest.raises(ValueError) as raised:
        MachineSettings()
    assert str(raised.value) == f"GRISTMILL_{variable} {sentence}"


def test_a_value_out_of_bounds_names_its_setting(monkeypatch):
    monkeypatch.setenv("GRISTMILL_REMOTE_IO__PER_HOST", "0")
    with pytest.raises(ValueError, match="^GRISTMILL_REMOTE_IO: per_host is 0: give a number above 0$"):
        MachineSettings()


def test_python_users_read_the_names_that_they_wrote(monkeypatch):
    monkeypatch.setenv("GRISTMILL_WORKERS", "many")
    with pytest.raises(ValueError) as raised:
        MachineSettings(executor="dsk", hme="x", remote_io={"per_host": "q"})
    assert str(raised.value).splitlines() == [
        "executor is 'dsk'; did you mean `dask`? give one of serial, threads, local, dask, kubernetes, slurm",
        "GRISTMILL_WORKERS is 'many'; give a whole number",
        "remote_io.per_host is 'q'; give a whole number",
        "hme is not a setting; did you mean `home`?",
    ]
