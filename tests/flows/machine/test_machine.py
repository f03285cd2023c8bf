"""Settings of the machine that contradict each other are refused."""

import pytest
from pydantic import ValidationError

from gristmill.flows.machine.settings import MachineSettings
from gristmill.training.run.launch import ALONE, Nodes


def test_nodes_need_a_number_and_a_rendezvous(monkeypatch):
    assert MachineSettings().nodes == ALONE
    monkeypatch.setenv("GRISTMILL_TRAINING_NODES", "2")
    for address in ("", "10.0.0.1", "10.0.0.1:port"):
        monkeypatch.setenv("GRISTMILL_TRAINING_RENDEZVOUS", address)
        with pytest.raises(ValidationError, match="is no HOST:PORT"):
            MachineSettings()
    monkeypatch.setenv("GRISTMILL_TRAINING_RENDEZVOUS", "10.0.0.1:29500")
    monkeypatch.setenv("GRISTMILL_TRAINING_NODE", "1")
    monkeypatch.setenv("GRISTMILL_TRAINING_INTERFACE", "eth0")
    assert MachineSettings().nodes == Nodes(2, 1, "10.0.0.1:29500", "eth0")
    monkeypatch.setenv("GRISTMILL_TRAINING_NODE", "2")
    with pytest.raises(ValidationError, match="TRAINING_NODE 2 is not below GRISTMILL_TRAINING_NODES 2"):
        MachineSettings()
