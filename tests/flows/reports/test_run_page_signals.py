"""Histograms of signals, and samples of documents, beside a count and a draw by brute force; texts that do harm."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree, html

from gristmill.flows.curation import BuiltStage
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import pages as kit
from gristmill.flows.reports import run_page
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.run_page import plots
from gristmill.flows.reports.run_page.plots import Judged, judged
from gristmill.flows.stages.learned_filters import filter_cut
from gristmill.flows.stages.signals import rules, signals
from gristmill.storage import layout, parquet
from gristmill.tasks.documents.step import Bound, Member
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.models.quality import Quality
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.rules.gopher_repetition import GopherRepetition
from tests.corpora import Name, Texts, build_in, context, read
from tests.flows.reports.test_near_duplicates import EVIL, Parsed

pytestmark = pytest.mark.extended

QUALITY = GopherQuality(
    min_words=20, max_words=300, min_stop_words=0, min_mean_word_length=2, max_mean_word_length=6, min_alpha_words=0.5
)
STEPS = (QUALITY, GopherRepetition())
LONG = 5_000_000


def planted() -> dict[str, list[dict]]:
    """Documents of three sources: of many lengths, some of one word again and again, some of long words."""
    rng = np.random.default_rng(8)
    found = {}
    for source in ("web", "books", "news"):
        documents = []
        for number in range(60):
            count = int(rng.integers(5, 400))
            lengths = rng.integers(1, 12 if number % 7 == 0 else 6, count)
            words = ["".join(map(chr, rng.integers(ord("a"), ord("z") + 1, size))) for size in lengths.tolist()]
            text = " ".join(words if number % 5 else [words[0]] * count)
            documents.append({"id": f"{source}-{number:03d}", "title": EVIL, "text": text})
        found[source] = documents
    return found


def cut_into(shards: int) -> Texts:
    """The same documents, those of each source in so many shards."""
    parts = [(source, documents[at::shards]) for source, documents in planted().items() for at in range(shards)]
    return Texts([documents for _, documents in parts], [source for source, _ in parts])


def report_of(home: str, shards: int) -> Run:
    texts, made = cut_into(shards), context(home)
    corpus = rules(made, signals(made, texts.corpus(home), STEPS), STEPS)
    recipe = load(
        {
            "name": "planted",
            "sources": [{"name": name, "warc": [f"https://x.example/{name}.warc"]} for name in planted()],
            "steps": [{"step": "extract"}, *(step.model_dump() for step in STEPS)],
        }
    )
    built = tuple(BuiltStage("corpus", stage) for stage in corpus.stages)
    return Run(recipe, MachineSettings(home=home), corpus, built)


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> dict[int, Run]:
    return {shards: report_of(str(tmp_path_factory.mktemp("home")), shards) for shards in (1, 7)}


@pytest.fixture(scope="module")
def pages(reports) -> dict[int, str]:
    return {shards: run_page.page(report) for shards, report in reports.items()}


def counted(one: Judged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, and how many documents with each pass and fail."""
    sides = [(side.values.cast(pa.float64()).to_numpy(), side.counts) for side in one.values]
    values = np.unique(np.concatenate([some for some, _ in sides]))
    passing, failing = np.zeros((2, len(values)), np.int64)
    for (some, counts), whole in zip(sides, (passing, failing), strict=True):
        whole[np.searchsorted(values, some)] = counts
    return values, passing, failing


def test_values_and_what_fails_are_those_of_all_documents_that_reached_the_step(reports):
    report = reports[7]
    signals = read(report.corpus.measured[-1], report.corpus.places.shards())
    alive = np.ones(len(signals), bool)
    found = judged(report.corpus)
    assert list(found) == [step.step for step in STEPS]
    failed_some = 0
    for step in STEPS:
        failed = np.zeros(len(signals), bool)
        rules = [rule for rule in step.decisions() if rule.low is not None or rule.high is not None]
        assert [one.rule for one in found[step.step]] == rules
        for one in found[step.step]:
            values = np.asarray(signals[one.rule.signal], np.float64)
            fails = np.zeros(len(values), bool)
            if one.rule.low is not None:
                fails |= values < one.rule.low
            if one.rule.high is not None:
                fails |= values > one.rule.high
            assert (one.arrived, one.beyond, one.nulls) == (alive.sum(), (fails & alive).sum(), 0)
            bins, passing, failing = counted(one)
            assert (passing.sum(), failing.sum()) == ((alive & ~fails).sum(), (alive & fails).sum())
            # each value is in the bin below it, which is within a 1,024th of it
            at = np.searchsorted(bins, values[alive], side="right") - 1
            assert (np.abs(values[alive] - bins[at]) <= np.abs(values[alive]) / 1024).all()
            assert np.bincount(at, minlength=len(bins)).tolist() == (passing + failing).tolist()
            failed |= fails
            failed_some += int(one.beyond > 0)
        alive &= ~failed
    assert failed_some >= 4 and 0 < alive.sum() < len(signals)
    assert alive.sum() == report.corpus.kept.step_counts[-1]["rows_out"]


def test_shards_make_no_difference_to_histograms_and_samples(reports, pages):
    one, seven = (
        [
            (j.rule, j.arrived, j.beyond, [each.tolist() for each in counted(j)])
            for rules in found.values()
            for j in rules
        ]
        for found in (judged(report.corpus) for report in reports.values())
    )
    assert one == seven
    # what it took depends on the shards: more files have more bytes
    one_page, seven_pages = (re.sub("<h2>Cost.*?</table>", "", page, flags=re.DOTALL) for page in pages.values())
    assert one_page == seven_pages


def ids(page: str, heading: str) -> dict[str, list[str]]:
    """The ids of the documents below a heading, by the name that their summary begins with."""
    found = {}
    for details in html.fromstring(page).xpath(f"//details[preceding-sibling::h2[1][.='{heading}']]"):
        found[details.findtext("summary/strong")] = details.xpath(".//dl/div[dt='id']/dd/bdi/text()")
    return found


def drawn(names: list[str]) -> list[str]:
    """In the order of the draw."""
    return sorted(names, key=lambda name: xxhash.xxh3_64_intdigest(f"1:report:{name}".encode()) >> 11)


def test_samples_are_those_with_the_lowest_hashes_of_each_source(reports, pages):
    report, page = reports[7], pages[7]
    kept = read(report.corpus.kept, report.corpus.places.shards())["id"].to_pylist()
    assert ids(page, "What was kept") == {
        source: drawn([name for name in kept if name.startswith(source)])[:3] for source in planted()
    }
    shards = report.corpus.places.shards()
    ledger = pa.concat_tables(
        [parquet.read_table(layout.ledger_part(report.corpus.kept.folder, shard)) for shard in shards]
    )
    shown = ids(page, "What was dropped, and why")
    by_rule: dict[str, list[str]] = {}
    for row in ledger.to_pylist():
        by_rule.setdefault(f"{row['step']}.{row['rule']}", []).append(row["id"])
    assert set(shown) == set(by_rule)
    for rule, names in by_rule.items():
        each = [drawn([name for name in names if name.startswith(source)]) for source in planted()]
        turns = [drawn([those[turn] for those in each if len(those) > turn]) for turn in range(3)]
        assert shown[rule] == [name for turn in turns for name in turn][:3]
    # not the first ones, which the draw would be if it did nothing
    assert any(shown[rule][0] != min(names) for rule, names in by_rule.items() if len(names) > 3)


def test_a_line_of_five_million_characters_makes_no_long_page(reports):
    long = Texts([[{"id": "kept", "text": "a b " * (LONG // 4)}, {"id": "gone", "text": "x" * LONG}]])
    home = reports[1].settings.home
    made, steps = context(home), (QUALITY.model_copy(update={"max_words": None, "min_mean_word_length": 1.0}),)
    corpus = rules(made, signals(made, long.corpus(home, "long"), steps), steps)
    page = run_page.page(replace(reports[1], corpus=corpus))
    assert Parsed(page).open == [] and len(page) < 400_000
    assert ids(page, "What was kept") == {"web": ["kept"]}
    assert ids(page, "What was dropped, and why") == {"gopher_quality.words": ["gone"]}
    assert "4,998,500 characters" in "".join(html.fromstring(page).itertext())


def test_the_page_has_a_plot_with_the_thresholds_of_every_rule(reports, pages):
    rules = [one for those in judged(reports[7].corpus).values() for one in those]
    shown = html.fromstring(pages[7]).xpath("//div[@class='judged']")
    assert len(shown) == len(rules) > 10
    for figure, one in zip(shown, rules, strict=True):
        words = " ".join(figure.xpath("p")[0].text_content().split())
        assert words.startswith(f"{one.rule.rule} keeps {one.keeps}.") and f"Beyond: {one.beyond:,}, " in words
        assert all(f"{end:,.6g}" in words for end in one.ends)
        assert one.rule.signal in figure.xpath(".//*[local-name()='svg']/@aria-label")[0]
        drawn = [each.get("class") for each in figure.xpath(".//*[local-name()='rect']")]
        assert drawn.count("cut") == len(one.ends) and ("fails" in drawn) == (one.beyond > 0)


def nothing(phases, record, places):
    """The parts are written beforehand."""
    return {}


def test_scores_of_a_learned_filter_and_documents_of_its_reference(tmp_path):
    home, texts = str(tmp_path), cut_into(2)
    corpus, rng = texts.corpus(home), np.random.default_rng(3)
    spec = StageSpec(name="quality", version=1, body=nothing, record=Name(corpus="scores"), inputs={})
    scores = {}
    for shard in corpus.places.shards():
        names = parquet.read_table(corpus.kept.part(shard), ["id"])["id"]
        given_ = [None] * len(names) if corpus.sources[shard] == "books" else rng.uniform(0, 1, len(names)).tolist()
        scores |= dict(zip(names.to_pylist(), given_, strict=True))
        table = pa.table({"id": names, "quality": pa.array(given_, pa.float64())})
        parquet.write_table(layout.part(spec.folder(home), shard), table)
    scored: StageResult = build_in(home)(spec)
    step = Quality(reference=("books",), min_score=0.25)
    left = corpus.then(filter_cut(context(home), corpus, step, scored), scored)
    [one] = judged(left)["quality"]
    there = np.array([score for score in scores.values() if score is not None])
    assert (one.arrived, one.nulls, one.beyond) == (180, 60, int((there < 0.25).sum()))
    assert one.rule.low == 0.25 and one.keeps == "at least 0.25"
    assert sum(map(int, counted(one)[1])) == int((there >= 0.25).sum()) == left.kept.step_counts[0]["rows_out"] - 60


@given(
    st.lists(st.lists(st.floats(allow_nan=False) | st.none(), max_size=30), min_size=1, max_size=5),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_numbers_are_counted_and_plotted(parts, low):
    one = Judged("step", Bound("rule", "signal", low=low))
    fails = Counter()
    for part in parts:
        failing = np.array([value is not None and value < low for value in part], bool)
        fails.update(failing.tolist())
        one.add(pa.chunked_array([pa.array(part, pa.float64())]), failing)
    values, passing, failing = counted(one)
    whole = [value for part in parts for value in part]
    assert (one.arrived, one.nulls) == (len(whole), whole.count(None))
    assert failing.sum() == fails[True] == one.beyond and passing.sum() + failing.sum() == len(whole) - one.nulls
    assert (np.diff(values) > 0).all()


@pytest.mark.parametrize(
    ("values", "kind", "bound"),
    [
        ([], pa.float64(), Bound("r", "s", low=1)),
        ([0.0] * 5, pa.float64(), Bound("r", "s", high=0)),
        ([1.0, 1e300, 3.0], pa.float64(), Bound("r", "s", low=0.5, high=1e12)),
        ([-5.0, 2.0, float("inf"), float("-inf")], pa.float64(), Bound("r", "s", low=0)),
        ([5, 9, 2_000_000_000_000], pa.int64(), Bound("r", "s", low=3, high=100_000)),
        ([0, 0, 1, 1, 2], pa.int32(), Bound("r", "s", low=1)),
        ([0.5, None], pa.float64(), Bound("r", "s", languages={f"l{n}": (n / 9, None) for n in range(9)})),
        ([0.5], pa.float64(), Bound("r $x$ <b>&", "s $_{", low=0.1)),
    ],
)
def test_odd_distributions_have_a_plot(values, kind, bound):
    one = Judged("step", bound)
    one.add(pa.chunked_array([pa.array(values, kind)]), np.zeros(len(values), bool))
    drawn = plots.signal(one)
    etree.fromstring(drawn)
    assert "nan" not in drawn.lower().replace("dominant", "") and plots.signal(one) == drawn


def test_values_that_are_text_are_counted_and_cannot_be_markup():
    one = Judged("step", Member("rule", "label", ("en", EVIL)))
    values = ["en"] * 5 + [EVIL] * 3 + ["<b>" * LONG] * 2 + [f"v{n}" for n in range(20)] + [None]
    column = pa.chunked_array([pa.array(values, pa.string())])
    one.add(column, np.asarray(pc.invert(pc.is_in(column, pa.array(["en", EVIL, None])))))
    assert (one.arrived, one.beyond, one.nulls) == (31, 22, 1)
    assert one.most(3) == [(("en", False), 5), ((EVIL[:100], False), 3), (("<b>" * 33 + "<", True), 2)]
    assert one.rarer(3) == 20
    macro = kit._environment(kit.__name__).get_template("kit.html").module.judged(one, None)
    assert Parsed(macro).open == [] and len(macro) < 10_000
    assert {tag for tag, _ in Parsed(macro).tags} <= {
        "div",
        "p",
        "strong",
        "table",
        "thead",
        "tr",
        "th",
        "td",
        "svg",
        "rect",
        "tbody",
        "bdi",
    }

    many = Judged("step", Member("rule", "label", None, ("v1",)))
    for _ in range(2):
        column = pa.chunked_array([pa.array([f"v{n}" for n in range(30_000)] + ["v1"] * 50, pa.string())])
        many.add(column, np.asarray(pc.equal(column, "v1")))
    assert many.most(10_000) == [(("v1", True), 102)] and many.rarer(10_000) == 59_998 and many.beyond == 102


def test_truth_values_are_bars():
    one = Judged("step", Bound("rule", "flag", high=0))
    one.add(pa.chunked_array([pa.array([True, False, False, None])]), np.array([True, False, False, False]))
    assert one.is_text and one.most(2) == [(("no", False), 2), (("yes", True), 1)] and one.nulls == 1
