"""Options and arguments that several commands have."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="read the first so many documents of each source only, to try")
]
RecipeArgument = Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")]
FinishedRecipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="as for `run`, which must have finished what is asked for")
]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|FOLDER",
        help="a recipe whose training is finished; or the local folder of a training run, a checkpoint, an export",
    ),
]
