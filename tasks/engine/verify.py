"""Everything that a finished stage has, read again and compared with what was noted when it was written."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from gristmill.storage import files, layout, ledger, shards
from gristmill.storage.remote.retry import RemoteIOError

_AT_ONCE = 1024  # files that wait for a thread


@dataclass(frozen=True)
class Damage:
    """A file that is not what was written, and how."""

    path: str
    trouble: str


@dataclass(frozen=True)
class Verified:
    """`files`, `bytes`: what was read; `damages`: what is wrong with it, empty for a sound stage."""

    folder: str
    files: int
    bytes: int
    damages: tuple[Damage, ...]


def verify(folder: str) -> Verified:
    """Read a finished stage whole: manifest, list of parts, every file, and the balance of documents.

    The content of every file is compared with its digest, sixteen files at a time. Holds a line of the list for each
    job, and the ledgers of sixteen shards. Raises LookupError for a
    stage that is not finished, ManifestError for a manifest or a list of parts that cannot be used.
    """
    manifest = layout.manifest(folder)
    if manifest is None:
        raise LookupError(f"{folder} is no finished stage: it has no manifest.json")
    parts = layout.parts(folder, manifest)
    paths = ((files.join(folder, name), facts) for part in parts for name, facts in part.files.items())
    damages: list[Damage] = []
    with ThreadPoolExecutor(16) as pool:
        while some := list(islice(paths, _AT_ONCE)):
            for file_damages in pool.map(lambda item: list(_damages(*item)), some):
                damages += file_damages
    if not damages:
        try:
            shards.check_balance(folder, parts)
        except ledger.LedgerError as error:
            damages.append(Damage(folder, str(error)))
    return Verified(folder, manifest["parts"]["files"], manifest["parts"]["bytes"], tuple(damages))


def _damages(path: str, facts: dict) -> Iterator[Damage]:
    try:
        with files.open_file(path) as f:
            if files.facts(f) != {name: fact for name, fact in facts.items() if name != "values"}:
                yield Damage(path, "is not what was written")
    except FileNotFoundError:
        yield Damage(path, "is missing")
    except (OSError, RemoteIOError) as error:
        yield Damage(path, f"cannot be read: {error}")
