"""Reports a run whose stages are all finished, without Prefect, workers, MLflow or torch."""

import logging
from typing import TYPE_CHECKING

from gristmill.flows.curation import Outputs
from gristmill.flows.machine.context import RunContext, job_options
from gristmill.flows.machine.remaking import Remaking
from gristmill.flows.machine.run_log import HeldLines
from gristmill.flows.machine.runs import RunRecorder, Seen
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import filter_stages
from gristmill.flows.reports.finished import check_run
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.run.source_losses import log_losses
from gristmill.flows.run import stale_marks
from gristmill.flows.run.model_training import noted_run
from gristmill.flows.run.progress import ended
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.group_losses import check_losses
from gristmill.tasks.engine import log_fields, options, remakes
from gristmill.tasks.engine.make import NotFinishedError, StageResult, find
from gristmill.tasks.engine.spec import StageSpec

if TYPE_CHECKING:
    from gristmill.flows.stages.model import Trained

log = logging.getLogger(__name__)


def reuse(flow: str, recipe: Recipe, settings: MachineSettings) -> tuple[Run, list[str]] | None:
    """Return the report and the log lines of a flow whose stages are all finished, and record the run in the home as
    the flow would.

    Returns None, and records nothing, if the flow has something to make, restore or record in MLflow, or would raise.
    Then the flow itself raises the error.
    """
    with HeldLines(settings.log_format) as held, log_fields.bound(recipe=recipe.name):
        try:
            return _reuse(flow, recipe, settings), held.lines
        except (LookupError, OSError, RuntimeError, ValueError) as error:
            why = error
    log.debug("%s of %s runs with Prefect: %s: %s", flow, recipe.name, type(why).__name__, why)
    return None


def _reuse(flow: str, recipe: Recipe, settings: MachineSettings) -> Run:
    """Raises NotFinishedError, or what the flow raises."""
    seen = None
    if not check_run(recipe, settings):
        seen = Seen(settings.home, recipe.name)
        log.warning("files of the recipe are missing: using their contents as of its last run")
    options.configure(job_options(settings))
    recorder = RunRecorder(settings.home, recipe.name, seen, flow, recipe.model_dump(mode="json"))
    remaking = Remaking(settings.home, [step.step for step in recipe.steps], filter_stages(recipe.steps))
    remakes.forget(settings.home)
    labels: list[str] = []
    places: dict[str, str] = {}

    def build(spec: StageSpec) -> StageResult:
        if (stage := find(settings.home, spec)) is None:
            raise NotFinishedError(spec.name)
        labels.append(stage.label)
        if spec.at:
            places[stage.label] = spec.at
        remaking.reused(stage)
        with log_fields.bound(stage=stage.label):
            log.info("%s", ended(stage, 0.0))
        return stage

    def check(outputs: Outputs, corpus: Corpus, losses: StageResult) -> None:
        check_losses(outputs.recipe, losses)
        if outputs.recipe.group_losses.then == "warn":
            log_losses(outputs.recipe, corpus, losses)

    def train(outputs: Outputs) -> "Trained":
        from gristmill.flows.stages.model import Trained  # here, since a corpus needs no libraries of training

        model = outputs.context.build(outputs.model_spec)
        if not (run := noted_run(settings, recipe.name, model.key)):
            raise NotFinishedError(f"{model.label} in MLflow")
        return Trained(model, model.result["result"], run)

    outputs = Outputs(RunContext(settings, build, outside=recorder.outside, restore=_check_files), recipe, check, train)
    outputs.make(flow)
    recorder.add(*labels)
    for label, address in places.items():
        recorder.exported(label, address)
    recorder.finished()
    stale_marks.mark_after_run(settings)
    remaking.report(log)
    return Run.of(outputs)


def _check_files(stage: StageResult) -> StageResult:
    """Return the stage. Raises NotFinishedError if its files were removed."""
    if stage.is_collected:
        raise NotFinishedError(stage.label)
    return stage
