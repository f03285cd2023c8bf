"""Python's garbage collector during training."""

import gc

import pytest

from gristmill.training.run import loop


@pytest.mark.extended
def test_python_collects_at_the_same_steps_only(make_run, tmp_path, monkeypatch):
    seen: list = []
    take = loop.Learner.take

    def taking(learner, step, *batch):
        seen.append(step)
        return take(learner, step, *batch)

    def collected(phase: str, info: dict) -> None:
        if phase == "start":
            seen.append(f"generation {info['generation']}")

    monkeypatch.setattr(loop.Learner, "take", taking)
    monkeypatch.setattr(loop, "COLLECT_EVERY", 3)
    monkeypatch.setattr(loop, "COLLECT_ALL_EVERY", 6)
    threshold = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(50)  # it would collect many times in a step
    try:
        loop.train(make_run(tmp_path, training={"steps": 7, "warmup_steps": 1, "checkpoint_every": 100}))
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*threshold)
    assert gc.isenabled()
    one, whole = "generation 1", "generation 2"
    assert seen[seen.index(1) : seen.index(7) + 1] == [1, 2, 3, one, 4, 5, 6, whole, 7]
    assert len([each for each in seen if isinstance(each, str)]) > 4, "the threshold is not one that is reached"
