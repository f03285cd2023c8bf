"""Stages of a recipe as a tree: each once, in order, with what was made on the side."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gristmill.flows.cli.looking import stage_tree
from gristmill.flows.reports.status import StageNode, StageStatus, trees


def stage(name: str, key: str, *inputs: tuple[str, str], **more) -> StageStatus:
    return StageStatus(f"{name}-{key}", "finished", inputs=dict(inputs), recipes=("web",), **more)


ROWS = [
    stage("tokenizer", "k" * 16, ("documents", "a"), ("kept", "c")),
    stage("tokens", "t", ("documents", "a"), ("kept", "c"), ("tokenizer", "k" * 16), tokens=1200),
    stage("perplexity_model", "m", ("documents", "a"), ("kept", "b")),
    stage(
        "perplexity_cut", "c", ("documents", "a"), ("kept", "b"), ("perplexity", "p"), documents_in=9, documents_out=7
    ),
    stage("perplexity", "p", ("documents", "a"), ("kept", "b"), ("model", "m")),
    stage("documents", "a", ("files", "0"), documents_in=10, documents_out=9),
    stage("rules", "b", ("documents", "a"), ("kept", "a"), documents_in=9, documents_out=9),
    StageStatus("model-x", "unfinished", jobs_done=0, recipes=("web",)),
]


def test_documents_go_down_and_what_a_stage_needed_hangs_on_it():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(stage_tree("web", trees(ROWS)["web"]))
    assert console.export_text().splitlines() == [
        "web",
        "├── documents  a  10 → 9",
        "├── rules  b  9 → 9",
        "├── perplexity_cut  c  9 → 7",
        "│   └── perplexity  p",
        "│       └── perplexity_model  m",
        "├── tokens  t  1,200 tokens",
        "│   └── tokenizer  kkkkkkkk",
        "└── model  x  unfinished, 0 jobs done",
    ]


def keys(nodes: tuple[StageNode, ...] | list[StageNode]) -> list[str]:
    return [key for node in nodes for key in (node.stage.key, *keys(node.aside))]


@pytest.mark.extended
@given(st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=12), st.randoms(use_true_random=False))
def test_each_stage_of_any_graph_stands_once(graph, random):
    """Inputs of a stage are stages before it; the names of inputs are drawn."""
    names = ["kept", "documents", "mixture", "model", "scores"]
    rows = [
        stage("any", str(n), *((random.choice(names), str(other % n)) for other in others if n))
        for n, others in enumerate(graph)
    ]
    random.shuffle(rows)
    found = trees(rows)
    assert sorted(keys(found.get("web", []))) == sorted(row.key for row in rows)
