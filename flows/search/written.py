"""What a recipe's trained model writes behind a prompt."""

from pathlib import Path

from gristmill.flows.models.evaluation import trained_model
from gristmill.training.evaluate.sample import sample_text

TOP_K = 50


def written(target: str, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    """The text, without the prompt. Raises what `trained_model` raises."""
    saved = trained_model(target).saved
    return sample_text(
        saved.load(),
        Path(saved.tokenizer.local()),
        tokens,
        prompt=prompt,
        temperature=temperature,
        top_k=TOP_K,
        seed=seed,
    )
