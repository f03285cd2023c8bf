"""Groups that steps wiped out: planted ones are named with true figures, and chance is not."""

import json
import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import run_page
from gristmill.flows.reports.finished import finished
from gristmill.flows.stages.group_losses import LostGroupError, check_losses, deciding, group_losses, sentences
from gristmill.storage import layout, parquet
from gristmill.tasks.documents import group_losses as work
from gristmill.tasks.documents.group_losses import KEPT, Limits, counts_folder, judge, sum_counts
from tests.corpora import context

pytestmark = pytest.mark.extended

SOURCES, DOCUMENTS = 10, 200
WIPED = 3


def lost(source: int, number: int) -> str:
    """The step that drops a document: of one source most by `where`, of the others a fifth by either step."""
    share = (number * 7919 + source * 31) % DOCUMENTS / DOCUMENTS
    if source == WIPED:
        return "where" if share < 0.9 else "gopher_quality" if share < 0.95 else ""
    return "where" if share < 0.12 else "gopher_quality" if share < 0.2 else ""


def recipe(folder: Path, **more) -> dict:
    """Two files of each source; four hosts of each, of which the first has more documents."""
    folder.mkdir(exist_ok=True)
    for source in range(SOURCES):
        rows = []
        for number in range(DOCUMENTS):
            fate = lost(source, number)
            words = 5 if fate == "gopher_quality" else 60
            text = " ".join(f"mill{source} grain{number} and the wheel {word}" for word in range(words // 5))
            host = f"h{max(0, number % 5 - 1)}.s{source}.example"
            rows.append({"text": text, "url": f"https://{host}/{number}", "bad": fate == "where"})
        for part in range(2):
            (folder / f"s{source}-{part}.jsonl").write_text("\n".join(map(json.dumps, rows[part::2])))
    columns = {"url_column": "url", "columns": {"bad": "bad"}}
    sources = [{"name": f"s{n}", "jsonl": [f"{folder}/s{n}-*.jsonl"], **columns} for n in range(SOURCES)]
    steps = [
        {"step": "extract", "engine": "plain"},
        {"step": "where", "drop": "bad"},
        {"step": "gopher_quality", "min_words": 20, "min_stop_words": 0, "min_alpha_words": 0.1},
        {"step": "content_dedup"},
    ]
    return {"name": "guarded", "sources": sources, "steps": steps} | more


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guarded")
    at = context(str(folder / "home"))
    *_, last = curate(at, load(recipe(folder / "raw")))
    return folder, at, last.left


def test_a_wiped_out_source_is_named_with_its_figures(made, caplog):
    folder, at, corpus = made
    with caplog.at_level(logging.WARNING):
        losses = group_losses(at, load(recipe(folder / "raw")), corpus)
        check_losses(load(recipe(folder / "raw")), losses)
    found = losses.result
    fates = {source: Counter(lost(source, number) for number in range(DOCUMENTS)) for source in range(SOURCES)}
    gone = {source: DOCUMENTS - fate[""] for source, fate in fates.items()}
    others = sum(count for source, count in gone.items() if source != WIPED)
    [one] = [each for each in found["groups"] if each["by"] == "source"]
    assert one == {
        "by": "source",
        "group": f"s{WIPED}",
        "documents": DOCUMENTS,
        "lost": gone[WIPED],
        "like": SOURCES - 1,
        "like_lost": pytest.approx(others / (SOURCES - 1) / DOCUMENTS),
        "step": "where",
        "step_lost": fates[WIPED]["where"],
    }
    assert gone[WIPED] == 190 and others / (SOURCES - 1) / DOCUMENTS == pytest.approx(0.2, abs=0.01)
    said = (
        "the source s3 lost 95.0% of its 200 documents, compared with 20.0% for 9 other sources; `where` "
        "dropped most of them, 180: see `gristmill explain show dropped --rule where`"
    )
    assert said in [record.message for record in caplog.records]


def test_the_page_of_the_run_has_them(made):
    folder, at, corpus = made
    found = group_losses(at, load(recipe(folder / "raw")), corpus).result
    report = finished(load(recipe(folder / "raw")), MachineSettings(home=str(folder / "home")))
    assert report.lost_groups == found["groups"]
    page = run_page.page(report)
    assert "Groups that lost far more than comparable groups" in page and f"source s{WIPED}</bdi>" in page
    silent = load(recipe(folder / "raw", group_losses={"then": "ignore"}))
    assert finished(silent, MachineSettings(home=str(folder / "home"))).lost_groups == []


def test_a_run_may_be_stopped_or_left_alone(made):
    folder, at, corpus = made
    stopping = load(recipe(folder / "raw", group_losses={"then": "stop"}))
    with pytest.raises(LostGroupError, match="the source s3 lost 95.0%.*\n.*then: stop"):
        check_losses(stopping, group_losses(at, stopping, corpus))
    assert group_losses(at, load(recipe(folder / "raw", group_losses={"then": "ignore"})), corpus) is None
    hosts = load(recipe(folder / "raw", group_losses={"by": ["host"], "least": 30}))
    named = {one["group"] for one in group_losses(at, hosts, corpus).result["groups"]}
    assert named == {f"h{n}.s{WIPED}.example" for n in range(4)}


def test_a_run_ends_behind_the_step_that_did_it(runs):
    """Ahead of deduplication, with the page of what was done."""
    given = recipe(runs.folder / "raw", group_losses={"then": "stop", "by": ["source"]})
    assert runs.start("guarded", ("corpus", given), executor="threads").wait() != 0
    assert {stage.rsplit("-", 1)[0] for stage in runs.stages("guarded")} == {"documents", "rules", "group_losses"}
    [page] = runs.home("guarded").glob("reports/guarded-*.html")
    log = runs.log("guarded")
    assert "the source s3 lost 95.0% of its 200 documents" in log and f"what each dropped: {page}" in log
    written = page.read_text(encoding="utf-8")
    assert f"source s{WIPED}</bdi>" in written and "min_words" in written


def test_counts_are_those_of_the_ledgers(made, tmp_path, monkeypatch):
    """Of hosts, in every shard and summed in two levels."""
    _, _, corpus = made
    monkeypatch.setattr(work, "AT_ONCE", 6)
    ledgers = [stage.folder for stage in corpus.stages if stage.step_counts and stage is not corpus.extracted]
    shards = len(corpus.sources)
    for shard in range(shards):
        work.count_shard(
            str(tmp_path), shard, corpus.sources[shard], ["host"], corpus.extracted.folder, ledgers, [], {"host": []}
        )
    for number in range(4):
        sum_counts(str(tmp_path), number, 0, shards)
    sum_counts(str(tmp_path), 0, 1, 4)
    rows = parquet.read_table(layout.part(counts_folder(str(tmp_path), 2), 0)).to_pylist()
    expected = Counter(
        (f"h{max(0, number % 5 - 1)}.s{source}.example", lost(source, number))
        for source in range(SOURCES)
        for number in range(DOCUMENTS)
    )
    assert {(row["group"], row["step"]): row["documents"] for row in rows} == expected and shards == 20


def test_what_a_step_drops_by_design_is_no_loss(tmp_path):
    given = recipe(tmp_path)
    given["steps"][1:2] = [
        {"step": "language", "keep": ["en"]},
        {"step": "where", "drop": "host == 'a.example' or language == 'xx'"},
    ]
    known = load(given)
    assert deciding(known, "language") == ("language", "where", "takedowns")
    assert deciding(known, "host") == ("where", "takedowns")
    assert deciding(known, "source") == deciding(known, "topic") == ("takedowns",)


def judged(folder: Path, counts: dict[str, dict[str, tuple[int, int]]], limits: Limits = Limits()) -> dict:  # noqa: B008
    """`counts`: kept and lost documents of each group, by what makes the groups."""
    rows = [
        {"by": by, "group": name, "step": step, "documents": count}
        for by, groups in counts.items()
        for name, pair in groups.items()
        for step, count in zip((KEPT, "quality"), map(int, pair), strict=True)
        if count
    ]
    table = pa.Table.from_pylist(rows, schema=work._COUNTS)
    parquet.write_table(layout.part(counts_folder(str(folder), 1), 0), table)
    return judge(str(folder), 0, 1, limits, {}, ())


NULLS = {
    # of each kind of groups the sizes of its groups
    "a few sources": {"source": [5000] * 3},
    "many hosts": {"source": [20_000] * 8, "host": "long tail", "language": [30_000, 900, 300, 150, 110]},
    "small groups": {"source": [110] * 10, "host": [100] * 400},
}


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 2.0])
@pytest.mark.parametrize("usual", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("null", NULLS)
def test_chance_warns_in_one_run_of_twenty_at_most(tmp_path, null, usual, spread):
    """Losses at random, of all groups alike (`spread` 0) or of each with an own rate, normal in the log odds."""
    rng = np.random.default_rng(11)
    warned, runs = 0, 20
    for _ in range(runs):
        counts = {}
        for by, given in NULLS[null].items():
            sizes = np.asarray((rng.pareto(0.9, 600) * 30 + 1).astype(int) if isinstance(given, str) else given)
            rates = 1 / (1 + np.exp(-(np.log(usual / (1 - usual)) + spread * rng.normal(size=len(sizes)))))
            kept = rng.binomial(sizes, rates)
            pairs = zip(kept, sizes - kept, strict=True)
            counts[by] = {f"g{n}": pair for n, pair in enumerate(pairs)}
        warned += bool(judged(tmp_path, counts)["groups"])
    # where groups differ the rate is near 1 in 20 at most, of which five of twenty runs would be no draw
    assert warned <= (runs / 20 if spread == 0 else 4)


def test_a_wiped_out_host_among_many_is_found(tmp_path):
    rng = np.random.default_rng(3)
    sizes = rng.integers(100, 2000, 500)
    kept = rng.binomial(sizes, 0.6 + 0.3 * rng.random(500))
    hosts = {f"h{n}": (k, size - k) for n, (k, size) in enumerate(zip(kept, sizes, strict=True))}
    hosts["wiped"] = (3, 997)
    hosts["small"] = (0, 99)  # has fewer documents than are judged
    found = judged(tmp_path, {"host": hosts})
    assert [one["group"] for one in found["groups"]] == ["wiped"] and found["judged"] == 501


def test_many_groups_are_counted_and_the_largest_are_named(tmp_path):
    hosts = {f"w{n:02d}": (0, 400 + n) for n in range(30)} | {f"h{n}": (350 + n % 40, 50) for n in range(300)}
    found = judged(tmp_path, {"host": hosts})
    lines = sentences(found)
    assert (
        found["found"] == 30 and len(lines) == 21 and lines[-1] == "10 more groups lost far more than comparable groups"
    )
    assert found["groups"][0]["group"] == "w29"
