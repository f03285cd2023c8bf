"""The recipe: everything that decides what comes out, in one file that reads from top to bottom."""

from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, model_validator

from flows.steps import AnyStep
from tasks.documents.export import Export
from tasks.documents.normalize import Normalize
from tasks.documents.step import DOCUMENT_COLUMNS, DocumentStep, Settings, Step
from tasks.extraction.extract import Extract
from tasks.reading.sources import Source
from tasks.tokens.mixture import Mixture
from tasks.tokens.tokenizer import Tokenizer
from tasks.url.step import Url
from training.config import ModelConfig, TrainingConfig

RECIPES = Path(__file__).with_name("recipes")


class Recipe(Settings):
    """Sources, an ordered list of steps, tokenizer, mixture, model and training. Unknown keys are an error."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", description="also the name of the MLflow experiment")
    seed: int = Field(
        1, ge=0, description="of the held-out split and the tokenizer's sample; steps and training have own"
    )
    sources: tuple[Source, ...] = Field(min_length=1)
    steps: tuple[AnyStep, ...] = Field(
        min_length=1,
        description="run in this order; only `url` may come before `extract`, and `normalize` only right after it",
    )
    tokenizer: Tokenizer = Tokenizer()
    mixture: Mixture | None = Field(None, description="what is trained on; a corpus needs none")
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    export: Export | None = Field(None, description="the curated documents as files for others, once they are made")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [source.name for source in self.sources]
        steps = [step.step for step in self.steps]
        if twice := sorted({n for n in names if names.count(n) > 1} | {s for s in steps if steps.count(s) > 1}):
            raise ValueError(f"named more than once: {', '.join(twice)}")
        if "extract" not in steps:
            raise ValueError(f"there is no step `extract`; the steps are {', '.join(steps)}")
        at = steps.index("extract")
        if early := [step for step in steps[:at] if step != "url"]:
            raise ValueError(f"only `url` may come before `extract`, here `{early[0]}` does")
        if "normalize" in steps and steps.index("normalize") != at + 1:
            raise ValueError("`normalize` changes the text that all other steps see: put it right after `extract`")
        for at, step in enumerate(self.steps):
            if "language" not in steps[:at] and (getattr(step, "languages", None) or "language" in _reads(step)):
                raise ValueError(f"`{step.step}` has settings by language: put the step `language` before it")
            known = [signal.name for before in self.steps[:at] for signal in before.signals]
            best = getattr(step, "best", None)
            if best is not None and best not in known:
                there = ", ".join(known) or "none"
                raise ValueError(f"`{step.step}` has `best: {best}`, but the signals before it are {there}")
            for signal in step.signals:
                if signal.name in (*known, *DOCUMENT_COLUMNS):
                    raise ValueError(
                        f"`{step.step}` gives the signal {signal.name}, but there is a column of that name"
                    )
        wanted = set(self.mixture.weights) if self.mixture else set()
        for step in self.steps:
            wanted.update(getattr(step, "reference", ()))
        if missing := sorted(wanted - set(names)):
            raise ValueError(f"no source is called {', '.join(missing)}; the sources are {', '.join(names)}")
        return self

    def training_mixture(self) -> Mixture:
        """The mixture. Raises ValueError for a recipe without one, from which nothing can be trained."""
        if self.mixture is None:
            weights = ", ".join(f"{source.name}: 1" for source in self.sources)
            raise ValueError(
                f"the recipe {self.name} has no `mixture`, which tokens and training need: add "
                f"`mixture: {{weights: {{{weights}}}}}`, or make its corpus alone by `gristmill corpus`"
            )
        return self.mixture

    @property
    def heldout_fraction(self) -> float:
        """Of the documents that no training sees. Without a mixture the default, so that one that is added later finds
        the models of learned filters made."""
        return self.mixture.heldout_fraction if self.mixture else Mixture.model_fields["heldout_fraction"].default

    @property
    def before(self) -> tuple[Url, ...]:
        """The steps ahead of the extraction."""
        return tuple(step for step in self.steps[: self.steps.index(self.extract)] if isinstance(step, Url))

    @property
    def extract(self) -> Extract:
        return next(step for step in self.steps if isinstance(step, Extract))

    @property
    def normalize(self) -> Normalize | None:
        return next((step for step in self.steps if isinstance(step, Normalize)), None)

    @property
    def after(self) -> tuple:
        """The steps on documents: those behind the extraction and the normalisation."""
        return self.steps[self.steps.index(self.normalize or self.extract) + 1 :]


def _reads(step: Step) -> tuple[str, ...]:
    return step.reads if isinstance(step, DocumentStep) else ()


def load(recipe: Any) -> Recipe:
    """A recipe from a YAML file, the name of a shipped one (`demo` or `demo.yaml`), a mapping, or a Recipe.

    Raises FileNotFoundError, which lists the shipped recipes, or pydantic's ValidationError.
    """
    if isinstance(recipe, str | Path):
        path = Path(recipe)
        shipped = RECIPES / f"{path.name.removesuffix('.yaml')}.yaml"
        if not path.is_file() and str(path) == path.name and shipped.is_file():
            path = shipped
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in RECIPES.glob("*.yaml")))
            raise FileNotFoundError(f"no recipe file {recipe}, and none shipped by that name (there are: {known})")
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Recipe.model_validate(recipe)


def dump(recipe: Recipe) -> str:
    """The recipe as YAML, complete with all defaults."""
    return yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=100)
