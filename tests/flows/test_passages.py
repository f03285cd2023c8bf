"""Steps that cut repeated passages in a run: the funnel, and what `show`, `lineage` and `what-if` make of them."""

import json

import pyarrow.compute as pc
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.dropped import dropped, edits
from gristmill.flows.reports.funnel import funnel_row
from gristmill.flows.reports.lineage import trace
from gristmill.flows.reports.marking import restored
from gristmill.flows.reports.status import show, status
from gristmill.flows.reports.whatif import funnel, whatif
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import layout, parquet
from gristmill.storage.home import open_stage
from gristmill.storage.remote.streams import RemoteIOConfig
from tests.corpora import context

BANNER = "We use biscuits on this site, and so do our partners."
LEDE = "The mill turns again. It stood still for years. Grain comes by boat."
PROSE = "Sacks of {0} are weighed twice. A {0} stone is dressed with care. The {0} flour goes to town."
SCRIPT = "Switch on javascript to see fine pictures."
WORDS = "rye durum wheat barley maize rice spelt millet".split()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> dict:
    """Twelve pages under one banner: three begin alike, one has a line that C4 cuts, two have nothing but the banner,
    two have two sentences."""
    folder = tmp_path_factory.mktemp("pages")
    pages = [[BANNER, "", LEDE if i < 3 else "Hear.", PROSE.format(word)] for i, word in enumerate(WORDS)]
    pages[-1].append(SCRIPT)
    pages += [[BANNER], [BANNER], [BANNER, "Nothing of hops. Go home."], [BANNER, "Nothing of grapes. Go home."]]
    for shard in range(2):
        rows = [{"text": "\n".join(page), "url": f"https://mill.example/{i}"} for i, page in enumerate(pages)]
        (folder / f"{shard}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[shard::2]))
    return {
        "name": "passages",
        "sources": [{"name": "web", "jsonl": [f"{folder}/*.jsonl"], "url_column": "url"}],
        "steps": [
            {"step": "extract", "engine": "plain"},
            {"step": "ccnet", "min_characters": 20},
            {"step": "line_dedup", "partitions": 2},
            {"step": "sentence_dedup", "sentences": 2, "min_words": 5},
            {"step": "c4", "min_words_per_line": 2, "min_sentences": 3},
        ],
        "mixture": {"weights": {"web": 1}},
    }


@pytest.fixture(scope="module")
def curated(tmp_path_factory, recipe) -> Corpus:
    """The corpus, made in this process, stage by stage as a run makes it."""
    *_, last = curate(context(str(tmp_path_factory.mktemp("home"))), load(recipe))
    return last.left


@pytest.fixture
def home(curated) -> str:
    return curated.documents.folder.rsplit("/stages/", 1)[0]


@pytest.fixture
def made(curated) -> dict[str, str]:
    """The folder of each stage; of the two of the name `rules` that of the later."""
    return {built.name: built.folder for built in curated.stages}


def rows(folder: str, part=layout.part) -> list[dict]:
    return [row for shard in range(2) for row in parquet.read_table(part(folder, shard)).to_pylist()]


@pytest.mark.extended
def test_the_first_by_id_stays_and_the_ledgers_have_the_rest(made):
    before, lines, spans, last = (rows(made[n]) for n in ("documents", "line_dedup", "sentence_dedup", "edited"))
    first = min(row["id"] for row in before)
    assert [row["id"] for row in lines if BANNER in row["text"]] == [first]
    first = min(row["id"] for row in before if LEDE in row["text"])
    assert [row["id"] for row in lines if LEDE in row["text"]] == [first]
    assert sum("Hear." in row["text"] for row in lines) == len(WORDS) - 3  # five characters may repeat
    assert all(sum(word in row["text"] for row in last) == 1 for word in WORDS)
    assert not any("javascript" in row["text"] for row in last)
    assert all(row["characters"] == len(row["text"]) for row in lines + spans + last)
    gone = rows(made["line_dedup"], layout.ledger_part)
    alone = {row["id"] for row in before if row["text"] == BANNER}
    assert {row["id"] for row in gone} == alone - {row["id"] for row in lines}
    assert {(row["step"], row["rule"], row["value"], row["threshold"]) for row in gone} == {
        ("line_dedup", "min_words", 0, 1)
    }
    stage = open_stage(made["line_dedup"])
    assert stage.result["repeated"] == 11 + 2
    cuts = len(rows(made["line_dedup"], layout.edits_part))
    [row] = map(funnel_row, stage.step_counts)
    assert (row.edits, row.drops) == ({"repeated_line": cuts}, {"min_words": len(gone)})


def test_cuts_and_drops_are_shown_and_traced(home, made):
    before = {row["id"]: row["text"] for row in rows(made["documents"])}
    after = {row["id"]: row["text"] for row in rows(made["line_dedup"])}
    shown = list(edits(home, "line_dedup", 99))
    assert all(name.startswith("line_dedup-") for name, _ in shown)
    assert {line for _, row in shown for line in row["removed"].splitlines()} == {BANNER, LEDE, ""}
    for shard in range(2):
        cuts = parquet.read_table(layout.edits_part(made["line_dedup"], shard))
        for row in parquet.read_table(layout.part(made["line_dedup"], shard)).to_pylist():
            own = cuts.filter(pc.equal(cuts["id"], row["id"])).sort_by("start")
            assert restored(row["text"], own) == before[row["id"]]
    gone = list(dropped(home, "dropped", "line_dedup.min_words", 9))
    assert gone and all(found.text == BANNER and found.row["url"] for found in gone)
    assert {found.marks for found in gone} == {((0, len(BANNER)),)}
    # a drop behind the cuts is shown with the text that the cuts left
    late = list(dropped(home, "dropped", "c4", 9))
    assert late and all(found.text == after[found.row["id"]] for found in late)
    assert any(BANNER not in found.text for found in late)

    [kept] = [row for row in rows(made["edited"]) if "millet" in row["text"]]
    [found] = trace(home, kept["id"], RemoteIOConfig())
    stages = [decision.stage.split("-")[0] for decision in found.decisions]
    assert stages == ["rules", "line_dedup", "sentence_dedup", "edited", "rules"]
    assert all(decision.kept for decision in found.decisions)
    [found] = trace(home, gone[0].row["id"], RemoteIOConfig())
    last = found.decisions[-1]
    assert not last.kept
    names = ("step", "rule", "value", "threshold")
    assert [last.row[name] for name in names] == ["line_dedup", "min_words", 0.0, 1.0]
    [row] = [row for row in status(home) if row.stage.startswith("line_dedup")]
    assert row.state == "finished" and row.documents_in == 12
    [shown] = show(home, "line_dedup", 9)
    assert any("millet" in document.text for document in shown.documents)


def test_thresholds_before_and_behind_are_replayed_and_those_of_the_cuts_are_not(home, made, recipe):
    settings = MachineSettings(home=home)
    replay = whatif(recipe, {"ccnet.min_characters": 100}, settings)
    compared = funnel(replay)
    assert [row.step for row in compared] == ["extract", "ccnet", "line_dedup", "sentence_dedup", "c4"]
    assert list(compared[1].rules) == ["characters"]
    assert [row.position for row in compared if row.replayed is None] == ["behind"] * 3
    behind = whatif(recipe, {"c4.min_sentences": 1}, settings)
    assert sum(len(behind.shard(n).kept) for n in range(2)) == len(rows(made["sentence_dedup"]))
    with pytest.raises(ValueError, match="line_dedup looks at all documents together"):
        whatif(recipe, {"line_dedup.min_words": 3}, settings)
