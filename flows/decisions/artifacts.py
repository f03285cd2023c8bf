"""What a decision leaves for Prefect's user interface: verdicts, and what the steps are worth, as tables."""

import gristmill.flows.run.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
from dataclasses import asdict
from typing import Any

from prefect.artifacts import create_table_artifact

from gristmill.flows.decisions.report import DecisionReport
from gristmill.flows.run.artifacts import artifact_key


def publish_decision(report: DecisionReport) -> None:
    """Record the verdicts of the flow run that calls it, and what the steps are worth, each under the base's name."""
    rows: list[dict[str, Any]] = [
        {name: round(value, 6) if isinstance(value, float) else value for name, value in row.items()}
        for row in report.rows()
    ]
    what = "; ".join(report.sentences)
    create_table_artifact(
        key=artifact_key(report.base, "verdicts"),
        table=rows,
        description=f"{report.title} ({report.id}): {what}",
    )
    if report.attribution:
        steps = [asdict(each) for each in report.attribution]
        create_table_artifact(
            key=artifact_key(report.base, "attribution"),
            table=steps,
            description=f"What the steps of {report.base} are worth: {report.title}",
        )
