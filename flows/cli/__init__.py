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
    """Run the command line. An error is printed as one line; the log has the details."""
    gc.set_threshold(50_000)  # imports leave almost no garbage, and searching for it takes a fifth of a short command
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
        sys.exit(getattr(error, "exit_code", 1))
    finally:
        gc.freeze()  # otherwise Python searches all imported modules for cycles at exit, which takes a second


def _unshared(error: BaseException) -> str:
    """Return the fix for an error about a file of the home that belongs to another account; "" for any other error."""
    try:
        return databases.unshared(error, machine_settings.MachineSettings().home)
    except ValueError:  # the settings may be the cause of the error
        return ""
