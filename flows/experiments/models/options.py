"""Options of the import of a run. Separate: the command reads them without MLflow, which the import needs."""

from dataclasses import dataclass
from pathlib import Path

from gristmill.flows.recipe.options import option


@dataclass(frozen=True)
class ImportRequest:
    """A training that another program did."""

    losses: Path = option("metrics of the trainer: JSON Lines, or CSV with a header")
    name: str = option("name of the MLflow run, and of the model's folder")
    trainer: str = option("training program, such as olmo-core or torchtitan; prefix of its metrics")
    model: Path | None = option(
        "trained model in Hugging Face's layout (Llama, Qwen3), from the trainer's own converter; it is "
        "evaluated on the recipe's held-out text",
        None,
    )
    step: str | None = option("column of the step; default: one of its usual names", None, metavar="COLUMN")
    loss: str | None = option(
        "column of the loss, in nats per token; default: one of its usual names", None, metavar="COLUMN"
    )
