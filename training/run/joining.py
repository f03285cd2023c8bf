"""What a machine needs to join a run without a shared disk: everything is in the home, in the model's folder or next to
it.

    <folder>/join.json           settings of the run, and what was given to it; there while node 0 trains
    <folder>/given/<digest>      first weights and tasks, which node 0 has in local folders
    <folder>/checkpoints/        see `gristmill.training.checkpoint.store`
    <folder>/../mixture-<key>/   the training manifest, which names token shards, packed rows and tokenizer

A node works in `<its local copy of the folder>/node-1`, so that several nodes can use one local folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from pydantic import Field

from gristmill.storage import checked_json, files
from gristmill.storage.printable import redact_url
from gristmill.storage.settings import CheckedSettings
from gristmill.training.checkpoint.keeping import fetch
from gristmill.training.config import CHECKPOINTS, RunConfig
from gristmill.training.hub.weight_files import CONFIG, INDEX, tokenizer_file, weight_files

JOIN, GIVEN = "join.json", "given"
INIT_FROM, EVAL_TASKS = "init_from", "eval_tasks"
# Both become paths: names of files, which leave no folder.
GivenFile = Annotated[str, Field(pattern=rf"^({INIT_FROM}|{EVAL_TASKS})/[^/]*[^/.][^/]*$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Offer(CheckedSettings):
    """`run`: the run of node 0, with the paths of node 0; `mixture`: the folder beside the model's; `given`: the
    xxh3-128 of each file that was given, by setting and name."""

    run: RunConfig
    mixture: str
    given: dict[GivenFile, Digest] = Field(default={})


@contextmanager
def offered(run: RunConfig, folder: str, say: Callable[[str], None]) -> Iterator[None]:
    """Let other machines join a run, whose folder in the home this is, while the block lasts."""
    digests: dict[str, str] = {}
    for setting, path in _local_files(run):
        digest = run.init_digests.get(path.name) if setting == INIT_FROM else None
        digest = digests[f"{setting}/{path.name}"] = digest or files.checksum(str(path))
        target = files.join(folder, GIVEN, digest)
        if not files.exists(target):
            files.upload_file(str(path), target)
    offer = Offer(run=run.model_copy(update={"tracking": None}), mixture=run.data.parent.name, given=digests)
    address = files.join(folder, JOIN)
    checked_json.write(address, offer.model_dump(mode="json"))
    say(f"waiting for the other machines; run there: gristmill train join {redact_url(address)}")
    try:
        yield
    finally:
        files.remove(address)
    files.remove(files.join(folder, GIVEN))


def _local_files(run: RunConfig) -> Iterator[tuple[str, Path]]:
    """The files in local folders that settings name."""
    if run.training.init_from:
        folder = Path(run.training.init_from)
        for path in (*weight_files(folder), tokenizer_file(folder), folder / CONFIG, folder / INDEX):
            if path.exists():  # few models have an index
                yield INIT_FROM, path
    if run.training.eval_tasks:
        for path in sorted(Path(run.training.eval_tasks).glob("*.jsonl")):
            yield EVAL_TASKS, path


def accepted(folder: str, mixture: Callable[[str], Path], out: Path) -> Path:
    """Fetch what node 0 offers; the path of run.json for this machine, which is to work in `out`. `folder`: the model's
    in the home; `mixture`: gives the local path of the manifest in a mixture's folder.

    Raises FileNotFoundError where nothing is offered, DamagedFileError for a file that is not what node 0 gave.
    """
    address = files.join(folder, JOIN)
    offer = Offer.model_validate(checked_json.read(address))
    for name, digest in offer.given.items():
        fetch(files.join(folder, GIVEN, digest), digest, out / GIVEN / name)
    settings = {name.partition("/")[0] for name in offer.given}
    local_paths = {setting: str(out / GIVEN / setting) for setting in settings}
    run = offer.run.model_copy(
        update={
            "training": offer.run.training.model_copy(update=local_paths),
            "data": mixture(files.join(folder.rsplit("/", 1)[0], offer.mixture)),
            "out": out,
            "store": files.join(folder, CHECKPOINTS),
        }
    )
    path = out / "run.json"
    checked_json.write(str(path), run.model_dump(mode="json"))
    return path


def left(out: Path) -> None:
    """Remove what a machine has fetched and written of a run that is finished; the log stays."""
    for name in (CHECKPOINTS, GIVEN):
        shutil.rmtree(out / name, ignore_errors=True)
