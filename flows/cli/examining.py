"""The command doctor."""

import typer

from flows.cli.app import Json, app, print_json, print_texts, settings


@app.command()
def doctor(as_json: Json = False) -> None:
    """Look at this machine and at the services that its settings name: versions, memory, disks, home, kernels, Prefect,
    MLflow, Dask, Redis, clocks, ports. Each line says what to do. Exits with 1 if one is an error."""
    from flows.doctor import examine

    lines = []
    for line in examine(settings()):
        lines.append(line)
        if not as_json:
            remedy = f"\n{'':26}{line.remedy}" if line.remedy else ""
            print_texts([f"{line.state:8} {line.subject:16} {line.found}{remedy}"])
    if as_json:
        print_json(lines)
    if any(line.state == "error" for line in lines):
        raise typer.Exit(1)
