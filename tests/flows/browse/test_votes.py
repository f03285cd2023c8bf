"""Votes on documents: who may send them, where they are kept, and the precision that `audit` says from them."""

import itertools
import json
from functools import cache
from math import comb
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from lxml import html
from scipy.stats import binomtest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.curation import curate
from gristmill.flows.explore.browse import draws
from gristmill.flows.explore.browse.opened import open_recipe
from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.explore.browse.votes import cast, precision, vote_on, weighted
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.audit import share
from gristmill.storage import files
from tests.corpora import context
from tests.flows.browse.hostile import ask, key, page, recorded

pytestmark = pytest.mark.extended


def post(server, query: dict, **headers: str) -> int:
    origin = {"Origin": f"http://{server.hosts[0]}"}
    return ask(server, f"/{server.token}/vote?{urlencode(query)}", "POST", **origin | headers)[0]


def one_dropped(opened, at: int = 0) -> dict:
    found = draws.dropped(opened, opened.step(key(opened)), "words", 10, 1)[at]
    stage = opened.step(key(opened)).stage.label
    return {"stage": stage, "shard": found.shard, "id": found.dropped.row["id"], "drawn": 1}


def test_a_vote_is_kept_shown_changed_and_taken_back(server, opened):
    given = one_dropped(opened)
    assert post(server, given | {"vote": "keep"}) == 200
    assert vote_on(open_recipe(opened.given, opened.settings), given["stage"], given["id"]) == "keep"
    for name, query in (("rule", {"step": key(opened), "rule": "words"}), ("document", given)):
        shown = html.fromstring(page(server, name, **query))
        pressed = shown.xpath("//button[@aria-pressed='true']")
        assert [each.get("value") for each in pressed] == ["keep"], name
        assert len(shown.xpath("//button[@aria-pressed]")) == 3 * len(shown.xpath("//div[@class='vote']"))
    assert post(server, given | {"vote": "drop", "drawn": 0}) == 200
    [written] = Path(opened.settings.home, "votes", given["stage"]).glob("*.json")
    kept = json.loads(written.read_text())
    assert (kept["vote"], kept["drawn"], kept["step"], kept["rule"]) == ("drop", True, "gopher_quality", "words")
    other = one_dropped(opened, 1)
    assert post(server, other | {"vote": "keep"}) == 200
    [beside] = {*written.parent.glob("*.json")} - {written}
    beside.write_bytes(written.read_bytes())
    with pytest.raises(ValueError, match="has the name of another file: .*; remove it"):
        vote_on(opened, other["stage"], other["id"])
    beside.unlink()
    assert post(server, given | {"vote": ""}) == 200 and vote_on(opened, given["stage"], given["id"]) == ""
    assert not written.exists()


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1"},
     {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {"Sec_Fetch_Site": "none"},
     {"Host": "evil.example", "Origin": "http://evil.example"},
     {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}],
)  # fmt: skip
def test_no_page_of_elsewhere_can_vote(server, opened, headers):
    given = one_dropped(opened, 1)
    assert post(server, given | {"vote": "keep"}, **headers) == 403
    assert vote_on(opened, given["stage"], given["id"]) == ""


def test_a_vote_needs_the_token_its_origin_and_no_body(server, opened):
    given = one_dropped(opened, 1) | {"vote": "keep"}
    origin = f"http://{server.hosts[0]}"
    assert ask(server, f"/{server.token}/vote?{urlencode(given)}", "POST")[0] == 403
    wrong = server.token[:-1] + ("y" if server.token.endswith("x") else "x")
    assert ask(server, f"/{wrong}/vote?{urlencode(given)}", "POST", Origin=origin)[0] == 403
    assert ask(server, f"/{server.token}/documents", "POST", Origin=origin)[0] == 404
    assert post(server, given, Content_Length="7") == 413
    assert ask(server, f"/{server.token}/vote?{urlencode(given)}")[0] == 404  # a GET changes nothing
    assert vote_on(opened, given["stage"], given["id"]) == ""


@pytest.mark.parametrize(
    ("wrong", "status"),
    [({"vote": "maybe"}, 400), ({"id": "nobody"}, 404), ({"stage": "../../x"}, 404), ({"stage": "rules-0"}, 404),
     ({"shard": 99}, 404), ({"shard": "x"}, 400), ({"id": "../../../etc/passwd"}, 404)],
)  # fmt: skip
def test_a_vote_on_what_was_not_decided_is_refused(server, opened, wrong, status):
    before = files.size_of(opened.settings.home)
    assert post(server, one_dropped(opened, 2) | {"vote": "drop"} | wrong) == status
    assert files.size_of(opened.settings.home) == before


def test_the_precision_is_the_count_of_the_votes(opened, monkeypatch):
    step = opened.step(key(opened))
    truth = {}
    for rule in recorded(opened):
        for number, one in enumerate(draws.dropped(opened, step, rule, 6, 3)):
            vote = ("drop", "drop", "keep", "drop", "unsure", "drop")[number]
            cast(opened, step.stage.label, one.shard, one.dropped.row["id"], vote, True)
            truth.setdefault(rule, []).append(vote)
    sought = draws.dropped(opened, step, "words", 60, 4)
    taken = {one.dropped.row["id"] for one in draws.dropped(opened, step, "words", 6, 3)}
    other = next(one for one in sought if one.dropped.row["id"] not in taken)
    cast(opened, step.stage.label, other.shard, other.dropped.row["id"], "keep", False)
    for one, vote in zip(draws.kept(opened, 3, 1), ("keep", "keep", "drop"), strict=True):
        cast(opened, opened.kept.label, one.shard, one.id, vote, True)

    [found, kept] = precision(opened)
    assert (found.step, found.documents) == ("gopher_quality", sum(step.drops.values())) and kept.step == ""
    for one in found.rules:
        votes = truth.get(one.rule, [])
        assert one.share.votes == len(votes) - votes.count("unsure") and one.share.agreeing == votes.count("drop")
        assert one.unsure == votes.count("unsure") and one.sought == (one.rule == "words")
    by_hand = sum(step.drops[one.rule] * one.share.agreeing / one.share.votes for one in found.rules)
    assert found.precision == pytest.approx(by_hand / found.covered) and found.low < found.precision < found.high
    assert (kept.rules[0].share.agreeing, kept.rules[0].share.votes, kept.documents) == (
        2,
        3,
        sum(opened.kept_by_shard),
    )

    monkeypatch.setenv("GRISTMILL_HOME", opened.settings.home)
    said = CliRunner().invoke(app, ["explain", "audit", opened.given, "--precision", "--json"], catch_exceptions=False)
    given = json.loads(said.stdout)
    assert given[0]["precision"] == pytest.approx(found.precision) and len(given) == 2
    shown = CliRunner().invoke(app, ["explain", "audit", opened.given, "--precision"], catch_exceptions=False).stdout
    assert f"{found.precision:.0%} ({found.low:.0%} to {found.high:.0%})" in " ".join(shown.split())


def test_what_was_taken_down_has_no_vote(opened, tmp_path):
    given = one_dropped(opened, 3)
    listed = tmp_path / "gone.txt"
    listed.write_text(given["id"])
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps(json.loads(Path(opened.given).read_text()) | {"takedowns": [str(listed)]}))
    for _ in curate(context(opened.settings.home), load(str(recipe))):
        pass
    later = open_recipe(str(recipe), opened.settings)
    with pytest.raises(LookupError, match="Taken down"):
        Pages(later).vote({name: str(value) for name, value in given.items()} | {"vote": "keep"})


def test_one_group_has_the_interval_of_clopper_and_pearson():
    for agreeing, votes in ((0, 5), (3, 7), (7, 7)):
        truth = binomtest(agreeing, votes).proportion_ci(0.95, "exact")
        assert weighted([share(agreeing, votes, "exact")], [9])[1:] == pytest.approx((truth.low, truth.high))


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(0.9, 0.6, 0.2), (0.98, 0.95, 0.9), (0.5, 0.5, 0.5)])
def test_the_interval_over_rules_has_its_coverage(shares):
    """Exactly, over all outcomes of the votes, and not by the formula of the interval."""
    truth = float(np.average(shares, weights=SIZES))
    covered = 0.0
    for outcome, (low, high) in intervals().items():
        chance = float(np.prod([binomial(k, n, p) for k, n, p in zip(outcome, VOTES, shares, strict=True)]))
        covered += chance * (low <= truth <= high)
    assert 0.95 <= covered <= 1


SIZES, VOTES = (1000, 300, 50), (12, 8, 5)


@cache
def intervals() -> dict[tuple[int, ...], tuple[float, float]]:
    """Of every outcome of the votes."""
    found = {}
    for outcome in itertools.product(*(range(n + 1) for n in VOTES)):
        _, low, high = weighted([share(k, n, "exact") for k, n in zip(outcome, VOTES, strict=True)], SIZES)
        found[outcome] = (low, high)
    return found


def binomial(k: int, n: int, p: float) -> float:
    return comb(n, k) * p**k * (1 - p) ** (n - k)
