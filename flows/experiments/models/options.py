"""Options of the import of a run. Separate: the command reads them without MLflow, which the import needs."""

from dataclasses import dataclass
from pathlib import Path

from gristmill.flows.recipe.options import option


@dataclass(frozen=True)
class ImportRequest:
    """A training that another program did."""

    losses: Path = option("metrics file: JSON Lines, or CSV with a header")
    name: str = option("name of the run and of the model's folder")
    trainer: str = option("program, such as olmo-core; prefix of its metrics")
    model: Path | None = option(
        "trained model in Hugging Face format (Llama, Qwen3, NanoChat), to evaluate on the recipe's held-out text",
        None,
    )
    step: str | None = option("column of the step; default: a common name", None, metavar="COLUMN")
    loss: str | None = option("column of the loss in nats per token; default: a common name", None, metavar="COLUMN")
