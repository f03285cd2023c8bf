"""Steps that apply to some of the sources: alone, in turn, and where a template empties a source."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.variants import variant
from gristmill.flows.reports import run_page
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.run.source_losses import losses_by_step, lost_by, sentences
from gristmill.flows.reports.whatif import funnel, whatif
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.group_losses import group_losses
from gristmill.storage import layout, parquet
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.documents.group_losses import Limits
from gristmill.tasks.engine.executors import Threads
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

PROSE = pydoc_paragraphs()
TEMPLATE = (
    "Dear visitor, we are glad that you have come to our pages and wish you a pleasant stay. javascript is needed."
)


def texts() -> list[str]:
    """Texts of which some are copies, near copies, have a passage of another, or are poor."""
    made = []
    for i in range(6):
        prose = PROSE[6 * i : 6 * i + 6]
        whole = "\n\n".join(prose)
        made += [
            whole,
            f"{whole} Bran.",
            whole.upper(),
            "\n\n".join([TEMPLATE, *prose[:2], f"Do write to grist{i}@millers-guild.com if you want more of it."]),
            " ".join(prose[0].split()[:9]),
        ]
    return made


TEXTS = texts()
BENCHMARK = " ".join(PROSE[0].split()[:30])


def write(folder: Path, source: str, documents: Sequence[int]) -> dict:
    """A source of some documents by their numbers, of several shards."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{source}.jsonl"
    rows = [{"text": TEXTS[n], "url": f"https://{source}.example/{n}", "nth": nth} for nth, n in enumerate(documents)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return {"name": source, "jsonl": [str(path)], "url_column": "url", "range_bytes": 12_000}


def recipe(sources: list[dict], *steps: dict, **more) -> dict:
    return {
        "name": "scoped",
        "sources": sources,
        "steps": [{"step": "where", "drop": "url is null"}, *steps],
    } | more


def curated(home: Path, given: dict, workers: int = 1) -> Corpus:
    *_, last = curate(context(str(home), Threads(workers, None)), load(given))
    return last.left


def kept(corpus: Corpus) -> dict[str, dict[str, str]]:
    """The texts that are kept, by source and id."""
    found: dict[str, dict[str, str]] = {}
    for shard, source in enumerate(corpus.sources):
        ids = parquet.read_table(corpus.kept.part(shard), ["id"])["id"].to_pylist()
        table = parquet.read_table(corpus.documents.part(shard), ["id", "text"]).to_pylist()
        by_id = {row["id"]: row["text"] for row in table}
        found.setdefault(source, {}).update({each: by_id[each] for each in ids})
    return found


def gone(corpus: Corpus, source: str) -> list[dict]:
    """The ledger's rows of a source, in any order."""
    rows = []
    for stage in corpus.stages:
        if stage.step_counts:
            for shard, of in enumerate(corpus.sources):
                if of == source:
                    rows += parquet.read_table(layout.ledger_part(stage.folder, shard)).to_pylist()
    return sorted(rows, key=lambda row: (row["step"], row["id"]))


COMPARED = ({"threshold": 0.8}, {"threshold": None}, {"verify": "containment"})
UNSHRUNK = (Phase.explicit, Phase.generate)  # an example takes seconds
LATER = {"step": "c4", "min_sentences": 0}
STEPS = {
    "where": {"step": "where_long", "keep": "characters > 700"},
    "rules": {"step": "gopher_quality", "min_words": 60},
    "signals": {"step": "gopher_repetition"},
    "edits": {"step": "refinedweb_lines"},
    "pii": {"step": "pii"},
    "exact": {"step": "content_dedup"},
    "lines": {"step": "line_dedup", "min_words": 5},
    "paragraphs": {"step": "paragraph_dedup"},
    "sentences": {"step": "sentence_dedup", "min_sentences": 1},
    "cut spans": {"step": "substring_dedup", "min_length": 12},
    "dropped spans": {"step": "substring_dedup", "min_length": 12, "policy": "drop"},
    "near": {"step": "minhash"},
    "components": {"step": "minhash", "threshold": None},
    "benchmarks": {"step": "decontamination", "policy": "cut"},
    "benchmark documents": {"step": "decontamination", "policy": "drop"},
}


@pytest.mark.extended
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@settings(max_examples=2, phases=UNSHRUNK)
@given(st.lists(st.integers(0, len(TEXTS) - 1), min_size=8, max_size=30), st.integers(0, 8))
@example([*range(20), *range(20)], 20)
def test_a_source_is_treated_as_if_it_were_alone(tmp_path_factory, step, documents, split):
    """One source as by a recipe with this source alone, the other as by a recipe without the step."""
    folder = tmp_path_factory.mktemp("alone")
    if step["step"] == "decontamination":
        items = folder / "items.jsonl"
        items.write_text(json.dumps({"question": BENCHMARK}))
        step = step | {"benchmarks": [{"name": "mill", "path": str(items), "question": ["question"]}]}
    a = write(folder, "a", [0, 0, 1, 3, 8, *documents[:split]])
    b = write(folder, "b", [0, 1, 1, 3, 8, *documents[split:]])
    both = curated(folder / "home", recipe([a, b], step | {"only": ["a"]}, LATER))
    as_except = curated(folder / "home", recipe([a, b], step | {"except": ["b"]}, LATER))
    alone = curated(folder / "home", recipe([a], step, LATER))
    without = curated(folder / "home", recipe([a, b], LATER))
    assert kept(both)["a"] == kept(alone)["a"] and kept(both)["b"] == kept(without)["b"]
    assert gone(both, "a") == gone(alone, "a") and gone(both, "b") == gone(without, "b")
    assert kept(as_except) == kept(both)
    if split == 20:  # the step does something to such texts
        assert kept(curated(folder / "home", recipe([a, b], step, LATER)))["b"] != kept(both)["b"]


@pytest.mark.extended
def test_documents_of_other_sources_are_no_evidence(tmp_path):
    """A copy in a source that the step has, of a document of one that it has not, stays; and the other way around."""
    a, b, c = (write(tmp_path, name, [0, 5]) for name in "abc")
    for step in ({"step": "content_dedup"}, {"step": "minhash"}):
        found = kept(curated(tmp_path / "home", recipe([a, b, c], step | {"except": ["a"]})))
        assert {name: len(found[name]) for name in "abc"} == {"a": 2, "b": len(found["b"]), "c": 2 - len(found["b"])}
    within = kept(curated(tmp_path / "home", recipe([a, b, c], {"step": "minhash", "within": "source"})))
    assert {name: len(found) for name, found in within.items()} == {"a": 2, "b": 2, "c": 2}


@pytest.mark.extended
@settings(max_examples=4, phases=UNSHRUNK)
@given(st.lists(st.integers(0, len(TEXTS) - 1), min_size=4, max_size=40), st.sampled_from(COMPARED))
def test_within_a_source_is_a_run_for_each_source(tmp_path_factory, documents, how):
    folder = tmp_path_factory.mktemp("within")
    step = {"step": "minhash", **how}
    sources = [write(folder, name, [0, 1, *documents[nth::3]]) for nth, name in enumerate("abc")]
    together = kept(curated(folder / "home", recipe(sources, step | {"within": "source"})))
    for source in sources:
        [(name, alone)] = kept(curated(folder / "home", recipe([source], step))).items()
        assert together[name] == alone


@pytest.fixture(scope="module")
def by_source(tmp_path_factory):
    """A recipe whose rules have other thresholds for one of three sources, measured before and after a corpus step."""
    folder = tmp_path_factory.mktemp("thresholds")
    sources = [write(folder, name, range(len(TEXTS))) for name in ("web", "wiki", "legal")]
    steps = (
        {"step": "gopher_quality", "except": ["legal"], "min_words": 120},
        {"step": "gopher_quality-legal", "only": ["legal"], "min_words": 30, "min_stop_words": 0},
        {"step": "c4", "only": ["web"], "min_sentences": 1},
        {"step": "content_dedup", "except": ["wiki"]},
        {"step": "c4-wiki", "only": ["wiki"], "min_sentences": 1},
        {"step": "where_short", "drop": "c4_characters < 300", "nulls": "keep"},
    )
    given = recipe(sources, *steps)
    return folder, given, curated(folder / "home", given)


@pytest.mark.extended
def test_a_rule_has_another_threshold_by_source(by_source):
    _, _, corpus = by_source
    rows = {name: gone(corpus, name) for name in ("web", "wiki", "legal")}
    seen = {(name, row["step"], row["threshold"]) for name in rows for row in rows[name] if row["rule"] == "words"}
    assert seen == {
        ("web", "gopher_quality", 120),
        ("wiki", "gopher_quality", 120),
        ("legal", "gopher_quality-legal", 30),
    }
    assert not [row for row in rows["wiki"] if row["step"] == "content_dedup"]
    assert [row for row in rows["web"] if row["step"] == "content_dedup"]
    # wiki is cut by the later step of the kind, web by the earlier one, legal by none
    cuts = Counter()
    for stage in (corpus.extracted, corpus.documents):
        for shard, source in enumerate(corpus.sources):
            table = parquet.read_table(layout.edits_part(stage.folder, shard), ["step"])
            cuts.update((source, step) for step in table["step"].to_pylist())
    assert {*cuts} == {("web", "c4"), ("wiki", "c4-wiki")}
    # a signal of steps of one kind is one column, null where no step of the kind applies
    for shard, source in enumerate(corpus.sources):
        part = corpus.documents.part(shard)
        nulls = parquet.read_table(part, ["c4_characters"])["c4_characters"].null_count
        assert nulls == (parquet.rows(part) if source == "legal" else 0)


@pytest.mark.extended
def test_the_reports_name_each_step(by_source):
    folder, given, corpus = by_source
    home = MachineSettings(home=str(folder / "home"))
    report = finished(load(given), home)
    names = [row.name for row in report.steps]
    assert [name for name in names if name.startswith("gopher")] == ["gopher_quality", "gopher_quality-legal"]
    assert [name for name in names if name.startswith("c4")] == ["c4, cuts", "c4", "c4-wiki, cuts", "c4-wiki"]
    assert all(row.documents_in - sum(row.drops.values()) == row.documents_out for row in report.steps)
    page = run_page.page(report)
    assert "gopher_quality-legal" in page
    found = dict(report.sql("select step, count(*) from ledger where rule = 'words' group by step").fetchall())
    assert found == Counter(row["step"] for name in ("web", "wiki", "legal") for row in gone(corpus, name)
                            if row["rule"] == "words")  # fmt: skip
    query = "select count(*) from documents where source = 'legal' and c4_characters is null"
    assert report.sql(query).fetchall() == [(len(kept(corpus)["legal"]),)]


@pytest.mark.extended
def test_a_replay_is_a_run_with_other_sources(by_source):
    folder, given, _ = by_source
    home = MachineSettings(home=str(folder / "home"))
    for changes in (
        {"gopher_quality-legal.min_words": 200},
        {"gopher_quality.except": ["legal", "wiki"]},
        {"gopher_quality.min_words": 60, "gopher_quality-legal.min_words": 60},
    ):
        replay = whatif(given, changes, home)
        rows = {row.step: row for row in funnel(replay)}
        changed = variant(load(given), *(f"{name}={json.dumps(value)}" for name, value in changes.items())).recipe
        again = curated(folder / "home", changed.model_dump(mode="json", exclude_unset=True))
        counts = {count["step"]: count for stage in again.stages for count in stage.step_counts}
        for step in ("gopher_quality", "gopher_quality-legal"):
            assert rows[step].replayed.documents_out == counts[step]["rows_out"], changes


SOURCES, DOCUMENTS, WORDS = 20, 110, [f"word{n}" for n in range(4000)]
TEMPLATED = ("s03", "s11")


def templated(folder: Path) -> list[dict]:
    """Twenty sources, two of which have a long greeting before a short text of their own on every page."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(7)
    sources = []
    for number in range(SOURCES):
        name = f"s{number:02d}"
        greeting = " ".join(draw.choice(WORDS, 200)) if name in TEMPLATED else ""
        pages = [f"{greeting} {' '.join(draw.choice(WORDS, 8 if greeting else 120))}" for _ in range(DOCUMENTS)]
        if not greeting:
            pages[: number % 7] = pages[-(number % 7) or DOCUMENTS :]  # some copies
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": page}) for page in pages))
        sources.append({"name": name, "jsonl": [str(folder / f"{name}.jsonl")], "range_bytes": 32768})
    return sources


@pytest.fixture(scope="module")
def emptied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("templated")
    given = {"name": "scoped", "sources": templated(folder / "raw"), "steps": [{"step": "minhash"}]}
    return folder, given, curated(folder / "home", given)


def losses_of(folder: Path, given: dict, corpus: Corpus) -> list:
    at = context(str(folder / "home"))
    return losses_by_step(load(given), corpus, group_losses(at, load(given), corpus))


@pytest.mark.extended
def test_a_template_empties_a_source_and_the_warning_names_the_fix(emptied):
    folder, given, corpus = emptied
    before = {name: len(found) for name, found in kept(corpus).items()}
    assert all(before[name] <= 3 for name in TEMPLATED) and min(before[f"s{n:02d}"] for n in (0, 1, 2)) > 100
    losses = losses_of(folder, given, corpus)
    rates = {name: 1 - count / DOCUMENTS for name, count in before.items()}
    assert {(one.step, one.source) for one in losses} == {("minhash", name) for name in TEMPLATED}
    for one in losses:
        assert (one.documents, one.dropped, one.others) == (DOCUMENTS, DOCUMENTS - before[one.source], SOURCES - 1)
        assert one.median == pytest.approx(median(rate for name, rate in rates.items() if name != one.source))
        assert one.low < one.share < one.high
        assert one.fix == f"set `except: [{', '.join(TEMPLATED)}]` in `minhash`"
    line = next(sentences(losses))
    assert line.startswith(f"`minhash` dropped {losses[0].share:.1%} of the 110 documents of the source s")
    assert "for 19 other sources. To keep these documents, set `except: [s03, s11]` in `minhash`" in line


@pytest.mark.extended
def test_the_fix_keeps_the_source_and_changes_no_other(emptied):
    folder, given, corpus = emptied
    fixed = variant(load(given), f"minhash.except=[{', '.join(TEMPLATED)}]").recipe.model_dump(mode="json")
    after = curated(folder / "home", fixed)
    for name, found in kept(after).items():
        assert len(found) == DOCUMENTS if name in TEMPLATED else found == kept(corpus)[name]
    assert losses_of(folder, fixed, after) == []
    # a template that several sources share
    within = variant(load(given), "minhash.within=source").recipe.model_dump(mode="json")
    assert {one.source for one in losses_of(folder, within, curated(folder / "home", within))} == {*TEMPLATED}


@pytest.mark.extended
def test_two_workers_write_the_same_bytes(emptied, tmp_path):
    _, given, _ = emptied
    steps = (
        {"step": "gopher_quality", "except": ["s01"], "min_stop_words": 0, "min_words": 60},
        {"step": "gopher_quality-s01", "only": ["s01"], "min_stop_words": 0},
        {"step": "minhash", "except": [*TEMPLATED], "within": "source"},
        {"step": "line_dedup", "only": ["s02", "s05"]},
    )
    one, two = (curated(tmp_path / f"{n}", given | {"steps": [*steps]}, n) for n in (1, 2))
    assert [stage.label for stage in one.stages] == [stage.label for stage in two.stages]
    for first, second in zip(one.stages, two.stages, strict=True):
        assert first.contents == second.contents
        files = [sorted(path.relative_to(stage.folder) for path in Path(stage.folder).rglob("*.parquet"))
                 for stage in (first, second)]  # fmt: skip
        assert files[0] == files[1] and files[0]
        for path in files[0]:
            assert Path(first.folder, path).read_bytes() == Path(second.folder, path).read_bytes()


def test_a_loss_is_named_only_where_it_can_be_known():
    step, limits = MinHash(), Limits()
    usual = {f"s{n}": (200, 10 + n) for n in range(5)}
    assert [one.source for one in lost_by(step, usual | {"x": (200, 190)}, limits, 6)] == ["x"]
    assert lost_by(step, usual | {"x": (200, 120)}, limits, 6) == []  # it keeps more than a quarter of what others keep
    assert lost_by(step, usual | {"x": (4, 4)}, limits, 6) == []  # too few for the interval
    assert lost_by(step, {f"s{n}": (200, 190) for n in range(5)}, limits, 5) == []  # all alike
    both = lost_by(step, usual | {"x": (200, 190), "y": (300, 299)}, limits, 7)
    assert [one.source for one in both] == ["x", "y"]  # one does not hide the other
    assert {one.fix for one in both} == {"set `except: [x, y]` in `minhash`"}
    [one] = lost_by(MinHash(**{"except": ("z",)}), usual | {"x": (200, 190)}, limits, 6)
    assert one.fix == "set `except: [z, x]` in `minhash`"
    [one] = lost_by(MinHash(only=("x", "y")), usual | {"x": (200, 190)}, limits, 6)
    assert one.fix == "remove x from `only` of `minhash`"
