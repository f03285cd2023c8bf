"""Options of the import of a run. Separate: the command reads them without MLflow, which the import needs."""

from dataclasses import dataclass
from pathlib import Path

from gristmill.flows.recipe.options import option


@dataclass(frozen=True)
class ImportRequest:
    """A training that another program did."""

    losses: Path = option("the trainer's metrics: JSON Lines, or CSV with a header")
    name: str = option("name of the run in MLflow, and of the model's folder")
    trainer: str = option("the program, as olmo-core or torchtitan: a prefix of its metrics")
    model: Path | None = option(
        "the trained model in Hugging Face's layout (Llama, Qwen3), by the trainer's own converter; it is evaluated on "
        "the recipe's held-out text",
        None,
    )
    step: str | None = option("column of the step; default: by its usual names", None, metavar="COLUMN")
    loss: str | None = option("column of the loss in nats a token; default: by its usual names", None, metavar="COLUMN")
