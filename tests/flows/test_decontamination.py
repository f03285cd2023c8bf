"""The step `decontamination` as a recipe has it: planted items dropped, cut or reported, and what follows from them."""

import orjson
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import check
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.contamination import contamination
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.removal import HITS, decontamination
from gristmill.storage import layout, parquet
from gristmill.tasks.decontamination.shards import items_file, split_file
from gristmill.tasks.decontamination.step import SCORE, BenchmarkError, Decontamination
from gristmill.tasks.engine.executors import Threads
from gristmill.training.evaluate.tasks import read_task
from tests.corpora import Texts, context
from tests.planted.text import pydoc_paragraphs

QUESTION = "A miller grinds forty sacks of rye before noon and twice as many sacks after it, how many sacks are ground"
ANSWER = "one hundred and twenty sacks of rye"
OTHERS = [
    ("Which of the four wheels in the mill turns against the stream when the sluice is opened in spring", "the third"),
    ("What did the baker of the village pay for a sack of flour in the winter after the flood", "two silver coins"),
]


def benchmark(folder, name: str, items: list[tuple[str, str]]) -> dict:
    path = folder / f"{name}.jsonl"
    rows = [{"context": question, "choices": [answer, "nothing at all"], "answer": 0} for question, answer in items]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return {"name": name, "path": str(path), "question": ["context"], "answer": "choices"}


@pytest.fixture(scope="module")
def texts() -> Texts:
    """Clean documents, one with an item in capitals, one with it changed, and one with an item of another benchmark."""
    prose = pydoc_paragraphs()
    before, behind = "\n".join(prose[:4]), "\n".join(prose[4:8])
    changed = (
        QUESTION.replace("forty", "sixty")
        .replace("noon", "dusk")
        .replace("twice", "thrice")
        .replace("sacks are", "bags were")
    )
    leaks = {
        "0a": f"{before}\n{QUESTION.upper()}?! {ANSWER}.\n{behind}",
        "0b": f"{before}\n{changed}? {ANSWER}\n{behind}",
        "0c": f"{before}\n{OTHERS[1][0]}: {OTHERS[1][1]}\n{behind}",
        "0d": before,
        "0e": f"{QUESTION} {ANSWER}",
    }
    clean = {f"{i:02d}": "\n".join(prose[8 * i : 8 * i + 8]) for i in range(1, 12)}
    documents = [{"id": key, "text": text} for key, text in (leaks | clean).items()]
    return Texts([documents[0::2], documents[1::2]])


def through(home: str, texts: Texts, workers=None, **settings) -> Corpus:
    step = Decontamination.model_validate(settings)
    return decontamination(context(home, workers), texts.recipe, texts.corpus(home), step)


def ids(corpus: Corpus) -> set[str]:
    return {key for part in corpus.places.kept for key in parquet.read_table(part, ["id"])["id"].to_pylist()}


def rows(folder: str, kind: str) -> list[dict]:
    return [row for i in range(2) for row in parquet.read_table(f"{folder}/{kind}/part-{i:05d}.parquet").to_pylist()]


def test_documents_with_items_are_dropped_and_all_have_a_score(tmp_path, texts):
    mill = benchmark(tmp_path, "mill", [(QUESTION, ANSWER), OTHERS[0]])
    found = through(str(tmp_path / "home"), texts, benchmarks=[mill])
    everything = ids(texts.corpus(str(tmp_path / "home")))
    assert everything - ids(found) == {"0a", "0b", "0e"}
    drops = {row["id"]: row for row in rows(found.kept.folder, "ledger")}
    assert {row["detail"] for row in drops.values()} == {"mill:0"}
    assert {row["rule"] for row in drops.values()} == {"benchmark_item"}
    scores = [parquet.read_table(found.measured[-1].part(i)).to_pylist() for i in range(2)]
    by_id = {row["id"]: row[SCORE] for part in scores for row in part}
    assert by_id.keys() == everything
    assert {key for key, score in by_id.items() if score} == drops.keys()
    assert by_id["0a"] == by_id["0e"] == 1.0 and 0.6 <= by_id["0b"] < 1
    assert all(drops[key]["value"] == by_id[key] for key in drops)


def test_items_are_split_into_clean_and_dirty_ones_which_evaluate_reads(tmp_path, texts):
    given = benchmark(tmp_path, "mill", [OTHERS[0], (QUESTION, ANSWER)])
    found = through(str(tmp_path / "home"), texts, benchmarks=[given])
    [hits] = [stage for stage in found.stages if stage.name == HITS]
    [clean] = read_task(tmp_path / split_file(hits.folder, "clean", "mill")).examples
    [dirty] = read_task(tmp_path / split_file(hits.folder, "dirty", "mill")).examples
    assert clean.pairs[0][0] == OTHERS[0][0]
    assert dirty.pairs[0][0] == QUESTION
    items = {row["id"]: row["documents"] for row in parquet.read_table(items_file(hits.folder)).to_pylist()}
    assert items == {"0": 0, "1": 3}
    counts = hits.result["benchmarks"]["mill"]
    assert counts == {"items": 2, "judged": 2, "dirty": 1, "documents": 3}


def test_what_matches_is_cut_out_and_the_ledger_of_edits_has_it(tmp_path, texts):
    home = str(tmp_path / "home")
    mill = benchmark(tmp_path, "mill", [(QUESTION, ANSWER)])
    found = through(home, texts, benchmarks=[mill], policy="cut")
    before = {d["id"]: d["text"] for shard in texts.shards for d in shard}
    parts = [parquet.read_table(part, ["id", "text", "characters"]).to_pylist() for part in found.places.documents]
    after = {row["id"]: row for part in parts for row in part}
    assert before.keys() - after.keys() == {"0e"}  # of which nothing is left
    assert {key for key in after if after[key]["text"] != before[key]} == {"0a", "0b"}
    assert after["0a"]["text"] == before["0a"].replace(f"{QUESTION.upper()}?! {ANSWER}", "")
    assert all(row["characters"] == len(row["text"]) for row in after.values())
    edits = [row for row in rows(found.kept.folder, "edits")]
    for edit in edits:
        text = before[edit["id"]]
        assert text[edit["start"] : edit["stop"]] == edit["removed"]
        if edit["id"] in after:
            assert text[: edit["start"]] + text[edit["stop"] :] == after[edit["id"]]["text"]
    assert sorted(edit["id"] for edit in edits) == ["0a", "0b", "0e"]
    [short] = rows(found.kept.folder, "ledger")
    assert (short["id"], short["rule"], short["value"]) == ("0e", "min_characters", 0)


def test_a_report_changes_nothing(tmp_path, texts):
    mill = benchmark(tmp_path, "mill", [(QUESTION, ANSWER)])
    found = through(str(tmp_path / "home"), texts, benchmarks=[mill], policy="report")
    assert len(ids(found)) == sum(map(len, texts.shards))
    assert found.kept.step_counts[0]["drops"] == {}


def test_thirteen_words_decide_in_the_classical_way(tmp_path, texts):
    mill = benchmark(tmp_path, "mill", [(QUESTION, ANSWER), OTHERS[1]])
    found = through(str(tmp_path / "home"), texts, benchmarks=[mill], method="ngrams")
    gone = ids(texts.corpus(str(tmp_path / "home"))) - ids(found)
    assert gone == {"0a", "0c", "0e"}  # in 0b no thirteen words in a row are as they were


def test_a_benchmark_that_is_added_makes_all_that_follows_anew(tmp_path, texts):
    home = str(tmp_path / "home")
    mill = benchmark(tmp_path, "mill", [(QUESTION, ANSWER)])
    first = through(home, texts, benchmarks=[mill])
    assert all(stage.reused for stage in through(home, texts, benchmarks=[mill]).stages)
    more = through(home, texts, benchmarks=[mill, benchmark(tmp_path, "bakery", OTHERS)])
    assert ids(first) - ids(more) == {"0c"}
    made = dict(zip((s.name for s in more.stages), more.stages, strict=True))
    for stage in first.stages[1:]:
        assert made[stage.name].key != stage.key
    # the same names, other content
    benchmark(tmp_path, "mill", OTHERS[:1])
    other = through(home, texts, benchmarks=[mill])
    assert other.kept.key != first.kept.key
    assert ids(first) < ids(other)


def test_workers_change_no_byte(tmp_path, texts):
    given = [benchmark(tmp_path, "mill", [(QUESTION, ANSWER)]), benchmark(tmp_path, "bakery", OTHERS)]
    one = through(str(tmp_path / "one"), texts, benchmarks=given, policy="cut")
    two = through(str(tmp_path / "two"), texts, Threads(2, None), benchmarks=given, policy="cut")
    for a, b in zip(one.stages[1:], two.stages[1:], strict=True):
        facts = [
            [(part.phase, part.number, part.files) for part in layout.parts(stage.folder, stage.manifest)]
            for stage in (a, b)
        ]
        assert facts[0] == facts[1]


def test_a_benchmark_that_cannot_be_used_ends_the_run_before_the_first_shard(tmp_path, texts):
    given = benchmark(tmp_path, "mill", [(QUESTION, ANSWER)])
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    wrong = {
        "does not exist; correct the path": given | {"path": str(tmp_path / "none.jsonl")},
        "has no text in the field prompt of row 0": given | {"question": ["prompt"]},
        "has no items; give a file with rows": given | {"path": str(tmp_path / "empty.jsonl")},
    }
    for sentence, each in wrong.items():
        step = Decontamination.model_validate({"benchmarks": [given, {**each, "name": "other"}]})
        [(path, said)] = list(check.step_problems({3: step}, MachineSettings(home=str(tmp_path / "home")), False))
        assert path == ("steps", 3, "benchmarks", 1)
        assert sentence in said
        if "does not exist" not in sentence:
            with pytest.raises(BenchmarkError, match=sentence):
                through(str(tmp_path / "home"), texts, benchmarks=[{**each, "name": "other"}])
    assert not list((tmp_path / "home").glob(f"stages/{HITS}-*"))


def test_a_report_of_a_finished_recipe_counts_items_and_shows_them(tmp_path, texts):
    home = str(tmp_path / "home")
    lines = [orjson.dumps({"text": document["text"]}) for shard in texts.shards for document in shard]
    (tmp_path / "texts.jsonl").write_bytes(b"\n".join(lines))
    given = [benchmark(tmp_path, "mill", [(QUESTION, ANSWER), OTHERS[0]]), benchmark(tmp_path, "bakery", OTHERS[1:])]
    recipe = {
        "name": "clean",
        "sources": [{"name": "web", "jsonl": [str(tmp_path / "texts.jsonl")]}],
        "steps": [{"step": "extract", "engine": "plain"}, {"step": "decontamination", "benchmarks": given}],
    }
    for _ in curate(context(home), load(recipe)):
        pass
    [found] = contamination(recipe, 1, MachineSettings(home=home))
    assert (found.documents, found.holding) == (len(lines), 4)
    assert [(row.benchmark, row.items, row.dirty, row.documents) for row in found.benchmarks] == [
        ("bakery", 1, 1, 1),
        ("mill", 2, 1, 3),
    ]
    assert [(one.benchmark, one.item, one.score) for one in found.examples] == [("bakery", "0", 1), ("mill", "0", 1)]
    assert {one.found for one in found.examples} <= {
        f"{QUESTION.upper()}?! {ANSWER}",
        f"{QUESTION} {ANSWER}",
        f"{OTHERS[1][0]}: {OTHERS[1][1]}",
    }
    table, sentence, *_ = found.parts()
    assert sentence == f"4 of {len(lines)} documents contain an item of a benchmark."
    assert [row[:4] for row in table.texts()[1]] == [["bakery", "1", "1", "1"], ["mill", "2", "2", "1"]]
    without = recipe | {"steps": recipe["steps"][:1]}
    for _ in curate(context(home), load(without)):
        pass
    with pytest.raises(LookupError, match="has no step `decontamination`"):
        contamination(without, 1, MachineSettings(home=home))
