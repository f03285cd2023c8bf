"""The table of what the step `rights` removed by protocol and agent, against a count by hand."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

import gristmill
from gristmill.flows.curation import curate
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.provenance.figures import answers
from gristmill.flows.reports.provenance.folder import write_papers
from gristmill.flows.reports.run import Run
from gristmill.flows.stages.mixture import training_data
from gristmill.tasks.engine.make import StageResult
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

ROBOTS = {
    "a.example": "User-agent: GPTBot\nUser-agent: CCBot\nDisallow: /\n",
    "b.example": "User-agent: CCBot\nDisallow: /1\n",
    "c.example": "User-agent: *\nDisallow: /2\nContent-Usage: /1 train-ai=n\n",
}
RESERVED = {  # by protocol and agent: hosts and numbers of pages
    ("robots", "GPTBot"): [("a", n) for n in range(6)],
    ("robots", "CCBot"): [*[("a", n) for n in range(6)], ("b", 1)],
    ("robots", "*"): [("c", 2)],
    ("content_usage", "*"): [("c", 1)],
    ("hosts", "*"): [("d", n) for n in range(6)],
}


def made(folder: Path, **more: object) -> Run:
    """A finished run of 60 documents of ten hosts."""
    prose = pydoc_paragraphs()
    rows = [
        {"text": prose[6 * at + n], "url": f"https://{host}.example/{n}"}
        for at, host in enumerate("abcdefghij")
        for n in range(6)
    ]
    (folder / "web.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [{"host": host, "text": text} for host, text in ROBOTS.items()]
    (folder / "robots.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "hosts.txt").write_text("d.example\n")
    rights = {
        "step": "rights",
        "agents": ["GPTBot", "CCBot"],
        "protocols": ["robots", "content_usage"],
        "robots": [f"{folder}/robots.jsonl"],
        "hosts": [f"{folder}/hosts.txt"],
    }
    given = {
        "name": "reserved",
        "sources": [{"name": "web", "jsonl": [f"{folder}/web.jsonl"], "url_column": "url"}],
        "steps": [{"step": "extract", "rights": True}, rights],
        **more,
    }
    recipe, noted = load(given), list[StageResult]()
    here = context(str(folder / "home")).noting(noted.append)
    *_, last = curate(here, recipe)
    if recipe.mixture is not None:
        training_data(here, recipe, last.left)
    recorder = RunRecorder(str(folder / "home"), recipe.name)
    recorder.add(*(one.label for one in noted))
    recorder.finished()
    return gristmill.open(given, home=str(folder / "home"))


@pytest.mark.extended
def test_documents_and_tokens_are_counted_by_protocol_and_agent(tmp_path):
    run = made(
        tmp_path,
        tokenizer={"vocab_size": 350, "sample_bytes": 20_000},
        mixture={"weights": {"web": 1}, "heldout_fraction": 0.1},
        model={"dim": 32, "layers": 1, "heads": 2, "seq_len": 16},
        training={"steps": 4, "batch": 2, "micro_batch": 1, "warmup_steps": 1},
    )
    characters = {url: count for url, count in run.sql("select url, characters from extracted").fetchall()}
    tokens = dict(run.sql("select id, tokens from tokens").fetchall())
    read = dict(run.sql("select id, characters from extracted where kept").fetchall())
    assert 0 < len(tokens) < len(read)  # some are held out
    ratio = sum(tokens.values()) / sum(read[id_] for id_ in tokens)
    expected = defaultdict(dict)
    for key, pages in RESERVED.items():
        count = sum(characters[f"https://{host}.example/{n}"] for host, n in pages)
        expected[key] = {"documents": len(pages), "characters": count, "tokens": round(count * ratio)}
    answer = answers(run)["opt_outs_by_agent"]
    assert {(row.pop("protocol"), row.pop("agent")): row for row in answer.value} == expected
    # a document that names two agents counts once in the sum of all rules
    assert answers(run)["opt_outs"].value == len({page for pages in RESERVED.values() for page in pages})


def test_the_papers_of_a_corpus_without_tokens_have_the_table(tmp_path):
    run = made(tmp_path)
    write_papers(run, str(tmp_path / "papers"))
    [figure] = [
        one
        for one in json.loads((tmp_path / "papers/figures.json").read_text())["figures"]
        if one["name"] == "opt_outs_by_agent"
    ]
    assert [list(row) for row in figure["value"]] == [["protocol", "agent", "documents", "characters"]] * len(RESERVED)
    for paper in ("data-card.md", "training-summary.md"):
        text = (tmp_path / "papers" / paper).read_text()
        assert f'gristmill sql RECIPE "{figure["query"]}"' in text and "| robots | CCBot | 7 |" in text
