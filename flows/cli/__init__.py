"""The command line, `gristmill COMMAND`.

A command imports what it needs when it runs: the flows alone, with Prefect, take seconds. Reports give data, which the
modules of `render` write for a person.
"""

import gc
import sys

from gristmill.flows.cli.app import app

# a module adds its commands to the application, in this order: --help shows the groups as they come
from gristmill.flows.cli import running, preparing, ablating, mixing, scaling  # noqa: F401, I001  # isort: skip
from gristmill.flows.cli import looking, searching, judging, auditing, browsing, evaluating  # noqa: F401, I001  # isort: skip
from gristmill.flows.cli import exporting, importing, training, serving  # noqa: F401, I001  # isort: skip

__all__ = ["app", "main"]


def main() -> None:
    """The entry point: an error is one line, and the log above has the rest."""
    from rich.text import Text

    from gristmill.flows.cli.terminal import console
    from gristmill.storage.remote.redact import redact_urls

    try:
        app()
    except (OSError, ValueError, LookupError, RuntimeError) as error:
        from gristmill.flows.recipe.errors import RecipeError

        if isinstance(error, RecipeError):  # whose lines are whole sentences
            sys.exit(f"{error}")
        notes = "".join(f"\n  ({note})" for note in getattr(error, "__notes__", ()))
        message = Text.assemble(("gristmill: ", "bold red"), redact_urls(f"{error}{notes}"))
        console(stderr=True).print(message, highlight=False, soft_wrap=True)
        sys.exit(1)
    finally:
        gc.freeze()  # or Python looks for cycles in all that was imported before it ends, which takes a second
