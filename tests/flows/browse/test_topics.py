"""The map is the principal components of stored vectors, and nothing of a document is markup there."""

import json
import re

import numpy as np
import pytest
from lxml import html
from sklearn.decomposition import PCA

from gristmill.flows.explore.browse.opened import Opened
from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.explore.browse.topics import components, topic_map, vectors
from gristmill.storage import parquet
from gristmill.tasks.models.embedders import vectors_of
from tests.flows.browse.hostile import HOSTILE, finish
from tests.tasks.models.embedding.test_static_model import write

pytestmark = pytest.mark.extended

TOPICS = ("river wheel mill", "grain flour stone")


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> Opened:
    folder = tmp_path_factory.mktemp("topics")
    write(folder / "model")
    evil = list(HOSTILE.values())
    lines = [
        json.dumps({"id": f"{n}", "url": f"https://a.example/{n}/{evil[n % len(evil)][:30]}", "text": text})
        for n in range(120)
        for text in (f"{TOPICS[n % 2]} the a of" + " grinding" * (n % 5),)
    ]
    step = {"step": "embedding", "kind": "static", "model": str(folder / "model")}
    return finish(folder, lines, "topics", [step])


def test_points_are_at_the_principal_components_of_all_vectors(opened):
    stage = vectors(opened)
    assert stage is not None
    found = topic_map(opened, stage, 1)
    assert found is not None and found.of == len(found.points) == 120
    every = {}
    for shard in range(3):
        table = parquet.read_table(stage.part(shard), ["id", "vector"])
        every |= dict(zip(table["id"].to_pylist(), vectors_of(table).astype(float), strict=True))
    truth = PCA(2).fit(np.array([every[one.id] for one in found.points]))
    places = truth.transform(np.array([every[one.id] for one in found.points]))
    assert found.shown == pytest.approx(truth.explained_variance_ratio_, rel=1e-6)
    for at, axis in enumerate(("x", "y")):
        ours = np.array([getattr(one, axis) for one in found.points])
        assert (ours.min(), ours.max()) == (0, 1)
        assert abs(np.corrcoef(ours, places[:, at])[0, 1]) == pytest.approx(1, abs=1e-9)
        first, last = found.ends[at]
        assert max(getattr(one, axis) for one in first) <= np.sort(ours)[3] and getattr(last[0], axis) == 1
    assert found == topic_map(opened, stage, 1)


@pytest.mark.parametrize("given", [np.ones((5, 4)), np.eye(3), np.array([[0.0], [1.0], [5.0]]).repeat(2, 1)])
def test_vectors_without_two_directions_have_places_too(given):
    places, shown = components(given)
    assert np.isfinite(places).all() and places.min() >= 0 and places.max() <= 1 and 0 <= sum(shown) <= 1 + 1e-9


def test_the_page_links_every_point_and_has_no_markup_of_a_document(opened):
    shown = html.fromstring(Pages(opened).map({"seed": "1"}))
    points = shown.xpath("//*[local-name()='svg'][@class='map']/*[local-name()='a']")
    assert len(points) == 120 and all(each.get("href").startswith("document?shard=") for each in points)
    assert len(shown.xpath("//li/a")) == 16
    assert len(shown.xpath("//script")) == 1 and not shown.xpath("//img | //style | //iframe | //div[@id='x']")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x07\x1b]", Pages(opened).map({"seed": "1"}))
    assert "alert(2)" not in "".join(shown.xpath("//script/text()"))


def test_without_vectors_the_page_says_why(tmp_path):
    lines = [json.dumps({"id": f"{n}", "url": "", "text": "some words of a text"}) for n in range(3)]
    other = finish(tmp_path, lines, "none", [])
    shown = Pages(other).map({})
    assert "requires the step <code>embedding</code>" in shown and "The recipe does not have it." in shown
