"""The exported model as MLflow serves it. Separate: MLflow copies this file and executes it.

Its artifacts are `model`, a folder with what `gristmill.training.hub.weights` writes, and `tokenizer`, a SentencePiece
model.
"""

from pathlib import Path
from typing import Any

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

from gristmill.training.evaluate.sample import sample_text
from gristmill.training.hub.weights import load_model


class TextGenerator(PythonModel):
    """Continues texts: prompts in, each with its continuation out."""

    def load_context(self, context: Any) -> None:
        self.model = load_model(Path(context.artifacts["model"]))
        self.tokenizer = Path(context.artifacts["tokenizer"])

    # without a type hint: MLflow would make the whole signature of it, which then has no params
    def predict(self, context: Any, model_input, params: dict[str, Any] | None = None) -> list[str]:  # type: ignore[no-untyped-def]  # noqa: ANN001
        """`model_input`: prompts, a list or a data frame of one column; `params`: `max_tokens`, `temperature` (0: the
        likeliest token), `top_k` (0: the whole vocabulary), `seed`."""
        prompts = model_input.iloc[:, 0].tolist() if hasattr(model_input, "iloc") else list(model_input)
        options = params or {}
        return [
            sample_text(
                self.model,
                self.tokenizer,
                int(options.get("max_tokens", 100)),
                prompt=prompt,
                temperature=float(options.get("temperature", 0.8)),
                top_k=int(options.get("top_k", 50)),
                seed=int(options.get("seed", 0)),
            )
            for prompt in prompts
        ]


set_model(TextGenerator())
