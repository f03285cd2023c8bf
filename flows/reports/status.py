"""Looking into the home: which stages there are, what is in them."""

from collections.abc import Iterator

from flows.context import StageResult, step_counts, top_reasons
from storage import files, layout, parquet
from storage.layout import Stage


def status(home: str) -> list[tuple[str, str, str, str, str]]:
    """A row a stage: name and key, state, documents in and out, the top reasons for drops."""
    rows = []
    for name, folder in folders(home):
        manifest = layout.manifest(folder)
        if manifest is None:
            done = len(files.names(files.join(folder, "done")))
            rows.append((name, f"unfinished, {done} shards done", "", "", ""))
            continue
        steps = step_counts(_built(folder, manifest))
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


def show(home: str, name: str, n: int, characters: int) -> Iterator[str]:
    """The first `n` documents of a stage, with the first characters of their texts.

    Holds one shard of the stage and one of the texts. Raises FileNotFoundError for a stage that is not there,
    naming those that are.
    """
    matching = [folder for stage, folder in folders(home) if name in (stage, stage.rsplit("-", 1)[0])]
    if not matching:
        known = ", ".join(stage for stage, _ in folders(home)) or "none"
        raise FileNotFoundError(f"no stage {name} in {home}; there are: {known}")
    for folder in matching:
        yield f"== {folder}"
        left = n
        for part in files.names(folder):
            if left and part.startswith("part-") and part.endswith(".parquet"):
                rows = parquet.read_table(files.join(folder, part)).slice(0, left).to_pylist()
                texts = _texts(home, folder, part) if rows else {}
                yield from (_readable(texts.get(row["id"], {}) | row, characters) for row in rows)
                left -= len(rows)


def _texts(home: str, folder: str, part: str) -> dict[str, dict]:
    """Rows of the documents' shard behind a stage's shard, by id; empty if the stage has no documents."""
    key = (layout.manifest(folder) or {}).get("inputs", {}).get("documents")
    for name, documents in folders(home):
        if key is not None and name.endswith(f"-{key}"):
            table = parquet.read_table(files.join(documents, part), ["id", "source", "url", "text"])
            return {row["id"]: row for row in table.to_pylist()}
    return {}


def _readable(row: dict, characters: int) -> str:
    text = row.pop("text", None)
    lines = [f"{name}: {value}" for name, value in row.items() if value is not None]
    if text is not None:
        lines.append(cut(text, characters))
    return "\n".join(lines) + "\n"


def cut(text: str, characters: int) -> str:
    """The beginning of a text, and how much is left out."""
    left = len(text) - characters
    return text if left <= 0 else f"{text[:characters]} [... {left:,} more characters]"


def folders(home: str) -> list[tuple[str, str]]:
    root = files.join(home, "stages")
    return [(name, files.join(root, name)) for name in files.names(root) if not name.startswith(".")]


def _built(folder: str, manifest: dict) -> StageResult:
    made = Stage(manifest["stage"], manifest["code"], manifest["settings"], manifest["inputs"])
    return StageResult(made, folder, manifest, reused=True)
