"""Where a training reads and writes on this machine: token shards and what grows need a real file system."""

from pathlib import Path

from flows.machine import MachineSettings
from storage import checked_json, files
from tasks.engine.make import StageResult


def local_folder(settings: MachineSettings, folder: str) -> str:
    """Checkpoints and logs are appended to while they grow, which needs a real file system."""
    return folder if files.is_local(folder) else f"{settings.local_folder}/{folder.split('://')[-1]}"


def local_mixture(settings: MachineSettings, mixture: StageResult) -> Path:
    """The mixture's file on a local path, with all that it names beside it: token shards are mapped into memory."""
    folder = mixture.folder
    if files.is_local(folder):
        return Path(folder) / "mixture.json"
    remote, local = folder.rsplit("/", 1)[0], f"{settings.local_folder}/cache/stages"
    plan = checked_json.read(files.join(folder, "mixture.json"))
    shards = [shard["path"] for part in plan["sources"] + plan["heldout"] for shard in part["shards"]]
    rows = [packed["path"] for part in plan["sources"] for packed in part.get("rows", ())]
    own = [f"../{folder.rsplit('/', 1)[1]}/{name}" for name in (*rows, "mixture.json")]
    names = [plan["tokenizer"]["path"], *shards, *own]
    for name in names:
        inner = name.removeprefix("../")
        files.copy(files.join(remote, inner), f"{local}/{inner}")
    return Path(local) / folder.rsplit("/", 1)[1] / "mixture.json"
