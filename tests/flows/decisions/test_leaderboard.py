"""Decisions of a home side by side, and documents that only one recipe has."""

import pytest

from gristmill.flows.decisions.leaderboard import standings
from gristmill.storage import checked_json
from tests.flows.decisions import CONDITIONS, report


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    for number, effects in enumerate([{"without minhash": -0.1, "without c4": 0.1}, {"other": 0.05, "same": 0.0}]):
        made = report(effects, seed=number + 1)
        path = str(folder / "decisions" / f"base-{number}.json")
        checked_json.write(path, made.as_json())
    old = {name: value for name, value in made.as_json().items() if name != "conditions"}
    checked_json.write(str(folder / "decisions" / "old.json"), old)
    return str(folder)


def test_verdicts_come_first_by_what_they_gain(home):
    found = standings(home)
    assert [one.candidate for one in found[:3]] == ["without c4", "other", "without minhash"]
    assert found[-1].candidate == "same" and len(found) == 4, "a decision that names no judge is left out"
    best = found[0]
    assert (best.judge, best.parameters, best.tokens) == (CONDITIONS.judge, CONDITIONS.parameters, CONDITIONS.tokens)
    assert best.low < 0.1 < best.high and best.documents == 101 and best.cpu_hours == pytest.approx(-11 / 3600)


def test_by_cost_what_saves_most_comes_first(home):
    hours = [one.cpu_hours for one in standings(home, by_cost=True)]
    assert hours == sorted(hours)
    assert standings(home, base="nothing") == []
