"""Ten things that a reader wants of a corpus, in Chromium: each from the funnel by at most three clicks. With
GRISTMILL_TEST_PICTURES, a folder, it leaves a picture of where each leads."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gristmill.flows.explore.browse import draws
from gristmill.flows.explore.browse.votes import vote_on
from tests.flows.browse.chromium import PROGRAM, Tab, chromium
from tests.flows.browse.hostile import key

pytestmark = [pytest.mark.slow, pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")]
RULE = ".funnel a[href*='rule=words']"
STEP = ".funnel a[href^='step?'][href*='gopher_quality']"


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with chromium() as made:
        made.screen(1200)
        yield made


def see_what_a_rule_dropped(tab: Tab, opened) -> None:
    tab.click(RULE)
    assert tab.value("document.querySelectorAll('article').length") == 10
    assert tab.value("document.querySelector('article dl').textContent").count("threshold") == 1


def draw_others(tab: Tab, opened) -> None:
    tab.click(RULE)
    first = tab.value("document.querySelector('article').textContent")
    tab.click("a[rel=next]")
    assert tab.value("document.querySelector('article').textContent") != first


def see_why_one_document_was_dropped(tab: Tab, opened) -> None:
    tab.click(RULE)
    tab.click("article h3 a")
    assert "dropped by" in tab.value("document.querySelector('ol').textContent")


def vote_on_a_drop(tab: Tab, opened) -> None:
    tab.click(RULE)
    tab.click("article .vote button[value=keep]")
    tab.wait("document.querySelector('article .vote output').textContent === 'saved'")
    one = draws.dropped(opened, opened.step(key(opened)), "words", 10, 1)[0]
    assert vote_on(opened, opened.step(key(opened)).stage.label, one.dropped.row["id"]) == "keep"


def try_another_threshold(tab: Tab, opened) -> None:
    tab.click(STEP)
    tab.click("form.control:has(input[value=min_words]) input[type=range]", at=0.7)
    tab.wait("!!document.querySelector('#replay h2')")
    tab.settle()
    said = tab.value("document.querySelector('form.control:has(input[value=min_words]) output').textContent")
    assert "enter" in said and "leave" in said


def see_which_documents_would_leave(tab: Tab, opened) -> None:
    try_another_threshold(tab, opened)
    tab.click("form.control:has(input[value=min_words]) output a")
    assert tab.value("document.querySelectorAll('#replay article').length") > 0
    assert tab.value("document.querySelector('#replay').getBoundingClientRect().top < innerHeight")


def read_what_is_kept(tab: Tab, opened) -> None:
    tab.click("nav a[href=documents]")
    assert tab.value("document.querySelectorAll('article').length") == 10


def choose_documents_by_an_expression(tab: Tab, opened) -> None:
    tab.click("nav a[href=documents]")
    tab.type("#where", "characters > 200")
    tab.click("form.control button")
    assert "match" in tab.value("document.querySelector('main').textContent")


def find_a_document_by_its_id(tab: Tab, opened) -> None:
    tab.type("#find", draws.kept(opened, 1, 1)[0].id[:12])
    tab.click("header button")
    assert "Kept." in tab.value("document.querySelector('main').textContent")


def see_where_a_score_stands_among_all(tab: Tab, opened) -> None:
    tab.click("nav a[href=documents]")
    tab.click("article h3 a")
    assert tab.value("document.querySelectorAll('svg.strip').length") > 5


TASKS: list[Callable] = [
    see_what_a_rule_dropped, draw_others, see_why_one_document_was_dropped, vote_on_a_drop, try_another_threshold,
    see_which_documents_would_leave, read_what_is_kept, choose_documents_by_an_expression, find_a_document_by_its_id,
    see_where_a_score_stands_among_all,
]  # fmt: skip


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_at_most_three_clicks_from_the_funnel(tab, server, opened, task):
    tab.open(server.address)
    tab.clicks, tab.said = 0, []
    task(tab, opened)
    print(f"{task.__name__}: {tab.clicks} clicks")
    if folder := os.environ.get("GRISTMILL_TEST_PICTURES"):
        tab.picture(Path(folder) / f"{task.__name__}.png")
    assert 0 < tab.clicks <= 3
    assert not [each for each in tab.said if "xception" in each or "violates" in each]


def test_votes_are_given_and_taken_back_by_keys(tab, server, opened):
    tab.open(f"{server.address}documents?seed=5")
    two = draws.kept(opened, 10, 5)[:2]
    before = tab.clicks
    tab.press("j")
    tab.press("2")
    tab.press("j")
    tab.press("3")
    tab.wait(
        "[...document.querySelectorAll('.vote output')].filter((each) => each.textContent === 'saved').length === 2"
    )
    assert [vote_on(opened, opened.kept.label, one.id) for one in two] == ["drop", "unsure"]
    tab.press("3")
    tab.wait("[...document.querySelectorAll('.vote output')].some((each) => each.textContent === 'removed')")
    assert [vote_on(opened, opened.kept.label, one.id) for one in two] == ["drop", ""] and tab.clicks == before


def test_another_site_can_neither_read_nor_vote(tab, server, opened):
    """A page of another origin that knows the address by chance, and one that only guesses it."""
    one = draws.kept(opened, 10, 6)[0]
    tab.open("data:text/html,<title>elsewhere</title>")
    for address in (server.address, f"http://{server.hosts[0]}/{'A' * 32}/", f"http://{server.hosts[0]}/"):
        vote = f"{address}vote?stage={opened.kept.label}&shard={one.shard}&id={one.id}&vote=drop"
        for options in ("", ", {mode: 'no-cors'}", ", {method: 'POST', mode: 'no-cors'}"):
            read = f"fetch('{vote}'{options}).then((answer) => answer.text()).catch(() => 'refused')"
            assert tab.value(read) in ("refused", ""), (address, options)
    assert vote_on(opened, opened.kept.label, one.id) == ""


@pytest.mark.parametrize("width", [400, 760, 1200])
def test_no_page_is_wider_than_the_screen_and_all_can_be_reached_by_keys(tab, server, opened, width):
    step = opened.step(key(opened)).key
    for name in (
        "",
        f"step?step={step}",
        f"rule?step={step}&rule=words",
        "documents",
        "phrase",
        "words",
        "map",
        "find?id=0",
    ):
        for scheme in ("light", "dark"):
            tab.screen(width, scheme=scheme)
            tab.open(server.address + name)
            assert tab.value("document.documentElement.scrollWidth") <= width, (name, width)
            folder = os.environ.get("GRISTMILL_TEST_PICTURES")
            if folder:
                tab.picture(Path(folder) / f"{name.partition('?')[0] or 'funnel'}-{width}-{scheme}.png")
    tab.open(server.address)
    links = tab.value("document.querySelectorAll('a, button, input').length")
    seen = set()
    for _ in range(links + 5):
        tab._call("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
        seen.add(tab.value("[...document.querySelectorAll('a, button, input')].indexOf(document.activeElement)"))
    assert len(seen - {-1}) == links
    tab.screen(1200)
