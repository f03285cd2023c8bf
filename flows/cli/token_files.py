"""The command train-tokens."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import app, print_texts, settings
from flows.extras import require


@app.command("train-tokens")
def train_tokens(
    given: Annotated[Path, typer.Argument(metavar="SETTINGS", help="a YAML file: files of tokens, model and training")],
    to: Annotated[
        Path, typer.Option(metavar="FOLDER", help="local folder of the model; a run that was stopped goes on")
    ],
) -> None:
    """Train on files of tokens that are there, those of nanoGPT and llm.c, in place of a recipe's."""
    require("train", "training a model")
    from flows import token_training

    result = token_training.train_tokens(
        token_training.load(given), to, settings(), on_line=lambda line: print_texts([line])
    )
    print_texts(
        [f"held-out loss {result['heldout/loss']:.4f}, that of the tokens' frequencies {result['unigram/loss']:.4f}"]
    )
    print_texts([f"evaluate it: gristmill evaluate {to}"])
