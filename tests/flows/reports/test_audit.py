"""Pages on which people judge learned filters, and what their votes say of these."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import lxml.html
import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import brentq
from scipy.stats import mannwhitneyu

from gristmill.flows.curation import Passed
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports import audit
from gristmill.flows.reports.audit import agreement, draw, share
from gristmill.flows.stages.learned_filters import learned_filter
from gristmill.flows.stages.signals import rules, signals
from gristmill.storage.home import Home
from gristmill.tasks.documents.decisions import distances
from gristmill.tasks.documents.step import Bound, Member
from gristmill.tasks.models.language import Language
from gristmill.tasks.models.mixed_languages import MixedLanguages
from gristmill.tasks.models.quality import Quality
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
    drawn = draw(passed, step, nearest=14, sampled=10)
    found = [one for one in drawn.documents if one.nearest]
    for name, size in drawn.sizes.items():
        side = [i for i in scores if (i in dropped) == (name == "dropped")]
        best = sorted(abs(scores[i] - 0.5) for i in side)[:7]
        assert sorted(abs(scores[one.id] - 0.5) for one in found if one.side == name) == pytest.approx(best)
        assert size == len(side)
        assert {one.id for one in drawn.documents if one.side == name} <= {*side}
        assert sum(one.sampled for one in drawn.documents if one.side == name) == 5
    assert [one.id for one in found] != sorted((one.id for one in found), key=scores.__getitem__)
    turns = sum(a.side != b.side for a, b in zip(found, found[1:], strict=False))
    assert turns > 3 and draw(passed, step, nearest=14, sampled=10) == drawn
    assert len(draw(passed, step, nearest=10**6).documents) == len(scores)


def test_the_sample_is_drawn_without_regard_to_scores(audited):
    """Places of the sampled documents among their side's are spread evenly: a test of rank sums against the others."""
    _, step, passed = audited
    scores, _ = truth(passed)
    drawn = draw(passed, step, sampled=60)
    for name in drawn.sizes:
        side = {one.id for one in draw(passed, step, nearest=10**6).documents if one.side == name}
        some = {one.id for one in drawn.documents if one.sampled and one.side == name}
        assert len(some) == 30
        assert mannwhitneyu([scores[i] for i in some], [scores[i] for i in side - some]).pvalue > 0.01


PROSE = {
    "en": "the quick brown fox jumps over the lazy dog and then it sleeps in the warm evening sun by the river",
    "de": "der schnelle braune Fuchs springt über den faulen Hund und schläft dann in der warmen Abendsonne am Fluss",
}


def test_steps_of_one_pass_are_judged_by_themselves(tmp_path):
    """`language` and what stands behind it decide in one stage: what `language` dropped, the other did not judge."""
    documents = [
        {"id": f"{code}{i}", "text": f"{text}\n" * (i % 3 + 1)} for code, text in PROSE.items() for i in range(9)
    ]
    both = "\n".join(PROSE.values())
    documents += [{"id": f"both{i}", "text": f"{PROSE['en']}\n" * 4 + f"{both}\n" * (i + 1)} for i in range(4)]
    corpus = Texts([documents[::2], documents[1::2]])
    home = str(tmp_path)
    steps = (Language(keep=("en",), characters=400), MixedLanguages(max_share=0.05, cut=True))
    arriving = signals(context(home), corpus.corpus(home), steps)
    passed = Passed(steps, arriving, rules(context(home), arriving, steps))
    of_language, of_mixed = (draw(passed, step) for step in steps)
    assert of_language.sizes == {"dropped": 9, "kept": 13} and of_mixed.sizes == {"dropped": 4, "kept": 9}
    assert {one.id for one in of_mixed.documents if one.side == "dropped"} == {f"both{i}" for i in range(4)}
    assert not [one for one in of_mixed.documents if one.id.startswith("de")]
    assert steps[0].question == "Is it a text in en?" and audit.drops(passed, steps[1])
    # a person reads what the step read, and not what it left
    given = {document["id"]: document["text"] for document in documents}
    left = by_id(read(arriving.documents, [0, 1]), "text")
    assert left["both3"] != given["both3"]
    for step, drawn in ((steps[0], of_language), (steps[1], of_mixed)):
        assert {one.id: one.text for one in audit.texts(passed, step, drawn.documents)} == {
            one.id: given[one.id] for one in drawn.documents
        }
    stage = passed.left.kept
    about = {"recipe": "r", "stage": f"{stage.name}-{stage.key}", "labels": {}}
    for step, drawn, of_both in ((steps[0], of_language, "yes"), (steps[1], of_mixed, "no")):
        votes = {one.id: {"en": "yes", "de": "no", "bo": of_both}[one.id[:2]] for one in drawn.documents}
        ids, near = ([one.id for one in drawn.documents if getattr(one, how)] for how in ("sampled", "nearest"))
        given = about | {"step": step.step, "sizes": drawn.sizes, "nearest": near, "sampled": ids, "votes": votes}
        (tmp_path / "votes.json").write_text(json.dumps(given))
        assert agreement(str(tmp_path / "votes.json"), MachineSettings(home=home)).whole == 1, step.step


def test_the_page_has_texts_alone_and_runs_nothing_of_theirs(audited):
    _, step, passed = audited
    drawn = draw(passed, step)
    documents = audit.texts(passed, step, drawn.documents)
    about = audit.Audit("small", "quality", "Is it good?", "quality_cut-1", drawn, documents)
    page = audit.page(about)
    assert page == audit.page(replace(about, drawn=draw(passed, step)))
    tree = lxml.html.document_fromstring(page)
    assert [article.get("data-id") for article in tree.iter("article")] == [one.id for one in documents]
    assert not [*tree.iter("img", "link", "iframe")] and len([*tree.iter("script")]) == 1
    shown = [div.text_content() for div in tree.find_class("text")]
    written = [one.text.replace("\0", "\u2400").replace("\u202e", "⟨U+202E⟩") for one in documents]
    assert shown == written and shown[0].startswith("</div><script>")
    # nothing loads, and no script but the page's own may run
    assert not re.search(r"""(src|href)\s*=\s*["']""", page)
    [script] = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    [policy] = tree.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert f"script-src 'sha256-{digest}';" in policy and policy.startswith("default-src 'none'")
    # blind: neither the score nor the side of a document is on the page
    scores, _ = truth(passed)
    assert not [one.id for one in documents if f"{scores[one.id]:.3}" in html.unescape(page)]
    for each in drawn.documents:
        other = replace(each, side="kept" if each.side == "dropped" else "dropped")
        swapped = replace(drawn, documents=[other if one == each else one for one in drawn.documents])
        assert audit.page(replace(about, drawn=swapped)) == page


def test_votes_are_compared_with_the_filter(audited, tmp_path):
    home, step, passed = audited
    cut = passed.left.kept
    _, dropped = truth(passed)
    drawn = draw(passed, step)
    votes = {one.id: "no" if one.id in dropped else "yes" for one in drawn.documents}
    near, some = (
        {side: [one.id for one in drawn.documents if getattr(one, how) and one.side == side] for side in drawn.sizes}
        for how in ("nearest", "sampled")
    )
    [alone, *_] = [id_ for id_ in near["kept"] if id_ not in some["kept"]]
    votes |= {alone: "unsure"} | dict.fromkeys(some["kept"][:3], "no") | {some["dropped"][0]: "yes"}
    about = {"recipe": "small", "stage": f"{cut.name}-{cut.key}", "step": "quality", "sizes": drawn.sizes, "labels": {}}
    about |= {"nearest": near["kept"] + near["dropped"], "sampled": some["kept"] + some["dropped"], "votes": votes}
    path = tmp_path / "votes.json"

    def save(**given) -> str:
        path.write_text(json.dumps(about | given))
        return str(path)

    found = agreement(save(), MachineSettings(home=home))
    sample, nearest = found.sample, found.nearest
    assert (sample.by_side["kept"].agreeing, sample.by_side["kept"].votes) == (7, 10)
    assert (sample.by_side["dropped"].agreeing, sample.by_side["dropped"].votes) == (
        9,
        10,
    ) and sample.all.agreeing == 16
    assert nearest.by_side["kept"].votes == len(near["kept"]) - 1 and found.unsure == 1
    wrong = {*some["kept"][:3], some["dropped"][0]}
    assert nearest.all.agreeing == len({*near["kept"], *near["dropped"]} - wrong - {alone})
    sizes = drawn.sizes
    assert found.whole == pytest.approx((0.7 * sizes["kept"] + 0.9 * sizes["dropped"]) / sum(sizes.values()))
    assert Home(home).stages(f"{cut.name}-{cut.key}")
    assert agreement(save(votes={alone: "yes"}), MachineSettings(home=home)).whole is None
    with pytest.raises(ValueError, match="has a vote on nobody, which quality_cut-.* did not score"):
        agreement(save(votes={"nobody": "yes"}, sampled=["nobody"]), MachineSettings(home=home))
    with pytest.raises(ValueError, match="nobody has a vote, but is not one of the documents of the page"):
        agreement(save(votes={"nobody": "yes"}), MachineSettings(home=home))
    with pytest.raises(ValueError, match="the labels do not belong to the documents"):
        agreement(save(labels={alone: "law"}), MachineSettings(home=home))
    with pytest.raises(ValueError, match="is not a valid file of votes as saved by a page"):
        agreement(save(votes={"web1": "perhaps"}), MachineSettings(home=home))
    with pytest.raises(LookupError, match="set GRISTMILL_HOME"):
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


def test_a_dropped_document_is_as_far_as_the_farthest_rule_that_it_fails():
    columns = {"language": ["en", "en", "de", "de"], "language_score": [0.6, 0.9, 0.4, 0.95], "x": [3.0, 8.0, 4.0, 9.0]}
    table = pa.table({"id": list("abcd"), **columns})
    rules = [Member("language", "language", ("en",)), Bound("score", "language_score", low=0.5), Bound("x", "x", low=5)]
    # a: x alone fails; b: all is kept, x is nearest; c: the label, the score and x; d: the label alone
    assert distances(table, "s", rules, "language_score") == pytest.approx([0.4, 0.6, 0.4, 0.95])
    assert distances(table, "s", rules)[2:] == pytest.approx([np.inf, np.inf])
