"""Options of studies. Separate: commands read them without the modules that train."""

from dataclasses import dataclass

from gristmill.flows.experiments.decisions.options import Judging
from gristmill.flows.recipe.options import option


@dataclass(frozen=True)
class StudyOptions(Judging):
    """What is varied, by how many runs of which model, and what judges."""

    pairs: int = option("pairs of runs of each arm with the base", 6, min=4)
    tokens: int | None = option("tokens of each run; default: as for a decision", None, min=1)
    column: str = option("with order: column that documents are ordered by", "characters", metavar="COLUMN")
    schedule: str | None = option("with batch: training.schedule of all runs", None, metavar="SCHEDULE")
