"""The application: a table of all commands, whose modules are imported when a command runs.

`gristmill --help` imports no module of a command. The table has the first sentence of each command's help; the
docstring of the command's function has the rest.
"""

import glob
import inspect
import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
import wrapt
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from gristmill.flows.machine import installed, variables
    from gristmill.flows.machine import settings as machine_settings
    from gristmill.flows.recipe import recipe as recipes
else:
    installed = wrapt.lazy_import("gristmill.flows.machine.installed")
    machine_settings = wrapt.lazy_import("gristmill.flows.machine.settings")
    variables = wrapt.lazy_import("gristmill.flows.machine.variables")
    recipes = wrapt.lazy_import("gristmill.flows.recipe.recipe")

# The modules of the commands.
ABLATING = "gristmill.flows.cli.ablating"
BROWSING = "gristmill.flows.cli.browsing"
EVALUATING = "gristmill.flows.cli.evaluating"
EXPORTING = "gristmill.flows.cli.exporting"
JUDGING = "gristmill.flows.cli.judging"
LOOKING = "gristmill.flows.cli.looking"
PREPARING = "gristmill.flows.cli.preparing"
QUERYING = "gristmill.flows.cli.querying"
RUNNING = "gristmill.flows.cli.running"
SCALING = "gristmill.flows.cli.scaling"
SEARCHING = "gristmill.flows.cli.searching"
SERVING = "gristmill.flows.cli.serving"
TRAINING = "gristmill.flows.cli.training"

HELP_WIDTH = 76  # columns of an example: a terminal of 80 less its indentation

# The groups of commands, in the order of --help: the help of each.
GROUPS: dict[str, str] = {
    "recipe": """Write recipes and steps; list rules and columns.

    Examples:
        gristmill recipe init crawl
        gristmill recipe rules gopher_quality
    """,
    "decide": """Compare recipes, mixtures, thresholds, sizes and costs.

    Examples:
        gristmill decide whatif recipe.yaml --set gopher_quality.min_words=100
        gristmill decide ablate recipe.yaml --without gopher_quality --plan
    """,
    "explain": """Find out where documents come from, and why they were dropped.

    Examples:
        gristmill explain show dropped --rule gopher_quality.words
        gristmill explain find recipe.yaml "a phrase"
    """,
    "export": """Write documents, a model or tokens for other tools.

    Examples:
        gristmill export documents recipe.yaml --to documents
        gristmill export model recipe.yaml --to model
    """,
    "train": """Train models for steps, on several machines, and evaluate them.

    Examples:
        gristmill train classifier quality.bin --jsonl labels.jsonl
        gristmill train evaluate recipe.yaml --tasks tasks
    """,
    "home": """Check this machine and its home; free disk space.

    Examples:
        gristmill home status
        gristmill home gc --days 30
    """,
}
HELP = """Turn web crawls into a curated corpus and a trained language model.

Gristmill records why each document was kept or dropped, and tests what each decision is worth.

Examples:
    gristmill demo
    gristmill run recipe.yaml
"""

# By group, "" for the top level: each command's module and function, and the first sentence of its help.
COMMANDS: dict[str, dict[str, tuple[str, str, str]]] = {
    "": {
        "demo": (RUNNING, "demo", "Run the whole pipeline on a small crawl made on this machine."),
        "check": (PREPARING, "check", "Validate a recipe without running it; estimate time and disk."),
        "run": (RUNNING, "run", "Run a recipe: from its sources to a trained model."),
        "corpus": (RUNNING, "corpus", "Make a recipe's curated documents, without tokens or a model."),
        "study": (SCALING, "study", "Answer a question about training with small models."),
        "report": (JUDGING, "report", "Write an HTML page about a finished run, and print its path."),
        "sql": (QUERYING, "sql", "Query a finished run's documents, ledger and tokens with SQL."),
        "browse": (BROWSING, "browse", "Browse a finished corpus in a local web page, until Ctrl-C."),
        "ui": (SERVING, "ui", "Show this home's runs and models in a browser, until Ctrl-C."),
        "settings": (SERVING, "settings", "List the settings of this machine: variable, value, origin."),
    },
    "recipe": {
        "init": (PREPARING, "init", "Write a short recipe that runs on your own files."),
        "schema": (PREPARING, "schema", "Print every recipe key as a JSON schema for your editor."),
        "new-step": (JUDGING, "new_step", "Write a custom step that works, and its test."),
        "rules": (JUDGING, "rules", "List the rules of all document steps, with thresholds."),
        "columns": (LOOKING, "columns", "List the columns that expressions can use, with values."),
    },
    "decide": {
        "ablate": (ABLATING, "ablate", "Compare a recipe with variants by training small models."),
        "noise": (ABLATING, "proxy_noise", "Measure how much runs of a proxy differ, and save it."),
        "list": (ABLATING, "decisions", "List all decisions of this home, the largest gain first."),
        "mix": (SCALING, "mix", "Search for a better mixture of a recipe's sources."),
        "scale": (SCALING, "scale", "Fit a scaling law to a grid of small models."),
        "agreement": (SCALING, "agreement", "Find the model size from which recipes keep their order."),
        "transfer": (SCALING, "transfer", "Test whether the best learning rate holds at other sizes."),
        "whatif": (JUDGING, "whatif", "Replay a finished run with other thresholds."),
        "thresholds": (JUDGING, "thresholds", "Propose thresholds for each language from a finished run."),
        "mixture": (JUDGING, "plan_mixture", "Show the share, tokens and epochs of each source in training."),
        "plan": (PREPARING, "plan", "Estimate a training's memory, time, checkpoints and price."),
        "capacity": (PREPARING, "capacity", "Estimate the cost of a whole crawl from a finished run."),
    },
    "explain": {
        "show": (LOOKING, "show", "Print documents that a stage kept, dropped or edited."),
        "lineage": (LOOKING, "lineage", "Trace a document or a token back to its source record."),
        "similar": (LOOKING, "similar", "Find near-duplicates of a document or a text file."),
        "find": (SEARCHING, "find", "Find a phrase in a recipe's texts, kept and dropped."),
        "trace": (SEARCHING, "trace", "Find the longest spans of a text in the training data."),
        "index": (SEARCHING, "index", "Build the index that `find` and `trace` use."),
        "duplicates": (JUDGING, "dedup_report", "Write an HTML page about a run's near-duplicates."),
        "contamination": (JUDGING, "contamination", "List benchmark items that documents contain."),
        "diff": (BROWSING, "diff", "Compare two finished corpora: documents, texts, columns."),
        "audit": (JUDGING, "audit", "Judge filters and rules by a reader's votes on documents."),
        "agreement": (JUDGING, "agreement", "Measure how far annotators agree, as kappa by class."),
        "tokenizers": (EVALUATING, "tokenizer_report", "Compare tokenizers on a finished corpus."),
    },
    "export": {
        "documents": (EXPORTING, "documents", "Write curated documents as a folder for `load_dataset`."),
        "model": (EXPORTING, "model", "Write a trained model as a Hugging Face folder."),
        "tokens": (EXPORTING, "tokens", "Write a recipe's tokens in another trainer's format."),
        "reading-order": (EXPORTING, "reading_order", "Write which documents a training read, in its order."),
        "provenance": (EXPORTING, "provenance", "Write the data card and summaries of a corpus and a model."),
    },
    "train": {
        "lm": (TRAINING, "lm", "Train models of a language for the step `perplexity`."),
        "classifier": (TRAINING, "classifier", "Train a fastText classifier on good examples or labels."),
        "head": (TRAINING, "head", "Train a head for the step `embedding` on labels."),
        "from-tokens": (EXPORTING, "train_tokens", "Train on token files of nanoGPT or llm.c."),
        "join": (EXPORTING, "join", "Train as one of several machines of `gristmill run`."),
        "import": (EXPORTING, "import_run", "Import another program's training run into MLflow."),
        "evaluate": (EVALUATING, "evaluate", "Evaluate a model on held-out text and on tasks."),
    },
    "home": {
        "status": (LOOKING, "status", "List the stages of this home, with documents in and out."),
        "verify": (LOOKING, "verify", "Check every file of a finished run or of a stage."),
        "gc": (SERVING, "gc", "List or remove stages that no recorded run holds."),
        "forget": (SERVING, "forget", "List recorded runs, or forget one so that `gc` can free it."),
        "affected": (SERVING, "affected", "List what depends on a stage, a step, a file or a document."),
        "retract": (SERVING, "retract", "Mark verdicts that rest on a bad stage, step or file as stale."),
        "takedown": (EXPORTING, "takedown", "Remove documents and their copies, and write a receipt."),
        "doctor": (SERVING, "doctor", "Check this machine and the services that it uses."),
        "compile": (SERVING, "compile", "Compile all kernels, once per machine and version."),
        "automations": (SERVING, "automations", "Write the deployments' automations to a Prefect server."),
        "service": (SERVING, "service", "Write prefect.yaml and docker/, for runs on a schedule."),
        "worker": (SERVING, "worker", "Run the worker processes of a run on SLURM, in a job array."),
    },
}

# Commands by their names before 0.2.0, which run in 0.2, with a line that says the new name, and go with 0.3. An option
# in brackets takes an argument that the old command had.
RENAMED: dict[str, str] = {
    "tokens": "run --tokens-only",
    "pretrain": "run",
    "harvest": "demo --crawl-only [--out FOLDER]",
    "init": "recipe init",
    "schema": "recipe schema",
    "new-step": "recipe new-step",
    "rules": "recipe rules",
    "columns": "recipe columns",
    "ablate": "decide ablate",
    "proxy-noise": "decide noise",
    "decisions": "decide list",
    "mix": "decide mix",
    "scale": "decide scale",
    "agreement": "decide agreement",
    "transfer": "decide transfer",
    "whatif": "decide whatif",
    "thresholds": "decide thresholds",
    "plan-mixture": "decide mixture",
    "plan": "decide plan",
    "capacity": "decide capacity",
    "show": "explain show",
    "lineage": "explain lineage",
    "similar": "explain similar",
    "find": "explain find",
    "trace": "explain trace",
    "index": "explain index",
    "dedup-report": "explain duplicates",
    "contamination": "explain contamination",
    "diff": "explain diff",
    "audit": "explain audit",
    "tokenizer-report": "explain tokenizers",
    "train-tokens": "train from-tokens",
    "join": "train join",
    "import run": "train import",
    "evaluate": "train evaluate",
    "status": "home status",
    "verify": "home verify",
    "gc": "home gc",
    "forget": "home forget",
    "doctor": "home doctor",
    "compile": "home compile",
    "automations": "home automations",
    "service init": "home service",
}
# The old command that still has a function: it runs another flow, which makes the same.
KEPT: dict[str, tuple[str, str, str]] = {"pretrain": (RUNNING, "pretrain", "Train a recipe's model, as `run` does.")}


def renamed(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The old name that the words of a command line begin with, and the words with its new one. None: there is none."""
    for length in (2, 1):
        old, rest = " ".join(words[:length]), list(words[length:])
        if (new := RENAMED.get(old)) is not None:
            name, _, option = new.partition(" [")
            takes_argument = option and rest and not rest[0].startswith("-")
            return old, [*name.split(), *(option.split()[:1] if takes_argument else ()), *rest]
    return None


def split_help(text: str) -> tuple[str, list[str]]:
    """The prose of a help text, each paragraph as one line, and the commands below its heading `Examples:`."""
    prose, _, examples = inspect.cleandoc(text).partition("\n\nExamples:\n")
    paragraphs = (" ".join(paragraph.split()) for paragraph in prose.split("\n\n"))
    return "\n\n".join(filter(None, paragraphs)), [line.strip() for line in examples.splitlines() if line.strip()]


def shell_lines(command: str, width: int) -> list[str]:
    """A command in lines of at most `width` characters. It continues after a backslash, and breaks only before an
    option, so the lines can be pasted into a shell."""
    lines: list[str] = []
    separator = " --"
    for number, part in enumerate(command.split(separator)):
        piece = f"{separator[1:]}{part}" if number else part
        if lines and len(f"{lines[-1]} {piece} \\") <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(f"    {piece}" if lines else piece)
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


class WithExamples:
    """A command or a group whose help ends with its examples."""

    def __init__(self, name: str | None, *, help: str | None = None, **attributes: Any) -> None:
        prose, self.examples = split_help(help or "")
        super().__init__(name=name, help=prose, **attributes)  # type: ignore[call-arg]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)  # type: ignore[misc]
        if self.examples:  # a hidden command has none
            lines = (line for example in self.examples for line in shell_lines(example, HELP_WIDTH))
            formatter.write("\n".join([" Examples:", *(f"   {line}" for line in lines), ""]))


class Checked(WithExamples, TyperCommand):
    """A command that refuses unknown variables GRISTMILL_... before it does anything, and makes nothing that other
    accounts may read, unless the settings say so."""

    def invoke(self, ctx: Any) -> Any:
        variables.check_names(os.environ)
        os.umask(int(machine_settings.MachineSettings().umask, 8))
        return super().invoke(ctx)


class Listing(TyperCommand):
    """A command as --help and shell completion list it: its module is not imported yet."""

    def __init__(self, name: str, module: str, function: str, summary: str, hidden: bool = False) -> None:
        super().__init__(name, help=summary, hidden=hidden)
        self.module, self.function = module, function

    def load(self) -> Any:
        """Import the module, and return the command with its parameters and all of its help."""
        function = getattr(import_module(self.module), self.function)
        command = typer.Typer(add_completion=False)
        text = "\n\n".join(filter(None, (self.help, inspect.getdoc(function))))
        command.command(self.name, cls=Checked, help=text)(function)
        return typer.main.get_command(command)


class LazyGroup(WithExamples, TyperGroup):
    """A group with the commands of the table. A command is loaded when it runs or prints its own help (Click: "lazily
    loading subcommands")."""

    def __init__(self, *, name: str | None = None, **attributes: Any) -> None:
        super().__init__(name=name, **attributes)
        listed = {command: Listing(command, *row) for command, row in COMMANDS[name or ""].items()}
        hidden = {} if name else {command: Listing(command, *row, hidden=True) for command, row in KEPT.items()}
        self.commands = {**listed, **self.commands, **hidden}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if ctx.parent is None and (words := renamed(args)) is not None:
            old, new = words
            if not ctx.resilient_parsing:  # which a shell asks for completions with
                typer.echo(f"gristmill {old} is now: gristmill {RENAMED[old]}", err=True)
            args = args if old in KEPT else new
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, Listing) else command, rest


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help=HELP,
)
for _group, _summary in GROUPS.items():
    app.add_typer(
        typer.Typer(cls=LazyGroup, no_args_is_help=True, help=_summary),
        name=_group,
        rich_help_panel="Groups of commands: gristmill GROUP --help",
    )


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo("\n".join(installed.lines()))
        raise typer.Exit


@app.callback()
def _options(
    is_version_requested: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="version, commit and libraries"),
    ] = False,
) -> None:
    """Options of the program itself."""


def _complete_recipe(incomplete: str) -> list[str]:
    """Names of shipped recipes and YAML files that begin with what a user has typed."""
    files = sorted(glob.glob(f"{glob.escape(incomplete)}*.yaml"))
    return [*(name for name in recipes.shipped_names() if name.startswith(incomplete)), *files]


# Options and arguments that several commands have.
Json = Annotated[bool, typer.Option("--json", help="JSON output")]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="number of documents to read from each source; default: all")
]
RecipeArgument = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="YAML file, or name of a shipped recipe", autocompletion=_complete_recipe),
]
FinishedRecipe = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="YAML file or shipped recipe whose run is finished",
        autocompletion=_complete_recipe,
    ),
]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|FOLDER",
        help="recipe with a trained model; or local folder of a training run, a checkpoint or an export",
        autocompletion=_complete_recipe,
    ),
]
