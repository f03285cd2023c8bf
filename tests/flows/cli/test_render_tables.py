"""Reports as tables: numbers with their separators, shares in percent, and what is not known named."""

import io
from types import SimpleNamespace

from rich.console import Console
from typer.testing import CliRunner

from gristmill.flows.cli import app, looking
from gristmill.flows.cli.terminal import print_table
from gristmill.flows.reports import funnel, whatif
from gristmill.flows.reports import status as stages
from gristmill.flows.reports.funnel import FunnelRow, ranked
from gristmill.flows.reports.status import StageStatus
from gristmill.flows.reports.tables import Table, listed
from gristmill.flows.reports.thresholds import Proposal, Proposals
from gristmill.flows.reports.whatif import ComparedStep, Replay
from gristmill.storage import files


def cells(table: Table) -> list[list[str]]:
    """The cells of a table as they are printed, row by row."""
    return table.texts()[1]


def row(step: str, arrived: int, left: int, drops: dict[str, int], edits: dict[str, int] | None = None) -> FunnelRow:
    return FunnelRow(step, arrived, left, 40_000 * arrived, 40_000 * left, drops, edits)


def test_the_funnel_estimates_tokens_and_counts_the_last():
    rows = [
        FunnelRow("extract", 1200, 1100, None, 44_000_000, {"empty_text": 100}),
        row("pii", 1100, 1099, {"spans": 1}, {"email": 46, "phone": 2}),
        row("never", 0, 0, {}),
    ]
    assert cells(funnel.table(rows, 4.0, 10_990_123)) == [
        ["extract", "1,200 → 1,100", "91.7%", "- → ~11,000k", "empty_text 100"],
        ["pii, cuts", "1,100 → 1,099", "99.9%", "~11,000k → ~10,990k", "email 46, phone 2, spans 1"],
        ["never", "0 → 0", "-", "~0k → ~0k", ""],
        ["tokens", "0", "100.0%", "10,990,123"],
    ]
    assert cells(funnel.table(rows[:1])) == [
        ["extract", "1,200 → 1,100", "91.7%", "- → 44,000k", "empty_text 100"],
    ]


def test_the_rules_that_drop_most_come_first():
    assert listed(ranked({"b": 2, "a": 2, "c": 1000, "d": 1}), 3) == "c 1,000, a 2, b 2"


def test_status_has_a_line_for_each_stage_and_names_rules_in_full():
    reasons = {"gopher_repetition.dup_5gram": 900, "language.language_score": 500, "textbook.symbol_word_ratio": 100}
    rows = [
        StageStatus("content_duplicates-823519bdbed9dfa7", "finished", 1200, 200, reasons, recipes=("demo", "web")),
        StageStatus("model-0", "finished", recipes=("demo",), modified=0.0),
        StageStatus("rules-0", "unfinished", jobs_done=3),
        StageStatus("rules-1", "unreadable", trouble="made by another version"),
    ]
    first, second, *others = [line.split("\t") for line in looking.status_lines(rows)]
    counted = "gopher_repetition.dup_5gram 900, language.language_score 500, textbook.symbol_word_ratio 100"
    assert first == ["", "content_duplicates-823519bdbed9dfa7", "demo, web", "1,200 → 200", counted]
    assert second[0].endswith((":00", ":30")) and second[1:] == ["model-0", "demo", "", ""]
    assert others == [["unfinished", "rules-0", "", "3 jobs done", ""], ["unreadable", "rules-1", "", "", ""]]

    for width in (80, 100, 160):
        console = Console(width=width, record=True, file=io.StringIO())
        print_table(looking.status_table(rows, width), console)
        shown = console.export_text().splitlines()
        assert max(map(len, shown)) <= width
        assert set(reasons) <= {word for line in shown for word in line.split()}
    named = [word for line in shown for word in line.split() if word in {row.stage for row in rows}]
    assert named == [row.stage for row in rows]
    assert "demo, web" in "".join(shown) and "1,200 → 200" in "".join(shown) and "3 jobs done" in "".join(shown)


def test_status_states_why_a_stage_cannot_be_read(tmp_path, monkeypatch):
    files.write_json(str(tmp_path / "stages/rules-k0/manifest.json"), {"stage": "rules"})
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    [stage] = stages.status(str(tmp_path))
    assert stage.state == "unreadable" and stage.trouble in CliRunner().invoke(app, ["home", "status"]).output


def test_whatif_compares_replayed_steps_rule_by_rule():
    ahead, old, new = row("extract", 10, 10, {}), row("c4", 10, 8, {"a": 2}), row("c4", 10, 5, {"a": 4, "b": 1})
    compared = [
        ComparedStep("extract", "ahead", ahead, ahead),
        ComparedStep("c4", "replayed", old, new),
        ComparedStep("minhash", "behind", row("minhash", 8, 8, {}), None),
        ComparedStep("quality", "behind", None, None),
    ]
    assert cells(whatif.table(compared)) == [
        ["extract", "10 → 10", "100.00%", "the same"],
        ["c4", "10 → 8", "80.00%", "10 → 5", "50.00%", "-3"],
        ["  a", "dropped 2", "", "dropped 4", "", "+2"],
        ["  b", "dropped 0", "", "dropped 1", "", "+1"],
        ["minhash", "8 → 8", "100.00%", "not replayed"],
        ["quality", "not run", "", "not replayed"],
    ]
    same = ComparedStep("minhash", "behind", ahead, ahead)
    assert cells(whatif.table([same]))[0][3] == "the same"


def test_no_name_of_a_rule_is_cut_off_in_a_narrow_terminal():
    rules = {"dup_paragraphs": 12, "dup_paragraph_chars": 15}
    step = row("gopher_repetition", 667, 408, rules)
    console = Console(width=80, file=io.StringIO())
    print_table(whatif.table([ComparedStep("gopher_repetition", "replayed", step, step)]), console)
    assert all(name in console.file.getvalue() for name in ("gopher_repetition", *rules))


def test_whatif_states_what_was_not_replayed():
    [unchanged] = Replay.remarks.fget(SimpleNamespace(unchanged=True, behind=("minhash",)))
    assert unchanged.endswith("results are as recorded.")
    [changed] = Replay.remarks.fget(SimpleNamespace(unchanged=False, behind=("minhash", "quality")))
    assert changed.startswith("Not replayed: minhash, quality. ")
    assert Replay.remarks.fget(SimpleNamespace(unchanged=False, behind=())) == []


def test_proposed_thresholds_are_a_table_and_sentences():
    proposal = Proposal("gopher_quality", "min_words", "de", 50, 25, 0.05, 0.11, 0.0501)
    found = Proposals([proposal], ["c4.min_sentences"], {"fo": 1036}, ["ccnet: 0 documents in en"], ["pii"])
    [proposed] = cells(found.table)
    assert proposed == ["gopher_quality.min_words", "de", "50", "5.00%", "11.00%", "25", "5.01%"]
    assert found.remarks(2000) == [
        "Omitted, with fewer than 2,000 documents: fo 1,036.",
        "No proposal, because they drop nothing of the reference: c4.min_sentences.",
        "No proposal, because they have no thresholds for languages: pii.",
        "No proposal: ccnet: 0 documents in en.",
    ]
    assert found.recipe_part() == {"steps": [{"step": "gopher_quality", "languages": {"de": {"min_words": 25}}}]}
