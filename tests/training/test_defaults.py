"""What a run does when its recipe says nothing of the model and the training."""

import pytest

from gristmill.training.config import OWN_RATES, TrainingConfig
from gristmill.training.decoder import Decoder
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.loop import train
from gristmill.training.step.optimizer import learning_rate, optimizers


def test_each_optimizer_has_a_rate_of_its_own():
    muon, adamw, given = TrainingConfig(), TrainingConfig(optimizer="adamw"), TrainingConfig(learning_rate=0.02)
    assert (muon.rates, adamw.rates) == (OWN_RATES["muon"], OWN_RATES["adamw"])
    assert given.rates == OWN_RATES["muon"]._replace(matrices=0.02)
    for training in (muon, adamw, given):
        peak = max(learning_rate(step, training.steps, training) for step in range(1, training.steps + 1))
        assert peak == training.rates.matrices
    assert optimizers(Decoder(ModelConfig(), 64), adamw).muon is None
    assert TrainingConfig(embedding_rate=2).rates == OWN_RATES["muon"]._replace(embedding=2)


@pytest.mark.slow
def test_the_defaults_learn_from_what_the_first_steps_see(make_run, tmp_path):
    unset = {"optimizer": "muon", "learning_rate": None, "steps": 60}
    by_default = train(make_run(tmp_path / "default", {"qk_norm": True}, unset))
    slow = {**unset, "optimizer": "adamw"}
    assert by_default["heldout/loss"] < train(make_run(tmp_path / "adamw", {"qk_norm": False}, slow))["heldout/loss"]
    assert ModelConfig().qk_norm and TrainingConfig().optimizer == "muon" and TrainingConfig().learning_rate is None
