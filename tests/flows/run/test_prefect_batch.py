"""Several stages at the same time: how many, on which slots, and what ends them."""

import os
import signal
import threading
import time
from functools import partial

import pytest

from gristmill.flows.run.runner import EndedError, build_at_once

LIMIT = 30  # seconds after which a test that waits for ever is given up


def spec(number: int, slot: int) -> tuple[int, int]:
    return number, slot


def specs(count: int) -> list:
    return [partial(spec, number) for number in range(count)]


def wait_for(check, condition=lambda: False) -> None:
    """Until the condition holds; `check` may raise."""
    until = time.monotonic() + LIMIT
    while not condition():
        check()
        assert time.monotonic() < until, "nothing has ended this"
        time.sleep(0.01)


def test_so_many_at_once_each_on_a_slot_of_its_own():
    lock, running, most = threading.Lock(), set(), []

    def make(given, check):
        number, slot = given
        with lock:
            assert slot not in running
            running.add(slot)
            most.append(len(running))
        if number < 3:  # the first three meet, so three at once are seen
            wait_for(check, lambda: max(most) == 3)
        with lock:
            running.remove(slot)
        return number

    assert build_at_once(make, specs(12), 3) == list(range(12))
    assert max(most) == 3


def test_an_error_ends_the_others_and_what_waits_does_not_begin():
    begun, ended = [], []

    def make(given, check):
        begun.append(given[0])
        wait_for(check, lambda: len(begun) == 3)
        if given[0] == 1:
            raise ValueError("the loss is not finite")
        try:
            wait_for(check)
        except EndedError as error:
            ended.append(str(error))
            raise

    with pytest.raises(ValueError, match="the loss is not finite"):
        build_at_once(make, specs(9), 3)
    assert sorted(begun) == [0, 1, 2]
    sentence = "ended, because a stage that was made at the same time failed: the loss is not finite"
    assert ended == [sentence, sentence]


def test_ctrl_c_ends_all():
    begun, ended = [], []

    def make(given, check):
        begun.append(given[0])
        if given[0] == 0:
            wait_for(check, lambda: len(begun) == 2)
            os.kill(os.getpid(), signal.SIGINT)
        try:
            wait_for(check)
        except KeyboardInterrupt:
            ended.append(given[0])
            raise

    with pytest.raises(KeyboardInterrupt):
        build_at_once(make, specs(5), 2)
    assert sorted(begun) == sorted(ended) == [0, 1]
