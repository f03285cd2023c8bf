"""Looking into the home: which stages there are, what is in them."""

from collections.abc import Iterator

from flows.runner import Built, top_reasons, yields
from storage import files, shards, stages
from storage.stages import Stage

_TEXT = 600


def status(home: str) -> list[tuple[str, str, str, str, str]]:
    """A row a stage: name and key, state, documents in and out, the top reasons for drops."""
    rows = []
    for name, folder in _folders(home):
        manifest = stages.manifest(folder)
        if manifest is None:
            done = len(files.names(files.join(folder, "done")))
            rows.append((name, f"unfinished, {done} shards done", "", "", ""))
            continue
        steps = yields(_built(folder, manifest))
        if steps:
            drops = {f"{s['step']}.{rule}": n for s in steps for rule, n in s["drops"].items()}
            rows.append(
                (
                    name,
                    "finished",
                    f"{steps[0]['rows_in']:,}",
                    f"{steps[-1]['rows_out']:,}",
                    top_reasons(drops),
                )
            )
        else:
            rows.append((name, "finished", "", "", ""))
    return rows


def show(home: str, name: str, n: int, rule: str) -> Iterator[str]:
    """The first `n` rows of a stage's shards, readable; for a stage that drops, with `rule`, rows of its ledger.

    Raises FileNotFoundError for a stage that is not there, naming those that are.
    """
    matching = [folder for stage, folder in _folders(home) if name in (stage, stage.rsplit("-", 1)[0])]
    if not matching:
        known = ", ".join(stage for stage, _ in _folders(home)) or "none"
        raise FileNotFoundError(f"no stage {name} in {home}; there are: {known}")
    for folder in matching:
        where = files.join(folder, "ledger") if rule else folder
        left = n
        yield f"== {where}"
        for part in files.names(where):
            if left and part.startswith("part-") and part.endswith(".parquet"):
                for row in shards.read_table(files.join(where, part)).to_pylist():
                    if left and (not rule or rule in (row["step"], f"{row['step']}.{row['rule']}")):
                        left -= 1
                        yield _readable(row)


def _readable(row: dict) -> str:
    text = row.pop("text", None)
    lines = [f"{name}: {value}" for name, value in row.items() if value is not None]
    if text is not None:
        lines.append(text if len(text) <= _TEXT else f"{text[:_TEXT]} [... {len(text) - _TEXT:,} more characters]")
    return "\n".join(lines) + "\n"


def _folders(home: str) -> list[tuple[str, str]]:
    root = files.join(home, "stages")
    return [(name, files.join(root, name)) for name in files.names(root) if not name.startswith(".")]


def _built(folder: str, manifest: dict) -> Built:
    made = Stage(manifest["stage"], manifest["code"], manifest["settings"], manifest["inputs"])
    return Built(made, folder, manifest, reused=True)
