"""The first page that a newcomer sees: every command in one of five groups."""

import re

from typer.main import get_command
from typer.testing import CliRunner

from gristmill.flows.cli import app

GROUPS = ["Make", "Decide", "Look", "Hand over", "Serve"]


def test_every_command_is_in_a_group():
    commands = get_command(app).commands
    assert len(commands) > 30
    groups = {name: getattr(command, "rich_help_panel", None) for name, command in commands.items()}
    assert {str(group).partition(":")[0] for group in groups.values()} == set(GROUPS), groups


def test_help_shows_the_groups_in_the_order_of_the_work():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100", "TERM": "dumb"}).stdout
    assert re.findall(r"─ (Make|Decide|Look|Hand over|Serve):", shown) == GROUPS
