"""What a run did, for a person: the funnel, the training curve's ends, a sample, and where things are."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import orjson
from prefect.settings import get_current_settings
from rich.console import Console, Group
from rich.table import Table

from flows.context import step_counts, told
from flows.machine import MachineSettings
from flows.recipe import Recipe
from flows.stages.all_stages import Corpus, Data
from flows.stages.model import Trained
from storage import files
from training.tracking import METRICS

_COLUMNS = ("step", "documents", "kept", "tokens", "top reasons for drops")

_SECRET = re.compile(r"//[^/@\s]*@")  # user and password of an address


@dataclass(frozen=True)
class Report:
    recipe: Recipe
    corpus: Corpus
    data: Data
    trained: Trained
    settings: MachineSettings

    def funnel(self) -> list[tuple[str, ...]]:
        """A row a step. Tokens before tokenization are characters over the characters per token of what was
        tokenized in the end, hence the `~`; the last row is counted."""
        records = self.data.tokens.manifest["records"]
        tokens = sum(record[split]["tokens"] for record in records for split in ("train", "heldout"))
        steps = [step for built in self.corpus.stages for step in step_counts(built)]
        per_token = steps[-1]["characters_out"] / tokens
        rows = [
            (
                told(step)[0],
                f"{step['rows_in']:,} → {step['rows_out']:,}",
                f"{step['rows_out'] / step['rows_in']:.1%}" if step["rows_in"] else "-",
                f"{_about(step['characters_in'], per_token)} → {_about(step['characters_out'], per_token)}",
                told(step)[1],
            )
            for step in steps
        ]
        return [*rows, ("tokens", f"{steps[-1]['rows_out']:,}", "100.0%", f"{tokens:,}", "")]

    def markdown(self) -> str:
        rows = ["| " + " | ".join(_COLUMNS) + " |", "|" + " --- |" * len(_COLUMNS)]
        rows += ["| " + " | ".join(row) + " |" for row in self.funnel()]
        return "\n".join([*rows, "", *(f"- {line}" for line in self.training_lines())])

    def training_lines(self) -> list[str]:
        result = self.trained.result
        losses = [orjson.loads(line)["train/loss"] for line in self._metrics()]
        shares = self.data.mixture.manifest["sources"]
        mixed = ", ".join(f"{n} {s['share']:.0%} ({s['epochs']:.2f} epochs)" for n, s in shares.items())
        return [
            f"mixture: {mixed}",
            f"model: {result['parameters']:,} parameters, {result['steps']} steps, {result['tokens']:,} tokens",
            f"training loss: {losses[0]:.4f} at the first step, {losses[-1]:.4f} at the last",
            f"unigram model: {result['unigram/loss']:.4f} nats/token, {result['unigram/bits_per_byte']:.4f} bits/byte",
            f"trained model: {result['heldout/loss']:.4f} nats/token, {result['heldout/bits_per_byte']:.4f} bits/byte "
            "(both on held-out documents)",
        ]

    def _metrics(self) -> list[bytes]:
        return files.read_bytes(files.join(self.trained.model.folder, METRICS)).splitlines()

    def stage_lines(self) -> list[str]:
        made = [*self.data.stages, self.trained.model]
        return [f"{'reused' if b.reused else 'made  '}  {b.folder}" for b in made]

    def print(self, console: Console) -> None:
        table = Table(*_COLUMNS, title=f"Funnel of {self.recipe.name}", title_justify="left")
        for column in table.columns[:4]:
            column.no_wrap = True
        for column in table.columns[1:4]:
            column.justify = "right"
        for row in self.funnel():
            table.add_row(*row)
        console.print(table)
        console.print(Group(*self.training_lines()), highlight=False)
        console.print("\n[bold]Sample[/bold]")
        console.print(self.trained.result["sample"], markup=False, highlight=False)
        console.print("\n[bold]Outputs[/bold]")
        console.print("\n".join(self.stage_lines()), markup=False, highlight=False, soft_wrap=True)
        console.print("\n[bold]Look at it[/bold]")
        console.print("\n".join(self.commands()), markup=False, highlight=False, soft_wrap=True)

    def commands(self) -> list[str]:
        """What opens the two user interfaces on what has been recorded: commands, or addresses of servers."""
        programs = Path(sys.executable).parent
        prefect = get_current_settings()
        if prefect.api.url:
            lines = [f"Prefect: {prefect.ui_url or prefect.api.url}"]
        else:
            lines = [f"PREFECT_HOME={prefect.home} {programs}/prefect server start"]
        uri = self.settings.tracking_uri
        if uri.startswith("http"):
            return [*lines, f"MLflow: {_SECRET.sub('//', uri)}"]
        return [*lines, f"{programs}/mlflow ui --backend-store-uri {_SECRET.sub('//', uri)}"]


def _about(characters: int | None, per_token: float) -> str:
    return "-" if characters is None else f"~{characters / per_token / 1e3:,.0f}k"
