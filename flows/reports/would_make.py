"""What a run of a recipe would make, and why: looked up in the home, without making or reading any data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.runs import Seen, runs_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.recorded import FLOWS, RecordedStages, reasons
from gristmill.flows.stages.corpus import NothingLeftError
from gristmill.flows.stages.group_losses import losses_spec
from gristmill.flows.stages.mixture import training_data
from gristmill.flows.stages.search_index import search_index
from gristmill.flows.stages.word_index import word_index
from gristmill.tasks.engine import remakes
from gristmill.tasks.engine.make import NotFinishedError, StageResult, find
from gristmill.tasks.engine.spec import StageSpec


@dataclass(frozen=True)
class ToMake:
    """A stage that a run would make: `label`, the folder that it would be in; `why`; `cpu_seconds` that it took when it
    was last made, None if it was not."""

    label: str
    why: str
    cpu_seconds: float | None


@dataclass
class WouldMake:
    """`reused`: stages that are finished; `certain`: those that are made for certain; `perhaps`: those after them, by
    label, which are made if their inputs come out with other contents; `open_end`: whether more stages follow that were
    never made."""

    reused: int = 0
    certain: list[ToMake] = field(default_factory=list)
    perhaps: list[str] = field(default_factory=list)
    open_end: bool = False

    def sentences(self) -> list[str]:
        """What is said of it, a line each."""
        if not self.certain:
            return [f"a run makes nothing: all of its {self.reused} stages are finished"]
        lines = [f"a run reuses {self.reused} stages and makes {len(self.certain)} for certain:"]
        for one in self.certain:
            cost = "" if one.cpu_seconds is None else f" ({one.cpu_seconds:,.1f} CPU s when it was last made)"
            lines.append(f"  {one.label}: {one.why}{cost}")
        if self.open_end:
            lines.append("  and all that comes after, which was never made")
        elif self.perhaps:
            lines.append(f"and up to {len(self.perhaps)} more, if contents differ: {', '.join(self.perhaps)}")
        return lines


def would_make(recipe: Recipe, settings: MachineSettings) -> WouldMake:
    """What a run would make, as far as it can be known beforehand. A stage behind one that must be made is looked up as
    if that came out with the contents that it had in the newest run; if no run had it, nothing behind it is known."""
    remakes.forget(settings.home)
    runs = [run for run in runs_of(settings.home, recipe.name) if run.flow in FLOWS]
    recorded = RecordedStages(settings.home, recipe.name, runs, quiet=True)
    found, asked = WouldMake(), dict[str, StageResult]()
    unsure = set[str]()  # labels of the stages that are made, and of those behind them

    def build(spec: StageSpec) -> StageResult:
        if spec.key in asked:
            return asked[spec.key]
        stage = find(settings.home, spec)
        if stage is None:
            stage = recorded.find(spec)
            why = "it was never made" if stage is None else "; ".join(reasons(spec, stage.manifest))
            cost = None if stage is None else stage.cpu_seconds
            found.certain.append(ToMake(spec.label(settings.home), why or "its key has changed", cost))
            if stage is None:
                raise NotFinishedError(spec.name)
            unsure.add(stage.label)
        elif unsure & {*spec.read.values()}:
            unsure.add(stage.label)
            found.perhaps.append(stage.label)
        else:
            found.reused += 1
        asked[spec.key] = stage
        return stage

    seen = Seen(settings.home, recipe.name)
    context = RunContext(settings, build, outside=lambda given, look: _looked(seen, given, look))
    try:
        *_, passed = curate(context, recipe)
        if (losses := losses_spec(recipe, passed.left)) is not None:
            build(losses)
        if recipe.word_index:
            build(word_index(context, recipe, passed.left))
        if recipe.mixture is not None:
            from gristmill.flows.stages.model import model_spec  # here, since it takes a second to import

            data = training_data(context, recipe, passed.left)
            if recipe.index:
                build(search_index(context, recipe, data))
            build(model_spec(settings, recipe, data))
    except NotFinishedError:
        found.open_end = True
    except NothingLeftError:
        pass
    return found


def _looked(seen: Seen, given: Any, look: Callable[[], Any]) -> Any:
    """What files outside of the home are now; where they are gone, as the last run saw them."""
    try:
        return look()
    except (OSError, ValueError):
        if (noted := seen.noted(given)) is None:
            raise
        return noted
