"""The card of exported tokens: what they are, and how a trainer begins with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gristmill.samples.formats.export import TokenExport


def card(export: TokenExport, trainer: str, start: Sequence[str]) -> str:
    """Markdown. `start`: what the trainer's own module says."""
    data, source = export.data, export.source
    lines = [
        f"# {export.name}: tokens for {trainer}",
        "",
        *_table(
            ("", ""),
            [
                ("recipe", export.name),
                ("stage", f"mixture-{export.key}" if export.key else "train-tokens"),
                ("tokenizer", f"{data.tokenizer.path.name}, xxh3-128 {data.tokenizer.digest}"),
                ("tokens of the vocabulary", f"{data.vocab_size:,}"),
                ("end of a text", f"{data.end_of_text}"),
                ("target tokens of the run", f"{len(source) * source.seq_len:,}"),
                ("sequences", f"{len(source):,} of {source.seq_len:,} tokens, {source.batch:,} a step"),
                ("steps", f"{source.steps:,}"),
                ("seed of the order", f"{source.seed}"),
                ("packing", "best fit" if data.row_length else "concatenation"),
            ],
        ),
        "",
        "## Sources",
        "",
        *_table(
            ("source", "share", "tokens", "times read"),
            ((one.name, f"{one.share:.4%}", f"{one.tokens:,}", f"{one.epochs:.3f}") for one in data.sources),
        ),
        "",
        *_phases(export),
        "## How to begin",
        "",
        *start,
        "",
        "`sha256sum --check SHA256SUMS` compares the files.",
        "",
        *(["## Recipe", "", "~~~yaml", *export.recipe.splitlines(), "~~~", ""] if export.recipe else []),
    ]
    return "\n".join(lines)


def _phases(export: TokenExport) -> list[str]:
    if not export.data.phases:
        return []
    names = [source.name for source in export.data.sources]
    rows = ((f"{phase.first:,}", *(f"{share:.2%}" for share in phase.shares)) for phase in export.data.phases)
    return ["## Phases", "", *_table(("from target token", *names), rows), ""]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines]
