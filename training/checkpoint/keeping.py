"""Which checkpoints there are below a folder and which of them stay, on this disk and in the object store.

A home that is not on a local disk gets its checkpoints while training runs: `<store>/step-00000100/...`, COMMIT last,
and beside them `metrics.jsonl` and its like, so that another machine can resume where this one ended. Imports no torch.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self

import orjson

from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError, MissingFileError
from gristmill.storage.home import Damage, Verified, verify_file
from gristmill.storage.printable import redact_url
from gristmill.training.config import CHECKPOINTS, RunConfig

COMMIT = "COMMIT"
SET_ASIDE = "damaged-"  # how the name of a damaged checkpoint begins
RESULT = "result.json"  # of a finished run


def step_of(name: str) -> int:
    """The step of a checkpoint's folder `step-00000100`."""
    return int(name.removeprefix("step-"))


def committed(root: Path) -> dict[int, Path]:
    """Committed checkpoints below root by step, oldest first."""
    paths = [path.parent for path in Path(root).glob(f"step-*/{COMMIT}") if path.parent.suffix != ".tmp"]
    return {step_of(path.name): path for path in sorted(paths)}


def latest(root: Path) -> Path | None:
    """The committed checkpoint with the most steps, or None."""
    return next(reversed(committed(root).values()), None)


def verify_checkpoints(folder: str) -> Iterator[Verified]:
    """Read the checkpoints of a run's folder, at any address, oldest first, and compare every file with the digest in
    COMMIT. The newest of a training that is not finished may have none: it was being written."""
    root = files.join(folder, CHECKPOINTS)
    names = [name for name in files.names(root) if name.startswith("step-") and not name.endswith(".tmp")]
    is_finished = bool(names) and files.exists(files.join(folder, RESULT))
    for name in names:
        path = files.join(root, name)
        try:
            digests = checked_json.read(files.join(path, COMMIT))["files"]
        except FileNotFoundError:
            if is_finished or name != names[-1]:
                yield Verified(path, 0, 0, (Damage(files.join(path, COMMIT), "is missing"),))
            continue
        except DamagedFileError:
            yield Verified(path, 1, 0, (Damage(files.join(path, COMMIT), "is not what was written"),))
            continue
        checked = [verify_file(files.join(path, each), {"content": digest}) for each, digest in sorted(digests.items())]
        damages = tuple(damage for _, damage in checked if damage is not None)
        yield Verified(path, len(checked), sum(size for size, _ in checked), damages)


def kept_steps(
    steps: Iterable[int], keep: int, total: int, every: int | None = None, peak: int | None = None
) -> set[int]:
    """The steps of checkpoints that are kept: the newest `keep`, the middle one, multiples of `every`, and the
    newest up to the step `peak`.

    The middle one is the newest at or before half of the run's `total` steps: to go back to when the end went wrong,
    and to test resuming with. `peak`: the last step before the learning rate falls, from which a longer run can
    continue.
    """
    ordered = sorted(steps)
    newest = [
        max((step for step in ordered if step <= most), default=0) for most in (total // 2, peak) if most is not None
    ]
    return {*ordered[-keep:], *newest, *(step for step in ordered if every and step % every == 0)}


def prune(root: Path, kept: Container[int]) -> list[Path]:
    """Remove all committed checkpoints except of the steps in `kept`; returns what was removed."""
    removed = [path for step, path in committed(root).items() if step not in kept]
    for path in removed:
        remove(path)
    return removed


def remove(path: Path) -> None:
    """Remove a committed checkpoint. COMMIT goes first, so a half-removed directory is not a checkpoint."""
    (path / COMMIT).unlink()
    shutil.rmtree(path)


log = logging.getLogger(__name__)


class Keeper:
    """Removes the checkpoints of a run that are not kept and, where the run has a `store`, copies each one there.

    One is copied at a time, in a thread. Where checkpoints come faster than that the ones between are left out; the
    newest never is. A context manager, whose end waits for the copies.
    """

    def __init__(self, run: RunConfig) -> None:
        self.run = run
        self.thread = ThreadPoolExecutor(1, "upload")
        self.lock = threading.Lock()
        self.next: Path | None = None  # to be copied
        self.copying: Path | None = None
        self.copied: Future[None] | None = None

    def committed(self, path: Path) -> None:
        """Called with each checkpoint, newest last. Raises what the copying of an earlier one has met."""
        with self.lock:
            if self.run.store:
                if self.copied and self.copied.done():
                    self.copied.result()
                self.next = path
                if self.copying is None:
                    self.copying = path
                    self.copied = self.thread.submit(self._copy)
            steps_in_use = {step_of(each.name) for each in (self.next, self.copying) if each}
            prune(path.parent, self.kept(committed(path.parent)) | steps_in_use)

    def remove_after(self, root: Path, step: int) -> None:
        """Remove the committed checkpoints of later steps, here and in the store, when what is copied now is there."""
        if self.copied:
            self.copied.result()
        if self.run.store:  # first: a checkpoint that is only here is never fetched again after a crash
            for later in stored(self.run.store):
                if later > step:
                    remove_stored(self.run.store, later)
        for later, path in committed(root).items():
            if later > step:
                remove(path)

    def kept(self, steps: Iterable[int]) -> set[int]:
        """The steps whose checkpoints are kept."""
        training = self.run.training
        peak = training.last_peak_step(self.run.model.seq_len)
        return kept_steps(steps, training.keep_checkpoints, training.steps, training.keep_every, peak)

    def _copy(self) -> None:
        assert self.run.store, "the run has a store"
        try:
            while True:
                with self.lock:
                    path, self.next = self.next, None
                    self.copying = path
                if path is None:
                    return
                upload(path, self.run.store, self.run.out)
                steps = stored(self.run.store)
                for step in sorted(steps - self.kept(steps)):
                    remove_stored(self.run.store, step)
        except BaseException:
            with self.lock:
                self.copying = None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        error = self.copied.exception() if self.copied else None
        self.thread.shutdown()
        if error and kind is None:
            raise RuntimeError(
                f"checkpoints could not be copied to {self.run.store}: {error}; they are in {self.run.out}: "
                "fix this and run again"
            ) from error
        if error:
            log.warning("checkpoints could not be copied to %s: %s", self.run.store, error)


def stored(store: str) -> set[int]:
    """Steps of the complete checkpoints in a store. Its folders are listed, and one request is made for each."""
    names = {name for name in files.names(store) if name.startswith("step-")}
    return {step_of(name) for name in names if files.exists(files.join(store, name, COMMIT))}


def folder_name(step: int) -> str:
    """The name of a checkpoint's folder."""
    return f"step-{step:08d}"


def remove_stored(store: str, step: int) -> None:
    """Remove a checkpoint from a store. COMMIT goes first."""
    folder = files.join(store, folder_name(step))
    files.remove(files.join(folder, COMMIT))
    files.remove(folder)


def set_aside(root: str, step: int, why: str) -> str:
    """Keep a damaged checkpoint out of the way of the one before it; a sentence about that, which begins with `why`.

    In a folder it gets another name. In a store, where that would copy it, only its COMMIT does: the rest stays until
    the checkpoint of that step is saved again.
    """
    name = folder_name(step)
    if "://" not in root:
        names = (f"{SET_ASIDE}{name}" + (f"-{n}" if n else "") for n in itertools.count())
        kept = next(path for each in names if not (path := Path(root) / each).exists())
        (Path(root) / name).rename(kept)
        files.sync(root)
        place = str(kept)
    else:
        place = files.join(root, name, f"{SET_ASIDE}{COMMIT}")
        files.write_bytes(place, files.read_bytes(files.join(root, name, COMMIT)))
        files.remove(files.join(root, name, COMMIT))
    return f"{why}: the checkpoint is set aside as {redact_url(place)}, and the one before it is used"


def upload(path: Path, store: str, out: Path) -> None:
    """Copy a committed checkpoint and the metrics beside it, COMMIT last; one that is there already stays."""
    target = files.join(store, path.name)
    if files.exists(files.join(target, COMMIT)):
        return
    for file in sorted(path.iterdir()):
        if file.name != COMMIT:
            files.upload_file(str(file), files.join(target, file.name))
    upload_lines(out, store)
    files.write_bytes(files.join(target, COMMIT), (path / COMMIT).read_bytes())


def upload_newer(root: Path, store: str, out: Path) -> None:
    """Copy the newest committed checkpoint below root to a store that has none as new."""
    newest = latest(root)
    if newest and step_of(newest.name) > max(stored(store), default=-1):
        upload(newest, store, out)


def upload_lines(out: Path, store: str) -> None:
    """Copy the metrics and events of a run beside the store of its checkpoints."""
    for lines in sorted(out.glob("*.jsonl")):
        files.write_bytes(files.join(store.rsplit("/", 1)[0], lines.name), lines.read_bytes())


def fetch_lines(out: Path, store: str) -> None:
    """The same files back into the folder of a run, replacing its files."""
    above = store.rsplit("/", 1)[0]
    for name in files.names(above):
        if name.endswith(".jsonl"):
            files.write_bytes(str(out / name), files.read_bytes(files.join(above, name)))


def fetch(source: str, digest: str, target: Path) -> None:
    """Copy a file of a store unless the target is what was written there. Raises DamagedFileError."""
    if target.exists() and files.checksum(str(target)) == digest:
        return
    target.unlink(missing_ok=True)
    try:
        files.copy(source, str(target))
    except FileNotFoundError:
        raise MissingFileError(f"{redact_url(source)} is missing") from None
    if files.checksum(str(target)) != digest:
        target.unlink()
        raise DamagedFileError(f"{redact_url(source)} is not what was written")


def restore(store: str, out: Path, root: Path, say: Callable[[str], None] = log.warning) -> Path | None:
    """Fetch the newest checkpoint of a store into `root`, and the metrics into `out`, unless `root` has one that is as
    new; returns its path, or None. One that is damaged is set aside if there is another, and `say` gets a sentence.

    Raises ValueError for the only one if it is not what was written.
    """
    while True:
        there, here = stored(store), max(committed(root), default=-1)
        step = max(there, default=-1)
        if step <= here:
            return None
        fetch_lines(out, store)  # first: those of later steps are cut off, and none may be missing
        try:
            return fetch_checkpoint(store, step, root)
        except ValueError as error:
            if len(there) == 1 and here < 0:
                raise
            say(set_aside(store, step, str(error).partition(";")[0]))


def fetch_checkpoint(store: str, step: int, root: Path) -> Path:
    """Fetch a checkpoint of a store into `root`; its path. Raises ValueError for one that is not what was written."""
    final = root / folder_name(step)
    temporary, source = final.with_suffix(".tmp"), files.join(store, final.name)
    for leftover in (temporary, final):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir(parents=True)
    commit = files.read_bytes(files.join(source, COMMIT))
    try:
        digests = checked_json.loads(commit, files.join(source, COMMIT))["files"]
        for name, digest in digests.items():
            fetch(files.join(source, name), digest, temporary / name)
    except (DamagedFileError, orjson.JSONDecodeError) as error:
        raise ValueError(f"{error}; restore it, or remove {source} and run again without it") from error
    temporary.rename(final)
    files.sync(root)
    files.write_bytes(str(final / COMMIT), commit)
    return final
