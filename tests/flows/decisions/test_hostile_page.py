"""Nothing of names, labels and settings of a decision is markup of its page, or a command of a terminal."""

from dataclasses import replace

from gristmill.flows.cli.terminal import print_texts
from gristmill.flows.experiments.decisions import page as decision_page
from tests.flows.decisions import report
from tests.flows.reports.test_near_duplicates import EVIL, Parsed


def hostile():
    made = report({f"without {EVIL}": 0.1, "=cmd|' /C calc'!A0": -0.1}, scored=lambda request: {EVIL: 0.5, "quiz": 0.3})
    labels = {name: (f"@@ {EVIL} @@", f"+{EVIL}") for name in made.differences}
    return replace(made, fixed={EVIL: EVIL}, announced=EVIL, differences=labels)


def test_nothing_of_a_decision_is_markup():
    page = decision_page.page(hostile())
    parsed = Parsed(page)
    assert parsed.open == []
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form"}
    assert not [name for _, given in parsed.tags for name in given if name.startswith("on") or name == "srcdoc"]
    assert not [code for code in map(ord, page) if code < 0x20 and code != 0x0A]
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5


def test_no_command_of_a_decision_reaches_the_terminal(capsys):
    made = hostile()
    print_texts([made.announced, *made.differences, *made.fixed.values()])
    assert "\x1b" not in (shown := capsys.readouterr().out) and "\\x1b" in shown and "\0" not in shown
