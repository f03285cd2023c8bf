"""Decisions of a home side by side, and documents that only one recipe has."""

from dataclasses import replace
from pathlib import Path

import pytest

from gristmill.flows.experiments.decisions.arm_data import only_in
from gristmill.flows.experiments.decisions.report import leaderboard
from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError
from tests.corpora import Texts
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
    found = leaderboard(home)
    assert [one.candidate for one in found[:3]] == ["without c4", "other", "without minhash"]
    assert found[-1].candidate == "same" and len(found) == 4, "a decision that names no judge is left out"
    best = found[0]
    assert (best.judge, best.parameters, best.tokens) == (CONDITIONS.judge, CONDITIONS.parameters, CONDITIONS.tokens)
    assert best.low < 0.1 < best.high and best.documents == 101 and best.cpu_hours == pytest.approx(-11 / 3600)


def test_a_home_may_be_in_an_object_store(home):
    url = "memory://leaderboard"
    for path in sorted(Path(home, "decisions").iterdir()):
        files.write_bytes(f"{url}/decisions/{path.name}", path.read_bytes())
    assert leaderboard(url) == [replace(one, file=one.file.replace(home, url)) for one in leaderboard(home)]


def test_a_decision_in_the_place_of_another_is_named(home, tmp_path):
    first, second = (Path(home, "decisions", f"base-{number}.json") for number in range(2))
    (tmp_path / "decisions").mkdir()
    (tmp_path / "decisions" / first.name).write_bytes(second.read_bytes())
    with pytest.raises(DamagedFileError, match=f"{first.name} is another file: it was written as {second.name}"):
        leaderboard(str(tmp_path))


def test_by_cost_what_saves_most_comes_first(home):
    hours = [one.cpu_hours for one in leaderboard(home, by_cost=True)]
    assert hours == sorted(hours)
    assert leaderboard(home, base="nothing") == []


def test_a_source_that_is_added_leaves_the_others_documents_what_both_have(tmp_path):
    web, books = ([{"id": f"{name}{i}", "text": f"text {i}"} for i in range(3)] for name in ("web", "books"))
    base = Texts([web], ["web"]).corpus(str(tmp_path), "base")
    more = Texts([books, web[1:]], ["books", "web"]).corpus(str(tmp_path), "more")
    assert [one.id for one in only_in(base, more)] == ["web0"]
    assert sorted(one.id for one in only_in(more, base)) == ["books0", "books1", "books2"]
