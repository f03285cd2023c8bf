"""The recipe: everything that determines the output, in one file that reads from top to bottom."""

import shlex
from collections.abc import Iterator, Sequence
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from gristmill.flows.machine.wrong_values import did_you_mean, listed, shown
from gristmill.flows.recipe import settings_file
from gristmill.flows.recipe.errors import MAX_FINDINGS, ContradictionError, KeyPath, Origin
from gristmill.flows.recipe.steps import (
    AnyStep,
    column_problems,
    document_steps,
    read_source,
    repeated_steps,
    source_problems,
)
from gristmill.storage.remote.addresses import check_no_secrets
from gristmill.storage.settings import Address, from_folder
from gristmill.tasks.dedup.semantic import Clustered
from gristmill.tasks.documents.export import Export
from gristmill.tasks.documents.expressions import DERIVED, ExpressionError
from gristmill.tasks.documents.group_losses import GroupLosses
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.documents.step import DOCUMENT_COLUMNS, CorpusStep, DocumentStep, Settings, Step
from gristmill.tasks.documents.where import Where
from gristmill.tasks.extraction.extract import UNION, Extract
from gristmill.tasks.reading.sources import Source
from gristmill.tasks.rights.statements import ADVICE
from gristmill.tasks.tokens.mixture import CLUSTER_SIZE, SOURCE, Column, Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer
from gristmill.tasks.url.step import Url
from gristmill.training.config import TrainingConfig
from gristmill.training.denoisers import own_tokens
from gristmill.training.layout.limits import lacking
from gristmill.training.model_config import FP8_MULTIPLE, ModelConfig

MIXTURES = Path(__file__).with_name("mixtures")


def names() -> list[str]:
    """The names of the shipped mixtures."""
    return sorted(path.stem for path in MIXTURES.glob("*.yaml"))


def by_name(value: Any) -> Any:
    """The values of a mixture, given by the name of a shipped one or the path of a YAML file. Other values are returned
    unchanged.

    Raises ValueError, which lists the shipped ones, and RecipeError for a file that is not YAML.
    """
    if not isinstance(value, str):
        return value
    path = MIXTURES / f"{value}.yaml" if value in names() else Path(value)
    if not path.is_file():
        hint = f"{did_you_mean(value, names())} shipped mixtures: {', '.join(names())}".strip()
        raise ValueError(f"no mixture file {value}, and no shipped mixture with this name ({hint})")
    with path.open("rb") as f:
        values, _ = settings_file.parse_yaml(f.read(settings_file.MAX_BYTES + 1), str(path))
    return values


RECIPES = Path(__file__).with_name("recipes")


def shipped_names() -> list[str]:
    """The names of the shipped recipes."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def _by_name(value: Any, info: ValidationInfo) -> Any:
    return by_name(from_folder(value, info) if isinstance(value, str) and value not in names() else value)


MixtureLike = Annotated[Mixture | None, BeforeValidator(_by_name, json_schema_input_type=str | Mixture | None)]


class Recipe(Settings):
    """Sources, an ordered list of steps, tokenizer, mixture, model and training. Unknown keys are an error."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_-]*$", max_length=100, description="Name of the recipe, and of its MLflow experiment."
    )
    seed: int = Field(1, ge=0, description="Seed of the tokenizer's sample. Steps and training have their own seeds.")
    limit: int | None = Field(
        None, gt=0, description="Read only the first N documents of each source, from its first N files. null: all."
    )
    sources: tuple[Annotated[Source, BeforeValidator(read_source)], ...] = Field(
        min_length=1, description="Where documents come from."
    )
    steps: tuple[AnyStep, ...] = Field(
        description="Steps, in the order they run. Only `url` may come before `extract`, and `normalize` "
        "must come directly after it. Sources with formats jsonl, parquet, text or code need "
        "no `extract`. `[]` keeps texts unchanged.",
    )
    takedowns: tuple[Address, ...] = Field(
        (),
        description="Addresses of lists of ids, URLs or hosts. Their documents are excluded from exports and tokens.",
    )
    group_losses: GroupLosses = Field(
        GroupLosses(),
        description="What to do if steps removed far more from one source, host, language or topic than "
        "from comparable ones.",
    )
    evaluation: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")], Address] = Field(
        {},
        description="Your own evaluation texts, by name: models are evaluated on them and never trained on "
        "them. JSON Lines or Parquet with a column `text`, or a folder of .txt files.",
    )
    tokenizer: Tokenizer = Field(Tokenizer(), description="How texts become tokens.")
    mixture: MixtureLike = Field(
        None,
        description="Training mixture: its keys, the name of a shipped mixture (llama, pile, redpajama), "
        "or the path of a YAML file. Not needed for a corpus.",
    )
    model: ModelConfig = Field(ModelConfig(), description="Shape of the model.")
    training: TrainingConfig = Field(TrainingConfig(), description="How the model is trained.")
    index: bool = Field(
        False, description="Build the index of `gristmill explain find` and `trace` together with the token shards."
    )
    word_index: bool = Field(
        False, description="Build the index of `gristmill explain find --words` together with the corpus."
    )
    export: Export | None = Field(
        None, description="Export the curated documents as files after the corpus is finished."
    )

    @model_validator(mode="before")
    @classmethod
    def _no_secrets(cls, values: Any) -> Any:
        check_no_secrets(values)
        return values

    @model_validator(mode="before")
    @classmethod
    def _no_huge_numbers(cls, values: Any) -> Any:
        if problems := list(islice(_huge_numbers(values, ()), MAX_FINDINGS)):
            raise ContradictionError(problems)
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        every = chain(
            self._of_order(), self._of_signals(), self._of_sources(), self._of_training(), self._of_objective()
        )
        problems = list(islice(every, MAX_FINDINGS + 1))
        if len(problems) > MAX_FINDINGS:
            problems[-1] = ((), "has more problems; correct these first")
        if problems:
            raise ContradictionError(problems)
        return self

    def _of_training(self) -> Iterator[tuple[KeyPath, str]]:
        least = self.training.fp8_min_dim
        if least and not self.model.fp8_matrices(least):
            yield (
                ("training", "fp8_min_dim"),
                f"fp8_min_dim is {least}, but no matrix of the blocks has sides of at least this size that "
                f"are multiples of {FP8_MULTIPLE}: lower it, change model.dim and model.ffn to such "
                "multiples, or set it to null",
            )
        yield from lacking(self.model, self.training)
        if late := self.training.late_stage(self.model.seq_len):
            yield ("training", "batch_ramp"), late.removeprefix("batch_ramp ")

    def _of_order(self) -> Iterator[tuple[KeyPath, str]]:
        names = [source.name for source in self.sources]
        for index, name in enumerate(names):
            if name in names[:index]:
                yield ("sources", index), f"`{name}` is listed more than once; give each source a different name"
        yield from repeated_steps(self.steps, names)
        steps = [step.base_name for step in self.steps]
        if "extract" not in steps:
            if pages := [source.name for source in self.sources if source.needs_extraction]:
                yield (
                    ("steps",),
                    f"the pages of {listed(pages)} need the step `extract`, but the steps are "
                    f"{listed(steps)}; begin with `- step: extract`",
                )
                return
        else:
            for index, step in enumerate(steps[: steps.index("extract")]):
                if step != "url":
                    yield ("steps", index), f"only `url` may come before `extract`, but `{step}` does; move it after"
        if "normalize" in steps and steps.index("normalize") != self._extracted:
            index = steps.index("normalize")
            where = "directly after `extract`" if "extract" in steps else "first, or after `url`"
            yield ("steps", index), f"`normalize` changes the text that all other steps see: move it {where}"

    def _of_signals(self) -> Iterator[tuple[KeyPath, str]]:
        steps = [step.base_name for step in self.steps]
        names: list[str] = []
        for index, step in enumerate(self.steps):
            if "language" not in steps[: index + 1] and (
                getattr(step, "languages", None) or "language" in _reads(step)
            ):
                yield ("steps", index), f"`{step.step}` has settings by language: put the step `language` before it"
            if isinstance(step, CorpusStep) and not step.reads_documents:
                for name in step.reads:
                    if name not in (*names, "language"):  # which has its own sentence
                        there = did_you_mean(name, names) or f"give one of {listed(names)}"
                        yield ("steps", index), f"`{step.step}` reads {name}, which no step before it measures; {there}"
            elif isinstance(step, DocumentStep | CorpusStep):
                yield from self._of_reads(index, step, names)
            if isinstance(step, Clustered) and "embedding" not in steps[:index]:
                yield (
                    ("steps", index),
                    f"`{step.step}` compares the vectors of the step `embedding`: put that before it",
                )
            if isinstance(step, Where):
                yield from self._of_expression(index, step, names)
            best = getattr(step, "best", None)
            if best is not None and best not in names:
                there = did_you_mean(best, names) or f"give one of {listed(names)}"
                yield (
                    ("steps", index, "best"),
                    f"is `best: {best}`, but no step before it gives this signal; {there}",
                )
            for signal in step.signals:
                if signal.name in (*names, *DOCUMENT_COLUMNS) and step.base_name not in steps[:index]:
                    yield (
                        ("steps", index),
                        f"`{step.step}` gives the signal {signal.name}, but there is a column of that name; "
                        "rename the signal",
                    )
            names += [signal.name for signal in step.signals]
        yield from column_problems(self.steps, self.sources)
        yield from self._of_own_columns(names)
        if self.mixture and not any(source.read_columns.every for source in self.sources):
            yield from self._of_groups(self.mixture, names)

    def _of_groups(self, mixture: Mixture, signals: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        there = (*signals, *self._own_columns, *DOCUMENT_COLUMNS)
        for column in (*mixture.by, *([Column(column=CLUSTER_SIZE)] if mixture.rehydrate else [])):
            try:
                missing = [name for name in column.reads(there) if name not in there]
            except ExpressionError as error:
                yield (
                    ("mixture",),
                    f"groups documents by {column.column}, which is neither a column nor a valid expression: {error}",
                )
                continue
            if missing:
                advice = "add the step that measures it, or add a column of a source to its `columns`"
                hint = did_you_mean(missing[0], [*there, *DERIVED]) or advice
                yield ("mixture",), f"groups documents by {missing[0]}, which no step measures; {hint}"

    @property
    def _own_columns(self) -> list[str]:
        return [name for source in self.sources for name, _ in source.read_columns.own]

    def _of_reads(self, index: int, step: Step, signals: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        if any(source.read_columns.every for source in self.sources):
            return  # the columns of its files are known when these are read
        there = {*signals, *self._own_columns, *(signal.name for signal in step.signals), *DOCUMENT_COLUMNS, "language"}
        for name in [name for name in _reads(step) if name not in there][:1]:
            what = f"`{step.step}` reads {name}, which no step before it measures; {_remedy(name)}"
            yield ("steps", index), what

    def _of_expression(self, index: int, step: Where, signals: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        if step.expression is None:
            yield ("steps", index), '`where` has neither `keep` nor `drop`; add one, such as `keep: "characters > 200"`'
        there = [*signals, *self._own_columns, *DOCUMENT_COLUMNS, *DERIVED]
        if any(source.read_columns.every for source in self.sources):
            return  # the columns of its files are known when these are read
        for name in step.columns:
            if name not in there:
                later = next(
                    (s.step for s in self.steps[index:] if name in [signal.name for signal in s.signals]), None
                )
                hint = did_you_mean(name, there) or f"the columns are {listed(dict.fromkeys(there))}"
                hint = f"the later step `{later}` measures it; move that step before this one" if later else hint
                yield (
                    ("steps", index, "drop" if step.keep is None else "keep"),
                    f"there is no column {name} here; {hint}",
                )

    def _of_own_columns(self, signals: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        for index, source in enumerate(self.sources):
            for name, theirs in source.read_columns.own:
                if name in signals:
                    yield (
                        ("sources", index, "columns"),
                        f"renames a column to {name}, which is also a signal of a step; choose another name, "
                        f"such as `columns: {{their_{name}: {theirs}}}`",
                    )

    def _of_sources(self) -> Iterator[tuple[KeyPath, str]]:
        names = [source.name for source in self.sources]
        wanted: list[tuple[KeyPath, str]] = []
        if self.mixture and self.mixture.by[0].column == SOURCE:
            wanted = [(("mixture", "weights", name), name.split("/")[0]) for name in self.mixture.weights]
            others = (name for name in self.mixture.named if name not in self.mixture.weights)
            wanted += [(("mixture",), name.split("/")[0]) for name in others]
        for index, step in enumerate(self.steps):
            reference = getattr(step, "reference", ())
            for key in ("reference", "against", "only", "except"):
                wanted += [(("steps", index, key), name) for name in getattr(step, key, None) or ()]
            if reference and set(names) <= set(reference):
                yield (
                    ("steps", index, "reference"),
                    f"is {listed(reference)}, which are all sources, so there is nothing to score: add a source",
                )
        for path, name in wanted:
            if name not in names:
                hint = did_you_mean(name, names) or f"the sources are {listed(names)}"
                yield path, f"no source is called {name}; {hint}"
        for index, step in enumerate(self.steps):
            yield from source_problems(index, step, self.sources)

    def _of_objective(self) -> Iterator[tuple[KeyPath, str]]:
        if self.training.objective == "causal":
            return
        try:
            own_tokens(self.training, self.model.seq_len)
        except ValueError as error:
            yield ("model", "seq_len"), f"{error}".removeprefix("model.seq_len ")
        if self.mixture and self.mixture.packing != "concatenate":
            yield (
                ("mixture", "packing"),
                f"is {self.mixture.packing}, but training.objective {self.training.objective} does not read "
                "packed rows; remove it",
            )

    def trained_tokenizer(self) -> Tokenizer:
        """The recipe's tokenizer, with the symbols that the training objective and fill-in-the-middle need. The rate of
        fill-in-the-middle does not affect the tokenizer."""
        own = (
            *own_tokens(self.training, self.model.seq_len),
            *(self.tokenizer.fim.tokens if self.tokenizer.fim else ()),
        )
        symbols = tuple(dict.fromkeys((*self.tokenizer.symbols, *own)))
        return self.tokenizer.model_copy(update={"symbols": symbols, "fim": None})

    def training_mixture(self) -> Mixture:
        """The mixture. Raises ValueError for a recipe without one, because it cannot be trained."""
        if self.mixture is None:
            weights = ", ".join(f"{source.name}: 1" for source in self.sources)
            raise ValueError(
                f"the recipe {self.name} has no `mixture`, which tokens and training need: add `mixture: "
                f"{{weights: {{{weights}}}}}`, or run only the corpus with `gristmill corpus`"
            )
        return self.mixture

    @property
    def heldout_fraction(self) -> float:
        """The share of documents that no training uses. The default without a mixture, so that adding one later does
        not make the models of learned filters again."""
        return self.mixture.heldout_fraction if self.mixture else Mixture.model_fields["heldout_fraction"].default

    @property
    def heldout_documents(self) -> int:
        """The approximate maximum per source. The default without a mixture."""
        return self.mixture.heldout_documents if self.mixture else Mixture.model_fields["heldout_documents"].default

    @property
    def before(self) -> tuple[Url, ...]:
        """The steps before the extraction."""
        return tuple(step for step in self.steps[: self._extracted] if isinstance(step, Url))

    @property
    def extract(self) -> Extract:
        """The extraction step, or its defaults, because records of tables and text files already have their text."""
        return next((step for step in self.steps if isinstance(step, Extract)), Extract())

    @property
    def _extracted(self) -> int:
        """The index of the first step after the extraction. Without one, of the first step after an initial `url`."""
        for index, step in enumerate(self.steps):
            if isinstance(step, Extract):
                return index + 1
        return int(bool(self.steps) and isinstance(self.steps[0], Url))

    @property
    def normalize(self) -> Normalize | None:
        return next((step for step in self.steps if isinstance(step, Normalize)), None)

    @property
    def after(self) -> tuple:
        """The steps on documents, after the extraction and the normalization."""
        return self.steps[self._extracted + (self.normalize is not None) :]

    @property
    def choosing(self) -> tuple[DocumentStep, ...]:
        """The document steps directly after the extraction, if the engine `union` uses them to choose texts."""
        behind = takewhile(lambda step: isinstance(step, DocumentStep), self.after)
        return tuple(behind) if self.extract.engine == UNION else ()


_LARGEST = 2**63 - 1


def _huge_numbers(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Integers that are too large for tables and libraries."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        yield path, f"is {shown(value)}; give a number of at most {_LARGEST:,}"
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _huge_numbers(each, (*path, key))
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _huge_numbers(each, (*path, index))


def _remedy(signal: str) -> str:
    """The origin of a missing column: the shipped step that measures it, or the files of a source."""
    names = [f"`{name}`" for name, kind in document_steps().items() if signal in [each.name for each in kind.signals]]
    if step := " or ".join(names) or ADVICE.get(signal):
        return f"add {step} before it"
    return "add the step that gives it before it, or list a column of a source in its `columns`"


def _reads(step: Step) -> tuple[str, ...]:
    return step.reads if isinstance(step, DocumentStep | CorpusStep) else ()


def load(recipe: Any) -> Recipe:
    """Load a recipe from a YAML file, the name of a shipped one (`demo` or `demo.yaml`), a mapping, or a Recipe.

    Raises FileNotFoundError, which lists the shipped recipes, or RecipeError with a line per problem.
    """
    if isinstance(recipe, Recipe):
        return recipe
    return validated(*read(recipe))


def argument_of(recipe: Any) -> str:
    """A recipe as an argument of a command: its name or path, quoted for a shell; RECIPE if it is not in a file."""
    return shlex.quote(f"{recipe}") if isinstance(recipe, str | Path) else "RECIPE"


def read(recipe: Any) -> tuple[Any, Origin]:
    """The values of a recipe, given as for `load`, before validation. Raises as `load` does."""
    return settings_file.read(recipe, RECIPES, "recipe")


def validated(data: Any, origin: Origin) -> Recipe:
    """The recipe with these values. Raises RecipeError with a line per problem."""
    return settings_file.validated(Recipe, data, origin, "recipe", "name, sources and steps")


def dump(recipe: Recipe) -> str:
    """The recipe as YAML with all defaults."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
