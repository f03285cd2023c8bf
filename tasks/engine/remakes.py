"""The current folder of stages that were begun again.

<home>/remade/<name>-<key>.json    {"key": that of the folder, "number": how often the stage was begun again}

A stage is begun again in a new folder when a user requests it, and when other code left it unfinished, so no folder has
parts of two versions of the code. There is no such file for the first folder of a stage.
"""

import hashlib
import logging
from threading import Lock

from gristmill.storage import checked_json, files, layout
from gristmill.storage.damage import DamagedFileError

log = logging.getLogger(__name__)

_known: dict[str, dict[str, str]] = {}  # by home: the keys of folders, by the labels of stages
_lock = Lock()


def current(home: str, name: str, key: str) -> str:
    """The key of the current folder of a stage: its own key, unless it was begun again. A process lists these files
    once, and again after `forget`."""
    with _lock:
        if home not in _known:
            _known[home] = dict.fromkeys(
                (each.removesuffix(".json") for each in files.names(_folder(home)) if each.endswith(".json")), ""
            )
        keys = _known[home]
        label = f"{name}-{key}"
        if label not in keys:
            return key
        if not keys[label]:
            keys[label] = _read(home, label)[0] or key
        return keys[label]


def forget(home: str) -> None:
    """Read the home again at the next call, because other processes may have begun a stage again."""
    with _lock:
        _known.pop(home, None)


def begin_again(home: str, name: str, key: str) -> None:
    """Give a stage a new folder. The caller holds the lease of the current one."""
    label = f"{name}-{key}"
    number = _read(home, label)[1] + 1
    while files.exists(layout.stage_folder(home, name, _numbered(label, number))):
        number += 1  # its note was lost
    checked_json.write(_path(home, label), {"key": _numbered(label, number), "number": number})
    forget(home)


def _numbered(label: str, number: int) -> str:
    """The key of the folder of the `number`-th restart of a stage."""
    return hashlib.sha256(f"{label} {number}".encode()).hexdigest()[:16]


def _read(home: str, label: str) -> tuple[str, int]:
    try:
        record = checked_json.read(_path(home, label))
    except FileNotFoundError:
        return "", 0
    except DamagedFileError as error:
        return _recovered(home, label, error)
    return record["key"], record["number"]


def _recovered(home: str, label: str, error: DamagedFileError) -> tuple[str, int]:
    """Find the newest folder of a stage whose note is damaged. Raises the error if there is none."""
    name, number = label.rpartition("-")[0], 0
    while files.exists(layout.stage_folder(home, name, _numbered(label, number + 1))):
        number += 1
    if not number:
        raise error
    log.warning("%s is damaged: using %s-%s, which was made last", _path(home, label), name, _numbered(label, number))
    return _numbered(label, number), number


def _folder(home: str) -> str:
    return files.join(home, "remade")


def _path(home: str, label: str) -> str:
    return files.join(_folder(home), f"{label}.json")
