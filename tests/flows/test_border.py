"""What code of users does wrong is reported by its name, file and line, and costs documents only where the docs say so.

Each fault is planted in a small run of its own, in this process."""

import json
import logging
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.storage.home import Home
from gristmill.storage.parquet import read_table
from gristmill.tasks.engine import options, own_code
from gristmill.tasks.guard import parent
from tests.conftest import page, write_warc
from tests.corpora import context

STEP = """
import sys, time
from typing import ClassVar, Literal
import numpy as np
import pyarrow as pa
from gristmill.tasks.documents.edits import Edits
from gristmill.tasks.documents.step import Bound, DocumentStep, EditStep, Signal
from gristmill.tasks.rules.rule import RuleStep, rule, rule_set, measure as measure_rules


class Bad(DocumentStep):
    step: Literal["bad"] = "bad"
    max_hits: int | None = 3
    signals: ClassVar = (Signal("badness", "int64", "words", "bad_step.py", description="Bad words."),)

    def decisions(self):
        {decisions}
        return [Bound("hits", "badness", high=self.max_hits)]


class Cut(EditStep):
    step: Literal["cut"] = "cut"
    signals: ClassVar = (Signal("cut_characters", "int64", "code points", "own", description="What is left."),)

    def decisions(self):
        return [self.not_empty()]


@rule_set("own", (rule("loud", "exclamation marks", "Exclamation marks.", high=2),))
class Rules(RuleStep):
    step: Literal["rules"] = "rules"


def measure(step, documents):
    if isinstance(step, Rules):
        return measure_rules(step, documents)
    n = len(documents)
    {measure}
    return {{"badness": pa.array([0] * n, pa.int64())}}


def loud(text):
    {rule}
    return text.sum(text.documents, text.data == ord("!"))


def edit(step, documents):
    n = len(documents)
    zeros, ones = np.zeros(n, np.int64), np.ones(n, np.int64)
    rules, rows = np.zeros(n, np.int32), np.arange(n)
    {edit}
    return Edits(rows, zeros, ones, rules, ("first",), pa.array([""] * n)), {{}}
"""
FILTER = """
from typing import ClassVar, Literal
import pyarrow as pa
from gristmill.storage import files, layout, parquet
from gristmill.tasks.documents.selection import select
from gristmill.tasks.documents.step import Bound, Settings, Signal
from gristmill.tasks.models.filter import LearnedFilter


class Least(Settings):
    min_share: float = 0.5


class Known(Least, LearnedFilter):
    step: Literal["known"] = "known"
    signals: ClassVar = (Signal("known", "float64", "share", "own", description="Known words."),)
    decision_fields: ClassVar = ("min_share",)

    def training_settings(self):
        return Settings()

    def scoring_settings(self):
        return Settings()

    def decision_settings(self):
        return self.part(Least)


def train_model(folder, shard, reference, raw, settings, heldout):
    {train}
    files.write_json(files.join(folder, "words.json"), [])
    return {{"files": ["words.json"]}}


def score_shard(folder, shard, documents, kept, models, settings):
    ids = select(documents, kept, ["id"])["id"].combine_chunks()
    {score}
    parquet.write_table(layout.part(folder, shard), pa.table({{"id": ids, "known": pa.array([1.0] * len(ids))}}))
    return {{"rows": len(ids)}}


def bounds(settings, scores):
    {bounds}
    return [Bound("min_share", "known", low=settings.min_share)]
"""
READER = """
import sys, time


def lines(file):
    for number, line in enumerate(file):
        if number > 2:
            {reader}
        yield {{"text": line.decode()}}
"""
ENGINE = """
import os, time


def whole(page):
    if "good" not in page:
        {engine}
    return "The mill stands by the river."
"""
FILES = {"bad_step": STEP, "bad_filter": FILTER, "bad_reader": READER, "bad_engine": ENGINE}
PLACES = ("decisions", "measure", "rule", "edit", "train", "score", "bounds", "reader", "engine")
LINES = "".join(f"The mill stands by the river number {n}.\n" for n in range(5))
SOURCE = {"name": "web", "jsonl": ["web.jsonl"]}


@pytest.fixture
def own(tmp_path, monkeypatch, caplog):
    """Writes the modules with one fault in them; returns the recipe whose sources and steps use them."""
    for name in ("web", "good"):
        texts = [f"{line} {name}" for line in LINES.splitlines()]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "a.lines").write_text(LINES)
    write_warc(
        tmp_path / "pages.warc.gz",
        [
            (f"https://mill.example/{n}", page([text]), "200 OK", "text/html")
            for n, text in enumerate(("a", "good", "b"))
        ],
    )
    monkeypatch.setenv("GRISTMILL_STEPS", ",".join(FILES))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(own_code, "_told", set())
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG, logger="gristmill")

    def write(place: str = "measure", fault: str = "pass") -> None:
        for name, text in FILES.items():
            faults = dict.fromkeys(PLACES, "pass") | {place: fault}
            (tmp_path / f"{name}.py").write_text(text.format(**faults))

    yield write
    for name in FILES:
        sys.modules.pop(name, None)
    for key in [key for key in parent._zygotes if "bad_engine" in repr(key)]:  # they have the module of this test
        parent._zygotes.pop(key).close()


def recipe(place: str) -> dict:
    reader = {"name": "web", "reader": "bad_reader:lines", "files": ["a.lines"]}
    warc = {"name": "web", "warc": ["pages.warc.gz"]}
    limits = {"page_seconds": 5, "page_wall_seconds": 0.5}
    both = [SOURCE, {"name": "good", "jsonl": ["good.jsonl"]}]
    known = {"step": "bad_filter:Known", "reference": ["good"]}
    sources, steps = {
        "reader": ([reader], [{"step": "extract"}]),
        "": ([SOURCE], []),
        "engine": ([warc], [{"step": "extract", "engine": "bad_engine:whole", "limits": limits}]),
        "edit": ([SOURCE], [{"step": "bad_step:Cut"}]),
        "rule": ([SOURCE], [{"step": "bad_step:Rules"}]),
        **dict.fromkeys(("train", "score", "bounds"), (both, [known])),
    }.get(place, ([SOURCE], [{"step": "bad_step:Bad"}]))
    return {"name": "own", "sources": sources, "steps": steps}


@contextmanager
def own_seconds(seconds: float):
    before = options.current()
    options.configure(replace(before, own_seconds=seconds))
    try:
        yield
    finally:
        options.configure(before)


def run(place: str, home: str) -> tuple[int, list[tuple[str, str]]]:
    """The number of documents that are left, and rule and detail of those that are lost."""
    *_, last = curate(context(home), load(recipe(place)))
    documents = last.left.stages[0]
    stage = Home(home).stage(documents.key)
    ledgers = [read_table(stage.ledger(n)).to_pylist() for n in range(len(stage.parts))]
    rows = sum(len(read_table(part)) for part in stage.parts)
    return rows, [(row["rule"], row["detail"]) for ledger in ledgers for row in ledger]


# The place of a fault, the fault, and what the sentence says that the run ends with: `{line}` is the line of the fault,
# `{definition}` that of its function.
ENDINGS = {
    "step raises": ("measure", 'raise ValueError("no such word")', "step bad ({line}, ValueError): no such word"),
    "step exits": ("measure", "sys.exit(3)", "step bad ({line}, SystemExit): it ends the program with status 3; raise"),
    "step returns None": ("measure", "return None", "step bad ({definition}) returned None; return a mapping with"),
    "step lacks a column": ("measure", 'return {"b": 1}', "step bad ({definition}) gives no column badness, which its"),
    "step gives strings": (
        "measure",
        'return {"badness": ["x"] * n}',
        "step bad ({definition}) gives the column badness",
    ),
    "step gives too few": (
        "measure",
        'return {"badness": [1]}',
        "({definition}) gives 1 values in the column badness for 5",
    ),
    "step waits": ("measure", "time.sleep(600)", "step bad ({line}, measure) has not returned after"),
    "step loops": ("measure", "while True: pass", "step bad ({line}, measure) has not returned after"),
    "edit beyond a text": ("edit", "ones += 999", "step cut ({definition}) gives an edit of bytes 0 to 1000 of a text"),
    "edits out of order": ("edit", "rows = rows[::-1]", "step cut ({definition}) gives edits that overlap or are not"),
    "edit returns texts": ("edit", 'return ["x"] * n', "step cut ({definition}) returned a list; return a pair of"),
    "rule of one number": ("rule", "return np.zeros(1)", "step rules ({definition}) returned an array of shape (1,)"),
    "rule raises": ("rule", "text.nothing", "step rules ({line}, AttributeError): "),
    "reader yields text": (
        "reader",
        "yield line.decode()",
        "reader bad_reader:lines ({definition}) yields a str; yield",
    ),
    "reader yields None": ("reader", "yield None", "reader bad_reader:lines ({definition}) yields None; yield a mapp"),
    "reader exits": ("reader", "sys.exit()", "reader bad_reader:lines ({line}, SystemExit): it ends the program"),
    "reader waits": ("reader", "time.sleep(600)", "reader bad_reader:lines ({line}, lines) has not returned after"),
    "filter cannot learn": ("train", "1 / 0", "filter bad_filter ({line}, ZeroDivisionError): division by zero"),
    "filter has no model": (
        "train",
        'return {"files": ["m"]}',
        "filter bad_filter ({definition}) has m in `files`, but did not write it",
    ),
    "filter turns ids": ("score", "ids = ids[::-1]", "filter bad_filter ({definition}) writes other ids than the"),
    "filter loses rows": ("score", "ids = ids[1:]", "filter bad_filter ({definition}) writes 4 rows for 5 documents"),
    "filter without bound": (
        "bounds",
        "return 0.5",
        "filter bad_filter ({definition}) returned a float; return a list",
    ),
}


def placed(sentence: str, fault: str) -> str:
    """A sentence with the line of the fault, and of its function, in the file that has it."""
    for name in FILES:
        lines = Path(f"{name}.py").read_text().splitlines()
        number = next((n for n, line in enumerate(lines) if line.strip() == fault), None)
        if number is not None:
            start = max(n for n in range(number) if lines[n].startswith("def "))
            function = lines[start].removeprefix("def ").partition("(")[0]
            return sentence.format(line=f"{name}.py:{number + 1}", definition=f"{name}.py:{start + 1}, {function}")
    raise LookupError(fault)


@pytest.mark.extended
@pytest.mark.parametrize("fault", ENDINGS)
def test_a_fault_ends_the_run_with_one_sentence(own, tmp_path, fault):
    place, code, sentence = ENDINGS[fault]
    own(place, code)
    waits = "waits" in fault or "loops" in fault
    with own_seconds(1.0 if waits else 600.0), pytest.raises(own_code.OwnCodeError) as ended:
        run(place, str(tmp_path / "home"))
    assert placed(sentence, code) in str(ended.value)
    assert len(str(ended.value).splitlines()) == 1
    was_raised = "Error)" in sentence or "Exit)" in sentence
    assert (code in ended.value.trace) == was_raised


# The rule that documents are lost by, and how many, with what the ledger or the log says.
LOSSES = {
    "reader raises": ("reader", "1 / 0", "damaged_record", 1, "reader bad_reader:lines ({line}, ZeroDivisionError)"),
    "engine raises": ("engine", "1 / 0", "extractor_error", 2, "engine bad_engine:whole ({line}, ZeroDivisionError)"),
    "engine returns None": ("engine", "return None", "extractor_error", 2, "({definition}) returned None; return the"),
    "engine waits": ("engine", "time.sleep(600)", "page_timeout", 2, "engine bad_engine:whole ({line}, whole)"),
    "engine ends": (
        "engine",
        "os._exit(3)",
        "page_crash",
        2,
        "engine bad_engine:whole: page_crash, exited with status",
    ),
}


@pytest.mark.extended
@pytest.mark.parametrize("fault", LOSSES)
def test_a_fault_costs_documents_where_the_docs_say_so(own, tmp_path, caplog, fault):
    place, code, rule, count, sentence = LOSSES[fault]
    own(place, code)
    _, lost = run(place, str(tmp_path / "home"))
    assert [name for name, _ in lost] == [rule] * count
    wanted = placed(sentence, code)
    assert wanted in caplog.text or any(wanted in detail for _, detail in lost)


@pytest.mark.extended
@pytest.mark.parametrize("place", ["measure", "reader", "score"])
def test_prints_are_lines_of_the_log_and_not_of_the_output(own, tmp_path, caplog, capsys, place):
    own(place, 'print("hello")')
    rows, lost = run(place, str(tmp_path / "home"))
    assert rows == (10 if place == "score" else 5) and not lost
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [line for line in warnings if "prints: hello; further output" in line] == [warnings[0]]
    assert "hello" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("return None", r"step bad \(bad_step.py:16, decisions\) returned None; return a list"),
        ("return [1]", r"\(bad_step.py:16, decisions\) returned a list with a int"),
        ('return [Bound("hits", "goodness")]', r"bounds goodness by the rule hits, which is not a signal of the step"),
        ("return self.nothing", r"step bad \(bad_step.py:17, AttributeError\): "),
    ],
)
def test_decisions_are_tried_when_the_recipe_is_read(own, code, sentence):
    own("decisions", code)
    with pytest.raises(RecipeError, match=sentence):
        load(recipe("measure"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import nothing_of_this_name", r"cannot be imported \(bad_step.py:1, ModuleNotFoundError\)"),
        ("x = 1\nx = unknown\n", r"cannot be imported \(bad_step.py:2, NameError\): name 'unknown'"),
        ("def measure(:\n", r"cannot be imported \(bad_step.py:1, SyntaxError\)"),
        ("import sys\nsys.exit(2)\n", r"cannot be imported \(bad_step.py:2, SystemExit\): it ends the program"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(own, tmp_path, text, sentence):
    own()
    (tmp_path / "bad_step.py").write_text(text)
    with pytest.raises(RecipeError, match=sentence):
        load(recipe("measure"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "tokenizer.path"),
        (b"not a model", "is not a SentencePiece model"),
        (json.dumps({"model": {"type": "WordPiece", "vocab": {}, "unk_token": "u"}}).encode(), "tokenizer"),
        (b"", "tokenizer.path"),
    ],
)
def test_a_faulty_tokenizer_is_named_by_check(own, tmp_path, content, sentence):
    own()
    (tmp_path / "mine.json").write_bytes(content)
    given = recipe("measure") | {"steps": [], "tokenizer": {"path": str(tmp_path / "mine.json")}}
    findings = check(given, MachineSettings(home=str(tmp_path / "home"))).findings
    assert [(finding.key, "mine.json" in finding.message) for finding in findings] == [("tokenizer.path", True)]
    assert all(len(finding.message.splitlines()) == 1 for finding in findings)


def test_check_lists_own_code_that_it_does_not_look_at(own, tmp_path):
    own()
    settings = MachineSettings(home=str(tmp_path / "home"))
    for place, what in {
        "reader": "your reader bad_reader:lines",
        "engine": "your engine bad_engine:whole",
        "measure": "your step bad_step:Bad",
    }.items():
        assert check(recipe(place), settings).unseen == (what,)
        assert check(recipe(place), settings, deep=True).unseen == ()


def test_texts_that_are_curated_already_need_no_steps(own, tmp_path):
    own()
    assert run("", str(tmp_path / "home")) == (5, [])
