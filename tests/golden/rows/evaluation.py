"""Rows of decontamination, of what models are evaluated on, and of what training sees without it."""

import json
from pathlib import Path
from typing import Any

from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.evaluation.documents import evaluation_documents
from gristmill.flows.stages.evaluation.task_losses import contained_examples, task_examples
from gristmill.flows.stages.heldout import heldout, heldout_documents
from tests.golden.rows.row import BOOKS, EVALUATED, HOLDING, WEB, Row, Settings, placed, recipe, row
from tests.golden.run import Golden

LENGTH: Settings = {"step": "ccnet", "min_characters": 1}


def _benchmark(name: str, **fields: str) -> Settings:
    return {"name": name, "path": f"{{fixture}}/benchmarks/{name}.jsonl", "question": ["q"], "id": "n", **fields}


ASKED, ANSWERED = _benchmark("asked"), _benchmark("answered", answer="a")
TOLD, PASSAGES = _benchmark("told", answer="a", passage="p"), _benchmark("passages", passage="p")
NESTED: Settings = {
    "name": "nested",
    "path": "{fixture}/benchmarks/nested.jsonl",
    "question": ["x.q"],
    "answer": "x.choices.text",
}
STAGES = ("decontamination_index", "decontamination_hits", "decontamination")


def _decontamination() -> list[Row]:
    clean: Settings = {"step": "decontamination", "benchmarks": [ANSWERED, TOLD, NESTED]}
    flat: Settings = {"step": "decontamination", "benchmarks": [ASKED, PASSAGES]}
    return [
        row("clean", [HOLDING], [clean], STAGES),
        row("clean-cut", [HOLDING, BOOKS], [{**clean, "policy": "cut"}], STAGES),
        row("clean-cut-few", [HOLDING], [{**flat, "policy": "cut", "min_characters": 60, "method": "ngrams"}], STAGES),
        row(
            "clean-report",
            [HOLDING],
            [{**clean, "policy": "report", "overlap_ngram": 2, "max_misses": 12, "min_words": 9}],
            STAGES,
        ),
        row(
            "clean-strict",
            [HOLDING],
            [{**flat, "threshold": 0.8, "strict_words": 8, "tolerant_words": 20, "overlap_ngram": 4, "max_misses": 3}],
            STAGES,
        ),
        row("clean-ngrams", [HOLDING], [{**clean, "method": "ngrams", "ngram": 8}], STAGES),
        row("clean-ngrams-long", [HOLDING], [{**flat, "method": "ngrams", "ngram": 12}], STAGES),
    ]


def _split(golden: Golden, sources: list[Settings], steps: list[Settings], rest: Settings) -> None:
    """What is held out of a corpus, and the documents that models are evaluated on."""
    loaded, corpus = golden.curated(placed(recipe(sources, steps, **rest), golden))
    heldout(golden.context(), loaded, corpus)
    heldout_documents(golden.context(), loaded, corpus)


def _sets(golden: Golden, per_source: int, clean: str | None, given: Settings) -> None:
    """The documents that recipes are compared on."""
    loaded = load(placed(recipe([EVALUATED, WEB], [LENGTH]), golden))
    other = load(placed(recipe([EVALUATED], [{"step": "normalize"}, LENGTH]), golden))
    recipes = [loaded, other] if given.get("seed") else [loaded]
    evaluation_documents(golden.context(), recipes, per_source, clean and str(placed(clean, golden)), **given)


def _contained(golden: Golden, sources: list[Settings]) -> None:
    """The examples of tasks that stand in a corpus."""
    examples = task_examples(golden.context(), Path(golden.path("tasks")))
    *_, last = curate(golden.context(), load(placed(recipe(sources, [LENGTH]), golden)))
    contained_examples(golden.context(), last.left, examples)


def _other_tasks(golden: Golden) -> None:
    folder = golden.fixture / "tasks"
    task_examples(golden.context(), folder / "more")


def _own(name: str, covers: tuple[str, ...], make: Any, *given: Any) -> Row:
    return Row(name, covers, lambda golden: make(golden, *given), json.dumps(given))


NAMED: Settings = {"evaluation": {"own": "{fixture}/named.jsonl"}}


def _held() -> list[Row]:
    covers = ("heldout", "heldout_documents")
    removal = ("evaluation_removal", "evaluation_documents")
    urls: Settings = {"step": "url", "blocklists": ["{fixture}/lists/held.txt"]}
    half: Settings = {"mixture": {"weights": {"evaluated": 1}, "heldout_fraction": 0.3}}
    tight: Settings = {"training": {"eval_tokens": 600}}
    return [
        _own("heldout", covers, _split, [EVALUATED, BOOKS], [LENGTH], {}),
        _own("heldout-third", covers, _split, [EVALUATED, WEB], [LENGTH, {"step": "line_dedup"}], {**half, **tight}),
        _own(
            "heldout-few",
            covers,
            _split,
            [EVALUATED, BOOKS],
            [urls, LENGTH],
            {"mixture": {**half["mixture"], "heldout_documents": 12}},
        ),
        _own(
            "heldout-taken", covers, _split, [EVALUATED], [LENGTH], {**half, "takedowns": ["{fixture}/lists/held.txt"]}
        ),
        _own("evaluation", (*covers, *removal), _split, [EVALUATED, BOOKS], [LENGTH], {**half, **NAMED}),
        _own(
            "evaluation-cut",
            (*covers, *removal),
            _split,
            [EVALUATED],
            [{"step": "c4", "min_sentences": None, "terminal_punctuation": []}],
            {**half, **NAMED, **tight},
        ),
        row(
            "evaluation-withheld",
            [EVALUATED, BOOKS],
            [{"step": "quality", "reference": ["books"], "dimensions": 4, "buckets": 500, "epochs": 1}],
            removal,
            **NAMED,
        ),
        _own("evaluation-sets", ("evaluation_documents",), _sets, 5, None, {}),
        _own(
            "evaluation-clean",
            ("evaluation_documents",),
            _sets,
            9,
            "{fixture}/named.jsonl",
            {"characters": 90, "seed": 3},
        ),
        _own("contained", ("contained_examples", "task_examples"), _contained, [EVALUATED]),
        _own("contained-none", ("contained_examples",), _contained, [WEB, BOOKS]),
        _own("other-tasks", ("task_examples",), _other_tasks),
    ]


ROWS = (*_decontamination(), *_held())
