"""What is shown of a decision: effects of each set, what steps are worth, pages with every text escaped."""

import json
import shlex
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import orjson
import pytest
from lxml import html
from rich.console import Console
from scipy import stats

from gristmill.flows.cli.results import decision_parts
from gristmill.flows.cli.terminal import print_table, print_texts
from gristmill.flows.experiments.decisions import ablate
from gristmill.flows.experiments.decisions import page as decision_page
from gristmill.flows.experiments.decisions.arm_data import diffs
from gristmill.flows.experiments.decisions.page import tables
from gristmill.flows.experiments.decisions.tasks import TaskScreen
from gristmill.flows.experiments.decisions.tracking import description, finish
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stats.protocol import Protocol
from gristmill.flows.stats.runs import RunRequest
from gristmill.tasks.engine.make import StageResult
from tests.decisions import simulator
from tests.flows.decisions import CONDITIONS, EVALUATION, RATES, TOKENS, report


@pytest.fixture(scope="module")
def left_out():
    """A step that helps by a tenth of a bit, one that harms, and a setting that does nothing."""
    return report({"without minhash": -0.1, "without c4": 0.1, "a<b>c=1": 0.0})


def test_the_effect_on_each_set_is_that_of_its_documents_alone(left_out):
    [verdict] = [v for v in left_out.verdicts if v.candidate == "without minhash"]
    runs = simulator(1, EVALUATION, {"without minhash": -0.1, "without c4": 0.1, "a<b>c=1": 0.0})
    for one in left_out.sets["without minhash"]:
        places = EVALUATION.members(one.name)
        each = []
        for pair in range(1, verdict.pairs + 1):
            rate = RATES[pair % 2]
            base, other = runs([RunRequest(arm, pair, rate, TOKENS) for arm in ("base", "without minhash")])
            each.append((base - other)[places].sum() / EVALUATION.size[places].sum())
        assert one.effect == pytest.approx(np.mean(each))
        over_pairs = stats.t.interval(verdict.level, len(each) - 1, np.mean(each), stats.sem(each))
        # the documents are a sample too, so the interval has at least the width of one standard error over pairs
        assert one.high - one.low > (over_pairs[1] - over_pairs[0]) / 4
        assert one.low < one.effect < one.high and one.judged == (one.name in EVALUATION.judged)


def test_a_step_is_worth_what_is_lost_without_it(left_out):
    helps, harms = left_out.attribution
    assert (helps.step, helps.outcome, harms.step, harms.outcome) == ("minhash", "worse", "c4", "better")
    assert helps.low < 0.1 < helps.high and harms.low < -0.1 < harms.high
    assert (helps.documents, harms.documents) == (100, 101)
    assert (helps.cpu_seconds, harms.cpu_seconds) == (10.0, 11.0)


def test_the_tables_have_a_row_for_each_recipe_and_step(left_out):
    assert [len(table.rows) for table in tables(left_out)] == [4, 2]
    rows = list(left_out.rows())
    assert [row["verdict"] for row in rows] == left_out.sentences
    assert rows[0]["cpu_hours"] == pytest.approx(30 / 3600) and rows[0]["documents"] == 600
    assert list(left_out.table["candidate"]) == [v.candidate for v in left_out.verdicts]


def test_pages_escape_names_and_have_every_sentence(left_out):
    for page in (left_out._repr_html_(), decision_page.page(left_out)):
        shown = " ".join("".join(html.fromstring(page).itertext()).split())
        assert all(" ".join(sentence.split()) in shown for sentence in left_out.sentences)
        assert "<b>" not in page and "language cannot be left out" in shown
        assert page.count("<svg") >= 2
    assert "a&lt;b&gt;c=1" in decision_page.page(left_out)
    assert all(sentence in description(left_out) for sentence in left_out.sentences)


class Remembered:
    """An MLflow run that remembers what it is told."""

    def __init__(self, folder):
        self.id, self.client, self.told, self._folder = "run", self, {}, folder

    def is_complete(self) -> bool:
        return False

    def log(self, *_) -> None:
        pass

    def set_tag(self, _, name, value) -> None:
        self.told[f"tag {name}"] = value

    def complete(self, write, described, name) -> str:
        write(self._folder)
        self.told |= {"description": described, "name": name}
        return self.id


def renderings(decided, folder, monkeypatch) -> dict[str, str]:
    """All that is shown of a decision, as text without line breaks."""
    tracked, shown, published = Remembered(folder), StringIO(), {}
    finish(
        tracked,
        decided,
        {"base": load({"name": "base", "sources": [{"name": "web", "jsonl": ["a"]}], "steps": [{"step": "extract"}]})},
    )
    monkeypatch.setattr(ablate, "create_table_artifact", lambda **given: published.update({given["key"]: given}))
    ablate.publish_decision(decided)
    print_texts(decision_parts(decided, MachineSettings(home=str(folder))), Console(file=shown, width=400))
    files = {name: (folder / name).read_text() for name in ("decision.json", "decision.html", "verdicts.json")}
    found = tracked.told | {"terminal": shown.getvalue(), "repr": repr(decided), "notebook": decided._repr_html_()}
    found |= {f"table {n}": console_text(table) for n, table in enumerate(tables(decided))}
    found |= {f"artifact {key}": json.dumps(given) for key, given in published.items()} | files
    found |= {f"row {n}": row["verdict"] for n, row in enumerate(decided.rows())}
    return {name: " ".join(text.split()) for name, text in found.items()}


def console_text(table) -> str:
    shown = StringIO()
    print_table(table, Console(file=shown, width=400))
    return shown.getvalue()


def test_a_page_begins_with_a_picture_and_a_line_for_each_candidate(left_out):
    tree = html.fromstring(decision_page.page(left_out))
    rows = tree.xpath("(//table)[1]//tbody/tr")
    for row, verdict in zip(rows, left_out.verdicts, strict=True):
        name, picture, line = row.xpath("th|td")
        assert name.text_content() == verdict.candidate and picture.xpath(".//*[local-name()='svg']/@aria-label")
        half = float(line.text_content().split(" bits")[0].split("± ")[1])
        assert half == pytest.approx((verdict.high - verdict.low) / 2, rel=0.05)
        assert line.text_content().endswith(f"; {verdict.pairs} pairs; judged by {CONDITIONS.judge}")
    assert [row.xpath("td")[1].text_content().split()[0] for row in rows[:2]] == ["worse", "better"]
    whole = " ".join(tree.text_content().split())
    assert all(whole.count(" ".join(sentence.split())) == 1 for sentence in left_out.sentences)


def test_judge_and_size_stand_everywhere_and_in_every_first_sentence(left_out, tmp_path, monkeypatch):
    decided = replace(left_out, tasks=report({"without c4": 0.1}, scored=accuracy).tasks)
    said = f"{CONDITIONS}"
    assert said == "judged by 100 documents of 61 hosts of `clean`, 0.3M parameters, 0.2M tokens"
    found = renderings(decided, tmp_path, monkeypatch)
    # tags of one value each
    values = {f"tag {name}": str(getattr(CONDITIONS, name)) for name in ("judge", "parameters", "tokens")}
    assert {name: found.pop(name) for name in values} == values
    for name, text in found.items():
        assert said in text, f"{name}: {text[:300]}"
    assert {name.split(" ")[0] for name in found} >= {"name", "description", "terminal", "artifact", "table", "tag"}
    for sentence in decided.sentences:
        assert said in sentence.split(";")[0] and sentence.endswith("; it applies to these training documents")
    resampled = replace(CONDITIONS, resampled=True)
    for verdict in decided.verdicts:
        assert "these documents" not in replace(verdict, conditions=resampled).sentence()


def test_a_page_shows_how_the_recipes_differ(left_out):
    document = html.fromstring(decision_page.page(left_out))
    below = document.xpath("//details[preceding-sibling::h2[1][.='How the recipes differ']]")
    assert [one.findtext("summary/strong") for one in below] == [verdict.candidate for verdict in left_out.verdicts]
    for one, name in zip(below, left_out.differences, strict=True):
        [shown] = one.xpath("div[@class='diff']")
        assert (shown.xpath("strong/text()"), shown.xpath("del/text()")) == (["steps.c4"], ["-min_words: 3"])
        assert shown.xpath("ins/text()") == [f"+min_words: {name}"]
    assert json.loads(orjson.dumps(left_out.as_json()))["differences"]["a<b>c=1"][2] == "+min_words: a<b>c=1"

    long = ("@@ steps.c4 @@", *(f"-words: - {'x' * 5_000_000}{number}\x00<img src=x>" for number in range(3)))
    many = ("@@ sources.web @@", *(f"-warc: - {number}" for number in range(5_000)))
    page = decision_page.page(replace(left_out, differences={"A": long, "B": many, "C": ()}))
    assert len(page) < 200_000 and "<img" not in page and "\x00" not in page
    text = html.fromstring(page).text_content()
    assert "[… 4,601 more lines; all are in decision.json]" in text and "differ only in their names" in text


def accuracy(request: RunRequest) -> dict[str, float]:
    """Of one task, other at each arm, pair and learning rate; of another, the same everywhere."""
    drawn = np.random.default_rng([len(request.arm), request.pair, round(1e6 * request.learning_rate)])
    return {"quiz": float(drawn.uniform(0.2, 0.6)), "cloze": 0.125}


def test_accuracies_are_compared_pair_by_pair():
    scored = report({"A": 0.1, "<i>other": 0.0, "C": -0.1}, scored=accuracy)
    for verdict in scored.verdicts:
        cloze, quiz = scored.tasks[verdict.candidate]
        each = {
            arm: [accuracy(RunRequest(arm, p, RATES[p % 2], TOKENS))["quiz"] for p in range(1, verdict.pairs + 1)]
            for arm in ("base", verdict.candidate)
        }
        truth = stats.ttest_rel(each[verdict.candidate], each["base"]).confidence_interval(verdict.level)
        assert (quiz.name, quiz.chance, cloze.chance) == ("quiz", 0.25, None)
        assert (quiz.low, quiz.high) == pytest.approx((truth.low, truth.high))
        assert (quiz.base, quiz.accuracy) == pytest.approx((np.mean(each["base"]), np.mean(each[verdict.candidate])))
        assert quiz.difference == pytest.approx(quiz.accuracy - quiz.base)
        assert (cloze.accuracy, cloze.difference, cloze.low, cloze.high) == (0.125, 0, 0, 0)
    shown = f"{scored.tasks['A'][1].difference:+.1%}"
    assert shown in description(scored) and shown in decision_page.page(scored) and shown in scored._repr_html_()
    assert "<i>o" not in decision_page.page(scored)
    rows = list(scored.rows())
    assert rows[0]["accuracy_difference/quiz"] == scored.tasks["A"][1].difference
    assert json.loads(orjson.dumps(scored.as_json()))["tasks"]["A"][1]["name"] == "quiz"


def test_the_page_says_which_tasks_say_something():
    row = TaskScreen("qu<i>z", "accuracy", 300, 4.2, None, 0.5, 0.08, 0.02, ("noise <b>",))
    page = decision_page.page(replace(report({"A": 0.1}, scored=accuracy), task_screen=(row,)))
    shown = " ".join(html.fromstring(page).text_content().split())
    assert "Informative tasks" in shown and "qu<i>zaccuracy300+4.2+0.54.0noise <b>" in shown
    assert "<i>" not in page


@pytest.mark.parametrize("width", [200, 60, 30])
def test_no_figure_is_cut_at_any_width(width):
    scored = report({"without minhash": -0.1, "C": -0.1}, scored=accuracy)
    shown = StringIO()
    console = Console(file=shown, width=width)
    for table in tables(scored):
        print_table(table, console)
    text = " ".join(shown.getvalue().split())
    assert "…" not in text and max(map(len, shown.getvalue().splitlines())) <= width
    for row in scored.rows():
        assert f"{row['low']:+.4f} to {row['high']:+.4f}" in text and f"{row['documents']:,}" in text
    for task in scored.tasks["C"]:
        assert f"{task.low:+.1%} to {task.high:+.1%}" in text
    assert f"{scored.attribution[0].cpu_seconds:.1f}" in text


def test_what_was_screened_out_has_no_task_and_the_table_is_whole():
    screened = report(
        {"A": 0.1, "B": 0.0, "C": -0.1}, protocol=Protocol(learning_rates=RATES, survivors=1), scored=accuracy
    )
    assert set(screened.tasks) == {"A"}
    assert len({tuple(row) for row in screened.rows()}) == 1 and len(screened.table) == 3


def test_equal_decisions_give_equal_json(left_out):
    again = report({"without minhash": -0.1, "without c4": 0.1, "a<b>c=1": 0.0})
    written = orjson.dumps(left_out.as_json())
    assert written == orjson.dumps(again.as_json())
    value = json.loads(written)
    assert [v["sentence"] for v in value["verdicts"]] == left_out.sentences
    assert len(value["runs"]) == len(left_out.decision.runs)


def test_what_was_screened_out_has_no_effect_anywhere():
    screened = report({"A": 0.1, "B": 0.0, "C": -0.1}, protocol=Protocol(learning_rates=RATES, survivors=1))
    outcomes = {row["candidate"]: row for row in screened.rows()}
    assert outcomes["C"]["outcome"] == "screened out" and outcomes["C"]["effect"] is None
    assert set(screened.sets) == {"A"} and screened.attribution == []
    assert "screened out" in decision_page.page(screened) and [len(table.rows) for table in tables(screened)] == [4]


def test_the_page_has_the_command_of_the_diff_and_the_link_once_it_was_made(tmp_path):
    sides = {name: StageResult("rules", f"{n:016x}", "", {}, reused=False) for n, name in enumerate(("base", "a b"))}
    corpora = {name: Corpus(("web",), kept, kept, (kept,), (kept,)) for name, kept in sides.items()}
    name = str(tmp_path / "x-0123456789abcdef")
    [found] = diffs(corpora, "base", name).values()
    words = shlex.split(found.command)
    assert (
        words[:6] == ["gristmill", "explain", "diff", f"rules-{0:016x}", f"rules-{1:016x}", "--to"] and found.page == ""
    )
    made = replace(report({"a b": 0.02}), diffs={"a b": found})
    assert found.command in decision_page.page(made)
    Path(words[6]).write_text("")
    made = replace(made, diffs=diffs(corpora, "base", name))
    [link] = html.fromstring(decision_page.page(made)).xpath("//li/a/@href")
    assert (tmp_path / link).exists() and found.command not in decision_page.page(made)
