"""The application: a table of all commands, whose modules are imported when a command runs.

`gristmill --help` imports no module of a command. The table has the first paragraph of each command's help; the
docstring of the command's function has the rest.
"""

import inspect
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

# The panels of the commands in --help, in this order.
MAKE = "Make: a corpus, tokens, a model"
DECIDE = "Decide: between recipes, mixtures, thresholds, sizes"
LOOK = "Look: at what was made, and why"
HAND_OVER = "Hand over: documents, models, filters, tokens"
SERVE = "Serve: this machine and its runs"

# By panel and module: the commands, and the first paragraph of their help, with the line ends of the
# list. The function of a command has its name, with `_` for `-`.
COMMANDS: dict[str | None, dict[str, dict[str, str]]] = {
    MAKE: {
        "gristmill.flows.cli.running": {
            "demo": "Harvest the documentation of the installed packages as WARC files and run the recipe "
            "`demo` on them.",
            "run": "Run a recipe from its sources to a trained model. What is finished already is reused.",
            "corpus": "Make a recipe's curated documents, and their export if it names one. It needs no "
            "mixture, model or training.",
            "tokens": "Make a recipe's token shards and the plan of their mixture, and all that comes before them.",
            "pretrain": "Train a recipe's model, and make all that comes before it.",
            "harvest": "Write the documentation of the installed packages as WARC 1.1 files: a crawl that "
            "needs no network.",
        },
        "gristmill.flows.cli.preparing": {
            "init": "Look at one's own files and write a short recipe for them that runs.",
            "schema": "Every key of a recipe, with type, default, bounds and example, as a JSON schema by "
            "which an editor completes and\n"
            "checks recipes. Steps of your own are in it.",
            "check": "Look for all that is wrong with a recipe before it runs, a line each: unknown keys, "
            "settings that exclude each\n"
            "other, missing files, a home without room. Estimate time and space. Exits with 1 if anything is "
            "wrong.",
            "capacity": "What a whole crawl would take, by what a finished run took: hours and what limits "
            "them, memory, bytes, money.",
            "plan": "What training the recipe's model takes, before it is paid for: memory by layout, time, "
            "checkpoints, money.",
        },
        "gristmill.flows.cli.searching": {
            "index": "Make the index by which `find` and `trace` look up texts of a recipe, and all that "
            "comes before it.",
        },
        "gristmill.flows.cli.judging": {
            "new-step": "Write a working step on documents to begin with, NAME_step.py, and its test. "
            "Recipes name it as NAME, or\n"
            "as NAME_step:Name, where GRISTMILL_STEPS=NAME_step is set and the folder is on the PYTHONPATH.",
        },
    },
    DECIDE: {
        "gristmill.flows.cli.ablating": {
            "ablate": "Compare a recipe with candidates by training small models on each: which is better, "
            "by how many bits per byte,\n"
            "how sure that is, what it costs. What is finished already is reused.",
            "proxy-noise": "How much runs of a proxy differ, by those in the home: written to FILE with the "
            "ending .json. By it a decision\n"
            "says which effect it would see before it trains anything.",
            "decisions": "All decisions of this home side by side: which change gained most, by what judge "
            "and at what size.",
        },
        "gristmill.flows.cli.scaling": {
            "mix": "Look for the mixture of a recipe's sources that is worth training on, and write it as a recipe.",
            "scale": "Train a grid of small models and fit a scaling law to it: the loss at other sizes, "
            "with intervals.",
            "agreement": "Train models of several sizes on several recipes: from which size on is the order "
            "that of the largest?",
            "transfer": "Is the best learning rate of a small model that of larger ones? Trains them all for "
            "a short while.",
        },
        "gristmill.flows.cli.judging": {
            "whatif": "The funnel of a finished run under other thresholds: decisions replayed over stored "
            "signals, nothing computed\n"
            "again. Steps behind the replayed ones that look at all documents together are not replayed.",
            "thresholds": "Thresholds for languages, proposed from the stored signals of a finished run: "
            "those that drop the same share of a\n"
            "language's documents as the recipe's drop of the reference. Printed as a table, and as YAML for "
            "the recipe.",
            "plan-mixture": "What training would take of each source: its share, tokens, and how often it "
            "would read them.",
        },
    },
    LOOK: {
        "gristmill.flows.cli.querying": {
            "sql": "Query a finished run with SQL: documents, ledger, tokens and more are tables.",
        },
        "gristmill.flows.cli.looking": {
            "status": "The stages in the home in order of time: finished or not, the recipe whose last run "
            "had them, documents in and\n"
            "out, and what was dropped.",
            "verify": "Read every file of a finished run, or of a stage, and compare it with what was "
            "written. Exits with 1 if a file\n"
            "is damaged or missing, or documents are not accounted for.",
            "show": "Some documents that a stage kept. As `documents` the curated ones, of each recipe that "
            "has run; what was\n"
            "extracted, before any decision, is shown by that stage's whole name, `documents-KEY`. With "
            "--rule, or as `dropped`,\n"
            "some that were dropped: why, and the text that the rule met, with the offending part in "
            "⟦brackets⟧. As `edits`,\n"
            "what was cut out of texts. With --where those for which an expression is true, with the columns "
            "that it names:",
            "columns": "Every column that an expression may name, as those of the step `where`, of --where "
            "and of `mixture.by`: its type,\n"
            "what it means, and the step that measures it.",
            "lineage": "Where a document, or a token, comes from: its record, read again from the source's "
            "file by its range alone, the\n"
            "raw page, the extracted text, all scores, and what every stage decided. A dropped record has a "
            "lineage too.",
            "similar": "Near-duplicates of a document or a text file among all documents that have "
            "signatures: exact Jaccard similarity,\n"
            "what became of them, and the first passage in which they differ.",
        },
        "gristmill.flows.cli.searching": {
            "find": "Where a phrase is in a recipe's texts: how often, in how many documents, kept and "
            "dropped and by which rule; of\n"
            "some the text around it, the source, the URL and the place of the record.",
            "trace": "The longest spans of a text that a recipe's training data has word for word, the "
            "rarest first, each with its\n"
            "documents: where a model may have a sentence from. The index is made first, where it is not "
            "there.",
        },
        "gristmill.flows.cli.judging": {
            "dedup-report": "Write one HTML page about a finished run's near-duplicates, and print its path: "
            "sizes of clusters, sample pairs\n"
            "side by side, measured recall against the S-curve.",
            "report": "Write one HTML page about a finished run, and print its path: funnel, samples of what "
            "each rule dropped,\n"
            "languages, lengths, clusters of near-duplicates, training.",
            "rules": "The rules of all document steps in the order in which they are asked, of which the "
            "first that a document fails is\n"
            "the reason of its drop: thresholds and the recipe's keys for them, and what each measures, with "
            "unit and source.",
            "audit": "Judge learned filters: write a page with documents of either side of the cut, on which "
            "a person votes without\n"
            "knowing the side, and print its path; for a step that gives labels and drops nothing, with the "
            "labels. With --votes,\n"
            "how far the votes agree with the filter. With --precision, for every step: readers vote on "
            "drawn documents in\n"
            "`gristmill browse RECIPE`, knowing what the step did, and this says how many of its drops they "
            "would drop too.",
            "contamination": "Items of benchmarks that documents hold, by the recipe's step "
            "`decontamination`: of each benchmark how many, in\n"
            "how many documents, examples, and where its clean and dirty items lie, on which `evaluate "
            "--tasks` can be run.",
        },
        "gristmill.flows.cli.browsing": {
            "diff": "What differs between two finished corpora: documents that one has alone, by the step "
            "and rule that dropped them\n"
            "in the other, or `not read` where it never had the record; documents with another text; columns "
            "that are distributed\n"
            "otherwise; tokens, or characters, by source and by host. Makes nothing, and changes nothing in "
            "the home.",
            "browse": "Look around in a finished corpus with a browser: a local page, whose address is "
            "printed, until Ctrl-C.",
        },
        "gristmill.flows.cli.evaluating": {
            "evaluate": "Bits per byte of a model on the held-out text of each source, and its accuracy on "
            "tasks of multiple choice or of\n"
            "a last word. Written beside the model as JSON, and logged to the recipe's MLflow run.",
            "tokenizer-report": "What tokenizers make of a finished corpus, side by side: the recipe's own, "
            "and other files.",
        },
    },
    HAND_OVER: {
        "gristmill.flows.cli.exporting": {
            "train-tokens": "Train on files of tokens that are there, those of nanoGPT and llm.c, in place "
            "of a recipe's.",
            "join": "Train as one of several machines: on each but the first, where `run` trains. The "
            "recipe's tokens are finished.\n"
            "With a home in an object store the machines share nothing else: what this one needs is fetched "
            "from there.",
        },
    },
    SERVE: {
        "gristmill.flows.cli.serving": {
            "automations": "Write the automations of the deployments to the Prefect server of "
            "PREFECT_API_URL: a failed run is sent to a\n"
            "webhook, a cancelled run whose worker is gone is ended, and so is one whose process has died. "
            "Those that an earlier\n"
            "call wrote are replaced.",
            "doctor": "Look at this machine and at the services that its settings name: versions, memory, "
            "disks, home, kernels, Prefect,\n"
            "MLflow, Dask, Redis, clocks, ports. Each line says what to do. Exits with 1 if one is an error.",
            "compile": "Compile all kernels, once per machine and version. A first run does the same.",
            "gc": "List, or remove, stages that no recorded run holds, and caches of kernels of older versions.",
            "forget": "List the recorded runs and the stages that only one of them needs, or forget a run so "
            "that `gc` can remove them.",
        },
    },
}

# The commands of a group, by module.
GROUPS: dict[str, dict[str, dict[str, str]]] = {
    "export": {
        "gristmill.flows.cli.exporting": {
            "documents": "Write a recipe's curated documents, with all signals and scores, as a folder "
            "that `datasets.load_dataset` reads.\n"
            "What of the corpus is not made yet is made first. With --where those alone for which an "
            "expression is true, of the\n"
            "columns that `gristmill columns` lists:",
            "model": "Write a trained model as one folder that Hugging Face's tools load: config, "
            "weights, tokenizer, model card.",
            "tokens": "Write a recipe's tokens as one folder in another trainer's own format, with the "
            "mixture in its words.",
        },
    },
    "import": {
        "gristmill.flows.cli.exporting": {
            "run": "A training that another program did on a recipe's tokens, as a run of the recipe's "
            "experiment in MLflow: its\n"
            "losses, and its model by the figures of the recipe's own, with the loss of each held-out "
            "document.",
        },
    },
    "train": {
        "gristmill.flows.cli.training": {
            "lm": "Train the models of a language for the step `perplexity`, as CCNet has them: "
            "SentencePiece and KenLM.",
            "classifier": "Train a fastText classifier: of good examples, for the step `quality`, on "
            "labelled files or on the sources of a\n"
            "finished recipe; or of several labels. Beside the model go FILE.json, what it is and how "
            "good, and FILE.svg.",
            "head": "Train a head for the step `embedding`: on labelled texts, or on labels of documents "
            "that a recipe has embedded.\n"
            "All figures are by cross-validation in five folds; they are in the file, too.",
        },
    },
    "service": {
        "gristmill.flows.cli.serving": {
            "init": "Write prefect.yaml, with the deployments of the flows, and docker/, with images, "
            "Kubernetes and SLURM.",
        },
    },
}


class Listing(TyperCommand):
    """A command as --help and shell completion list it: its module is not imported yet."""

    def __init__(self, module: str, name: str, summary: str, panel: str | None) -> None:
        super().__init__(name, help=summary, rich_help_panel=panel)
        self.module = module

    def load(self) -> Any:
        """Import the module, and return the command with its parameters and all of its help."""
        assert self.name is not None
        function = getattr(import_module(self.module), self.name.replace("-", "_"))
        command = typer.Typer(add_completion=False)
        command.command(self.name, help="\n\n".join(filter(None, (self.help, inspect.getdoc(function)))))(function)
        return typer.main.get_command(command)


class LazyGroup(TyperGroup):
    """A group with the commands of the table. A command is loaded when it runs or prints its own help (Click: "lazily
    loading subcommands")."""

    def __init__(self, *, name: str | None = None, **attributes: Any) -> None:
        super().__init__(name=name, **attributes)
        panels = {None: GROUPS[name]} if name else COMMANDS
        listed = {
            command: Listing(module, command, summary, panel)
            for panel, modules in panels.items()
            for module, commands in modules.items()
            for command, summary in commands.items()
        }
        self.commands = {**listed, **self.commands}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, Listing) else command, rest


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Web crawls in, a trained language model out, and a reason for every document that was dropped.\n\n"
    "Where things are kept and how many workers there are is set in the environment: GRISTMILL_HOME (default "
    ".gristmill), GRISTMILL_EXECUTOR (serial, threads, local, dask, kubernetes, slurm), GRISTMILL_WORKERS, "
    "GRISTMILL_DASK_ADDRESS, GRISTMILL_DASK_TLS_CA, _CERT and _KEY, GRISTMILL_CLUSTER, GRISTMILL_LOG_FORMAT (text, "
    "json), GRISTMILL_MEMORY, GRISTMILL_LOCAL, GRISTMILL_REMOTE_IO__..., GRISTMILL_STEPS, GRISTMILL_MLFLOW_URI, "
    "GRISTMILL_REDIS, GRISTMILL_TRAINING_...; "
    "PREFECT_API_URL names a Prefect server.",
)
for _group, _panel, _summary in (
    ("export", HAND_OVER, "Write what was made for others to read."),
    ("import", HAND_OVER, "Read what others have made."),
    ("train", HAND_OVER, "Train models that steps of recipes score documents by."),
    ("service", SERVE, "Files of a service that runs flows on a schedule."),
):
    app.add_typer(typer.Typer(cls=LazyGroup, no_args_is_help=True, help=_summary), name=_group, rich_help_panel=_panel)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"gristmill {version('gristmill')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version, and end")
    ] = False,
) -> None:
    """Options of the program itself."""


# Options and arguments that several commands have.
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
