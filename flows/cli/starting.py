"""The command to begin with: init."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.app import app, print_texts
from storage.printable import printable

if TYPE_CHECKING:
    from flows.first_recipe import FirstRecipe

_MOST_PASSED_OVER = 10


@app.command()
def init(
    paths: Annotated[
        list[str], typer.Argument(metavar="FOLDER|FILE...", help="WARC, ARC, WET, Parquet, lines of JSON, or text")
    ],
    out: Annotated[Path, typer.Option(help="the recipe to write; it must not be there")] = Path("recipe.yaml"),
    name: Annotated[str, typer.Option(help="of the recipe; default: that of the first source")] = "",
) -> None:
    """Look at one's own files and write a short recipe for them that runs."""
    if out.exists():
        raise FileExistsError(f"{out} is there already: name another file by --out, or remove it")

    from flows.first_recipe import first_recipe

    made = first_recipe(paths, name)
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(out, "x", encoding="utf-8") as recipe:
        recipe.write(made.text)
    print_texts(printable(line) for line in _lines(made, out))


def _lines(made: "FirstRecipe", out: Path) -> list[str]:
    from flows.first_recipe import sampled

    lines = []
    for source in made.sources:
        entry = source.entry
        kind = next(key for key in ("warc", "jsonl", "parquet", "text") if key in entry)
        columns = ", ".join(f"{key.removesuffix('_column')} in `{entry[key]}`" for key in entry if "_column" in key)
        what = f"{source.files:,} {kind} file{'s' * (source.files != 1)}, {source.bytes / 1e6:,.1f} MB"
        lines.append(f"{entry['name']}: {what}{f'; {columns}' if columns else ''}")
    counts = sampled(made.sources)
    languages = ", ".join(f"{code} {count}" for code, count in made.languages.items()) or "none recognised"
    lines.append(f"sample: {counts['documents']:,} documents, {counts['pages']:,} of them HTML; languages: {languages}")
    lines += [f"passed over: {path}: {reason}" for path, reason in made.passed_over[:_MOST_PASSED_OVER]]
    if (more := len(made.passed_over) - _MOST_PASSED_OVER) > 0:
        lines.append(f"passed over: {more:,} more files")
    return [
        *lines,
        f"wrote {out}. Next:",
        f"  gristmill corpus {out}",
        f"  gristmill export documents {out} --to {made.name}-documents",
    ]
