"""Trials: a run with a fault at a boundary, the same run again without it, and a comparison with an undisturbed run."""

import json
import random
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path

from gristmill.storage import files
from tests.fault_boundaries.faults import KILLS, KINDS, Fault, Power, possible
from tests.fault_boundaries.flow import Run
from tests.fault_boundaries.trace import Boundary, Recorder

SECONDS = 240.0  # that a run may take: an undisturbed one takes two, on a machine that does nothing else
_WHOLE = 0.1  # of the trials run to the end of the recipe, the others to the end of the stage that they hit
_REMEDY = re.compile(r"; remove (?:the stage's folder )?(\S+) and run")
_LEFT = re.compile(r"(.*/)?(lease(/.*)?|\..*\.tmp)")
# They say how long it took: only that they are there is compared.
_TIMED = re.compile(r"(.*/)?(cost\.json|done/.*)")


def contents(home: Path, labels: Sequence[str]) -> dict[str, str]:
    """The digest of every file in the folders of some stages and in the export, by its path from the home."""
    found = {}
    for folder in (*(home / "stages" / label for label in labels), home / "export"):
        for path in folder.rglob("*"):
            if path.is_file():
                name = str(path.relative_to(home))
                found[name] = "" if _TIMED.fullmatch(name) else files.checksum(str(path))
    return found


@dataclass(frozen=True)
class Reference:
    """An undisturbed run: its home, the labels of its stages in their order, and its boundaries."""

    run: Run
    made: tuple[str, ...]
    boundaries: tuple[Boundary, ...]

    @cached_property
    def contents(self) -> dict[str, str]:
        return contents(self.run.home, self.made)

    def upto(self, at: str) -> tuple[str, ...]:
        """The stages that are finished when a stage is begun, or all of them."""
        if at in self.made:
            return self.made[: self.made.index(at)]
        return self.made if at == "end" else ()

    def copy(self, at: str, home: Path) -> None:
        """A home as it was when a stage was begun."""
        home.mkdir()
        if not (before := self.upto(at)):
            return
        for label in before:
            if not label.startswith("export-"):
                shutil.copytree(self.run.home / "stages" / label, home / "stages" / label)
            else:
                shutil.copytree(self.run.home / "export", home / "export")


def reference(run: Run) -> Reference:
    """Run it undisturbed, in a process of its own. Raises RuntimeError if it fails."""
    run.home.mkdir()
    noted = run.home.with_suffix(".json")

    def work(run: Run) -> None:
        recorder = Recorder()
        made = run.make(recorder)
        noted.write_text(json.dumps({"made": made, "boundaries": [astuple(each) for each in recorder.boundaries]}))

    process = run.start(run.home.with_suffix(".log"), work)
    if process.wait(4 * SECONDS) != 0:
        raise RuntimeError(f"the undisturbed run has failed: {process.said()}")
    found = json.loads(noted.read_text())
    boundaries = (Boundary(*each) for each in found["boundaries"])
    # how often a heart beats is a matter of time
    lasting = (each for each in boundaries if each.kind != "lease" or each.nth == 1)
    return Reference(run, tuple(found["made"]), tuple(lasting))


@dataclass(frozen=True)
class Trial:
    """`whole`: whether it goes on to the end of the recipe."""

    number: int
    kind: str
    boundary: Boundary
    unnamed: bool
    whole: bool

    def __str__(self) -> str:
        disk = "" if self.unnamed else ", temporary files with names"
        return f"trial {self.number}: {self.kind} at {self.boundary}, in {self.boundary.stage}{disk}"


def drawn(
    references: Sequence[Reference], seed: int, trials: int, only: Sequence[str] = (), faults: Sequence[str] = KINDS
) -> Iterator[Trial]:
    """Trials at boundaries of all kinds in turn: of operations, of files and of `faults`. `only`: in these stages."""
    draw = random.Random(seed)
    cells: dict[tuple, list[tuple[bool, Boundary]]] = defaultdict(list)
    for each in references:
        for boundary in each.boundaries:
            if not only or boundary.stage in only:
                for kind in (kind for kind in faults if possible(kind, boundary)):
                    cells[kind, boundary.operation, boundary.kind].append((each.run.unnamed, boundary))
    if not cells:
        raise ValueError(f"there is no boundary for {', '.join((*only, *faults))}")
    order: list[tuple] = []
    for number in range(trials):
        if not order:
            order = draw.sample(sorted(cells), len(cells))
        cell = order.pop()
        unnamed, boundary = draw.choice(cells[cell])
        yield Trial(number, cell[0], boundary, unnamed, draw.random() < _WHOLE)


@dataclass(frozen=True)
class Outcome:
    """`what`: `same`, `remedy` where the second run has told what to remove and the third was well, `left` where files
    were left behind, `unsaid` where a full disk was not said to be one, `missed` where the boundary was not reached,
    `failed` else."""

    what: str
    detail: str = ""


def tried(
    against: Reference,
    trial: Trial,
    folder: Path,
    plant: Callable[[], None] | None = None,
    seconds: float = SECONDS,
) -> Outcome:
    """A trial, in a folder of its own, whose runs may take so many seconds. `plant`: puts a defect into them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    home, log, at = folder / "home", folder / "log", trial.boundary.at
    against.copy(at, home)
    last = None if trial.whole or at not in against.made else at
    run = Run(against.run.recipe, home, last, unnamed=trial.unnamed, plant=plant)
    reached = folder / "reached"

    def with_fault(run: Run) -> None:
        power = Power(str(home))
        run.make(Fault(trial.kind, trial.boundary, trial.number, power, reached), power)

    first = run.start(log, with_fault)
    code = first.wait(seconds)
    labels = (*against.upto(at), at) if last else against.made
    if not reached.exists():
        return Outcome("missed", first.said())
    if code is None:
        return Outcome("failed", "the run with the fault did not end")
    if code == 0 and (trial.kind in KILLS or (wrong := _differences(against, home, labels))):
        return Outcome("failed", f"the run ended well in spite of the fault: {wrong}")
    unsaid = trial.kind == "full" and code != 0 and "free some space and run" not in first.said()
    said = first.said()
    outcome = _again(against, run, labels, folder / "log-again", trial.kind == "torn", seconds)
    return Outcome("unsaid", said) if unsaid and outcome.what == "same" else outcome


def _again(against: Reference, run: Run, labels: Sequence[str], log: Path, may_tell: bool, seconds: float) -> Outcome:
    """What the same run without a fault gives. `may_tell`: whether it may fail, and name what is to be removed."""
    process = run.start(log, lambda run: run.make(Recorder()))
    code, told = process.wait(seconds), ""
    if code is not None and code != 0 and (match := _REMEDY.search(process.said())) and may_tell:
        told = process.said()
        files.remove(match[1])
        process = run.start(log, lambda run: run.make(Recorder()))
        code = process.wait(seconds)
    if code is None:
        return Outcome("failed", "the run after the fault did not end")
    if code != 0:
        return Outcome("failed", f"the run after the fault failed: {process.said()}")
    if wrong := _differences(against, run.home, labels):
        return Outcome("failed", f"the run after the fault ended well, but {wrong}")
    if left := _left(run.home):
        return Outcome("left", ", ".join(left))
    return Outcome("remedy", told) if told else Outcome("same")


def _differences(against: Reference, home: Path, labels: Sequence[str]) -> str:
    found = {name: value for name, value in contents(home, labels).items() if not _LEFT.fullmatch(name)}
    folders = tuple(f"stages/{label}/" for label in labels)
    if any(label.startswith("export-") for label in labels):
        folders = (*folders, "export/")
    wanted = {name: value for name, value in against.contents.items() if name.startswith(folders)}
    missing, more = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    other = sorted(name for name in wanted.keys() & found.keys() if wanted[name] != found[name])
    kinds = (("missing", missing), ("too much", more), ("other bytes", other))
    return "; ".join(f"{what}: {', '.join(names[:3])}" for what, names in kinds if names)


def _left(home: Path) -> list[str]:
    names = sorted(str(path.relative_to(home)) for path in home.rglob("*"))
    return [name for name in names if _LEFT.fullmatch(name) and not name.endswith("lease")]
