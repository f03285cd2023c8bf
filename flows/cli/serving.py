"""The command automations."""

import os
from typing import Annotated

import typer

from flows.cli.app import app, print_texts


@app.command()
def automations(
    webhook: Annotated[str, typer.Option(help="address that failed runs are sent to, as a JSON object")] = "",
) -> None:
    """Write the automations of the deployments to the Prefect server of PREFECT_API_URL: a failed run is sent to a
    webhook, a cancelled run whose worker is gone is ended, and so is one whose process has died. Those that an earlier
    call wrote are replaced."""
    if not os.environ.get("PREFECT_API_URL"):
        raise ValueError("automations belong to a server: set PREFECT_API_URL, as http://127.0.0.1:4200/api")
    from flows.prefect_automations import write_automations

    print_texts(write_automations(webhook))
