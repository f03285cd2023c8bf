"""A training manifest of a store on a local path, with the files that it names: token shards are mapped into memory."""

from collections.abc import Sequence
from pathlib import Path

from gristmill.storage import checked_json, files

SETS = ("sources", "heldout")


def local_manifest(address: str, folder: str, sets: Sequence[str] = SETS) -> Path:
    """The path of a copy of `<home>/stages/mixture-<key>/mixture.json` below a local folder, where the stages that it
    names are beside its own. What is there already is not fetched again. `sets`: of which the shards are copied.

    Digests are not compared: who maps the shards does that. Raises FileNotFoundError, and DamagedFileError for a
    manifest that is not what was written.
    """
    stage, _, name = address.rpartition("/")
    stages, _, own = stage.rpartition("/")
    plan = checked_json.read(address)
    entries = [shard for part in sets for source in plan[part] for shard in source["shards"]]
    rows = [f"../{own}/{packed['path']}" for source in plan["sources"] for packed in source.get("rows", ())]
    for path in (plan["tokenizer"]["path"], *(shard["path"] for shard in entries), *rows, f"../{own}/{name}"):
        inner = path.removeprefix("../")
        files.copy(files.join(stages, inner), f"{folder}/{inner}")
    return Path(folder) / own / name
