"""The command line, `gristmill COMMAND`.

The module of a command is imported when it runs. Reports give data, which `documents` and `results` write for a person.
"""

import gc
import sys
from typing import TYPE_CHECKING

import wrapt
from rich.text import Text

from gristmill.flows.cli.app import app
from gristmill.flows.machine import limits
from gristmill.storage.printable import redact_urls

if TYPE_CHECKING:
    from gristmill.flows.cli import terminal
    from gristmill.flows.machine import databases, failures
    from gristmill.flows.machine import settings as machine_settings
    from gristmill.flows.recipe import errors
else:
    databases = wrapt.lazy_import("gristmill.flows.machine.databases")
    failures = wrapt.lazy_import("gristmill.flows.machine.failures")
    machine_settings = wrapt.lazy_import("gristmill.flows.machine.settings")
    errors = wrapt.lazy_import("gristmill.flows.recipe.errors")
    terminal = wrapt.lazy_import("gristmill.flows.cli.terminal")

__all__ = ["app", "main"]


def main() -> None:
    """The entry point: an error is one line, and the log above or a file has the rest."""
    if trouble := limits.few_addresses(limits.MIN_START):
        sys.exit(f"gristmill: {trouble}")
    try:
        app()
    except Exception as error:
        if isinstance(error, errors.RecipeError):  # whose lines are whole sentences
            sys.exit(f"{error}")
        sentence = _unshared(error) or failures.sentence(error)
        message = Text.assemble(("gristmill: ", "bold red"), redact_urls(sentence))
        terminal.console(stderr=True).print(message, highlight=False, soft_wrap=True)
        sys.exit(1)
    finally:
        gc.freeze()  # or Python looks for cycles in all that was imported before it ends, which takes a second


def _unshared(error: BaseException) -> str:
    """What to do where the error is for a file of the home that is another account's; "" for any other."""
    try:
        return databases.unshared(error, machine_settings.MachineSettings().home)
    except ValueError:  # the settings may be what is wrong
        return ""
