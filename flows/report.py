"""What a run did, for a person: the funnel, the training curve's ends, a sample, and where things are."""

from dataclasses import dataclass

from rich.console import Console, Group
from rich.table import Table

from flows.pretraining import Trained, commands
from flows.recipe import Recipe
from flows.runner import top_reasons, yields
from flows.settings import MachineSettings
from flows.stages import Corpus, Data

_COLUMNS = ("step", "documents", "kept", "tokens", "top reasons for drops")


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
        steps = [step for built in self.corpus.stages for step in yields(built)]
        per_token = steps[-1]["characters_out"] / tokens
        rows = [
            (
                step["step"],
                f"{step['rows_in']:,} → {step['rows_out']:,}",
                f"{step['rows_out'] / step['rows_in']:.1%}" if step["rows_in"] else "-",
                f"{_about(step['characters_in'], per_token)} → {_about(step['characters_out'], per_token)}",
                top_reasons(step["drops"]),
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
        shares = self.data.mixture.manifest["sources"]
        mixed = ", ".join(f"{n} {s['share']:.0%} ({s['epochs']:.2f} epochs)" for n, s in shares.items())
        return [
            f"mixture: {mixed}",
            f"model: {result['parameters']:,} parameters, {result['steps']} steps, {result['tokens']:,} tokens",
            f"unigram model: {result['unigram/loss']:.4f} nats/token, {result['unigram/bits_per_byte']:.4f} bits/byte",
            f"trained model: {result['heldout/loss']:.4f} nats/token, {result['heldout/bits_per_byte']:.4f} bits/byte "
            "(both on held-out documents)",
        ]

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
        console.print("\n".join(commands(self.settings)), markup=False, highlight=False, soft_wrap=True)


def _about(characters: int | None, per_token: float) -> str:
    return "-" if characters is None else f"~{characters / per_token / 1e3:,.0f}k"
