"""Looking into the home: which stages there are, what is in them."""

from collections.abc import Iterator

from flows.runner import Built, top_reasons, yields
from storage import files, shards, stages
from storage.stages import Stage

_TEXT = 600


def status(home: str) -> list[tuple[str, str, str, str, str]]:
    """A row a stage: name and key, state, documents in and out, the top reasons for drops."""
    rows = []
    for name, folder in folders(home):
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
    """The first `n` documents of a stage with their text; with `rule`, documents that it dropped and why.

    Holds one shard of the stage and one of the texts. Raises FileNotFoundError for a stage that is not there,
    naming those that are.
    """
    matching = [folder for stage, folder in folders(home) if name in (stage, stage.rsplit("-", 1)[0])]
    if not matching:
        known = ", ".join(stage for stage, _ in folders(home)) or "none"
        raise FileNotFoundError(f"no stage {name} in {home}; there are: {known}")
    for folder in matching:
        where = files.join(folder, "ledger") if rule else folder
        yield f"== {where}"
        left = n
        for part in files.names(where):
            if left and part.startswith("part-") and part.endswith(".parquet"):
                table = shards.read_table(files.join(where, part))
                rows = [r for r in table.to_pylist() if not rule or rule in (r["step"], f"{r['step']}.{r['rule']}")]
                texts = _texts(home, folder, part) if rows else {}
                yield from (_readable(texts.get(row["id"], {}) | row) for row in rows[:left])
                left -= len(rows[:left])


def _texts(home: str, folder: str, part: str) -> dict[str, dict]:
    """Rows of the documents' shard behind a stage's shard, by id; empty if the stage has no documents."""
    key = (stages.manifest(folder) or {}).get("inputs", {}).get("documents")
    path = files.join(home, "stages", f"documents-{key}", part)
    if key is None or not files.exists(path):
        return {}
    return {row["id"]: row for row in shards.read_table(path, ["id", "source", "url", "text"]).to_pylist()}


def _readable(row: dict) -> str:
    text = row.pop("text", None)
    lines = [f"{name}: {value}" for name, value in row.items() if value is not None]
    if text is not None:
        lines.append(text if len(text) <= _TEXT else f"{text[:_TEXT]} [... {len(text) - _TEXT:,} more characters]")
    return "\n".join(lines) + "\n"


def folders(home: str) -> list[tuple[str, str]]:
    root = files.join(home, "stages")
    return [(name, files.join(root, name)) for name in files.names(root) if not name.startswith(".")]


def _built(folder: str, manifest: dict) -> Built:
    made = Stage(manifest["stage"], manifest["code"], manifest["settings"], manifest["inputs"])
    return Built(made, folder, manifest, reused=True)
