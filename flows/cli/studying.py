"""The command `study`."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import Json, RecipeArgument
from gristmill.flows.cli.in_flow import in_flow, recipe_to_run
from gristmill.flows.cli.options import with_options
from gristmill.flows.cli.terminal import print_result
from gristmill.flows.experiments.studies.options import StudyOptions
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.stages.judge import check_judges
from gristmill.tasks.engine.extras import require

if TYPE_CHECKING:
    from gristmill.flows.experiments.studies import study as studies
else:
    studies = wrapt.lazy_import("gristmill.flows.experiments.studies.study")


class QuestionName(StrEnum):
    """The questions; `questions.py` has their arms."""

    BATCH = "batch"
    RATE_RULE = "rate-rule"
    PRECISION = "precision"
    CLIP = "clip"
    ORDER = "order"
    VOCABULARY = "vocabulary"
    RESUME = "resume"


@with_options
def study(
    question: Annotated[QuestionName, typer.Argument(metavar="QUESTION", help="what is varied")],
    recipe: RecipeArgument,
    options: StudyOptions,
    as_json: Json = False,
) -> None:
    """QUESTION is batch, rate-rule, precision, clip, order, vocabulary or resume. Prints a table and one sentence, and
    writes a page with a plot.

    Guide: docs/guides/studies.md

    Examples:
        gristmill study batch recipe.yaml --judge extracted
        gristmill study order recipe.yaml --judge extracted --column characters
    """
    loaded = recipe_to_run(recipe, None)
    require("train", "studies")
    if question is not QuestionName.RESUME:
        check_judges(MachineSettings(), [loaded], options.clean, options.judge)
    report = in_flow("study", loaded.name, lambda: studies.study(loaded, question.value, **vars(options)))
    print_result(report.as_json(), [report.asks, report.table, report.sentence, report.page], as_json)
