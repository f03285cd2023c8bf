"""Steps that cut repeated passages in a run: the funnel, and what `show`, `lineage` and `what-if` make of them."""

import json

import pyarrow.compute as pc
import pytest

from flows.context import summed, told
from flows.curation import curate
from flows.machine import MachineSettings
from flows.recipe import load
from flows.reports.dropped import dropped, edits, restored
from flows.reports.lineage import trace
from flows.reports.status import show, status
from flows.reports.whatif import funnel, remarks, whatif
from flows.stages.all_stages import Corpus
from storage import files, layout, parquet
from storage.remote.config import RemoteIOConfig
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
    manifest = files.read_json(f"{made['line_dedup']}/manifest.json")
    assert manifest["repeated"] == 11 + 2
    steps = [count for shard in manifest["shards"] for count in shard["steps"]]
    cuts = len(rows(made["line_dedup"], layout.edits_part))
    assert sum(count["edits"]["repeated_line"] for count in steps) == cuts
    assert told(summed([count] for count in steps)[0])[1] == f"repeated_line {cuts}, min_words {len(gone)}"


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
    assert [line.split("-")[0] for line in found.fate] == ["rules", "line_dedup", "sentence_dedup", "edited", "rules"]
    assert all(line.endswith(": kept") for line in found.fate)
    [found] = trace(home, gone[0].row["id"], RemoteIOConfig())
    assert "dropped by line_dedup.min_words, value 0.0, threshold 1.0" in found.fate[-1]
    assert any(row[0].startswith("line_dedup") and row[1] == "finished" and row[2] == "12" for row in status(home))
    assert any("millet" in text for text in show(home, "line_dedup", 9, 200))


def test_thresholds_before_and_behind_are_replayed_and_those_of_the_cuts_are_not(home, made, recipe):
    settings = MachineSettings(home=home)
    replay = whatif(recipe, {"ccnet.min_characters": 100}, settings)
    assert [row[0] for row in funnel(replay)] == [
        *("extract", "ccnet", "  characters", "line_dedup", "sentence_dedup", "c4"),
    ]
    assert "Not replayed: line_dedup" in remarks(replay)[0]
    behind = whatif(recipe, {"c4.min_sentences": 1}, settings)
    assert sum(len(behind.shard(n).kept) for n in range(2)) == len(rows(made["sentence_dedup"]))
    with pytest.raises(ValueError, match="line_dedup looks at all documents together"):
        whatif(recipe, {"line_dedup.min_words": 3}, settings)
