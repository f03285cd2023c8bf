"""The command `settings`. Separate: it imports nothing that other commands work with."""

import os

from gristmill.flows.cli.app import Json
from gristmill.flows.cli.terminal import print_result
from gristmill.flows.machine.variables import variables
from gristmill.flows.reports.tables import Table


def settings(as_json: Json = False) -> None:
    """Each setting is an environment variable. The origin is `default`, or `environment`. Secrets, and users and
    passwords in addresses, are not shown. A variable GRISTMILL_... that is not listed is an error of every command.

    GRISTMILL_WORKERS=4 gristmill settings"""
    rows = list(variables(os.environ))
    texts = [(each.name, str(each.value), each.origin, each.description) for each in rows]
    print_result(rows, [Table(("variable", "value", "origin", "meaning"), texts)], as_json)
