"""Thresholds of single languages: each has a field and a slider of its own, which replay it alone."""

import json

import pytest

from gristmill.flows.explore.browse.opened import Opened
from gristmill.flows.explore.browse.replay import thresholds
from gristmill.flows.reports.whatif import funnel, whatif
from tests.flows.browse.hostile import STEP, finish, key, page

TEXTS = {
    "en": "the old mill stands beside the river and every day the miller grinds the grain of all the farms around it",
    "de": "die alte Mühle steht am Fluss und jeden Tag mahlt der Müller das Korn der Höfe die um sie herum liegen",
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> Opened:
    lines = []
    for number in range(60):
        words = TEXTS["en" if number % 2 else "de"].split()
        text = " ".join((words * 3)[: 14 + number % 30])
        lines.append(json.dumps({"id": f"{number}", "url": f"https://a.example/{number}", "text": text}))
    rule = STEP | {"languages": {"de": {"min_words": 30}, "is": {"min_words": 5, "max_words": 9}}}
    return finish(
        tmp_path_factory.mktemp("languages"), lines, "languages", [{"step": "language", "keep": ["en", "de"]}, rule]
    )


def test_each_language_has_its_own_thresholds_behind_that_of_all(opened):
    found = {one.setting: one for one in thresholds(opened.recipe_steps["gopher_quality"])}
    names = [name for name in found if name.endswith("min_words")]
    assert names == ["min_words", "languages.de.min_words", "languages.is.min_words"]
    assert found["languages.de.min_words"].value == 30 and found["languages.is.max_words"].value == 9
    assert {found[name].rule for name in names} == {"words"}


@pytest.mark.parametrize("value", [15, 38, "null"])
def test_a_slider_of_a_language_is_whatif_of_its_setting(opened, server, value):
    setting = "languages.de.min_words"
    assert f'value="{setting}"' in page(server, "step", step=key(opened))
    given = None if value == "null" else value
    expected = funnel(whatif(opened.given, {f"gopher_quality.{setting}": given}, opened.settings))
    found = json.loads(page(server, "replay.json", step=key(opened), setting=setting, value=value))
    outs = [row["replayed"] and row["replayed"]["documents_out"] for row in found["rows"]]
    assert outs == [row.replayed and row.replayed.documents_out for row in expected]
    assert found["enter"] + found["leave"] > 0
