"""Pages on which people judge learned filters, and what their votes say of these."""

import base64
import hashlib
import html
import json
import re
from types import SimpleNamespace

import lxml.html
import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import brentq

from flows.curation import Passed
from flows.machine import MachineSettings
from flows.reports import audit
from flows.reports.audit.agreement import agreement, share
from flows.stages.learned_filter import learned_filter
from storage.home import Home
from tasks.documents.decisions import distances
from tasks.documents.step import Bound
from tasks.models.quality import Quality
from tests.corpora import Texts, context, ledger, read
from tests.flows.test_learned_filters import GOOD, SMALL, WEB, by_id

HOSTILE = "</div><script>alert(1)</script><img src=https://mill.example/x.png> & \0 \u202e "


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A filter on documents in three shards, of which every text begins with markup."""
    home = str(tmp_path_factory.mktemp("home"))
    ids = list(WEB)
    web = [[{"id": i, "text": HOSTILE + WEB[i]} for i in ids[at::3]] for at in range(3)]
    corpus = Texts([*web, [{"id": i, "text": text} for i, text in GOOD.items()]], ["web"] * 3 + ["good"])
    step = Quality(reference=("good",), **SMALL["quality"])
    recipe = SimpleNamespace(**vars(corpus.recipe), name="small", steps=(step,), seed=1, heldout_fraction=0.0)
    arriving = corpus.corpus(home)
    return home, step, Passed((step,), arriving, learned_filter(context(home), recipe, arriving, step))


def truth(passed: Passed) -> tuple[dict[str, float], set[str]]:
    """The scores, and the documents that were dropped."""
    scores = {i: s for i, s in by_id(read(passed.left.measured[-1], [0, 1, 2]), "quality").items() if s is not None}
    return scores, {*ledger(passed.left.kept, [0, 1, 2])["id"].to_pylist()}


def test_the_documents_are_those_nearest_the_cut_of_either_side_shuffled(audited):
    _, step, passed = audited
    scores, dropped = truth(passed)
    found = audit.near(passed, step, 7)
    for kept in (True, False):
        side = [i for i in scores if (i not in dropped) == kept]
        best = sorted(abs(scores[i] - 0.5) for i in side)[:7]
        assert sorted(abs(scores[one.id] - 0.5) for one in found if one.kept == kept) == pytest.approx(best)
    assert [one.id for one in found] != sorted((one.id for one in found), key=scores.__getitem__)
    turns = sum(a.kept != b.kept for a, b in zip(found, found[1:], strict=False))
    assert turns > 3 and audit.near(passed, step, 7) == found
    assert len(audit.near(passed, step, 10**6)) == len(scores)


def test_the_page_has_texts_alone_and_runs_nothing_of_theirs(audited):
    _, step, passed = audited
    documents = audit.texts(passed, audit.near(passed, step))
    page = audit.page(SimpleNamespace(name="small"), "quality", "quality_cut-1", documents)
    assert page == audit.page(SimpleNamespace(name="small"), "quality", "quality_cut-1", documents)
    tree = lxml.html.document_fromstring(page)
    assert [article.get("data-id") for article in tree.iter("article")] == [one.id for one in documents]
    assert not [*tree.iter("img", "link", "iframe")] and len([*tree.iter("script")]) == 1
    shown = [div.text_content() for div in tree.find_class("text")]
    assert shown == [one.text.replace("\0", "\u2400") for one in documents] and shown[0].startswith("</div><script>")
    # nothing loads, and no script but the page's own may run
    assert not re.search(r"""(src|href)\s*=\s*["']""", page)
    [script] = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = tree.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert f"script-src 'sha256-{digest}';" in policy and policy.startswith("default-src 'none'")
    # blind: neither the score nor the side of a document is on the page
    scores, _ = truth(passed)
    assert not [one.id for one in documents if f"{scores[one.id]:.3}" in html.unescape(page)]


def test_votes_are_compared_with_the_filter(audited, tmp_path):
    home, step, passed = audited
    cut = passed.left.kept
    _, dropped = truth(passed)
    documents = audit.near(passed, step)
    votes = {one.id: "drop" if one.id in dropped else "keep" for one in documents}
    kept = [one.id for one in documents if one.kept]
    votes |= {kept[0]: "drop", kept[1]: "drop", kept[2]: "unsure"}
    path = tmp_path / "votes.json"

    def save(**given) -> str:
        path.write_text(json.dumps({"recipe": "small", "stage": f"{cut.name}-{cut.key}", "votes": votes} | given))
        return str(path)

    found = agreement(save(), MachineSettings(home=home))
    n = len(votes)
    assert (found.all.agreeing, found.all.votes, found.unsure) == (n - 3, n - 1, 1)
    assert (found.kept.agreeing, found.kept.votes) == (len(kept) - 3, len(kept) - 1)
    assert found.dropped.agreeing == found.dropped.votes == n - len(kept)
    assert Home(home).stages(f"{cut.name}-{cut.key}")
    with pytest.raises(ValueError, match="has a vote on nobody, which quality_cut-.* did not judge"):
        agreement(save(votes={"nobody": "keep"}), MachineSettings(home=home))
    with pytest.raises(ValueError, match="has no votes as a page"):
        agreement(save(votes={"web1": "perhaps"}), MachineSettings(home=home))
    with pytest.raises(LookupError, match="name by GRISTMILL_HOME"):
        agreement(save(stage="quality_cut-0"), MachineSettings(home=home))


def test_the_interval_is_where_the_score_test_ends():
    """Wilson's: the shares p at which (k/n - p)^2 = z^2 p (1 - p) / n."""
    for k, n in [(31, 39), (0, 20), (20, 20), (1, 2)]:
        found = share(k, n)
        at = k / n

        def test(p: float, at: float = at, n: int = n) -> float:
            return (at - p) ** 2 - 1.959963984540054**2 * p * (1 - p) / n

        low = 0.0 if k == 0 else brentq(test, 1e-12, at - 1e-9 if k == n else at)
        high = 1.0 if k == n else brentq(test, at + 1e-9 if k == 0 else at, 1 - 1e-12)
        assert (found.low, found.high) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))
    assert (share(0, 0).low, share(0, 0).high) == (0, 1)


def test_distances_are_to_the_nearest_end_that_binds():
    table = pa.table({"id": list("abcd"), "x": [90.0, 300.0, None, 150.0], "language": ["en", "en", "en", "de"]})
    bounds = [
        Bound("low", "x", low=100, keeps_null=True),
        Bound("high", "x", high=200, languages={"de": (None, 160)}, keeps_null=True),
    ]
    assert distances(table, "s", bounds) == pytest.approx([0.1, 0.5, np.inf, 10 / 160])
    assert np.isinf(distances(table, "s", [])).all()
