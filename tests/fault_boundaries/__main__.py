"""Faults at the boundaries of a small run, with tables of the boundaries and of what became of the trials.

python -m tests.fault_boundaries --seed 0 --trials 200
python -m tests.fault_boundaries --only documents,near_duplicates
python -m tests.fault_boundaries --trace               the boundaries alone
python -m tests.fault_boundaries --plant 3             a planted defect, until a trial catches it; `all`: each of them
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fault_boundaries.faults import KINDS
from tests.fault_boundaries.flow import Run, write_recipe
from tests.fault_boundaries.planted import DEFECTS
from tests.fault_boundaries.trials import Outcome, Reference, Trial, drawn, reference, tried

_PLANTED_SECONDS = 60.0  # that a run with a planted defect may take: one waits for ever
OUTCOMES = ("same", "remedy", "left", "unsaid", "missed", "failed")
_CONSOLE = Console(width=120)


def references(folder: Path) -> list[Reference]:
    """Undisturbed runs on a disk that has files without a name, and on one that has not; their bytes are the same."""
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(write_recipe(folder), folder / "undisturbed")
    run.prepare(folder / "prepared")
    found = [reference(run), reference(replace(run, home=folder / "named", unnamed=False))]
    if found[0].contents != found[1].contents:
        raise RuntimeError("two undisturbed runs differ")
    return found


def boundaries_table(found: Sequence[Reference]) -> Table:
    """How many boundaries there are, by stage and operation, on a disk that has files without a name."""
    counts = Counter((each.stage, each.operation) for each in found[0].boundaries)
    operations = sorted({operation for _, operation in counts})
    table = Table("stage", *operations, "together")
    for stage in dict.fromkeys(each.stage for each in found[0].boundaries):
        row = [counts[stage, operation] for operation in operations]
        table.add_row(stage, *(str(count or "") for count in row), str(sum(row)))
    table.add_section()
    row = [sum(n for (_, one), n in counts.items() if one == operation) for operation in operations]
    table.add_row("together", *map(str, row), str(sum(row)))
    return table


def outcomes_table(outcomes: Sequence[tuple[Trial, Outcome]]) -> Table:
    table = Table("fault", "trials", *OUTCOMES)
    for kind in KINDS:
        counts = Counter(outcome.what for trial, outcome in outcomes if trial.kind == kind)
        table.add_row(kind, str(sum(counts.values())), *(str(counts[what] or "") for what in OUTCOMES))
    table.add_section()
    counts = Counter(outcome.what for _, outcome in outcomes)
    table.add_row("together", str(len(outcomes)), *(str(counts[what] or "") for what in OUTCOMES))
    return table


def _find(against: Reference, numbers: Iterable[int], seed: int, trials: int, only: Sequence[str], folder: Path) -> int:
    """Print which trial finds each of some planted defects; 1 if one is not found."""
    table = Table("", "defect", "trials", "found by")
    missed = 0
    for number in numbers:
        defect = DEFECTS[number]
        run = replace(against.run, home=folder / f"planted-{number}", unnamed=defect.unnamed, plant=defect.put)
        count, finding = 0, "[bold]not found"
        for trial in drawn([reference(run)], seed, trials, only):
            count += 1
            outcome = tried(against, trial, folder / "trial", defect.put, _PLANTED_SECONDS)
            if outcome.what == "failed":
                finding = f"{trial}: {outcome.detail}"
                break
        else:
            missed += 1
        print(f"defect {number} ({defect.what}): {count} trials; {finding}", flush=True)
        table.add_row(str(number), defect.what, str(count), finding)
    _CONSOLE.print(table)
    return 1 if missed else 0


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault_boundaries", description="Faults at all boundaries.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial, to do one again")
    parser.add_argument("--only", default="", help="stages, separated by commas")
    parser.add_argument("--faults", default=",".join(KINDS), help="kinds of faults, separated by commas")
    parser.add_argument("--plant", default="", help="the number of a planted defect, or `all`")
    parser.add_argument("--trace", action="store_true", help="show the boundaries, and end")
    arguments = parser.parse_args(given)
    only = tuple(filter(None, arguments.only.split(",")))
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        found = references(Path(folder))
        _CONSOLE.print(boundaries_table(found))
        if arguments.trace:
            return 0
        if arguments.plant:
            numbers = DEFECTS if arguments.plant == "all" else [int(arguments.plant)]
            return _find(found[0], numbers, arguments.seed, arguments.trials, only, Path(folder))
        outcomes = []
        for trial in drawn(found, arguments.seed, arguments.trials, only, arguments.faults.split(",")):
            if trial.number < arguments.first:
                continue
            outcome = tried(found[0], trial, Path(folder) / "trial")
            outcomes.append((trial, outcome))
            if outcome.what != "same":
                print(f"{trial}: {outcome.what}: {outcome.detail}", flush=True)
        _CONSOLE.print(outcomes_table(outcomes))
    return 1 if any(outcome.what == "failed" for _, outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
