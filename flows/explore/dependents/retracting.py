"""Retract a thing, or undo that, and mark what rests on it. Separate: marking is a part of every run."""

from gristmill.flows.explore.dependents.affected import Affected
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.dependents import retractions
from gristmill.flows.reports.dependents.retractions import Retraction
from gristmill.flows.reports.dependents.things import Thing
from gristmill.flows.run.stale_marks import Marked, mark


def retract(settings: MachineSettings, thing: Thing, reason: str, report: Affected) -> tuple[Retraction, Marked]:
    """Record that a thing is retracted, and mark what rests on it. `report`: what does. Raises ValueError without a
    reason, FileExistsError for a thing that is retracted already."""
    held = [stage.stage for stage in report.stages if stage.documents] if report.found is not None else []
    one = retractions.retraction(thing, reason, held)
    retractions.write(settings.home, one)
    return one, mark(settings)


def undo(settings: MachineSettings, id_: str) -> tuple[Retraction, Marked]:
    """Remove a retraction, and the marks that it made. Raises LookupError if there is none."""
    one = retractions.undo(settings.home, id_)
    return one, mark(settings)
