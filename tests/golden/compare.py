"""What differs between the table and what was made, one sentence for each difference."""

from collections.abc import Iterator, Mapping
from math import isclose

from tests.golden.run import Entry, Table

RELATIVE = 1e-3  # of floats that a library of matrices has made
ABSOLUTE = 1e-6
_UPDATE = "run `python -m tests.golden --update`"


def differences(table: Table, found: Table, rows: Mapping[str, bool]) -> list[str]:
    """A line for each difference. `rows`: all rows that there are by name, and whether they were run. Stages that were
    made with other releases of libraries in their keys (`others`) are not compared, nor what reads them."""
    lines = [f"{name} is in the table and is no row: {_UPDATE}" for name in table if name not in rows]
    raised: dict[str, bool] = {}
    for row, made in found.items():
        if row not in table:
            lines.append(f"row {row} is not in the table: {_UPDATE}")
            continue
        known, changed, skipped = table[row], set[str](), set[str]()
        for label in [*known, *(name for name in made if name not in known)]:
            if label not in made or label not in known:
                what = "is not made any more" if label not in made else "is not in the table"
                lines.append(f"{label} of row {row} {what}: {_UPDATE}")
                continue
            if "others" in made[label] or changed & {*made[label].get("inputs", ())} & skipped:
                changed.add(label)
                skipped.add(label)
                continue
            lines += _of_stage(row, label, known[label], made[label], changed, raised)
    lines += [
        f"the version of {name} was raised, and nothing of it has changed: take it back"
        for name, moved in raised.items()
        if not moved and _all_run(name, table, rows)
    ]
    return lines


def _of_stage(
    row: str, label: str, known: Entry, made: Entry, changed: set[str], raised: dict[str, bool]
) -> Iterator[str]:
    moved = not same(known, made)
    newer = [name for name, before, now in _versions(label, known, made) if now > before]
    older = [name for name, before, now in _versions(label, known, made) if now < before]
    for name in newer:
        raised[name] = raised.get(name, False) or moved
    if older:
        yield f"{label} of row {row}: the version of {', '.join(older)} is lower than in the table: raise it again"
    if not moved:
        return
    changed.add(label)
    if newer:
        yield f"{label} of row {row}: contents changed, and the version of {', '.join(newer)} was raised: {_UPDATE}"
        return
    if changed & {*made.get("inputs", ())}:
        return  # of what it reads, which has a line of its own
    steps = "".join(f", or of the step {name}" for name in made["versions"])
    stage = label.split(" ")[0]
    yield (
        f"{label} of row {row}: contents changed, version {made['version']} did not: raise `version` of the stage "
        f"{stage}{steps}"
    )


def same(known: Entry, made: Entry) -> bool:
    """Whether two entries have the same contents, or numbers that hardly differ and the same other columns."""
    if "numbers" not in known or "numbers" not in made:
        return known.get("contents") == made.get("contents") and ("numbers" in known) == ("numbers" in made)
    if known.get("rest") != made.get("rest"):
        return False
    one, other = known["numbers"], made["numbers"]
    return one.keys() == other.keys() and all(
        len(one[name]) == len(other[name])
        and all(isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE) for a, b in zip(one[name], other[name], strict=True))
        for name in one
    )


def _versions(label: str, known: Entry, made: Entry) -> Iterator[tuple[str, int, int]]:
    """(what is versioned, before, now) of a stage and of its steps."""
    yield f"the stage {label.split(' ')[0]}", known["version"], made["version"]
    for name in made["versions"]:
        # a step that the stage did not name before was at its first version
        yield f"the step {name}", known["versions"].get(name, 1), made["versions"][name]


def _all_run(name: str, table: Table, rows: Mapping[str, bool]) -> bool:
    """Whether all rows were run that have what is versioned."""
    kind, _, own = name.removeprefix("the ").partition(" ")
    for row, entries in table.items():
        for label, entry in entries.items():
            has = label.split(" ")[0] == own if kind == "stage" else own in entry["versions"]
            if has and not rows.get(row, True):
                return False
    return True
