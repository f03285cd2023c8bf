"""Documents that a language model writes from those of another recipe, with the faulty server of the tests."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gristmill.flows.cli import documents as render
from gristmill.flows.curation import Outputs, curate
from gristmill.flows.explore.dependents import receipt as receipts
from gristmill.flows.explore.dependents import takedown
from gristmill.flows.explore.dependents.documents import holdings
from gristmill.flows.explore.dependents.erasure import Request, find_targets
from gristmill.flows.machine.runs import RunRecorder, all_runs, forget
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.dependents.graph import graph_of
from gristmill.flows.reports.dropped import dropped
from gristmill.flows.reports.token_lineage import trace_token
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.evaluation.documents import evaluation_documents, read, unfiltered_documents
from gristmill.flows.stages.removal import evaluation_removal
from gristmill.storage import parquet
from gristmill.storage.home import Home
from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.engine import options
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.language_model.answers import AnswerStore
from tests.corpora import context
from tests.language_model.faults import Plan
from tests.language_model.planted import rewriting
from tests.language_model.serving import ROOT, Served, serving

PROMPT = {"user": "Write the text again, in other words.\n<text>{{ text }}</text>"}
SENTENCES = (
    "The mill at the river grinds rye on Mondays.",
    "Its stones were cut in the year 1871 from a local quarry.",
    "Farmers bring their sacks early, before the heat of the day.",
    "The miller keeps one part in sixteen as his fee.",
    "In winter the wheel is freed from ice with long poles.",
)


def text_of(number: int) -> str:
    return f"Page {number} of the almanac. " + " ".join(
        f"{each} This is remark {number * 7 + nth}." for nth, each in enumerate(SENTENCES)
    )


@contextmanager
def asking(server: Served, monkeypatch: pytest.MonkeyPatch, **limits) -> Iterator[None]:
    """Jobs of this process ask a server."""
    monkeypatch.setenv("GRISTMILL_SECRET_LM", server.key)
    before = options.current()
    options.configure(replace(before, lm=LanguageModelServer(base_url=server.base_url, **limits)))
    try:
        yield
    finally:
        options.configure(before)


def write(folder: Path, count: int = 12, **rewrite) -> Path:
    """The recipes a.yaml, of two files, and b.yaml, with its rewrites beside the original."""
    folder.mkdir(exist_ok=True)
    for nth in range(2):
        rows = [
            {"text": text_of(number), "url": f"https://almanac.example/{number}"} for number in range(nth, count, 2)
        ]
        (folder / f"web-{nth}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    web = {"name": "web", "jsonl": ["web-*.jsonl"], "url_column": "url", "shard_bytes": 1}
    (folder / "takedown.txt").touch()
    original = {"name": "a", "sources": [web], "steps": [], "takedowns": ["takedown.txt"]}
    (folder / "a.yaml").write_text(json.dumps(original))
    settings = {"recipe": "a.yaml", "model": "planted", "prompt": PROMPT, "language": None, **rewrite}
    both = {"name": "b", "sources": [web, {"name": "qa", "rewrite": settings}], "steps": []}
    (folder / "b.yaml").write_text(json.dumps(both))
    return folder / "b.yaml"


def curated(home: Path, recipe: Path, workers: int = 1) -> Corpus:
    *_, last = curate(context(str(home), Threads(workers, None)), load(recipe))
    return last.left


def ledger_of(home: Path) -> dict[str, str]:
    """The rule for each document that has no rewrite."""
    [stage] = Home(str(home)).stages("rewrites")
    rows = [row for shard in range(2) for row in parquet.read_table(stage.ledger(shard)).to_pylist()]
    return {row["id"]: row["rule"] for row in rows}


def documents_of(corpus: Corpus, source: str) -> list[dict]:
    rows = []
    for shard, name in enumerate(corpus.sources):
        if name == source:
            kept = parquet.read_table(corpus.kept.part(shard), ["id"])["id"].to_pylist()
            rows += [row for row in parquet.read_table(corpus.documents.part(shard)).to_pylist() if row["id"] in kept]
    return rows


@pytest.mark.extended
def test_rewrites_are_documents_that_name_their_source(tmp_path, monkeypatch):
    recipe = write(tmp_path)
    with serving(mode="rewrite", latency=0) as server, asking(server, monkeypatch):
        corpus = curated(tmp_path / "home", recipe)
        assert server.bill()["requests"] == server.bill()["distinct"] == 12
    originals = {row["id"]: row for row in documents_of(corpus, "web")}
    rewrites = documents_of(corpus, "qa")
    assert len(originals) == len(rewrites) == 12
    for row in rewrites:
        source = originals[row["derived_from"]]
        assert row["text"] == rewriting(7, source["text"])
        assert (row["url"], row["offset"], row["file"]) == (source["url"], source["offset"], f"web/{source['file']}")
        assert (row["derived_source"], row["rewrite_model"]) == ("web", "planted")
        assert row["rewrite_new_numbers"] == 0
        assert row["rewrite_ratio"] == len(row["text"]) / len(source["text"])
    [stage] = Home(str(tmp_path / "home")).stages("rewrites")
    assert stage.result["rewrites"] == 12 and stage.result["answers"]["requests"] == 12


@pytest.mark.extended
def test_an_answer_that_is_no_rewrite_drops_its_document_with_the_reason(tmp_path, monkeypatch):
    recipe = write(tmp_path, count=40)
    always = {"refusal": 0.2, "content_filter": 0.2, "length": 0.2, "empty_content": 0.2}
    with serving(mode="rewrite", latency=0, plan=Plan(always=always)) as server, asking(server, monkeypatch):
        corpus = curated(tmp_path / "home", recipe)
        faults = {line["hash"]: line["fault"] for line in server.billed()}
        answers = {line["content"] for line in server.billed() if line["content"]}
    rules = ledger_of(tmp_path / "home")
    expected = {"empty_content": "too_short", None: "kept"}
    counts: dict[str, int] = {}
    for fault in faults.values():
        rule = expected.get(fault, fault)
        counts[rule] = counts.get(rule, 0) + 1
    kept = counts.pop("kept")
    assert len(documents_of(corpus, "qa")) == kept > 0
    assert sorted(rules.values()) == sorted(rule for rule, count in counts.items() for _ in range(count))
    assert {*rules.values()} == {"refusal", "content_filter", "length", "too_short"}
    originals = {row["id"]: row["text"] for row in documents_of(corpus, "web")}
    shown = [*dropped(str(tmp_path / "home"), "rewrites", "rewrite", 40)]
    assert {one.row["id"]: one.row["rule"] for one in shown} == rules
    assert {one.answer for one in shown if one.row["rule"] == "length"} <= {answer.strip() for answer in answers}
    for one in shown:
        assert one.text == originals[one.row["id"]]
        assert bool(one.answer) == (one.row["rule"] != "too_short"), one
        printed = render.dropped(one, 200).plain
        assert ("-- the language model wrote:\n" + one.answer[:200] in printed) == bool(one.answer)
    victim = next(one for one in shown if one.answer)  # as after a takedown
    [path] = (tmp_path / "home" / "answers").rglob(f"{digest_of(tmp_path / 'home', victim.row['id'])}.json")
    path.unlink()
    [again] = [one for one in dropped(str(tmp_path / "home"), "rewrites", "", 40) if one.row["id"] == victim.row["id"]]
    assert again.answer == "" and again.text == victim.text


def digest_of(home: Path, document: str) -> str:
    """The request about a document, by the table of the stage."""
    tables = [pq.read_table(path).to_pylist() for path in home.glob("stages/rewrites-*/asked/*.parquet")]
    [digest] = [row["answer"] for table in tables for row in table if row["id"] == document]
    return digest


def test_two_sources_rewrite_one_recipe_with_different_prompts(tmp_path, monkeypatch):
    recipe, home = write(tmp_path, count=8), tmp_path / "home"
    whole = json.loads(recipe.read_text())
    both = whole["sources"]
    strict = {"user": "Shorten it.\n<text>{{ text }}</text>"}
    both.append({"name": "short", "rewrite": {**both[1]["rewrite"], "prompt": strict, "of": 5}})
    recipe.write_text(json.dumps(whole))
    with serving(mode="rewrite", latency=0) as server, asking(server, monkeypatch):
        corpus = curated(home, recipe)
        assert server.bill()["requests"] == server.bill()["distinct"] == 8 + 5
    first, second = documents_of(corpus, "qa"), documents_of(corpus, "short")
    assert len(first) == 8 and len(second) == 5
    assert {row["derived_from"] for row in second} < {row["derived_from"] for row in first}
    assert len({row["id"] for row in (*first, *second)}) == 13
    prompts = {row["rewrite_prompt"] for row in first}, {row["rewrite_prompt"] for row in second}
    assert len(prompts[0] | prompts[1]) == 2
    assert len(Home(str(home)).stages("rewrites")) == 2


@pytest.mark.extended
def test_the_same_bytes_with_any_number_of_workers_and_clients(tmp_path, monkeypatch):
    recipe = write(tmp_path, of=7, by=["characters"])
    faults = {"server_error": 0.2, "rate_limit_milliseconds": 0.2, "cut_body": 0.2, "length": 0.2}
    plan = Plan(each_attempt=faults, retry_after=0.01)
    contents = []
    with serving(mode="rewrite", latency=0, plan=plan) as server:
        for workers, clients in ((1, 1), (3, 2)):
            home = tmp_path / f"home-{workers}"
            if contents:  # the server answers differently at a later attempt
                (tmp_path / "home-1" / "answers").rename(home.with_name("kept"))
                home.mkdir()
                home.with_name("kept").rename(home / "answers")
            with asking(server, monkeypatch, clients=clients, patience_seconds=30):
                curated(home, recipe, workers)
            contents.append([stage.contents for stage in Home(str(home)).stages("rewrites")])
            assert Home(str(home)).stages("rewrites")[0].result["asked"] == 7
    assert contents[0] == contents[1]


@pytest.mark.extended
def test_a_document_that_is_taken_down_takes_its_rewrite_with_it_and_leaves_the_others(tmp_path, monkeypatch):
    recipe, home = write(tmp_path, of=6), tmp_path / "home"
    with serving(mode="rewrite", latency=0) as server, asking(server, monkeypatch):
        before = {row["id"]: row for row in documents_of(curated(home, recipe), "qa")}
        paid = server.bill()["requests"]
        gone = sorted(before)[0]
        (tmp_path / "takedown.txt").write_text(f"{before[gone]['derived_from']}\n")
        after = {row["id"]: row for row in documents_of(curated(home, recipe), "qa")}
        assert server.bill()["requests"] == paid == 6
    assert after == {id_: row for id_, row in before.items() if id_ != gone}


@pytest.mark.parametrize(
    "rewrite, sentence",
    [
        ({"prompt": "educational"}, "has a prompt with `answer`"),
        ({"prompt": "translation", "values": {"language": "German"}}, "has the value language, which the prompt"),
        ({"prompt": "no_such"}, "there is no prompt 'no_such'"),
        ({"by": ["url"]}, "has `by` without `of`"),
        ({"min_ratio": 2, "max_ratio": 1}, "has min_ratio 2 above max_ratio 1"),
        ({"options": {"model": "x"}}, "has model, which the step sets"),
        ({"recipe": "missing.yaml"}, "which cannot be read"),
        ({"recipe": "b.yaml"}, "the recipes rewrite each other (b.yaml → b.yaml)"),
    ],
)
def test_wrong_settings_are_refused(tmp_path, rewrite, sentence):
    found = check(str(write(tmp_path, **rewrite)), MachineSettings(home=str(tmp_path / "home"))).findings
    assert [finding for finding in found if sentence in str(finding)], found


def test_recipes_that_rewrite_each_other_are_refused(tmp_path, monkeypatch):
    recipe = write(tmp_path)
    back = {"name": "back", "rewrite": {"recipe": "b.yaml", "model": "planted", "prompt": "summary"}}
    original = json.loads((tmp_path / "a.yaml").read_text())
    (tmp_path / "a.yaml").write_text(json.dumps(original | {"sources": [*original["sources"], back]}))
    settings = MachineSettings(home=str(tmp_path / "home"))
    [finding] = [each for each in check(str(recipe), settings).findings if "each other" in str(each)]
    assert "a.yaml → b.yaml → a.yaml" in finding.message and finding.key == "sources.qa.rewrite.recipe"
    with pytest.raises(RecipeError, match="rewrite each other"):
        curated(tmp_path / "home", recipe)


def test_a_problem_of_the_other_recipe_is_a_finding(tmp_path):
    recipe = write(tmp_path)
    for path in tmp_path.glob("web-*.jsonl"):
        path.unlink()
    original = json.loads((tmp_path / "b.yaml").read_text())
    alone = original | {"sources": original["sources"][1:]}
    recipe.write_text(json.dumps(alone))
    found = check(str(recipe), MachineSettings(home=str(tmp_path / "home"))).findings
    assert [each for each in found if each.key == "sources.qa.rewrite.recipe" and "web-" in each.message], found


@pytest.mark.extended
def test_the_lineage_of_a_token_of_a_rewrite_leads_to_the_record_of_its_document(tmp_path, monkeypatch):
    recipe, home = write(tmp_path), tmp_path / "home"
    given = json.loads(recipe.read_text()) | {
        "tokenizer": {"vocab_size": 350},
        "mixture": {"weights": {"qa": 1}, "heldout_fraction": 0.3},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 16},
        "training": {"steps": 4, "batch": 2, "micro_batch": 1, "warmup_steps": 1},
    }
    recipe.write_text(json.dumps(given))
    with serving(mode="rewrite", latency=0) as server, asking(server, monkeypatch):
        Outputs(context(str(home)), load(recipe)).make("tokens")
    sources = [
        found
        for path in sorted((home / "stages").glob("tokens-*/train-*.bin"))
        if (found := trace_token(str(home), str(path), 0, DEFAULT)).document.row["source"] == "qa"
    ]
    traced = sources[0]
    row, origin = traced.document.row, traced.document.origin
    assert traced.derived.same(traced.place)
    assert row["text"] == rewriting(7, origin.row["text"]) and origin.row["id"] == row["derived_from"]
    assert origin.record.payload.decode() == origin.row["text"]
    assert AnswerStore(str(home)).find(row["rewrite_answer"]).content == row["text"]
    printed = "\n".join(render.token_lineage(traced, 200))
    assert f"-- rewritten from {origin.row['id']}, by planted" in printed
    assert row["rewrite_prompt"] in printed and row["rewrite_answer"] in printed


def recorded(home: Path, recipe: Path) -> None:
    """Run a recipe up to its corpus, and record the run."""
    loaded, here = load(recipe), context(str(home))
    recorder = RunRecorder(str(home), loaded.name, flow="corpus", recipe=loaded.model_dump(mode="json"))
    for _ in curate(here.noting(lambda one: recorder.add(one.label)), loaded):
        pass
    recorder.finished()


def paths_with(folder: Path, phrase: str) -> set[str]:
    """The top folders of the home that have a file with a phrase, in tables and in plain files."""
    found = set()
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            values = str(pq.read_table(path).to_pydict())
        else:
            values = path.read_text(errors="replace") if path.is_file() else ""
        if phrase in values:
            found.add(str(path.relative_to(folder)))
    return found


@pytest.mark.extended
def test_a_takedown_leaves_nothing_of_a_document_its_rewrite_and_the_answer(tmp_path, monkeypatch):
    recipe, home = write(tmp_path, count=30), tmp_path / "home"
    listed = str(tmp_path / "takedown.txt")
    for name in ("a", "b"):  # the step `url` keeps the extraction from reading what is listed
        given = json.loads((tmp_path / f"{name}.yaml").read_text())
        lists = {"steps": [{"step": "url", "takedowns": [listed]}, {"step": "extract"}], "takedowns": [listed]}
        (tmp_path / f"{name}.yaml").write_text(json.dumps({**given, **lists}))
    settings = MachineSettings(home=str(home))
    always = {"length": 0.5}  # cut answers are no rewrites, and in the home
    with serving(mode="rewrite", latency=0, plan=Plan(always=always)) as server, asking(server, monkeypatch):
        recorded(home, recipe)
        kept = {line["document"]: line for line in server.billed()}
        [old] = Home(str(home)).stages("rewrites")
        dropped = {row["id"] for shard in range(2) for row in parquet.read_table(old.ledger(shard)).to_pylist()}
        rewritten = [row for shard in range(2) for row in parquet.read_table(old.part(shard)).to_pylist()]
        urls = {row["url"] for row in rewritten}
        gone = [sorted(urls)[0], sorted({f"https://almanac.example/{n}" for n in range(30)} - urls)[0]]
        assert len(dropped) + len(rewritten) == 30 and kept
        phrases = [f"This is remark {int(url.rpartition('/')[2]) * 7}." for url in gone]
        assert all(any(path.startswith("answers/") for path in paths_with(home, phrase)) for phrase in phrases)
        plan = takedown.plan(settings, load(recipe), Request(entries=tuple(gone)))
        assert {(target.source, target.url) for target in plan.targets} == {
            ("web", gone[0]),
            ("web", gone[1]),
            ("qa", gone[0]),
        }
        receipt = takedown.write(settings, plan)
        assert len(receipt.value["answers"]) == 2
        recorded(home, recipe)
        assert server.bill()["requests"] == 30, "nothing is asked again"
    takedown.remove_released(settings, receipt, "b")
    searched = receipts.search(settings, graph_of(str(home)), receipt)
    assert searched.is_clean, searched.last
    assert [paths_with(home, phrase) for phrase in phrases] == [set(), set()]
    [new] = Home(str(home)).stages("rewrites")
    others = [row for shard in range(2) for row in parquet.read_table(new.part(shard)).to_pylist()]
    assert others == [row for row in rewritten if row["url"] != gone[0]]
    assert len(list((home / "answers").rglob("*.json"))) == 28


@pytest.mark.extended
def test_the_steps_that_a_receipt_gives_for_the_extraction_of_the_other_recipe_end_clean(tmp_path, monkeypatch):
    recipe, home, other = write(tmp_path, of=6), tmp_path / "home", tmp_path / "a.yaml"
    given = json.loads(recipe.read_text())
    recipe.write_text(json.dumps({**given, "sources": given["sources"][1:], "takedowns": ["takedown.txt"]}))

    def take_down() -> receipts.Receipt:
        settings = MachineSettings(home=str(home))  # configures the jobs of this process
        receipt = takedown.write(settings, takedown.plan(settings, load(recipe), Request(entries=(gone,))))
        recorded(home, recipe)
        takedown.remove_released(settings, receipt, "b")
        return receipts.search(settings, graph_of(str(home)), receipt)

    with serving(mode="rewrite", latency=0) as server, asking(server, monkeypatch):
        monkeypatch.setenv("GRISTMILL_LM__BASE_URL", server.base_url)
        recorded(home, other)
        recorded(home, recipe)
        [stage] = [
            each for each in Home(str(home)).stages("documents") if "derived_from" in parquet.columns(each.part(0))
        ]
        rows = [row for path in stage.parts for row in parquet.read_table(path, ["derived_from", "url"]).to_pylist()]
        gone, url = rows[0]["derived_from"], rows[0]["url"]
        lines = [*receipts.lines(take_down())]
        [said] = [line for line in lines if line.startswith("documents-")]
        assert ", the extraction of a, is kept by runs of the recipes a, b" in said
        steps = lines[lines.index(said) + 1 :]
        assert steps[0].startswith("  1. begin the steps of a with {step: url, takedowns: [LIST]}")
        assert steps[1].endswith(f"no effect there: {url}") and "drawn again" in steps[2]
        (tmp_path / "takedown.txt").write_text((tmp_path / "takedown.txt").read_text() + f"{url}\n")
        first = {"step": "url", "takedowns": [str(tmp_path / "takedown.txt")]}
        other.write_text(json.dumps({**json.loads(other.read_text()), "steps": [first]}))
        assert steps[3] == "  2. gristmill corpus, with each of these recipes: a, b"
        recorded(home, other)
        recorded(home, recipe)
        labels = [line.rpartition(" ")[2] for line in steps if line.startswith("  3. gristmill home forget ")]
        assert {label.partition("/")[0] for label in labels} == {"a", "b"}
        for run in all_runs(str(home)):
            if run.label in labels:
                forget(str(home), run)
        last = take_down()
        assert last.is_clean, last.last
        assert server.bill()["requests"] == 7, "one document enters the sample, as the receipt says"


@pytest.mark.extended
def test_an_id_in_the_list_of_the_other_recipe_names_its_rewrite_too(tmp_path, monkeypatch):
    recipe, home = write(tmp_path), tmp_path / "home"
    with serving(mode="rewrite", latency=0) as server, asking(server, monkeypatch):
        row = documents_of(curated(home, recipe), "qa")[0]
    found, targets = find_targets(
        MachineSettings(home=str(home)), graph_of(str(home)), Request(entries=(row["derived_from"],))
    )
    assert {target.id for target in targets} == {row["derived_from"], row["id"]}
    assert {target.entry for target in targets} >= {f"rewrite of {row['derived_from']}"}
    held, _ = holdings(graph_of(str(home)), found, graph_of(str(home)).stages)
    by_name = {label.rpartition("-")[0]: holding for label, holding in held.items()}
    assert by_name["rewrites"].documents == 1


KILLED = """
import sys
from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.tasks.engine import options
from gristmill.tasks.engine.options import JobOptions, LanguageModelServer
from tests.corpora import context
options.configure(JobOptions(lm=LanguageModelServer(base_url=sys.argv[3], concurrency=4)))
for _ in curate(context(sys.argv[1]), load(sys.argv[2])):
    pass
"""


@pytest.mark.extended
def test_a_run_that_is_killed_goes_on_without_paying_twice(tmp_path, monkeypatch):
    recipe, home = write(tmp_path, count=60), tmp_path / "home"
    with serving(mode="rewrite", latency=0.05, idempotent=True) as server:
        environment = {**os.environ, "GRISTMILL_SECRET_LM": server.key}
        command = [sys.executable, "-c", KILLED, str(home), str(recipe), server.base_url]
        process = subprocess.Popen(command, env=environment, cwd=ROOT)
        while len(list(home.glob("answers/*/*.json"))) < 15 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        before = len(list(home.glob("answers/*/*.json")))
        assert 15 <= before < 60, "it was killed while it asked"
        with asking(server, monkeypatch):
            corpus = curated(home, recipe)
        bill = server.bill()
    assert bill["distinct"] == 60 and bill["requests"] == bill["distinct"]
    assert len(documents_of(corpus, "qa")) == 60


@pytest.mark.extended
def test_a_rewrite_in_another_language_is_dropped(tmp_path, monkeypatch):
    recipe, home = write(tmp_path, count=6, language="source"), tmp_path / "home"
    original = json.loads((tmp_path / "a.yaml").read_text())
    (tmp_path / "a.yaml").write_text(json.dumps(original | {"steps": [{"step": "language", "min_score": 0.0}]}))
    with serving(mode="rewrite", latency=0) as server, asking(server, monkeypatch):
        assert len(documents_of(curated(home, recipe), "qa")) == 6
        write_language = json.loads(recipe.read_text())
        write_language["sources"][1]["rewrite"]["language"] = "de"
        recipe.write_text(json.dumps(write_language))
        with pytest.raises(ValueError, match="qa has no rewrites: of 6 documents, the rule language dropped 6"):
            curated(home, recipe)
    rules = [
        row["rule"] + row["detail"]
        for stage in Home(str(home)).stages("rewrites")
        for shard in range(2)
        for row in parquet.read_table(stage.ledger(shard)).to_pylist()
    ]
    assert rules == ["languageen, not de"] * 6


@pytest.mark.extended
def test_an_evaluation_document_takes_its_rewrite_out_of_training_and_the_reverse(tmp_path, monkeypatch):
    recipe, home = write(tmp_path, count=60), str(tmp_path / "home")
    with serving(mode="rewrite", latency=0) as server, asking(server, monkeypatch):
        given, here = load(recipe), context(home)
        *_, last = curate(here, given)
        evaluation = evaluation_documents(here, [given], per_source=6)
        whole = unfiltered_documents(here, given)
        corpus = evaluation_removal(here, whole, last.left, evaluation)
    rows = {row["id"]: row for source in ("web", "qa") for row in documents_of(last.left, source)}
    evaluated = {row["id"] for row in read(evaluation, ["id"]).to_pylist()}
    gone = {
        row["id"]: row["rule"]
        for shard in range(len(corpus.sources))
        for row in parquet.read_table(f"{corpus.kept.folder}/ledger/part-{shard:05d}.parquet").to_pylist()
    }
    of_rewrites = {rows[each]["derived_from"] for each in evaluated if rows[each]["derived_from"]}
    written = {each for each, row in rows.items() if row["derived_from"] in evaluated}
    assert of_rewrites - evaluated and written - evaluated
    assert {*gone} == evaluated | of_rewrites | written
    assert {gone[each] for each in written - evaluated} == {"rewrite_of_evaluation_document"}
    assert {gone[each] for each in of_rewrites - evaluated} == {"source_of_evaluation_document"}
