"""What a finished stage has made, as one digest or as numbers, and the versions that it declares."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unicodedata import unidata_version

import pyarrow as pa
from packaging.requirements import Requirement

from gristmill.storage import files, layout
from gristmill.storage.parquet import read_table
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import Work


def contents(stage: StageResult) -> str:
    """The digest of the stage's contents, equal for equal contents, wherever and whenever it was made."""
    return stage.contents


def versions(stage: StageResult) -> tuple[int, dict[str, int]]:
    """The version of the stage, and by name those of the steps whose work it does."""
    return stage.manifest["version"], dict(sorted(stage.manifest["versions"].items()))


def other_releases(work: Work) -> str:
    """What is in the key of a stage and differs from what the table was made with: distributions in another release
    than that of constraints.txt, and Python's Unicode. Returns "" if nothing differs."""
    names = dict.fromkeys([*work.libraries, *(address.partition(":")[0].replace("_", "-") for address in work.data)])
    return other_installed(names, work.unicode)


def other_installed(names: Iterable[str], unicode: bool = True) -> str:
    """Those of the distributions, and Python's Unicode, that differ from what the table was made with."""
    others = [f"{name} {version(name)}" for name in names if name in LOCKED and version(name) != LOCKED[name]]
    if unicode and unidata_version != UNICODE:
        others.append(f"Unicode {unidata_version}")
    return ", ".join(others)


def _locked() -> dict[str, str]:
    lines = (Path(__file__).parents[2] / "constraints.txt").read_text(encoding="utf-8").splitlines()
    needed = [Requirement(line) for line in lines if not line.startswith("#")]
    return {
        each.name: str(each.specifier).removeprefix("==")
        for each in needed
        if not each.marker or each.marker.evaluate()
    }


LOCKED = _locked()
UNICODE = "14.0.0"  # of Python 3.11


def numbers(stage: StageResult) -> dict[str, list[float]]:
    """The floats of a stage, for one whose last digits depend on the machine: of each column of its tables how many,
    their sum and the sum of their squares; and those of its result."""
    found: dict[str, list[float]] = {}
    for part in sorted(layout.parts(stage.folder, stage.manifest), key=lambda part: (part.phase, part.number)):
        for name in sorted(part.files):
            if name.endswith(".parquet"):
                table = read_table(files.join(stage.folder, name))
                for column in table.column_names:
                    values = [*_floats(table[column])]
                    if values:
                        sums = [float(len(values)), sum(values), sum(value * value for value in values)]
                        found[f"{name}:{column}"] = [round(value, 6) for value in sums]
    for path, value in _leaves(stage.result, ""):
        found[f"result{path}"] = [value]
    return found


def others(stage: StageResult) -> str:
    """The digest of all columns of a stage's tables that are not floats: identifiers, reasons, counts."""
    digest = hashlib.md5(usedforsecurity=False)
    for part in sorted(layout.parts(stage.folder, stage.manifest), key=lambda part: (part.phase, part.number)):
        for name in sorted(part.files):
            if name.endswith(".parquet"):
                table = read_table(files.join(stage.folder, name))
                kept = [column for column in table.column_names if not _is_float(table[column].type)]
                digest.update(json.dumps([name, kept, table.select(kept).to_pylist()], default=str).encode())
    return digest.hexdigest()


def _is_float(kind: pa.DataType) -> bool:
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return pa.types.is_floating(kind)


def _floats(column: pa.ChunkedArray) -> Iterator[float]:
    kind = column.type
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        column, kind = pa.chunked_array([chunk.flatten() for chunk in column.chunks], kind.value_type), kind.value_type
    if pa.types.is_floating(kind):
        yield from (float(value) for value in column.to_pylist() if value is not None)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """The floats of a JSON value, by their places, but for times."""
    if isinstance(value, Mapping):
        for name, each in sorted(value.items()):
            if not any(word in name for word in ("second", "per_s", "time", "memory", "flops")):
                yield from _leaves(each, f"{path}/{name}")
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _leaves(each, f"{path}/{at}")
    elif isinstance(value, float):
        yield path, value
