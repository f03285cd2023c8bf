"""Scaling laws for a person: the law, forecasts, optima, and how well smaller runs predict larger ones."""

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from flows.reports.scaling import AgreementReport, ScalingReport
    from flows.scaling.law import Interval


def print_scaling(report: "ScalingReport", out: "Console") -> None:
    """Print the law first, then its tables."""
    _line(out, report.sentence)
    if report.forecasts:
        table = _table("parameters", "tokens", "compute", "forecast", "90% interval", "came", "")
        for row in report.forecast_rows():
            table.add_row(
                f"{row['parameters']:,}",
                f"{row['tokens']:,}",
                f"{row['reach']:.1f}x",
                f"{row['forecast']:.4f}",
                f"{row['low']:.4f} to {row['high']:.4f}",
                f"{row['loss']:.4f}",
                "inside" if row["inside"] else f"outside by {row['outside']:.2%}",
            )
        out.print(table)
        _line(out, report.forecast_sentence)
    if report.optima:
        table = _table("operations", "best parameters", "best tokens", "bits per byte")
        for best in report.optima:
            table.add_row(
                f"{best.compute:.2e}", _counts(best.parameters), _counts(best.tokens), _spread(best.loss, ".4f")
            )
        out.print(table)
    if report.future:
        table = _table("fit up to", "runs", "predicted", "reach", "mean error", "bias", "inside 90%")
        for future in report.future:
            table.add_row(
                f"{future.compute:.2e}",
                f"{future.fitted}",
                f"{future.predicted}",
                f"{future.reach:.1f}x",
                f"{future.error:.2%}",
                f"{future.bias:+.2%}",
                f"{future.inside} of {future.predicted}",
            )
        out.print(table)
    _line(out, f"MLflow: run scaling-{report.id[:8]} in the experiment {report.recipe}")


def print_agreement(report: "AgreementReport", out: "Console") -> None:
    """Print what was found, then the recipes with their ranks."""
    _line(out, report.sentence)
    small, large = (f"{count:,} parameters" for count in report.parameters)
    table = _table("recipe", small, "rank", large, "rank")
    for row in report.rows():
        table.add_row(
            row["arm"], f"{row['small']:.4f}", str(row["rank_small"]), f"{row['large']:.4f}", str(row["rank_large"])
        )
    out.print(table)


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name == "recipe" else "right")
    return table


def _line(out: "Console", text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def _counts(one: "Interval") -> str:
    return _spread(one, ",.0f")


def _spread(one: "Interval", form: str) -> str:
    return f"{one.value:{form}} ({one.low:{form}} to {one.high:{form}})"
