"""Stages that releases up to 0.1.0 have made, whose keys held digests of the code: found from their manifests.

Such a stage counts as version 1 of itself and of its steps. It is taken for a stage that is asked for if its record,
its inputs and the releases of the libraries that decide are the same. That is noted in `<home>/remade/`
(`gristmill.tasks.engine.remakes`), so that it is found by its new key from then on. No data is read.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from gristmill.storage import files, layout
from gristmill.storage.address import is_one_name
from gristmill.tasks.engine import remakes
from gristmill.tasks.engine.spec import StageSpec

# Of records, what names modules, and the classes of steps.
_MODULES = ("classes", "work")


def adopt(home: str, spec: StageSpec) -> bool:
    """Look for a stage of an earlier release that is the one that is asked for, and note that it is. Whether there is
    one."""
    if spec.at or spec.version != 1 or any(version != 1 for version in spec.work.versions.values()):
        return False
    if not _is_earlier(home):
        return False
    for label, manifest in _stages(home, spec.name):
        if _is_same(manifest, spec):
            remakes.take(home, spec.name, spec.key, label.rpartition("-")[2])
            return True
    return False


@cache
def _is_earlier(home: str) -> bool:
    """Whether an earlier release has worked in a home: it wrote the record of a run as a file beside the others."""
    return any(name.endswith(".json") for name in files.names(files.join(home, "runs")))


@cache
def _stages(home: str, name: str) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    return tuple(_read(home, name))


def _read(home: str, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The finished stages of a name that an earlier release has made, with their manifests."""
    root = files.join(home, "stages")
    for label in files.names(root):
        if label.rpartition("-")[0] != name:
            continue
        try:
            manifest = layout.manifest(files.join(root, label))
        except layout.ManifestError:
            continue
        if manifest is not None and "contents" not in manifest:
            yield label, manifest


def _is_same(manifest: Mapping[str, Any], spec: StageSpec) -> bool:
    now = spec.identity
    if not _are_same(_plain(manifest["record"]), _plain(now["record"])):
        return False
    inputs = {name: one if isinstance(one, str) else one.label.rpartition("-")[2] for name, one in spec.inputs.items()}
    if manifest["inputs"] != inputs:
        return False
    theirs = manifest["libraries"]
    return all(theirs.get(name, release) == release for name, release in now["libraries"].items())


def _are_same(value: Any, other: Any) -> bool:
    """Whether two values of JSON's types are the same but for the folders of local files, which no key knows."""
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(_are_same(value[name], other[name]) for name in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_are_same, value, other))
    return value == other or is_one_name(value, other)


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _MODULES}
